// JSON as it is written: escapes, UTF-8, commas.
#include <catch2/catch_test_macros.hpp>

#include "daemon/json.h"

namespace weir::json {
namespace {

std::string as_json(std::string_view text) {
  std::string out;
  append_string(out, text);
  return out;
}

}  // namespace

TEST_CASE("what must be escaped is, and nothing else") {
  CHECK(as_json("") == "\"\"");
  CHECK(as_json("plain /text' <&>") == "\"plain /text' <&>\"");
  CHECK(as_json("a\"b\\c") == R"("a\"b\\c")");
  CHECK(as_json("\n\r\t") == R"("\n\r\t")");
  CHECK(as_json(std::string_view("\0\x01\x1f\x7f", 4)) == R"("\u0000\u0001\u001f\u007f")");
  for (int c = 0x20; c < 0x7f; ++c) {
    if (c == '"' || c == '\\') continue;
    CHECK(as_json(std::string(1, static_cast<char>(c))) == '"' + std::string(1, static_cast<char>(c)) + '"');
  }
}

TEST_CASE("well-formed UTF-8 passes; each byte that is not is replaced") {
  for (const char* good : {"\xc2\x80", "\xdf\xbf", "\xe0\xa0\x80", "\xed\x9f\xbf", "\xee\x80\x80", "\xef\xbf\xbf", "\xf0\x90\x80\x80",
                           "\xf4\x8f\xbf\xbf", "gr\xc3\xbc\xc3\x9f\xe2\x82\xac"})
    CHECK(as_json(good) == '"' + std::string(good) + '"');
  const std::string r = "\\ufffd";
  CHECK(as_json("\x80") == '"' + r + '"');
  CHECK(as_json("\xc0\xaf") == '"' + r + r + '"');             // overlong
  CHECK(as_json("\xe0\x80\xaf") == '"' + r + r + r + '"');
  CHECK(as_json("\xed\xa0\x80") == '"' + r + r + r + '"');     // a surrogate
  CHECK(as_json("\xf4\x90\x80\x80") == '"' + r + r + r + r + '"');
  CHECK(as_json("\xf5") == '"' + r + '"');
  CHECK(as_json("\xc3") == '"' + r + '"');                     // cut off
  CHECK(as_json("\xe2\x82") == '"' + r + r + '"');
  CHECK(as_json("\xc3(") == '"' + r + "(\"");
}

TEST_CASE("commas stand between values, and nowhere else") {
  Writer w;
  w.object().member("a", 1u).member("b", true).key("c").array();
  w.value("x").value(uint64_t{18446744073709551615u}).object().end_object().array().end_array().end_array();
  w.key("d").object().member("e", "f").end_object().member("g", -1).end_object();
  CHECK(w.text() == R"({"a":1,"b":true,"c":["x",18446744073709551615,{},[]],"d":{"e":"f"},"g":-1})");
}

}  // namespace weir::json

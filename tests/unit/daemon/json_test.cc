// JSON as it is written: escapes, UTF-8, commas.
#include <catch2/catch_test_macros.hpp>

#include "daemon/json.h"

namespace weir::json {
namespace {

std::string quoted(std::string_view text) {
  std::string out;
  append_string(out, text);
  return out;
}

}  // namespace

TEST_CASE("what must be escaped is, and nothing else") {
  CHECK(quoted("") == "\"\"");
  CHECK(quoted("plain /text' <&>") == "\"plain /text' <&>\"");
  CHECK(quoted("a\"b\\c") == R"("a\"b\\c")");
  CHECK(quoted("\n\r\t") == R"("\n\r\t")");
  CHECK(quoted(std::string_view("\0\x01\x1f\x7f", 4)) == R"("\u0000\u0001\u001f\u007f")");
  for (int c = 0x20; c < 0x7f; ++c) {
    if (c == '"' || c == '\\') continue;
    CHECK(quoted(std::string(1, static_cast<char>(c))) == '"' + std::string(1, static_cast<char>(c)) + '"');
  }
}

TEST_CASE("well-formed UTF-8 passes; each byte that is not is replaced") {
  for (const char* good : {"\xc2\x80", "\xdf\xbf", "\xe0\xa0\x80", "\xed\x9f\xbf", "\xee\x80\x80", "\xef\xbf\xbf", "\xf0\x90\x80\x80",
                           "\xf4\x8f\xbf\xbf", "gr\xc3\xbc\xc3\x9f\xe2\x82\xac"})
    CHECK(quoted(good) == '"' + std::string(good) + '"');
  const std::string r = "\\ufffd";
  CHECK(quoted("\x80") == '"' + r + '"');
  CHECK(quoted("\xc0\xaf") == '"' + r + r + '"');             // overlong
  CHECK(quoted("\xe0\x80\xaf") == '"' + r + r + r + '"');
  CHECK(quoted("\xed\xa0\x80") == '"' + r + r + r + '"');     // a surrogate
  CHECK(quoted("\xf4\x90\x80\x80") == '"' + r + r + r + r + '"');
  CHECK(quoted("\xf5") == '"' + r + '"');
  CHECK(quoted("\xc3") == '"' + r + '"');                     // cut off
  CHECK(quoted("\xe2\x82") == '"' + r + r + '"');
  CHECK(quoted("\xc3(") == '"' + r + "(\"");
}

TEST_CASE("commas stand between values, and nowhere else") {
  Writer w;
  w.object().member("a", 1u).member("b", true).key("c").array();
  w.value("x").value(uint64_t{18446744073709551615u}).object().end_object().array().end_array().end_array();
  w.key("d").object().member("e", "f").end_object().member("g", -1).end_object();
  CHECK(w.text() == R"({"a":1,"b":true,"c":["x",18446744073709551615,{},[]],"d":{"e":"f"},"g":-1})");
}

}  // namespace weir::json

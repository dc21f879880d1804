#include "daemon/json_value.h"

#include <catch2/catch_test_macros.hpp>

#include "daemon/json.h"

using weir::json::Value;

TEST_CASE("json: a document and what is in it", "[json]") {
  const auto doc = Value::parse(R"( {"a": [1, -2.5e3, true, false, null], "b": {"c": "x\n\"\u00e9\ud83d\ude00\/"}, "": ""} )");
  REQUIRE(doc);
  const auto& items = doc->at("a").items();
  REQUIRE(items.size() == 5);
  CHECK(items[0].number() == 1);
  CHECK(items[1].number() == -2500);
  CHECK(items[1].text() == "-2.5e3");
  CHECK((items[2].truth() && !items[3].truth()));
  CHECK(items[4].is(Value::Kind::null));
  CHECK(doc->at("b").at("c").text() == "x\n\"\xc3\xa9\xf0\x9f\x98\x80/");
  CHECK(doc->find("") != nullptr);
  CHECK(doc->find("z") == nullptr);
  CHECK(doc->at("z").at("deeper").is(Value::Kind::null));
  CHECK(doc->members().size() == 3);
}

TEST_CASE("json: what is malformed is refused whole", "[json]") {
  for (const char* bad : {"", " ", "{", "}", "[1,]", "[1 2]", "{\"a\"}", "{\"a\":}", "{\"a\":1,}", "{a:1}", "{\"a\":1,\"a\":2}", "01", "-",
                          "1.", ".5", "1e", "+1", "nul", "truex", "\"", "\"\\x\"", "\"\\u12\"", "\"\\ud800\"", "\"\\udc00\"",
                          "\"\\ud800\\u0041\"", "\"a\nb\"", "1 2", "[1]]", "'a'", "NaN"}) {
    INFO(bad);
    CHECK_FALSE(Value::parse(bad));
  }
  CHECK_FALSE(Value::parse(std::string(1000, '[') + std::string(1000, ']')));
  CHECK(Value::parse(std::string(60, '[') + std::string(60, ']')));
}

TEST_CASE("json: an object has a bounded number of members, a list has not", "[json]") {
  const auto object = [](size_t members) {
    std::string text;
    for (size_t i = 0; i < members; ++i) text += (i == 0 ? "" : ",") + ('"' + std::to_string(i)) + "\":1";
    return '{' + text + '}';
  };
  REQUIRE(Value::parse(object(weir::json::kMembersMax)));
  CHECK(Value::parse(object(weir::json::kMembersMax))->members().size() == weir::json::kMembersMax);
  CHECK_FALSE(Value::parse(object(weir::json::kMembersMax + 1)));
  CHECK(Value::parse("[" + object(64) + "," + object(64) + "]"));
  std::string list = "[1";
  for (int i = 0; i < 10'000; ++i) list += ",1";
  CHECK(Value::parse(list + "]")->items().size() == 10'001);
}

TEST_CASE("json: what is written can be read", "[json]") {
  std::string every;
  for (int byte = 1; byte < 128; ++byte) every += static_cast<char>(byte);
  weir::json::Writer out;
  out.object().member("text", every).member("n", uint64_t{18'446'744'073'709'551'615u}).key("list").array();
  out.raw("{\"x\":1}").value(true).end_array().end_object();
  const auto read = Value::parse(out.text());
  REQUIRE(read);
  CHECK(read->at("text").text() == every);
  CHECK(read->at("n").text() == "18446744073709551615");
  CHECK(read->at("list").items()[0].at("x").number() == 1);
  CHECK(read->at("list").items()[1].truth());
}

TEST_CASE("json: scalars as a person writes them", "[json]") {
  CHECK(Value::parse("true")->plain() == "yes");
  CHECK(Value::parse("12")->plain() == "12");
  CHECK(Value::parse("\"a\"")->plain() == "a");
  CHECK(Value::parse("null")->plain() == "-");
}

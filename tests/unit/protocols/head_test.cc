#include "protocols/exchange/head.h"

#include <catch2/catch_test_macros.hpp>
#include <cctype>
#include <memory>
#include <string>

using namespace weir;

TEST_CASE("field_id finds every known name in any case, and nothing else", "[head]") {
  CHECK(field_name(FieldId::other).empty());
  for (int i = 1; i < static_cast<int>(FieldId::kCount); ++i) {
    const auto id = static_cast<FieldId>(i);
    const std::string name(field_name(id));
    INFO(name);
    REQUIRE_FALSE(name.empty());
    CHECK(field_id(name) == id);
    std::string upper = name;
    for (char& c : upper) c = static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
    CHECK(field_id(upper) == id);
    std::string mixed = name;
    for (size_t k = 0; k < mixed.size(); k += 3) mixed[k] = upper[k];
    CHECK(field_id(mixed) == id);
    CHECK(field_id(name + "x") == FieldId::other);
    CHECK(field_id("x" + name) == FieldId::other);
    CHECK(field_id(name.substr(1)) == FieldId::other);
    CHECK(field_id(name.substr(0, name.size() - 1)) == FieldId::other);
  }
  CHECK(field_id("") == FieldId::other);
  CHECK(field_id(std::string(4096, 'a')) == FieldId::other);
}

TEST_CASE("field_id folds letters only: one wrong byte anywhere is another name", "[head]") {
  int wrong = 0;
  for (int i = 1; i < static_cast<int>(FieldId::kCount); ++i) {
    const auto id = static_cast<FieldId>(i);
    const std::string name(field_name(id));
    for (size_t at = 0; at < name.size(); ++at) {
      for (int byte = 0; byte < 256; ++byte) {
        std::string other = name;
        other[at] = static_cast<char>(byte);
        const bool same = byte < 128 && std::tolower(byte) == name[at];
        if ((field_id(other) == id) != same) ++wrong;
      }
    }
  }
  CHECK(wrong == 0);
}

TEST_CASE("methods are case-sensitive and unknown ones are passed on", "[head]") {
  struct Row { const char* text; Method method; bool idempotent; };
  const Row rows[] = {{"GET", Method::get, true},       {"HEAD", Method::head, true},       {"POST", Method::post, false},
                      {"PUT", Method::put, true},       {"DELETE", Method::del, true},      {"PATCH", Method::patch, false},
                      {"OPTIONS", Method::options, true}, {"CONNECT", Method::connect, false}, {"TRACE", Method::trace, true},
                      {"get", Method::other, false},    {"PROPFIND", Method::other, false}, {"", Method::other, false},
                      {"GEt", Method::other, false},    {"DELETED", Method::other, false}};
  for (const Row& row : rows) {
    INFO(row.text);
    CHECK(method_of(row.text) == row.method);
    CHECK(method_idempotent(row.method) == row.idempotent);
  }
}

TEST_CASE("a head finds, adds up to its table's size, and is empty after reset", "[head]") {
  auto head = std::make_unique<Head>();
  CHECK(head->find(FieldId::host) == nullptr);
  REQUIRE(head->add(FieldId::via, "via", "a"));
  REQUIRE(head->add(FieldId::via, "via", "b"));
  REQUIRE(head->add(field_id("X-Request-ID"), "X-Request-ID", "42"));
  CHECK(head->find(FieldId::via)->value_view() == "a");
  head->fields[0].removed = true;
  CHECK(head->find(FieldId::via)->value_view() == "b");
  CHECK_FALSE(head->fields[0].forwarded());
  CHECK(head->find(FieldId::x_request_id)->name_view() == "X-Request-ID");
  CHECK(head->find(FieldId::date) == nullptr);
  while (head->field_count < kFieldsMax) REQUIRE(head->add(FieldId::other, "n", "v"));
  CHECK_FALSE(head->add(FieldId::other, "n", "v"));
  CHECK(head->field_count == kFieldsMax);

  head->method = Method::post;
  head->status = 200;
  head->body = BodyKind::length;
  head->content_length = 7;
  head->has_length = head->expect_continue = head->te_trailers = head->absolute_form = true;
  head->keep_alive = false;
  head->path = "/a";
  MemoryLease lease(nullptr);
  head->big = take_bytes(lease, 10);
  head->reset();
  const auto fresh_head = std::make_unique<Head>();
  const Head& fresh = *fresh_head;
  CHECK(head->begin() == head->end());
  CHECK(head->method == fresh.method);
  CHECK(head->status == fresh.status);
  CHECK(head->body == fresh.body);
  CHECK(head->content_length == 0);
  CHECK_FALSE(head->has_length);
  CHECK(head->keep_alive);
  CHECK_FALSE((head->expect_continue || head->te_trailers || head->absolute_form));
  CHECK(head->path.empty());
  CHECK(head->big == nullptr);
}

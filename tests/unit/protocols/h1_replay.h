// Replays one head through the h1 parser: whole, cut at every point, and byte by byte, each time in memory of exactly
// that size at another address. The verdict, its offset and the head must be the same each time, and every prefix must
// give what it gives alone.
#pragma once

#include <cstring>
#include <memory>
#include <string>
#include <string_view>

#include <catch2/catch_test_macros.hpp>

#include "protocols/h1/parser.h"

namespace weir::h1::test {

enum class Kind { request, response, head_response, connect_response, trailers };

// What a parse said, as text, so that a difference shows itself.
struct Outcome {
  ParseResult result;
  std::string head;
  friend bool operator==(const Outcome& a, const Outcome& b) {
    return a.result.state == b.result.state && a.result.what == b.result.what &&
           a.result.consumed == b.result.consumed && a.result.at == b.result.at && a.head == b.head;
  }
};

inline std::string describe(const Head& head, Kind kind) {
  std::string text;
  const auto add = [&text](std::string_view part) { text.append(part).append("|"); };
  if (kind == Kind::request) {
    add(head.method_text), add(head.scheme), add(head.authority), add(head.path);
    add(std::to_string(static_cast<int>(head.method)));
  } else if (kind != Kind::trailers) {
    add(std::to_string(head.status)), add(head.reason);
  }
  if (kind != Kind::trailers) {
    add(std::to_string(static_cast<int>(head.version)) + std::to_string(static_cast<int>(head.body)));
    add(std::to_string(head.content_length));
    add(std::string(head.has_length ? "L" : "") + (head.keep_alive ? "K" : "") + (head.expect_continue ? "E" : "") +
        (head.te_trailers ? "T" : "") + (head.absolute_form ? "A" : ""));
  }
  for (const Field& field : head) {
    add(field.name_view()), add(field.value_view());
    add(std::string(field.hop ? "h" : "") + (field.raw_line ? "r" : "") + (field.removed ? "x" : "") +
        std::to_string(field.line_pad) + "," + std::to_string(static_cast<int>(field.id)));
  }
  return text;
}

inline ParseResult parse_once(Kind kind, const char* data, size_t size, size_t& scanned, const HeadLimits& limits,
                              Head& head) {
  switch (kind) {
    case Kind::request: return parse_request_head(data, size, scanned, limits, head);
    case Kind::response: return parse_response_head(data, size, scanned, limits, Method::get, head);
    case Kind::head_response: return parse_response_head(data, size, scanned, limits, Method::head, head);
    case Kind::connect_response: return parse_response_head(data, size, scanned, limits, Method::connect, head);
    case Kind::trailers: return parse_trailers(data, size, scanned, limits, head);
  }
  return {};
}

// A call on the first `size` bytes, in memory of its own.
inline Outcome feed(Kind kind, std::string_view bytes, size_t size, size_t& scanned, const HeadLimits& limits,
                    Head& head) {
  const std::unique_ptr<char[]> copy(new char[size]);
  std::memcpy(copy.get(), bytes.data(), size);
  Outcome outcome{parse_once(kind, copy.get(), size, scanned, limits, head), {}};
  if (outcome.result.state == Parse::done) outcome.head = describe(head, kind);
  return outcome;
}

inline Outcome replay(Kind kind, std::string_view bytes, const HeadLimits& limits = {}) {
  const auto head = std::make_unique<Head>();
  size_t fresh = 0;
  const Outcome whole = feed(kind, bytes, bytes.size(), fresh, limits, *head);
  size_t growing = 0;
  bool decided = false;
  for (size_t size = 0; size <= bytes.size(); ++size) {
    INFO("first " << size << " of " << bytes.size() << " bytes");
    size_t alone = 0;
    const Outcome prefix = feed(kind, bytes, size, alone, limits, *head);
    if (decided || prefix.result.state != Parse::need_more) REQUIRE(prefix == whole);
    if (!decided) REQUIRE(feed(kind, bytes, size, growing, limits, *head) == prefix);  // byte by byte
    decided = decided || prefix.result.state != Parse::need_more;
    if (prefix.result.state == Parse::need_more)
      REQUIRE(feed(kind, bytes, bytes.size(), alone, limits, *head) == whole);
  }
  // The caller's head is filled again: the views of the last feed point into memory that is gone.
  fresh = 0;
  return feed(kind, bytes, bytes.size(), fresh, limits, *head);
}

}  // namespace weir::h1::test

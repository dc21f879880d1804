#include "protocols/h1/semantics.h"

#include "protocols/h1/chars.h"

namespace weir::h1 {
namespace {

// A peer's Connection field cannot take these out: they carry framing and routing, or what a proxy in front of us
// vouches for (RFC 9110 section 7.6.1 forbids naming fields that are meant for all recipients).
constexpr uint64_t kProtectedFields = field_bit(FieldId::host) | field_bit(FieldId::content_length) |
                                      field_bit(FieldId::x_forwarded_for) | field_bit(FieldId::x_forwarded_proto) |
                                      field_bit(FieldId::x_forwarded_host) | field_bit(FieldId::forwarded) |
                                      field_bit(FieldId::via) | field_bit(FieldId::x_request_id) |
                                      field_bit(FieldId::early_data) | field_bit(FieldId::proxy_status);

// More options than any peer needs; each may cost a walk over all fields.
constexpr unsigned kConnectionOptionsMax = 64;

// Of the fields we know, those that may stand in a trailer section; and by name, some that we have no id for and may
// not.
constexpr uint64_t kTrailerFields =
    field_bit(FieldId::other) | field_bit(FieldId::etag) | field_bit(FieldId::proxy_status);
constexpr std::string_view kNoTrailers[] = {"max-forwards",
                                            "www-authenticate",
                                            "age",
                                            "expires",
                                            "retry-after",
                                            "if-match",
                                            "if-none-match",
                                            "if-range",
                                            "if-modified-since",
                                            "if-unmodified-since",
                                            "pragma",
                                            "warning",
                                            "authentication-info",
                                            "proxy-authentication-info",
                                            "content-disposition"};

Verdict fault(What what, const char* at) noexcept { return Verdict{what, at}; }

// Takes the next element off a comma-separated list, blanks around it removed; it may be empty (RFC 9110
// section 5.6.1).
std::string_view next_element(std::string_view& list) noexcept {
  const size_t comma = list.find(',');
  std::string_view element = list.substr(0, comma);
  list = comma == std::string_view::npos ? std::string_view() : list.substr(comma + 1);
  while (!element.empty() && is_blank(element.front())) element.remove_prefix(1);
  while (!element.empty() && is_blank(element.back())) element.remove_suffix(1);
  return element;
}

struct Options {
  bool close = false;
  bool keep_alive = false;
  bool upgrade = false;
  unsigned named = 0;
};

void mark_named(Head& head, const Seen& seen, std::string_view name) noexcept {
  const FieldId id = field_id(name);
  if (id == FieldId::other) {
    for (Field& field : head)
      if (field.id == FieldId::other && field.name_size == name.size() && equal_ignoring_case(field.name_view(), name))
        field.hop = true;
  } else if (seen.has(id) && (field_bit(id) & kProtectedFields) == 0) {
    for (Field& field : head)
      if (field.id == id) field.hop = true;
  }
}

// One Connection field. Nearly all of them are one of two words. false: it holds something that is no token, or too
// many options.
bool read_options(Head& head, const Seen& seen, std::string_view list, Options& options) noexcept {
  if (list == "keep-alive") {
    options.keep_alive = true;
    return true;
  }
  if (list == "close") {
    options.close = true;
    return true;
  }
  while (!list.empty()) {
    const std::string_view option = next_element(list);
    if (option.empty()) continue;
    if (!is_token(option)) return false;
    if (equal_ignoring_case(option, "close")) {
      options.close = true;
    } else if (equal_ignoring_case(option, "keep-alive")) {
      options.keep_alive = true;
    } else {
      if (++options.named > kConnectionOptionsMax) return false;
      if (equal_ignoring_case(option, "upgrade")) options.upgrade = true;
      mark_named(head, seen, option);
    }
  }
  return true;
}

// Upgrade counts only where Connection names it and not from HTTP/1.0. HTTP/2 in plain text and TLS are offers that a server may
// pass over: such a request is served as it is.
[[gnu::cold]] void read_upgrade(Head& head) noexcept {
  for (const Field& field : head) {
    if (field.id != FieldId::upgrade) continue;
    std::string_view list = field.value_view();
    while (!list.empty()) {
      const std::string_view protocol = next_element(list);
      const std::string_view name = protocol.substr(0, protocol.find('/'));
      if (name.empty() || equal_ignoring_case(name, "h2c") || equal_ignoring_case(name, "tls") ||
          equal_ignoring_case(protocol, "http/2.0"))
        continue;
      if (equal_ignoring_case(name, "websocket")) head.upgrade = Upgrade::websocket;
      else if (head.upgrade == Upgrade::none) head.upgrade = Upgrade::other;
    }
  }
}

Verdict decide_keep_alive(Head& head, const Seen& seen, What what) noexcept {
  Options options;
  if (seen.has(FieldId::connection)) {
    for (uint16_t i = seen.twice(FieldId::connection) ? 0 : seen.where(FieldId::connection); i < head.field_count;
         ++i) {
      const Field& field = head.fields[i];
      if (field.id != FieldId::connection) continue;
      if (!read_options(head, seen, field.value_view(), options)) return fault(what, field.name);
      if (!seen.twice(FieldId::connection)) break;
    }
  }
  if (options.upgrade && seen.has(FieldId::upgrade) && head.version != Version::http10) [[unlikely]]
    read_upgrade(head);
  head.keep_alive = !options.close && (head.version != Version::http10 || options.keep_alive);
  return Verdict();
}

Verdict decide_host(Head& head, const Seen& seen) noexcept {
  if (!seen.has(FieldId::host)) return head.version == Version::http10 ? Verdict() : fault(What::bad_host, nullptr);
  const Field& host = head.fields[seen.where(FieldId::host)];
  if (seen.twice(FieldId::host)) return fault(What::bad_host, host.name);
  if (!is_host(host.value_view(), false, host.name)) return fault(What::bad_host, host.value);
  if (head.authority.empty()) {
    head.authority = host.value_view();
    head.target_plain = head.target_plain && host_is_plain(head.method_text.data(), head.authority);
  } else if (!equal_ignoring_case(head.authority, host.value_view())) {
    return fault(What::bad_host, host.value);  // the target names one host, Host another
  }
  return Verdict();
}

// The one transfer coding we take is chunked, once, alone, from an HTTP/1.1 peer, without a content-length beside it.
Verdict read_coding(Head& head, const Seen& seen, What what) noexcept {
  const Field& field = head.fields[seen.where(FieldId::transfer_encoding)];
  if (seen.twice(FieldId::transfer_encoding) || seen.has(FieldId::content_length) || head.version == Version::http10)
    return fault(what, field.name);
  if (!equal_ignoring_case(field.value_view(), "chunked")) return fault(what, field.value);
  head.body = BodyKind::chunked;
  return Verdict();
}

Verdict decide_request_body(Head& head, const Seen& seen) noexcept {
  if (seen.has(FieldId::transfer_encoding)) return read_coding(head, seen, What::bad_framing);
  if (seen.has(FieldId::content_length)) {
    const Field& field = head.fields[seen.where(FieldId::content_length)];
    if (seen.twice(FieldId::content_length)) return fault(What::bad_framing, field.name);
    if (!parse_decimal(field.value_view(), head.content_length)) return fault(What::bad_framing, field.value);
    head.has_length = true;
    head.body = BodyKind::length;
  }
  return Verdict();
}

// Repeated content-length fields of one value are one field (RFC 9112 section 6.3 lets a recipient do that); the others
// go.
Verdict read_response_length(Head& head, const Seen& seen) noexcept {
  const Field* first = nullptr;
  for (Field& field : head) {
    if (field.id != FieldId::content_length) continue;
    uint64_t length = 0;
    if (!parse_decimal(field.value_view(), length)) return fault(What::response_framing, field.value);
    if (first == nullptr) {
      first = &field;
      head.content_length = length;
    } else if (length != head.content_length) {
      return fault(What::response_framing, field.name);
    } else {
      field.removed = true;
    }
    if (!seen.twice(FieldId::content_length)) break;
  }
  head.has_length = true;
  return Verdict();
}

Verdict decide_response_body(Head& head, const Seen& seen, Method request) noexcept {
  const bool tunnel = request == Method::connect && head.status / 100 == 2;
  if (tunnel) return Verdict();  // whatever the framing fields say (RFC 9112 section 6.3, rule 2)
  if (seen.has(FieldId::transfer_encoding)) {
    if (const Verdict verdict = read_coding(head, seen, What::response_framing); !verdict.good()) return verdict;
  } else if (seen.has(FieldId::content_length)) {
    if (const Verdict verdict = read_response_length(head, seen); !verdict.good()) return verdict;
    head.body = BodyKind::length;
  } else {
    head.body = BodyKind::until_close;
  }
  if (head.status < 200 || head.status == 204) {
    // A body is announced where none can be: what follows is not to be trusted, so this connection is not used again.
    if (head.body == BodyKind::chunked || head.content_length != 0) head.keep_alive = false;
    head.body = BodyKind::none;
    head.has_length = false;
    head.content_length = 0;
  } else if (head.status == 304 || request == Method::head) {
    head.body = BodyKind::none;
  }
  if (head.body == BodyKind::until_close) head.keep_alive = false;
  return Verdict();
}

Verdict decide_expectation(Head& head, const Seen& seen) noexcept {
  const bool applies = head.version != Version::http10 && head.body != BodyKind::none;
  for (Field& field : head) {
    if (field.id != FieldId::expect) continue;
    if (head.version == Version::http10) {  // RFC 9110 section 10.1.1: ignored there
      field.hop = true;
      continue;
    }
    if (!equal_ignoring_case(field.value_view(), "100-continue")) return fault(What::expectation_failed, field.value);
    if (!applies) field.hop = true;  // nothing to continue with
    head.expect_continue = applies;
    if (!seen.twice(FieldId::expect)) break;
  }
  return Verdict();
}

void read_te(Head& head) noexcept {
  for (const Field& field : head) {
    if (field.id != FieldId::te) continue;
    std::string_view list = field.value_view();
    while (!list.empty())
      if (equal_ignoring_case(next_element(list), "trailers")) head.te_trailers = true;
  }
}

// "timeout=5, max=100" (RFC 2068 section 19.7.1.1); what cannot be read says nothing.
uint32_t keep_alive_seconds(std::string_view list) noexcept {
  constexpr std::string_view kTimeout = "timeout=";
  while (!list.empty()) {
    const std::string_view element = next_element(list);
    if (element.size() <= kTimeout.size() || !equal_ignoring_case(element.substr(0, kTimeout.size()), kTimeout)) continue;
    uint32_t seconds = 0;
    for (const char c : element.substr(kTimeout.size())) {
      if (c < '0' || c > '9' || seconds > 100'000'000) return UINT32_MAX;
      seconds = seconds * 10 + static_cast<uint32_t>(c - '0');
    }
    return seconds;
  }
  return UINT32_MAX;
}

}  // namespace

Verdict finish_request(Head& head, const Seen& seen) noexcept {
  if (const Verdict verdict = decide_host(head, seen); !verdict.good()) return verdict;
  if (const Verdict verdict = decide_request_body(head, seen); !verdict.good()) return verdict;
  if (const Verdict verdict = decide_keep_alive(head, seen, What::bad_header_field); !verdict.good()) return verdict;
  if (seen.has(FieldId::te)) read_te(head);
  if (seen.has(FieldId::expect)) return decide_expectation(head, seen);
  return Verdict();
}

Verdict finish_response(Head& head, const Seen& seen, Method request) noexcept {
  if (seen.has(FieldId::keep_alive)) {
    const Field& said = head.fields[seen.where(FieldId::keep_alive)];
    head.keep_alive_s = keep_alive_seconds(said.value_view());
  }
  if (const Verdict verdict = decide_keep_alive(head, seen, What::bad_response); !verdict.good()) return verdict;
  return decide_response_body(head, seen, request);
}

void finish_trailers(Head& trailers) noexcept {
  for (Field& field : trailers) {
    if ((field_bit(field.id) & kTrailerFields) == 0) field.removed = true;
    if (field.id != FieldId::other) continue;
    for (const std::string_view name : kNoTrailers)
      if (field.name_size == name.size() && equal_ignoring_case(field.name_view(), name)) field.removed = true;
  }
}

}  // namespace weir::h1

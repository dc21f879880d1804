// Head: one request or response head, free of any protocol's bytes-on-the-wire rules (RFC 9110). Codecs fill it and write it.
// Its views point into `backing` (or `big`, for a head above one slab) or into memory that outlives it (literals, config).
// Owner: an exchange (request) or the worker's scratch (response, trailers). Thread: the loop's own. Move-only, about 6 KiB.
// Field names compare case-insensitively; values have no leading or trailing blanks and no CR, LF or NUL.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string_view>

#include "engines/slice.h"

namespace weir {

enum class Method : uint8_t { get, head, post, put, del, patch, options, connect, trace, other };
enum class Version : uint8_t { http10, http11, http2, http3 };
// What a request asks to change to. Tokens that may be ignored (h2c, TLS) are none (RFC 9110 section 7.8).
enum class Upgrade : uint8_t { none, websocket, other };

// The fields that a proxy acts upon; all others are `other`.
enum class FieldId : uint8_t {
  other, connection, content_length, transfer_encoding, host, keep_alive, te, trailer, upgrade, expect, proxy_connection,
  proxy_authenticate, proxy_authorization, x_forwarded_for, x_forwarded_proto, x_forwarded_host, x_request_id, forwarded, via,
  date, server, content_type, content_encoding, accept_encoding, vary, etag, cache_control, location, user_agent, cookie,
  set_cookie, authorization, traceparent, tracestate, range, content_range, early_data, proxy_status, http2_settings, priority,
  sec_websocket_key, sec_websocket_accept, sec_websocket_version, sec_websocket_protocol, sec_websocket_extensions,
  kCount
};
FieldId field_id(std::string_view name) noexcept;                 // case-insensitive
std::string_view field_name(FieldId id) noexcept;                 // lower case

struct Field {
  const char* name;
  const char* value;
  uint32_t value_size;
  uint16_t name_size;
  FieldId id;
  bool hop : 1;        // hop-by-hop, or named by Connection: never forwarded (RFC 9110 section 7.6.1)
  bool raw_line : 1;   // name .. value + CRLF stand in one h1 line exactly as they may be sent again
  bool removed : 1;    // taken out by us (rewrites, forwarding fields)
  uint8_t line_pad : 5;  // raw_line only: bytes between the value's end and the CRLF (blanks), at most 31

  std::string_view name_view() const noexcept { return {name, name_size}; }
  std::string_view value_view() const noexcept { return {value, value_size}; }
  bool forwarded() const noexcept { return !hop && !removed; }
};

// What the head says about the body that follows (decided by the codec that read it; RFC 9112 section 6).
enum class BodyKind : uint8_t { none, length, chunked, until_close, streamed };  // streamed: h2 and h3 without a content-length

inline constexpr uint32_t kFieldsMax = 256;

// A field that we add while a head is written; both views live until the call returns.
struct ExtraField {
  std::string_view name;
  std::string_view value;
};

struct Head {
  Method method = Method::get;
  Version version = Version::http11;
  uint16_t status = 0;
  BodyKind body = BodyKind::none;
  bool keep_alive = true;         // h1: what the peer asked of this connection
  bool expect_continue = false;
  bool te_trailers = false;
  bool absolute_form = false;
  bool target_plain = false;      // the codec saw that path and authority are in the form of normalise_target
  Upgrade upgrade = Upgrade::none;
  uint16_t field_count = 0;
  uint64_t content_length = 0;    // valid when body == length; and in answers to HEAD and in 304s where has_length
  bool has_length = false;
  uint32_t keep_alive_s = UINT32_MAX;   // responses: `timeout` of Keep-Alive; UINT32_MAX: not said
  std::string_view method_text;
  std::string_view scheme;        // "http" or "https"
  std::string_view authority;     // host[:port]; as sent until normalise_target
  std::string_view path;          // origin-form with query ("/a?b"), "*" for OPTIONS; as sent until normalise_target
  std::string_view reason;        // h1 only
  Slice backing;
  LeasedBytes big;
  std::array<Field, kFieldsMax> fields;  // last: few of them are used, and the rest is never touched

  Field* begin() noexcept { return fields.data(); }
  Field* end() noexcept { return fields.data() + field_count; }
  const Field* begin() const noexcept { return fields.data(); }
  const Field* end() const noexcept { return fields.data() + field_count; }
  // First field of that id that is not removed; nullptr if none.
  const Field* find(FieldId id) const noexcept;
  // Appends a field whose memory outlives the head. false when the table is full.
  bool add(FieldId id, std::string_view name, std::string_view value) noexcept;
  void reset() noexcept;          // empty again; gives the memory back; touches no field entry
};

Method method_of(std::string_view text) noexcept;
bool method_idempotent(Method method) noexcept;   // RFC 9110 section 9.2.2

}  // namespace weir

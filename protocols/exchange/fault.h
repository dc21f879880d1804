// Fault: what went wrong, on whose side, and whether the request may be tried again. 8 bytes, passed by value.
// Peers cause faults; our own mistakes are asserts (engines/check.h). One table maps `what` to the HTTP status, the log level,
// the metric label and the Proxy-Status error token (RFC 9209 section 2.3); nobody picks a status by hand.
#pragma once

#include <cstdint>
#include <string_view>

namespace weir {

enum class What : uint8_t {
  none,
  // the client's message (RFC 9112, RFC 9110)
  bad_request_line, bad_header_field, bad_host, bad_framing, bad_chunk, bad_path, bad_version, bad_method,
  uri_too_long, head_too_large, too_many_fields, body_too_large, expectation_failed, upgrade_refused, misdirected,
  // time
  client_header_timeout, client_body_timeout, keepalive_timeout, write_timeout, stream_idle_timeout,
  connect_timeout, response_timeout, origin_body_timeout, origin_idle_timeout, linger_timeout,
  // the client's connection
  client_closed, client_reset, client_write_failed, client_protocol,
  // routing
  no_route, no_origin, origin_limit,
  // the origin's connection
  connect_failed, origin_closed, origin_reset, origin_write_failed, name_unresolved,
  // the origin's message
  bad_response, response_head_too_large, response_framing, response_short,
  // us
  out_of_memory, internal, shutting_down, overloaded, memory_pressure,
  kCount
};

enum class Side : uint8_t { client, origin, us };
enum class Retry : uint8_t { no, if_reused, yes };  // if_reused: only where the origin connection had served before

struct Fault {
  What what = What::none;
  Side side = Side::us;
  Retry retry = Retry::no;
  uint8_t reserved = 0;
  int32_t detail = 0;  // errno, or the codec's own code

  explicit operator bool() const noexcept { return what != What::none; }
};
static_assert(sizeof(Fault) == 8);

enum class Severity : uint8_t { debug, info, warn, error };

struct FaultRow {
  What what;
  const char* code;          // stable snake_case name: logs, metrics, access log `error`
  uint16_t status;           // for the client, where no response head went out; 0: close without an answer
  Severity severity;
  const char* proxy_status;  // RFC 9209 error type token; nullptr: none
  const char* sentence;      // plain words for a person
};
const FaultRow& fault_row(What what) noexcept;
// The side and retry rule that belong to `what`, with errno or code as detail.
Fault make_fault(What what, int32_t detail = 0) noexcept;

}  // namespace weir

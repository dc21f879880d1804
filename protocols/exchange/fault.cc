#include "protocols/exchange/fault.h"

#include <iterator>

#include "engines/check.h"

namespace weir {
namespace {

struct Row {
  FaultRow row;
  Side side;
  Retry retry;
};

// Statuses after RFC 9110 section 15, tokens after RFC 9209 section 2.3. Status 0 stands where nobody waits for an answer.
constexpr auto kDebug = Severity::debug;
constexpr auto kInfo = Severity::info;
constexpr auto kWarn = Severity::warn;
constexpr auto kError = Severity::error;
constexpr const char* kHisRequest = "http_request_error";

constexpr Row kRows[] = {
    {{What::none, "none", 0, kDebug, nullptr, "Nothing went wrong."}, Side::us, Retry::no},

    {{What::bad_request_line, "bad_request_line", 400, kInfo, kHisRequest, "The request line is malformed."},
     Side::client, Retry::no},
    {{What::bad_header_field, "bad_header_field", 400, kInfo, kHisRequest, "A header field is malformed."},
     Side::client, Retry::no},
    {{What::bad_host, "bad_host", 400, kInfo, kHisRequest,
      "The host is missing, repeated, malformed, or contradicts the request target."},
     Side::client, Retry::no},
    {{What::bad_framing, "bad_framing", 400, kInfo, kHisRequest, "The length of the request body is ambiguous or malformed."},
     Side::client, Retry::no},
    {{What::bad_chunk, "bad_chunk", 400, kInfo, kHisRequest, "The chunked request body is malformed."},
     Side::client, Retry::no},
    {{What::bad_path, "bad_path", 400, kInfo, kHisRequest, "The path holds bytes or escapes that are not allowed here."},
     Side::client, Retry::no},
    {{What::bad_version, "bad_version", 400, kInfo, kHisRequest, "The HTTP version is malformed or not supported here."},
     Side::client, Retry::no},
    {{What::bad_method, "bad_method", 400, kInfo, kHisRequest, "The method is not a valid token."}, Side::client, Retry::no},
    {{What::uri_too_long, "uri_too_long", 414, kInfo, kHisRequest, "The request line is longer than the limit."},
     Side::client, Retry::no},
    {{What::head_too_large, "head_too_large", 431, kInfo, kHisRequest, "The request head is larger than the limit."},
     Side::client, Retry::no},
    {{What::too_many_fields, "too_many_fields", 431, kInfo, kHisRequest, "The request has more header fields than the limit."},
     Side::client, Retry::no},
    {{What::body_too_large, "body_too_large", 413, kInfo, kHisRequest, "The request body is larger than the limit."},
     Side::client, Retry::no},
    {{What::expectation_failed, "expectation_failed", 417, kInfo, kHisRequest, "The expectation is not one that is known here."},
     Side::client, Retry::no},
    {{What::upgrade_refused, "upgrade_refused", 501, kInfo, "http_request_denied", "This protocol upgrade is not offered here."},
     Side::client, Retry::no},
    {{What::misdirected, "misdirected", 421, kInfo, kHisRequest, "This connection does not serve the requested host."},
     Side::client, Retry::no},

    {{What::client_header_timeout, "client_header_timeout", 408, kInfo, kHisRequest,
      "The request head did not arrive in time (timeouts.client_header)."},
     Side::client, Retry::no},
    {{What::client_body_timeout, "client_body_timeout", 408, kInfo, kHisRequest,
      "The request body stopped arriving (timeouts.client_body)."},
     Side::client, Retry::no},
    {{What::keepalive_timeout, "keepalive_timeout", 0, kDebug, nullptr,
      "The client connection was idle for its time (timeouts.keepalive)."},
     Side::client, Retry::no},
    {{What::write_timeout, "write_timeout", 0, kInfo, nullptr, "The client accepted no bytes in time (timeouts.write)."},
     Side::client, Retry::no},
    {{What::stream_idle_timeout, "stream_idle_timeout", 0, kInfo, nullptr,
      "No body byte moved either way in time (timeouts.stream_idle)."},
     Side::us, Retry::no},
    {{What::connect_timeout, "connect_timeout", 504, kWarn, "connection_timeout",
      "The origin did not accept the connection in time (timeouts.connect)."},
     Side::origin, Retry::yes},
    {{What::response_timeout, "response_timeout", 504, kWarn, "http_response_timeout",
      "The origin did not answer in time (timeouts.response)."},
     Side::origin, Retry::no},
    {{What::origin_body_timeout, "origin_body_timeout", 504, kWarn, "connection_read_timeout",
      "The origin's response body stopped arriving (timeouts.origin_body)."},
     Side::origin, Retry::no},
    {{What::origin_idle_timeout, "origin_idle_timeout", 0, kDebug, nullptr,
      "The origin connection was idle for its time (timeouts.origin_idle)."},
     Side::origin, Retry::no},
    {{What::linger_timeout, "linger_timeout", 0, kDebug, nullptr,
      "The client went on sending after its answer was complete (timeouts.linger)."},
     Side::client, Retry::no},

    {{What::client_closed, "client_closed", 0, kDebug, nullptr, "The client closed its connection before the answer was complete."},
     Side::client, Retry::no},
    {{What::client_reset, "client_reset", 0, kDebug, nullptr, "The client reset its connection or stream."},
     Side::client, Retry::no},
    {{What::client_write_failed, "client_write_failed", 0, kDebug, nullptr, "Writing to the client failed."},
     Side::client, Retry::no},
    {{What::client_protocol, "client_protocol", 0, kInfo, nullptr,
      "The client broke the rules of HTTP/2, and its connection was ended."},
     Side::client, Retry::no},

    {{What::no_route, "no_route", 404, kInfo, "destination_not_found", "No route matches this request."},
     Side::client, Retry::no},
    {{What::no_origin, "no_origin", 502, kWarn, "destination_unavailable", "No server of this upstream can be used now."},
     Side::origin, Retry::no},
    {{What::origin_limit, "origin_limit", 503, kWarn, "connection_limit_reached",
      "This upstream's connections are all in use (max_connections)."},
     Side::us, Retry::no},

    {{What::connect_failed, "connect_failed", 502, kWarn, "connection_refused", "The connection to the origin failed."},
     Side::origin, Retry::yes},
    {{What::origin_closed, "origin_closed", 502, kWarn, "connection_terminated",
      "The origin closed the connection before its response was complete."},
     Side::origin, Retry::if_reused},
    {{What::origin_reset, "origin_reset", 502, kWarn, "connection_terminated", "The origin reset the connection or stream."},
     Side::origin, Retry::if_reused},
    {{What::origin_write_failed, "origin_write_failed", 502, kWarn, "connection_terminated", "Writing to the origin failed."},
     Side::origin, Retry::if_reused},
    {{What::name_unresolved, "name_unresolved", 502, kWarn, "dns_error", "The origin's name does not resolve."},
     Side::origin, Retry::yes},

    {{What::bad_response, "bad_response", 502, kWarn, "http_protocol_error", "The origin's response head is malformed."},
     Side::origin, Retry::no},
    {{What::response_head_too_large, "response_head_too_large", 502, kWarn, "http_response_header_section_size",
      "The origin's response head is larger than the limit."},
     Side::origin, Retry::no},
    {{What::response_framing, "response_framing", 502, kWarn, "http_protocol_error",
      "The origin's response body is framed ambiguously or wrongly."},
     Side::origin, Retry::no},
    {{What::response_short, "response_short", 502, kWarn, "http_response_incomplete",
      "The origin's response body ended before its declared length."},
     Side::origin, Retry::no},

    {{What::out_of_memory, "out_of_memory", 503, kError, "proxy_internal_error", "The memory budget is exhausted."},
     Side::us, Retry::no},
    {{What::internal, "internal", 500, kError, "proxy_internal_error", "An internal check failed."}, Side::us, Retry::no},
    {{What::shutting_down, "shutting_down", 503, kInfo, "proxy_internal_response", "The server is shutting down."},
     Side::us, Retry::no},
    {{What::overloaded, "overloaded", 503, kWarn, "proxy_internal_response", "The server is overloaded."},
     Side::us, Retry::no},
    {{What::memory_pressure, "memory_pressure", 503, kWarn, "proxy_internal_response",
      "The memory budget is nearly used up (limits.memory)."},
     Side::us, Retry::no},
};

constexpr bool rows_in_order() {
  for (size_t i = 0; i < std::size(kRows); ++i)
    if (static_cast<size_t>(kRows[i].row.what) != i) return false;
  return true;
}
static_assert(std::size(kRows) == static_cast<size_t>(What::kCount), "every What has its row");
static_assert(rows_in_order(), "rows stand in the order of What");

}  // namespace

const FaultRow& fault_row(What what) noexcept {
  WEIR_ASSERT(what < What::kCount);
  return kRows[static_cast<size_t>(what)].row;
}

Fault make_fault(What what, int32_t detail) noexcept {
  WEIR_ASSERT(what < What::kCount);
  const Row& row = kRows[static_cast<size_t>(what)];
  return Fault{what, row.side, row.retry, 0, detail};
}

}  // namespace weir

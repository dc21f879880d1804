#include "protocols/exchange/fault.h"

#include <catch2/catch_test_macros.hpp>
#include <set>
#include <string>

using namespace weir;

namespace {

const std::set<std::string> kTokens = {  // RFC 9209 section 2.3
    "dns_timeout", "dns_error", "destination_not_found", "destination_unavailable", "destination_ip_prohibited",
    "destination_ip_unroutable", "connection_refused", "connection_terminated", "connection_timeout",
    "connection_read_timeout", "connection_write_timeout", "connection_limit_reached", "tls_protocol_error",
    "tls_certificate_error", "tls_alert_received", "http_request_error", "http_request_denied", "http_response_incomplete",
    "http_response_header_section_size", "http_response_header_size", "http_response_body_size",
    "http_response_trailer_section_size", "http_response_trailer_size", "http_response_transfer_coding",
    "http_response_content_coding", "http_response_timeout", "http_upgrade_failed", "http_protocol_error",
    "proxy_internal_response", "proxy_internal_error", "proxy_configuration_error", "proxy_loop_detected"};

}  // namespace

TEST_CASE("every fault has a whole row, with a code of its own", "[fault]") {
  std::set<std::string> codes;
  for (int i = 0; i < static_cast<int>(What::kCount); ++i) {
    const auto what = static_cast<What>(i);
    const FaultRow& row = fault_row(what);
    INFO(row.code);
    CHECK(row.what == what);
    CHECK(codes.insert(row.code).second);
    CHECK(std::string(row.code).find_first_not_of("abcdefghijklmnopqrstuvwxyz_") == std::string::npos);
    CHECK(std::string(row.sentence).ends_with("."));
    CHECK((row.status == 0 || (row.status >= 400 && row.status < 600)));
    if (row.proxy_status != nullptr) CHECK(kTokens.contains(row.proxy_status));
    else CHECK(row.status == 0);   // an answer of ours always says why
  }
}

TEST_CASE("faults: status, side and retry belong to the kind, detail to the case", "[fault]") {
  struct Want { What what; int status; Side side; Retry retry; };
  const Want table[] = {
      {What::bad_request_line, 400, Side::client, Retry::no}, {What::bad_chunk, 400, Side::client, Retry::no},
      {What::uri_too_long, 414, Side::client, Retry::no},     {What::head_too_large, 431, Side::client, Retry::no},
      {What::too_many_fields, 431, Side::client, Retry::no},  {What::body_too_large, 413, Side::client, Retry::no},
      {What::expectation_failed, 417, Side::client, Retry::no}, {What::misdirected, 421, Side::client, Retry::no},
      {What::client_header_timeout, 408, Side::client, Retry::no}, {What::client_body_timeout, 408, Side::client, Retry::no},
      {What::write_timeout, 0, Side::client, Retry::no},      {What::no_route, 404, Side::client, Retry::no},
      {What::connect_failed, 502, Side::origin, Retry::yes},  {What::connect_timeout, 504, Side::origin, Retry::yes},
      {What::origin_closed, 502, Side::origin, Retry::if_reused}, {What::origin_reset, 502, Side::origin, Retry::if_reused},
      {What::response_timeout, 504, Side::origin, Retry::no}, {What::bad_response, 502, Side::origin, Retry::no},
      {What::response_short, 502, Side::origin, Retry::no},   {What::origin_limit, 503, Side::us, Retry::no},
      {What::internal, 500, Side::us, Retry::no},             {What::overloaded, 503, Side::us, Retry::no},
      {What::memory_pressure, 503, Side::us, Retry::no},
  };
  for (const Want& want : table) {
    const Fault fault = make_fault(want.what, -104);
    INFO(fault_row(want.what).code);
    CHECK(fault_row(want.what).status == want.status);
    CHECK(fault.what == want.what);
    CHECK(fault.side == want.side);
    CHECK(fault.retry == want.retry);
    CHECK(fault.detail == -104);
    CHECK(static_cast<bool>(fault));
  }
  CHECK_FALSE(static_cast<bool>(Fault{}));
}

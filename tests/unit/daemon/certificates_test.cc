#include "daemon/certificates.h"

#include <catch2/catch_test_macros.hpp>

using namespace weir;

TEST_CASE("certificates: what is said about their time") {
  constexpr int64_t kDay = 86'400;
  const TlsCertificateFacts facts{.names = {}, .not_before = 100 * kDay, .not_after = 200 * kDay};
  const auto said = [&](int64_t now) {
    std::string out;
    for (const auto& fault : expiry_faults(facts, now)) out += (fault.warning ? "warning: " : "error: ") + fault.text;
    return out;
  };
  CHECK(said(100 * kDay - 1) == "error: is not valid before 1970-04-11 00:00 UTC");
  CHECK(said(100 * kDay) == "");
  CHECK(said(179 * kDay) == "");
  CHECK(said(179 * kDay + 1) == "warning: expires on 1970-07-20 00:00 UTC, in 20 day(s)");
  CHECK(said(200 * kDay - 1) == "warning: expires on 1970-07-20 00:00 UTC, in 0 day(s)");
  CHECK(said(200 * kDay) == "error: expired on 1970-07-20 00:00 UTC");
}

TEST_CASE("certificates: a file that went since the configuration was read fails with its place") {
  config::Snapshot config;
  config.listeners.emplace_back();
  config.listeners.emplace_back().tls = config::ListenerTls{{{"/nowhere/a.pem", "/nowhere/a.key", {"t.yaml", 4, 17}}}};
  TlsTicketKeys keys;
  const auto loaded = load_tls(config, keys);
  REQUIRE_FALSE(loaded);
  CHECK(loaded.error().text() == "t.yaml:4:17: cert: `/nowhere/a.pem` cannot be read: no such file");
  config.listeners.pop_back();
  CHECK(load_tls(config, keys)->listeners.size() == 1);
}

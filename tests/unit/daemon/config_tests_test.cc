// The configuration's own tests: what a request of theirs can say, and what is told when it goes elsewhere.
#include <catch2/catch_test_macros.hpp>

#include <stdexcept>

#include "config/load.h"
#include "daemon/config_tests.h"

namespace weir {
namespace {

config::Snapshot table() {
  const config::Environment nothing{[](const std::string&) { return std::nullopt; },
                                    [](const std::string&) { return std::unexpected(std::string("none")); },
                                    [](const std::string&) { return std::vector<std::string>(); }};
  const std::string text =
      "version: 1\nlisteners: [{name: one, bind: \":80\"}, {name: two, bind: \":81\"}]\nroutes:\n"
      "  - {name: beta, match: {header: {x-beta: \"1\"}}, respond: {status: 201}}\n"
      "  - {name: near, match: {path: /near}, respond: {status: 202}}\n"
      "  - {name: tls, match: {path: /tls}, respond: {status: 203}}\n"
      "  - {name: second, match: {listener: two}, respond: {status: 205}}\n"
      "  - {name: rest, respond: {status: 206}}\n";
  auto config = config::load_text(text, "t.yaml", nothing);
  if (!config) throw std::runtime_error(config.error().text());
  config->routes[1].match->clients = {*config::parse_cidr("192.0.2.0/24")};
  config->routes[2].match->scheme = config::Scheme::https;
  return std::move(*config);
}

// The one request, expected on this route; "" when it goes there, else what is told.
template <class Change>
std::string ask(const std::string& target, const std::string& route, const Change& change, bool redirect_https = false) {
  config::Snapshot config = table();
  config.listeners[0].redirect_https = redirect_https;
  config::ConfigTest test;
  test.url = "http://a" + target;
  test.host = "a";
  test.target = target;
  test.expect.route = route;
  change(test);
  config.tests.push_back(test);
  const auto failed = run_config_tests(config);
  return failed.empty() ? "" : failed[0].message;
}

}  // namespace

TEST_CASE("a test's header, client, scheme and listener count") {
  using Test = config::ConfigTest;
  CHECK(ask("/", "rest", [](Test&) {}) == "");
  CHECK(ask("/", "beta", [](Test& t) { t.headers = {{"x-beta", "1"}}; }) == "");
  CHECK(ask("/near", "near", [](Test& t) { t.client = "192.0.2.9"; }) == "");
  CHECK(ask("/near", "rest", [](Test& t) { t.client = "192.0.3.9"; }) == "");
  CHECK(ask("/near", "rest", [](Test&) {}) == "");
  CHECK(ask("/tls", "tls", [](Test& t) { t.https = true; }) == "");
  CHECK(ask("/tls", "rest", [](Test&) {}) == "");
  CHECK(ask("/", "second", [](Test& t) { t.listener = 1; }) == "");
  CHECK(ask("/", "second", [](Test& t) { t.host = "a:81"; }) == "");
}

TEST_CASE("what came instead is told") {
  using Test = config::ConfigTest;
  CHECK(ask("/", "beta", [](Test&) {}) == "test GET http://a/: expected route beta, got status 206 (route rest)");
  CHECK(ask("/x", "rest", [](Test&) {}, true) == "test GET http://a/x: expected route rest, got status 308 (redirect_https)");
  CHECK(ask("/.well-known/acme-challenge/x", "rest", [](Test&) {}, true) == "");
  CHECK(ask("/x", "rest", [](Test& t) { t.https = true; }, true) == "");
}

}  // namespace weir

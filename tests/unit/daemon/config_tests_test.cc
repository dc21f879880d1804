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
  config->listeners[0].trusted_proxies = {*config::parse_cidr("127.0.0.0/8")};
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

TEST_CASE("a test takes the way of a real request: who is not believed, what is refused") {
  using Test = config::ConfigTest;
  const auto forged = [](Test& t) {
    t.client = "198.51.100.1";
    t.headers = {{"x-forwarded-for", "192.0.2.9"}, {"x-forwarded-proto", "https"}};
  };
  CHECK(ask("/near", "rest", forged) == "");
  CHECK(ask("/tls", "rest", forged) == "");
  const auto told = [&](Test& t) {
    forged(t);
    t.client = "127.0.0.1";
  };
  CHECK(ask("/near", "near", told) == "");
  CHECK(ask("/tls", "tls", told) == "");
  CHECK(ask("/", "rest", [](Test& t) { t.headers = {{"connection", "x-beta"}, {"x-beta", "1"}}; }) == "");
  CHECK(ask("/", "rest", [](Test& t) { t.headers = {{"x_beta", "1"}}; }) == "");
  const auto status = [](uint16_t wanted) {
    return [wanted](Test& t) {
      t.expect.route.reset();
      t.expect.status = wanted;
    };
  };
  const auto with = [&](uint16_t wanted, const std::string& method, std::vector<config::NameValue> fields) {
    return [=](Test& t) {
      status(wanted)(t);
      t.method = method;
      t.headers = fields;
    };
  };
  CHECK(ask("/a%2Fb", "", status(400)) == "");
  CHECK(ask("/", "", with(501, "CONNECT", {})) == "");
  CHECK(ask("/", "", with(501, "GET", {{"connection", "upgrade"}, {"upgrade", "websocket"}})) == "");
  CHECK(ask("/", "", with(400, "GET", {{"host", "b"}})) == "");
  CHECK(ask("/", "", with(431, "GET", {{"x", std::string(40'000, 'x')}})) == "");
  CHECK(ask("/a%2Fb", "rest", [](Test&) {}) ==
        "test GET http://a/a%2Fb: expected route rest, got status 400 (The path holds bytes or escapes that are not allowed here.)");
}

TEST_CASE("what came instead is told") {
  using Test = config::ConfigTest;
  CHECK(ask("/", "beta", [](Test&) {}) == "test GET http://a/: expected route beta, got status 206 (route rest)");
  CHECK(ask("/x", "rest", [](Test&) {}, true) == "test GET http://a/x: expected route rest, got status 308 (redirect_https)");
  CHECK(ask("/.well-known/acme-challenge/x", "rest", [](Test&) {}, true) == "");
  CHECK(ask("/x", "rest", [](Test& t) { t.https = true; }, true) == "");
}

}  // namespace weir

#include "daemon/config_tests.h"

#include <charconv>
#include <memory>

#include "daemon/router.h"
#include "protocols/exchange/target.h"

namespace weir {

namespace {

struct Got {
  std::string route;
  std::vector<std::string> upstreams;
  uint16_t status = 0;   // 0: an origin's

  std::string text() const {
    if (route.empty() && status == 308) return "status 308 (redirect_https)";
    if (route.empty()) return status == 400 ? "status 400 (the path is refused)" : "status 404 (no route matches)";
    if (status != 0) return "status " + std::to_string(status) + " (route " + route + ")";
    std::string names;
    for (const std::string& name : upstreams) names += (names.empty() ? "upstream " : " or ") + name;
    return names + " (route " + route + ")";
  }
};

size_t listener_for(const config::Snapshot& config, const config::ConfigTest& test) {
  if (test.listener) return *test.listener;
  uint16_t port = test.https ? 443 : 80;
  const size_t colon = test.host.rfind(':');
  if (colon != std::string::npos && test.host.find(']', colon) == std::string::npos)
    std::from_chars(test.host.data() + colon + 1, test.host.data() + test.host.size(), port);
  for (size_t i = 0; i < config.listeners.size(); ++i)
    for (const config::SocketName& bind : config.listeners[i].binds)
      if (!bind.is_unix() && bind.port == port) return i;
  return 0;
}

Got ask(const Runtime& runtime, const config::ConfigTest& test) {
  const auto head = std::make_unique<Head>();
  head->method_text = test.method;
  head->method = method_of(test.method);
  std::string host = test.host, target = test.target;  // brought to one form in place
  head->scheme = test.https ? "https" : "http";
  head->authority = host;
  head->path = target;
  Got got;
  if (normalise_target(*head) != What::none) {
    got.status = 400;
    return got;
  }
  for (const config::NameValue& field : test.headers) head->add(field_id(field.name), field.name, field.value);
  ClientFacts client;
  client.ip = test.client;
  client.host = HostBytes::parse(test.client);
  client.https = test.https;
  const size_t listener = listener_for(runtime.config, test);
  if (runtime.listeners[listener].redirect_https && goes_to_https(*head, client)) {
    got.status = 308;
    return got;
  }
  const auto index = find_route(runtime, listener, *head, client);
  if (!index) {
    got.status = 404;
    return got;
  }
  const config::Route& route = runtime.config.routes[*index];
  got.route = route.name;
  if (const auto* respond = std::get_if<config::Respond>(&route.action)) got.status = respond->status;
  else if (const auto* redirect = std::get_if<config::Redirect>(&route.action)) got.status = redirect->status;
  for (const TargetPlan& target : runtime.routes[*index].targets)
    got.upstreams.push_back(runtime.config.upstreams[target.upstream].name);
  return got;
}

}  // namespace

std::vector<config::Problem> run_config_tests(const config::Snapshot& config) {
  std::vector<config::Problem> failed;
  if (config.tests.empty()) return failed;
  StatsRegistry registry;
  Addresses none;
  for (const config::Upstream& upstream : config.upstreams)
    for (const config::Server& server : upstream.servers) none[server.address.text()];
  const auto runtime = compile(config::Snapshot(config), none, 0, 1, registry);
  for (const config::ConfigTest& test : config.tests) {
    const Got got = ask(*runtime, test);
    const auto expect = [&](bool right, const std::string& wanted) {
      if (right) return;
      failed.push_back({test.where, "test " + test.method + " " + test.url + ": expected " + wanted + ", got " + got.text()});
    };
    if (test.expect.route) expect(got.route == *test.expect.route, "route " + *test.expect.route);
    if (test.expect.status) expect(got.status == *test.expect.status, "status " + std::to_string(*test.expect.status));
    if (test.expect.upstream) {
      bool right = false;
      for (const std::string& name : got.upstreams) right = right || name == *test.expect.upstream;
      expect(right, "upstream " + *test.expect.upstream);
    }
  }
  return failed;
}

}  // namespace weir

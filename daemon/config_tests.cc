#include "daemon/config_tests.h"

#include <charconv>
#include <memory>

#include "daemon/outgoing.h"
#include "daemon/router.h"
#include "protocols/exchange/target.h"
#include "protocols/h1/parser.h"

namespace weir {

namespace {

struct Got {
  std::string route;
  std::vector<std::string> upstreams;
  uint16_t status = 0;   // 0: an origin's
  const char* why = nullptr;

  std::string text() const {
    if (why != nullptr) return "status " + std::to_string(status) + " (" + why + ")";
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

// The request as a client would send it.
std::string request_text(const config::ConfigTest& test) {
  std::string host = test.host;
  const bool connect = test.method == "CONNECT";
  if (connect && host.find(':', host.find(']') == std::string::npos ? 0 : host.find(']')) == std::string::npos)
    host += test.https ? ":443" : ":80";
  std::string text = test.method + " " + (connect ? host : test.target) + " HTTP/1.1\r\nhost: " + host + "\r\n";
  for (const config::NameValue& field : test.headers) text += field.name + ": " + field.value + "\r\n";
  return text + "\r\n";
}

// What is wrong with a head before any route is looked for, as h1::ServerConn and Exchange::start find it.
What read_head(const std::string& text, bool https, const h1::HeadLimits& limits, Head& head) {
  size_t scanned = 0;
  const h1::ParseResult parsed = h1::parse_request_head(text.data(), text.size(), scanned, limits, head);
  if (parsed.state == h1::Parse::need_more) return What::head_too_large;
  if (parsed.state == h1::Parse::bad) return parsed.what;
  head.scheme = https ? "https" : "http";
  if (const What what = normalise_target(head); what != What::none) return what;
  return head.upgrade != Upgrade::none || head.method == Method::connect ? What::upgrade_refused : What::none;
}

// As Forwarder::on_request does it.
Got ask(const Runtime& runtime, const config::ConfigTest& test) {
  Got got;
  const size_t listener = listener_for(runtime.config, test);
  const config::Listener& config = runtime.config.listeners[listener];
  const ListenerPlan& plan = runtime.listeners[listener];
  const auto head = std::make_unique<Head>();
  const std::string text = request_text(test);  // brought to one form in place
  const auto refused = [&](const FaultRow& row) {
    got.status = row.status;
    got.why = row.sentence;
    return got;
  };
  const What what = read_head(text, test.https, request_limits(listener_limits(runtime.config, config)), *head);
  if (what != What::none) return refused(fault_row(what));
  const auto peer = Address::parse((test.client.find(':') == std::string::npos ? test.client : "[" + test.client + "]") + ":1");
  const ClientFacts client = find_client(config, *head, peer ? &*peer : nullptr, test.client, test.https);
  if (client.trusted) drop_unbelieved(*head, plan);
  else drop_forwarding_fields(*head);
  if (plan.redirect_https && goes_to_https(*head, client)) {
    got.status = 308;
    got.why = "redirect_https";
    return got;
  }
  const auto index = find_route(runtime, listener, *head, client);
  if (!index) return refused(fault_row(What::no_route));
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

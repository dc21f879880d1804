#include "daemon/runtime.h"

namespace weir {

const char* refused_name(RefusedCause cause) noexcept {
  switch (cause) {
    case RefusedCause::limit: return "limit";
    case RefusedCause::no_descriptor: return "no_descriptor";
    case RefusedCause::no_memory: return "no_memory";
    case RefusedCause::memory: return "memory";
    case RefusedCause::other: return "other";
  }
  return "other";
}

h1::HeadLimits request_limits(const config::Limits& limits) {
  return {.head_bytes = static_cast<uint32_t>(limits.request_head_bytes), .fields = static_cast<uint32_t>(limits.header_count)};
}

h2::SessionLimits session_limits(const config::Limits& limits) {
  h2::SessionLimits session;
  session.budget.overhead = static_cast<uint32_t>(limits.overhead_frames);
  session.budget.resets = static_cast<uint32_t>(limits.resets);
  session.streams = static_cast<uint32_t>(limits.h2_streams);
  return session;
}

config::Limits listener_limits(const config::Snapshot& config, const config::Listener& listener) {
  return listener.own_limits.over(config.limits);
}

h1::ServerTimeouts server_timeouts(const config::Timeouts& t) {
  return {.client_header = t.client_header, .client_body = t.client_body, .stream_idle = t.stream_idle,
          .keepalive = t.keepalive, .write = t.write, .linger = t.linger};
}

namespace {

h1::ClientTimeouts client_timeouts(const config::Timeouts& t) {
  return {.connect = t.connect, .response = t.response, .origin_body = t.origin_body, .stream_idle = t.stream_idle,
          .origin_idle = t.origin_idle};
}

ClientSideTimeouts client_side(const config::Timeouts& t) {
  return {.client_body = t.client_body, .stream_idle = t.stream_idle, .write = t.write};
}

bool serves(const config::Route& route, size_t listener) {
  if (!route.match || route.match->listeners.empty()) return true;
  for (const size_t one : route.match->listeners)
    if (one == listener) return true;
  return false;
}

template <class T>
std::vector<T*> blocks_of(StatsFamily<T>& family, const std::string& key, size_t workers) {
  const std::span<T* const> blocks = family.blocks(key, workers);
  return {blocks.begin(), blocks.end()};
}

void plan_upstreams(Runtime& runtime, size_t workers, StatsRegistry& registry) {
  for (const config::Upstream& upstream : runtime.config.upstreams) {
    UpstreamPlan plan;
    plan.name = upstream.name;
    plan.balance = upstream.balance;
    plan.connections_max = upstream.max_connections;
    plan.allowance = &registry.allowance(upstream.name);
    for (const config::Server& server : upstream.servers) {
      if (server.weight == 0) continue;
      const std::string name = server.address.text();
      const auto& found = runtime.addresses.at(name);
      for (const Address& address : found) plan.endpoints.push_back({name, address, server.weight});
      if (!found.empty()) continue;
      plan.endpoints.push_back({name, Address(), server.weight});
      runtime.unresolved.push_back(name);
    }
    plan.stats = blocks_of(registry.upstreams, upstream.name, workers);
    for (Endpoint& endpoint : plan.endpoints)
      endpoint.stats = blocks_of(registry.origins, upstream.name + '\n' + endpoint.name, workers);
    runtime.upstreams.push_back(std::move(plan));
  }
}

HeaderPlan plan_headers(const config::HeaderEdits& edits) {
  HeaderPlan plan;
  for (const std::string& name : edits.remove) plan.gone.push_back({field_id(name), name});
  for (const auto* list : {&edits.set, &edits.add}) {
    for (const config::NameValue& field : *list) {
      if (list == &edits.set) plan.gone.push_back({field_id(field.name), field.name});
      plan.put.push_back({field.name, field.value});
    }
  }
  return plan;
}

std::unique_ptr<const RouteExtras> plan_extras(const config::Route& route) {
  if (route.rewrite.empty() && route.request_headers.empty() && route.response_headers.empty() && !route.via && !route.forwarded)
    return nullptr;
  auto plan = std::make_unique<RouteExtras>();
  if (!route.rewrite.empty()) plan->rewrite = &route.rewrite;
  if (route.match) plan->matched_prefix = route.match->path_prefix.size();
  plan->request = plan_headers(route.request_headers);
  plan->response = plan_headers(route.response_headers);
  plan->via = route.via;
  plan->forwarded = route.forwarded;
  return plan;
}

RoutePlan plan_route(const Runtime& runtime, const config::Route& route, size_t workers, StatsRegistry& registry) {
  const config::Snapshot& config = runtime.config;
  RoutePlan plan;
  plan.route = &route;
  plan.extras = plan_extras(route);
  for (const config::Listener& listener : config.listeners) {
    plan.client_timeouts.push_back(client_side(config::exchange_timeouts(config, listener, nullptr, route)));
    plan.request_body_bytes.push_back(config::exchange_limits(config, listener, nullptr, route).request_body_bytes);
    plan.stats.emplace_back();
    if (serves(route, static_cast<size_t>(&listener - config.listeners.data())))
      plan.stats.back() = blocks_of(registry.routes, listener.name + '\n' + route.name, workers);
  }
  const auto* forward = std::get_if<config::Forward>(&route.action);
  if (forward == nullptr) return plan;
  for (const config::Target& target : forward->targets) {
    TargetPlan to{target.upstream, target.weight, {}, {}};
    const config::Upstream* upstream = &config.upstreams[target.upstream];
    plan.target_client_timeouts.emplace_back();
    for (const config::Listener& listener : config.listeners) {
      const config::Timeouts t = config::exchange_timeouts(config, listener, upstream, route);
      const config::Limits limits = config::exchange_limits(config, listener, upstream, route);
      to.response_head_bytes.push_back(static_cast<uint32_t>(limits.response_head_bytes));
      to.timeouts.push_back(client_timeouts(t));
      plan.target_client_timeouts.back().push_back(client_side(t));
    }
    plan.targets.push_back(std::move(to));
  }
  return plan;
}

}  // namespace

std::unique_ptr<Runtime> compile(config::Snapshot config, const Addresses& addresses, uint64_t generation, size_t workers,
                                 StatsRegistry& registry, const std::vector<ServedTls>& tls) {
  auto runtime = std::make_unique<Runtime>();
  runtime->generation = generation;
  runtime->config = std::move(config);
  runtime->addresses = addresses;
  plan_upstreams(*runtime, workers, registry);
  for (const config::Route& route : runtime->config.routes)
    runtime->routes.push_back(plan_route(*runtime, route, workers, registry));
  for (size_t listener = 0; listener < runtime->config.listeners.size(); ++listener) {
    std::vector<uint32_t> order;
    std::vector<uint32_t> last;
    for (size_t i = 0; i < runtime->config.routes.size(); ++i) {
      const config::Route& route = runtime->config.routes[i];
      if (serves(route, listener)) (route.match ? order : last).push_back(static_cast<uint32_t>(i));
    }
    order.insert(order.end(), last.begin(), last.end());
    const config::Listener& from = runtime->config.listeners[listener];
    ListenerPlan plan;
    plan.routes = RouteIndex::build(runtime->config.routes, order);
    plan.redirect_https = from.redirect_https;
    if (!tls.empty()) plan.tls = tls[listener];
    plan.own_names_only = from.tls && !from.tls->client_ca.empty();
    plan.believes = from.trust_unix || !from.trusted_proxies.empty();
    plan.only_forwarded = from.trusted_header == config::TrustedHeader::forwarded;
    for (const uint32_t route : order)
      plan.matches_clients |= runtime->config.routes[route].match && !runtime->config.routes[route].match->clients.empty();
    runtime->listeners.push_back(std::move(plan));
  }
  return runtime;
}

}  // namespace weir

#include "daemon/runtime.h"

namespace weir {

const char* refused_name(RefusedCause cause) noexcept {
  switch (cause) {
    case RefusedCause::limit: return "limit";
    case RefusedCause::no_descriptor: return "no_descriptor";
    case RefusedCause::no_memory: return "no_memory";
    case RefusedCause::other: return "other";
  }
  return "other";
}

h1::HeadLimits request_limits(const config::Snapshot& config) {
  h1::HeadLimits limits;
  limits.head_bytes = static_cast<uint32_t>(config.limits.request_head_bytes);
  limits.fields = static_cast<uint32_t>(config.limits.header_count);
  return limits;
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

void plan_upstreams(Runtime& runtime, size_t workers, StatsRegistry& registry) {
  for (const config::Upstream& upstream : runtime.config.upstreams) {
    UpstreamPlan plan;
    plan.name = upstream.name;
    for (const config::Server& server : upstream.servers) {
      if (server.weight == 0) continue;
      const std::string name = server.address.text();
      const auto& found = runtime.addresses.at(name);
      for (const Address& address : found) plan.endpoints.push_back({name, address, server.weight});
      if (!found.empty()) continue;
      plan.endpoints.push_back({name, Address(), server.weight});
      runtime.unresolved.push_back(name);
    }
    for (size_t worker = 0; worker < workers; ++worker) {
      plan.stats.push_back(&registry.upstreams.at(upstream.name, worker));
      for (Endpoint& endpoint : plan.endpoints)
        endpoint.stats.push_back(&registry.origins.at(upstream.name + '\n' + endpoint.name, worker));
    }
    runtime.upstreams.push_back(std::move(plan));
  }
}

RoutePlan plan_route(const Runtime& runtime, const config::Route& route, size_t workers, StatsRegistry& registry) {
  const config::Snapshot& config = runtime.config;
  RoutePlan plan;
  plan.route = &route;
  for (const config::Listener& listener : config.listeners) {
    plan.client_timeouts.push_back(client_side(config::exchange_timeouts(config, listener, nullptr, route)));
    plan.stats.emplace_back();
    for (size_t worker = 0; worker < workers; ++worker)
      plan.stats.back().push_back(&registry.routes.at(listener.name + '\n' + route.name, worker));
  }
  const auto* forward = std::get_if<config::Forward>(&route.action);
  if (forward == nullptr) return plan;
  for (const config::Target& target : forward->targets) {
    TargetPlan to{target.upstream, target.weight, {}};
    plan.target_client_timeouts.emplace_back();
    for (const config::Listener& listener : config.listeners) {
      const config::Timeouts t = config::exchange_timeouts(config, listener, &config.upstreams[target.upstream], route);
      to.timeouts.push_back(client_timeouts(t));
      plan.target_client_timeouts.back().push_back(client_side(t));
    }
    plan.weight_total += target.weight;
    plan.targets.push_back(std::move(to));
  }
  return plan;
}

bool serves(const config::Route& route, size_t listener) {
  if (!route.match || route.match->listeners.empty()) return true;
  for (const size_t one : route.match->listeners)
    if (one == listener) return true;
  return false;
}

}  // namespace

std::unique_ptr<Runtime> compile(config::Snapshot config, const Addresses& addresses, uint64_t generation, size_t workers,
                                 StatsRegistry& registry) {
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
    runtime->by_listener.push_back(RouteIndex::build(runtime->config.routes, order));
  }
  return runtime;
}

}  // namespace weir

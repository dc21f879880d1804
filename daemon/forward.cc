#include "daemon/forward.h"

#include <cerrno>

#include "daemon/record.h"
#include "daemon/router.h"

namespace weir {

namespace {

constexpr size_t kAttemptsMax = 3;

WorkerRuntime& under(Exchange& exchange) noexcept { return *static_cast<WorkerRuntime*>(exchange.snapshot); }

// A failed connect is tried at another endpoint, never again at the only one: there it would only multiply `connect`.
size_t attempts_max(const WorkerRuntime::Rotation& rotation) noexcept {
  size_t reachable = 0;
  for (const WorkerRuntime::Target& target : rotation.targets) reachable += target.pool != nullptr;
  return reachable < kAttemptsMax ? reachable : kAttemptsMax;
}

// Smooth weighted round robin: everyone gains its weight, the richest is taken and pays the total.
WorkerRuntime::Target* pick_endpoint(WorkerRuntime::Rotation& rotation) noexcept {
  WorkerRuntime::Target* best = nullptr;
  for (WorkerRuntime::Target& target : rotation.targets) {
    if (target.pool == nullptr) continue;
    target.current += target.endpoint->weight;
    if (best == nullptr || target.current > best->current) best = &target;
  }
  if (best != nullptr) best->current -= rotation.weight_total;
  return best;
}

bool idempotent_and_empty(Exchange& exchange) noexcept {
  return method_idempotent(exchange.request().method) && exchange.request().body == BodyKind::none;
}

}  // namespace

void Forwarder::on_request(Exchange& exchange) noexcept {
  auto& listener = *static_cast<ListenerView*>(exchange.listener);
  WorkerRuntime& now = *listener.current;
  exchange.snapshot = &now;
  exchange.listener_index = static_cast<uint32_t>(listener.index);
  ++now.exchanges;
  if (exchange.request().method == Method::connect) {  // no route may open a tunnel yet
    exchange.fail(make_fault(What::upgrade_refused));
    return;
  }
  const auto route = find_route(*now.runtime, listener.index, exchange.request());
  if (!route) {
    exchange.fail(make_fault(What::no_route));
    return;
  }
  exchange.route = static_cast<uint32_t>(*route);
  const RoutePlan& plan = now.runtime->routes[*route];
  if (plan.targets.empty()) {
    exchange.client_timeouts = &plan.client_timeouts[listener.index];
    answer(exchange, *plan.route);
    return;
  }
  for (Field& field : exchange.request())
    if (field.id == FieldId::x_forwarded_for || field.id == FieldId::x_forwarded_proto || field.id == FieldId::x_forwarded_host)
      field.removed = true;
  exchange.target = static_cast<uint32_t>(pick_target(now, *route));
  exchange.client_timeouts = &plan.target_client_timeouts[exchange.target][listener.index];
  forward(exchange, false);
}

void Forwarder::answer(Exchange& exchange, const config::Route& route) noexcept {
  if (const auto* respond = std::get_if<config::Respond>(&route.action)) {
    exchange.respond(respond->status, "text/plain; charset=utf-8", respond->body, {});
    return;
  }
  const auto& redirect = std::get<config::Redirect>(route.action);
  const ExtraField location[] = {{"location", redirect.location}};
  exchange.respond(redirect.status, {}, {}, location);
}

size_t Forwarder::pick_target(WorkerRuntime& now, size_t route) noexcept {
  const RoutePlan& plan = now.runtime->routes[route];
  if (plan.targets.size() == 1) return 0;
  auto& currents = now.route_currents[route];
  size_t best = 0;
  for (size_t i = 0; i < plan.targets.size(); ++i) {
    currents[i] += plan.targets[i].weight;
    if (currents[i] > currents[best]) best = i;
  }
  currents[best] -= plan.weight_total;
  return best;
}

void Forwarder::forward(Exchange& exchange, bool fresh) noexcept {
  WorkerRuntime& now = under(exchange);
  const TargetPlan& target = now.runtime->routes[exchange.route].targets[exchange.target];
  WorkerRuntime::Target* to = pick_endpoint(now.upstreams[target.upstream]);
  if (to == nullptr) {
    exchange.fail(make_fault(What::name_unresolved));
    return;
  }
  ++exchange.attempts;
  const auto& listener = *static_cast<ListenerView*>(exchange.listener);
  UpstreamStats& stats = *now.runtime->upstreams[target.upstream].stats[worker_];
  int error = 0;
  h1::ClientConn* conn = to->pool->acquire(listener.engine, fresh, stats.client, &error);
  if (conn == nullptr) {
    exchange.fail(make_fault(error == ENOMEM ? What::out_of_memory : What::origin_limit, error));
    return;
  }
  conn->use(target.timeouts[exchange.listener_index]);
  conn->begin(exchange);
  exchange.endpoint = to->endpoint;
  exchange.origin_reused = conn->reused();
  const ExtraField extra[] = {{"x-forwarded-for", exchange.client_ip},
                              {"x-forwarded-proto", "http"},
                              {"x-forwarded-host", exchange.request().authority}};
  exchange.connect(*conn, extra);
}

bool Forwarder::on_origin_failed(Exchange& exchange, const Fault& fault) noexcept {
  if (exchange.up().opened() && exchange.up().consumed() != 0) return false;
  WorkerRuntime& now = under(exchange);
  const size_t upstream = now.runtime->routes[exchange.route].targets[exchange.target].upstream;
  UpstreamStats& stats = *now.runtime->upstreams[upstream].stats[worker_];
  if (fault.retry == Retry::yes && exchange.attempts < attempts_max(now.upstreams[upstream])) {
    stats.retries_connect.add();
    forward(exchange, false);
    return true;
  }
  if (fault.retry == Retry::if_reused && exchange.origin_reused && !exchange.retried_reused && idempotent_and_empty(exchange)) {
    exchange.retried_reused = true;
    stats.retries_reused.add();
    forward(exchange, true);
    return true;
  }
  return false;
}

void Forwarder::on_response(Exchange& exchange, Head& response) noexcept {
  static_cast<const Endpoint*>(exchange.endpoint)->stats[worker_]->answers[code_class(response.status)].add();
}

void Forwarder::on_end(Exchange& exchange) noexcept {
  record_end(exchange, worker_, access_);
  if (exchange.snapshot != nullptr) --under(exchange).exchanges;  // null: its head was refused before any route was looked for
}

}  // namespace weir

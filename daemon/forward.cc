#include "daemon/forward.h"

#include <cerrno>

#include "daemon/record.h"

namespace weir {

namespace {

constexpr size_t kAttemptsMax = 3;

WorkerRuntime& under(Exchange& exchange) noexcept { return *static_cast<WorkerRuntime*>(exchange.snapshot); }

const RoutePlan& route_of(Exchange& exchange) noexcept { return under(exchange).runtime->routes[exchange.route]; }

const TargetPlan& target_of(Exchange& exchange) noexcept { return route_of(exchange).targets[exchange.target]; }

// A failed connect is tried at another endpoint, never again at the only one: there it would only multiply `connect`.
size_t attempts_max(const Rotation& rotation) noexcept {
  return rotation.reachable < kAttemptsMax ? rotation.reachable : kAttemptsMax;
}

// Of the body nothing has gone to an origin's stream: it is all still to be read, or held.
bool body_held(Exchange& exchange) noexcept { return !exchange.up().opened() || exchange.up().consumed() == 0; }

// The host is in lower case already.
bool is_named(const std::vector<std::string>& names, std::string_view host) noexcept {
  if (host.starts_with('[') && host.ends_with(']')) host = host.substr(1, host.size() - 2);
  for (const std::string& name : names)
    if (certificate_name_holds(name, host)) return true;
  return false;
}

// The origin is done with this exchange, one way or the other.
void leave_origin(Exchange& exchange) noexcept {
  auto* to = static_cast<Rotation::Target*>(std::exchange(exchange.origin_pick, nullptr));
  if (to != nullptr) --to->pool->active;
}

}  // namespace

void Forwarder::on_request(Exchange& exchange) noexcept {
  auto& listener = *static_cast<ListenerView*>(exchange.listener);
  WorkerRuntime& now = *listener.current;
  exchange.snapshot = &now;
  exchange.peer_ip = exchange.client_ip;
  exchange.listener_index = static_cast<uint32_t>(listener.index);
  ++now.exchanges;
  const ListenerPlan& plan = now.runtime->listeners[listener.index];
  ClientFacts client;
  client.https = exchange.https;
  if (plan.looks_first() && !look_first(exchange, now.runtime->config.listeners[listener.index], plan, client)) return;
  if (exchange.peer_trusted) [[unlikely]] drop_unbelieved(exchange.request(), plan);
  else drop_forwarding_fields(exchange.request());
  name(exchange);
  if (plan.redirect_https && goes_to_https(exchange.request(), client)) [[unlikely]] {
    redirect_to_https(exchange);
    return;
  }
  if (exchange.request().method == Method::connect) {  // no route may open a tunnel yet
    exchange.fail(make_fault(What::upgrade_refused));
    return;
  }
  const auto found = find_route(*now.runtime, listener.index, exchange.request(), client);
  if (!found) {
    exchange.fail(make_fault(What::no_route));
    return;
  }
  exchange.route = static_cast<uint32_t>(*found);
  const RoutePlan& route = now.runtime->routes[*found];
  exchange.request_body_max = route.request_body_bytes[listener.index];
  if (exchange.request().body == BodyKind::length && exchange.request().content_length > exchange.request_body_max) {
    exchange.fail(make_fault(What::body_too_large));
    return;
  }
  if (route.targets.empty()) {
    exchange.client_timeouts = &route.client_timeouts[listener.index];
    answer(exchange, *route.route);
    return;
  }
  SmoothWheel& wheel = now.wheels[*found];
  exchange.target = wheel.seats.empty() ? 0 : static_cast<uint32_t>(wheel.next());
  exchange.client_timeouts = &route.target_client_timeouts[exchange.target][listener.index];
  Rotation::Target* to = now.upstreams[route.targets[exchange.target].upstream].pick(0);
  if (to == nullptr) exchange.fail(make_fault(What::name_unresolved));
  else forward(exchange, *to, false);
}

// What few listeners ask: whether the client may ask for that host here, and who it is behind trusted proxies. false: answered.
bool Forwarder::look_first(Exchange& exchange, const config::Listener& listener, const ListenerPlan& plan,
                           ClientFacts& client) noexcept {
  const Head& request = exchange.request();
  if (plan.own_names_only && !is_named(plan.tls.names, host_of(request.authority))) {
    exchange.fail(make_fault(What::misdirected));
    return false;
  }
  client = find_client(listener, request, exchange.peer(), exchange.peer_ip, exchange.https);
  exchange.client_ip = client.ip;
  exchange.https = client.https;
  exchange.peer_trusted = client.trusted;
  return true;
}

void Forwarder::redirect_to_https(Exchange& exchange) noexcept {
  const Head& request = exchange.request();
  const std::string_view host = host_of(request.authority);
  if (host.empty() || !request.path.starts_with('/')) {
    exchange.fail(make_fault(What::bad_host));
    return;
  }
  location_ = "https://";
  location_ += host;
  location_ += request.path;
  const ExtraField location[] = {{"location", location_}};
  exchange.respond(308, {}, {}, location);
}

// The request's id: a trusted peer's own, else a new one.
void Forwarder::name(Exchange& exchange) noexcept {
  if (exchange.peer_trusted) {
    for (Field& field : exchange.request()) {
      if (field.id != FieldId::x_request_id) continue;
      if (exchange.request_id.empty() && RequestIds::acceptable(field.value_view())) exchange.request_id = field.value_view();
      else field.removed = true;
    }
    if (!exchange.request_id.empty()) return;
  }
  ids_.write(exchange.request_id_text);
  exchange.request_id = {exchange.request_id_text, RequestIds::kSize};
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

void Forwarder::forward(Exchange& exchange, Rotation::Target& to, bool fresh) noexcept {
  WorkerRuntime& now = under(exchange);
  const TargetPlan& target = target_of(exchange);
  if (const RouteExtras* extras = route_of(exchange).extras.get(); extras != nullptr) [[unlikely]] {
    if (const What what = outgoing_.rewrite(exchange.request(), extras); what != What::none) {
      exchange.fail(make_fault(what));
      return;
    }
  }
  ++exchange.attempts;
  const auto& listener = *static_cast<ListenerView*>(exchange.listener);
  UpstreamStats& stats = *now.runtime->upstreams[target.upstream].stats[worker_];
  int error = 0;
  h1::ClientConn* conn = to.pool->acquire(listener.engine, fresh, stats.client, &error);
  if (conn == nullptr && error == EDQUOT) {
    // One that this worker keeps idle with another server makes room.
    for (Rotation::Target& other : now.upstreams[target.upstream].targets)
      if (conn == nullptr && other.pool != nullptr && other.pool->close_oldest_idle())
        conn = to.pool->acquire(listener.engine, fresh, stats.client, &error);
    if (conn == nullptr) to.pool->want();
  }
  if (conn == nullptr) {
    const What what = error == EDQUOT ? What::origin_limit : error == ENOMEM ? What::out_of_memory : What::overloaded;
    exchange.fail(make_fault(what, error));
    return;
  }
  conn->use(target.timeouts[exchange.listener_index], target.response_head_bytes[exchange.listener_index]);
  conn->begin(exchange);
  exchange.endpoint = to.endpoint;
  exchange.origin_pick = &to;
  exchange.origin_reused = conn->reused();
  ++to.pool->active;
  send(exchange, *conn);
}

void Forwarder::send(Exchange& exchange, Stream& origin) noexcept {
  const ExtraField fields[] = {{"x-forwarded-for", exchange.peer_ip},
                               {"x-forwarded-proto", exchange.https ? "https" : "http"},
                               {"x-request-id", exchange.request_id},
                               {"x-forwarded-host", exchange.request().authority}};
  const std::span<const ExtraField> own(fields, fields[3].value.empty() ? 3 : 4);  // HTTP/1.0 may name no host
  const RouteExtras* extras = route_of(exchange).extras.get();
  if (extras == nullptr && !exchange.peer_trusted) [[likely]] {
    exchange.connect(origin, own);
    return;
  }
  const bool replace = under(exchange).runtime->listeners[exchange.listener_index].only_forwarded;
  outgoing_.send(exchange, origin, extras, own, replace);
}

bool Forwarder::on_origin_failed(Exchange& exchange, const Fault& fault) noexcept {
  WorkerRuntime& now = under(exchange);
  const size_t upstream = target_of(exchange).upstream;
  Rotation& rotation = now.upstreams[upstream];
  UpstreamStats& stats = *now.runtime->upstreams[upstream].stats[worker_];
  if (exchange.origin_pick != nullptr) exchange.tried |= rotation.bit(*static_cast<Rotation::Target*>(exchange.origin_pick));
  leave_origin(exchange);
  if (!body_held(exchange)) return false;
  if (fault.retry == Retry::yes && exchange.attempts < attempts_max(rotation)) {
    Rotation::Target* to = rotation.pick(exchange.tried);
    if (to == nullptr) return false;
    stats.retries_connect.add();
    forward(exchange, *to, false);
    return true;
  }
  const bool harmless = !exchange.request_written || method_idempotent(exchange.request().method);
  if (fault.retry == Retry::if_reused && exchange.origin_reused && !exchange.retried_reused && harmless) {
    Rotation::Target* to = rotation.pick(exchange.tried);
    if (to == nullptr) to = rotation.pick(0);
    exchange.retried_reused = true;
    stats.retries_reused.add();
    forward(exchange, *to, true);
    return true;
  }
  return false;
}

std::span<const ExtraField> Forwarder::on_local_answer(Exchange& exchange, Head& answer) noexcept {
  if (exchange.route == UINT32_MAX) return {};
  const RouteExtras* extras = route_of(exchange).extras.get();
  return extras == nullptr ? std::span<const ExtraField>() : outgoing_.edit_answer(*extras, answer, false);
}

void Forwarder::on_more_fields(Exchange& exchange, Head& fields, bool from_client) noexcept {
  if (from_client) drop_forwarding_fields(fields);  // of a trusted peer's, too: it says such things in its heads
  if (exchange.route == UINT32_MAX) return;
  const RouteExtras* extras = route_of(exchange).extras.get();
  if (extras != nullptr) remove_edited(*extras, fields, from_client);
}

std::span<const ExtraField> Forwarder::on_response(Exchange& exchange, Head& response) noexcept {
  static_cast<const Endpoint*>(exchange.endpoint)->stats[worker_]->answers[code_class(response.status)].add();
  const RouteExtras* extras = route_of(exchange).extras.get();
  return extras == nullptr ? std::span<const ExtraField>() : outgoing_.edit_answer(*extras, response, true);
}

void Forwarder::on_end(Exchange& exchange) noexcept {
  leave_origin(exchange);
  record_end(exchange, worker_, access_);
  if (exchange.snapshot == nullptr) return;  // its head was refused before any route was looked for
  WorkerRuntime& ran = under(exchange);
  const bool current = static_cast<ListenerView*>(exchange.listener)->current == &ran;
  if (--ran.exchanges == 0 && !current && unused_ != nullptr) exchange.context().loop.mark_dirty(*unused_);
}

}  // namespace weir

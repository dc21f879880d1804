#include "daemon/record.h"

#include <strings.h>

#include <ctime>

#include "protocols/transport/tls_transport.h"

namespace weir {

namespace {

int64_t us_of(Duration time) noexcept { return std::chrono::duration_cast<std::chrono::microseconds>(time).count(); }

void take_fields(AccessEntry& entry, const Head& request) noexcept {
  for (const Field& field : request) {
    if (field.id == FieldId::user_agent) entry.user_agent = field.value_view();
    else if (field.id == FieldId::traceparent) entry.traceparent = field.value_view();
    else if (field.id == FieldId::other && field.name_size == 7 && strncasecmp(field.name, "referer", 7) == 0)
      entry.referer = field.value_view();
  }
}

void take_end(AccessEntry& entry, const Fault& fault) noexcept {
  if (!fault) {
    entry.end = "ok";
    return;
  }
  entry.end = fault_row(fault.what).code;
  entry.error = fault_row(fault.what).sentence;
  entry.client_left = fault.side == Side::client;
}

void log_line(Exchange& exchange, AccessSink& access) noexcept {
  const Head& request = exchange.request();
  const auto& listener = *static_cast<ListenerView*>(exchange.listener);
  const WorkerRuntime& under = exchange.snapshot != nullptr ? *static_cast<WorkerRuntime*>(exchange.snapshot) : *listener.current;
  const Runtime& runtime = *under.runtime;
  AccessEntry entry;
  timespec wall{};
  clock_gettime(CLOCK_REALTIME, &wall);
  entry.unix_ms = static_cast<int64_t>(wall.tv_sec) * 1000 + wall.tv_nsec / 1'000'000;
  entry.listener = listener.name;
  entry.client_ip = exchange.client_ip;
  entry.peer_ip = exchange.peer_ip.empty() ? exchange.client_ip : exchange.peer_ip;
  entry.request_id = exchange.request_id;
  entry.method = request.method_text;
  entry.host = request.authority;
  entry.path = request.path;
  entry.version = request.version;
  entry.protocol = kClientProtocolNames[client_protocol(request.version)];
  entry.scheme = exchange.https ? "https" : "http";
  if (exchange.tls != nullptr) {
    entry.tls_version = exchange.tls->version;
    entry.tls_cipher = exchange.tls->cipher;
    entry.tls_server_name = exchange.tls->server_name;
  }
  take_fields(entry, request);
  take_end(entry, exchange.fault());
  entry.status = exchange.status();
  entry.bytes_in = exchange.bytes_from_client();
  entry.bytes_out = exchange.bytes_to_client();
  entry.duration_us = us_of(exchange.context().loop.now() - exchange.started_at());
  if (exchange.answered_at() != kNever) entry.first_byte_us = us_of(exchange.answered_at() - exchange.started_at());
  if (exchange.connect_took.count() >= 0) entry.connect_us = us_of(exchange.connect_took);
  entry.stall_client_us = us_of(exchange.down().waited_for_sink() + exchange.up().waited_for_source());
  entry.stall_origin_us = us_of(exchange.down().waited_for_source() + exchange.up().waited_for_sink());
  if (exchange.route != UINT32_MAX) {
    const RoutePlan& plan = runtime.routes[exchange.route];
    entry.route = plan.route->name;
    if (!plan.targets.empty()) entry.upstream = runtime.upstreams[plan.targets[exchange.target].upstream].name;
    if (exchange.endpoint != nullptr) entry.origin = static_cast<const Endpoint*>(exchange.endpoint)->name;
  }
  entry.attempts = exchange.attempts;
  entry.reused = exchange.origin_reused;
  entry.generation = runtime.generation;
  entry.engine = engine_name(listener.engine);
  access.write(entry);
}

}  // namespace

void record_end(Exchange& exchange, size_t worker, AccessSink* access) noexcept {
  ListenerStats& stats = *static_cast<ListenerView*>(exchange.listener)->stats;
  const size_t protocol = client_protocol(exchange.request().version);
  stats.durations[protocol].add(exchange.context().loop.now() - exchange.started_at());
  if (exchange.fault()) stats.errors[static_cast<size_t>(exchange.fault().what)].add();
  ClassCounters* answers = &stats.unrouted[protocol];
  if (exchange.route != UINT32_MAX) {
    const Runtime& runtime = *static_cast<WorkerRuntime*>(exchange.snapshot)->runtime;
    answers = &runtime.routes[exchange.route].stats[exchange.listener_index][worker]->answers[protocol];
  }
  (*answers)[code_class(exchange.status())].add();
  if (access != nullptr && access->on.load(std::memory_order_relaxed)) log_line(exchange, *access);
}

}  // namespace weir

#include "daemon/connections.h"

#include "daemon/json.h"

namespace weir {

namespace {

constexpr size_t kTextBytesMax = 256;
constexpr size_t kRequestsShown = 8;   // of one connection that has many

uint64_t ms_since(TimePoint from, TimePoint now) noexcept {
  return static_cast<uint64_t>(std::max<int64_t>(0, std::chrono::duration_cast<std::chrono::milliseconds>(now - from).count()));
}

void put_request(json::Writer& row, const Exchange& exchange, TimePoint now) {
  const Head& head = exchange.request();
  row.object().member("method", head.method_text.substr(0, kTextBytesMax));
  row.member("host", head.authority.substr(0, kTextBytesMax)).member("path", head.path.substr(0, kTextBytesMax));
  row.member("age_ms", ms_since(exchange.started_at(), now));
  row.member("bytes_in", exchange.bytes_from_client()).member("bytes_out", exchange.bytes_to_client());
  if (exchange.status() != 0) row.member("status", static_cast<uint64_t>(exchange.status()));
  if (exchange.snapshot != nullptr) {
    const Runtime& runtime = *static_cast<const WorkerRuntime*>(exchange.snapshot)->runtime;
    row.member("generation", runtime.generation);
    if (exchange.route != UINT32_MAX) {
      const RoutePlan& plan = runtime.routes[exchange.route];
      row.member("route", plan.route->name);
      if (!plan.targets.empty()) row.member("upstream", runtime.upstreams[plan.targets[exchange.target].upstream].name);
    }
    if (exchange.endpoint != nullptr) row.member("origin", static_cast<const Endpoint*>(exchange.endpoint)->name);
  }
  row.end_object();
}

// Counts those that the filter lets through, and takes the first of them.
template <class Conn>
bool takes(const ConnectionFilter& filter, const Conn& conn, bool active, ConnectionList& out) {
  if (filter.active && *filter.active != active) return false;
  char host[46];
  const std::string_view client(host, conn.peer().host_text(host));
  if (!filter.client.empty() && filter.client != client) return false;
  return ++out.matching <= filter.limit;
}

// What a connection of any protocol has.
template <class Conn>
void begin_row(json::Writer& row, const Conn& conn, std::string_view protocol, bool active, const Listener& listener, size_t worker,
               TimePoint now) {
  row.object().member("listener", listener.name()).member("worker", static_cast<uint64_t>(worker)).member("protocol", protocol);
  row.member("engine", engine_name(conn.engine())).member("client", conn.peer().text());
  row.member("state", active ? "active" : "idle").member("age_ms", ms_since(conn.opened_at(), now));
}

}  // namespace

void list_connections(const Listener& listener, size_t worker, TimePoint now, const ConnectionFilter& filter, ConnectionList& out) {
  if (!filter.listener.empty() && filter.listener != listener.name()) return;
  listener.connections().each([&](const h1::ServerConn& conn) {
    const bool active = conn.exchange() != nullptr;
    if (!takes(filter, conn, active, out)) return;
    json::Writer row;
    begin_row(row, conn, "h1", active, listener, worker, now);
    if (active) {
      row.key("request");
      put_request(row, *conn.exchange(), now);
    }
    row.end_object();
    out.rows.push_back(row.text());
  });
  listener.h2_connections().each([&](const h2::ServerConn& conn) {
    const bool active = conn.streams() != 0;
    if (!takes(filter, conn, active, out)) return;
    json::Writer row;
    begin_row(row, conn, "h2", active, listener, worker, now);
    row.member("streams", static_cast<uint64_t>(conn.streams()));
    size_t shown = 0;
    row.key("requests").array();
    conn.each_exchange([&](const Exchange& exchange) {
      if (++shown <= kRequestsShown) put_request(row, exchange, now);
    });
    row.end_array().end_object();
    out.rows.push_back(row.text());
  });
}

}  // namespace weir

// Runtime: a config::Snapshot made ready to serve: names resolved, routes listed per listener, timeouts worked out, counters found.
// compile() makes it on the supervisor's side; after that nobody changes it. Workers share it (one reference each) and give it
// back when their last exchange under it has ended.
// It holds no descriptor and no connection.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "config/snapshot.h"
#include "daemon/resolve.h"
#include "daemon/route_index.h"
#include "daemon/stats.h"

namespace weir {

struct Endpoint {
  std::string name;       // as configured: "10.0.0.5:8080"
  Address address;        // length 0: its name does not resolve (yet)
  uint32_t weight = 1;
  std::vector<OriginStats*> stats{};      // by worker
};

struct UpstreamPlan {
  std::string name;
  config::Balance balance = config::Balance::round_robin;
  uint64_t connections_max = UINT64_MAX;
  Allowance* allowance = nullptr;
  std::vector<Endpoint> endpoints;
  std::vector<UpstreamStats*> stats;      // by worker
};

struct TargetPlan {
  size_t upstream = 0;
  uint32_t weight = 1;
  std::vector<h1::ClientTimeouts> timeouts;       // by listener
  std::vector<uint32_t> response_head_bytes;      // by listener
};

// What a route does to requests and answers besides passing them on. Views into the configuration.
struct FieldEdit {
  FieldId id;
  std::string_view name;
};
struct HeaderPlan {
  std::vector<FieldEdit> gone;                    // those removed, and those set anew
  std::vector<ExtraField> put;                    // set and added
  bool empty() const noexcept { return gone.empty() && put.empty(); }
};
struct RouteExtras {
  const config::Rewrite* rewrite = nullptr;       // null: the target and the host stay
  size_t matched_prefix = 0;                      // bytes of the path that rewrite->path_prefix takes the place of
  HeaderPlan request, response;
  bool via = false, forwarded = false;
};

struct RoutePlan {
  const config::Route* route = nullptr;
  std::unique_ptr<const RouteExtras> extras;      // null: nothing of it, which is what most routes are
  std::vector<TargetPlan> targets;                // forward only
  std::vector<ClientSideTimeouts> client_timeouts;        // by listener; for routes that answer themselves
  std::vector<std::vector<ClientSideTimeouts>> target_client_timeouts;  // by target, by listener
  std::vector<std::vector<RouteStats*>> stats;    // by listener (those that the route serves), by worker
  std::vector<uint64_t> request_body_bytes;       // by listener
};

// What a listener's certificate files came to.
struct ServedTls {
  TlsContext context;               // empty: plain
  std::vector<std::string> names;   // of all its certificates
};

// What a listener asks of each request before it is routed.
struct ListenerPlan {
  RouteIndex routes;
  ServedTls tls;
  bool own_names_only = false;  // it asks for client certificates: whose host its own do not name is sent away
  bool redirect_https = false;
  bool believes = false;        // it has trusted proxies
  bool only_forwarded = false;  // which say nothing in X-Forwarded-*
  bool matches_clients = false; // some route of it looks at the client's address
  bool looks_first() const noexcept { return redirect_https || believes || matches_clients || own_names_only; }
};

struct Runtime {
  uint64_t generation = 0;
  config::Snapshot config;
  std::vector<UpstreamPlan> upstreams;
  std::vector<RoutePlan> routes;                  // as config.routes
  std::vector<ListenerPlan> listeners;            // as config.listeners
  Addresses addresses;                            // what the names resolved to
  std::vector<std::string> unresolved;            // names that did not
};

h1::HeadLimits request_limits(const config::Limits& limits);
config::Limits listener_limits(const config::Snapshot& config, const config::Listener& listener);   // before a route is known
h1::ServerTimeouts server_timeouts(const config::Timeouts& t);
h2::SessionLimits session_limits(const config::Limits& limits);

// `addresses` has every server of the configuration (resolve_all); an empty list means that the name does not resolve now.
// `tls`: of each listener, as load_tls() made them; none: nobody will connect to it.
std::unique_ptr<Runtime> compile(config::Snapshot config, const Addresses& addresses, uint64_t generation, size_t workers,
                                 StatsRegistry& registry, const std::vector<ServedTls>& tls = {});

}  // namespace weir

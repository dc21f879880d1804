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
  std::vector<Endpoint> endpoints;
  std::vector<UpstreamStats*> stats;      // by worker
};

struct TargetPlan {
  size_t upstream = 0;
  uint32_t weight = 1;
  std::vector<h1::ClientTimeouts> timeouts;       // by listener
};

struct RoutePlan {
  const config::Route* route = nullptr;
  std::vector<TargetPlan> targets;                // forward only
  std::vector<ClientSideTimeouts> client_timeouts;        // by listener; for routes that answer themselves
  std::vector<std::vector<ClientSideTimeouts>> target_client_timeouts;  // by target, by listener
  std::vector<std::vector<RouteStats*>> stats;    // by listener, by worker
  uint32_t weight_total = 0;
};

struct Runtime {
  uint64_t generation = 0;
  config::Snapshot config;
  std::vector<UpstreamPlan> upstreams;
  std::vector<RoutePlan> routes;                  // as config.routes
  std::vector<RouteIndex> by_listener;
  Addresses addresses;                            // what the names resolved to
  std::vector<std::string> unresolved;            // names that did not
};

h1::HeadLimits request_limits(const config::Snapshot& config);
h1::ServerTimeouts server_timeouts(const config::Timeouts& t);

// `addresses` has every server of the configuration (resolve_all); an empty list means that the name does not resolve now.
std::unique_ptr<Runtime> compile(config::Snapshot config, const Addresses& addresses, uint64_t generation, size_t workers,
                                 StatsRegistry& registry);

}  // namespace weir

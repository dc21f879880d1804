#include "daemon/worker_runtime.h"

namespace weir {

WorkerRuntime::WorkerRuntime(std::shared_ptr<const Runtime> from, PoolSet& pools, size_t worker) : runtime(std::move(from)) {
  for (const UpstreamPlan& upstream : runtime->upstreams) {
    Rotation& rotation = upstreams.emplace_back();
    rotation.balance = upstream.balance;
    rotation.random += worker;            // workers do not all take the same turns
    rotation.turn = upstream.endpoints.empty() ? 0 : worker % upstream.endpoints.size();
    for (const Endpoint& endpoint : upstream.endpoints) {
      Pool* pool = nullptr;
      if (endpoint.address.length != 0) {
        pool = &pools.at(upstream.name, endpoint.address, *upstream.allowance);
        pool->seen = runtime->generation;
        pool->limit(upstream.connections_max);
        ++pool->users;
      }
      rotation.add(endpoint, pool, endpoint.weight);
    }
  }
  for (const RoutePlan& route : runtime->routes) {
    SmoothWheel& wheel = wheels.emplace_back();
    if (route.targets.size() < 2) continue;
    for (const TargetPlan& target : route.targets) wheel.add(target.weight);
  }
}

WorkerRuntime::~WorkerRuntime() {
  for (const Rotation& rotation : upstreams)
    for (const Rotation::Target& target : rotation.targets)
      if (target.pool != nullptr) --target.pool->users;
}

}  // namespace weir

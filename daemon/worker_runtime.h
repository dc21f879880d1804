// WorkerRuntime: a Runtime as one worker has it: its pools, its places in the rotations, and how many exchanges run under it.
// Owner: the worker, until no exchange and no retired listener needs it. Thread: the worker's.
// While it lives its pools do: Pool::users counts it.
#pragma once

#include <memory>
#include <vector>

#include "daemon/balance.h"
#include "daemon/runtime.h"

namespace weir {

struct WorkerRuntime {
  std::shared_ptr<const Runtime> runtime;
  std::vector<Rotation> upstreams;        // as runtime->upstreams
  std::vector<SmoothWheel> wheels;        // by route: its weighted `to`; no seats where there is nothing to choose
  uint32_t exchanges = 0;                 // that run under it

  WorkerRuntime(std::shared_ptr<const Runtime> from, PoolSet& pools, size_t worker);
  WorkerRuntime(const WorkerRuntime&) = delete;
  WorkerRuntime& operator=(const WorkerRuntime&) = delete;
  ~WorkerRuntime();
};

}  // namespace weir

// Forwarder: what a worker does with a request: find its route, answer it or send it to an origin, and try again where that is
// safe. One per worker, for all its listeners. Thread: the worker's.
// A request is tried again only while nothing of its answer and nothing of its body has been used: after a failed connect at the
// next endpoint, and once on a fresh connection when a reused one died before its first byte and the method is idempotent.
#pragma once

#include <memory>
#include <vector>

#include "daemon/access_log.h"
#include "daemon/pool.h"
#include "daemon/runtime.h"

namespace weir {

// A Runtime as one worker has it: its pools and its places in the rotations.
struct WorkerRuntime {
  struct Target {
    const Endpoint* endpoint;
    Pool* pool;          // null: the name does not resolve
    int64_t current = 0; // smooth weighted round robin
  };
  struct Rotation {
    std::vector<Target> targets;
    uint32_t weight_total = 0;
  };
  std::shared_ptr<const Runtime> runtime;
  std::vector<Rotation> upstreams;                    // as runtime->upstreams
  std::vector<std::vector<int64_t>> route_currents;   // by route, by target: the same for weighted `to`
  uint32_t exchanges = 0;                             // that run under it

  WorkerRuntime() = default;
  WorkerRuntime(const WorkerRuntime&) = delete;
  WorkerRuntime& operator=(const WorkerRuntime&) = delete;
  ~WorkerRuntime() {
    for (const Rotation& rotation : upstreams)
      for (const Target& target : rotation.targets)
        if (target.pool != nullptr) --target.pool->users;
  }
};

// What an exchange needs to know of the listener it came through.
struct ListenerView {
  std::string name;
  size_t index = 0;                 // in the current runtime's listeners
  WorkerRuntime* current = nullptr; // new exchanges begin under this
  EngineKind engine = EngineKind::epoll;
  ListenerStats* stats = nullptr;   // this worker's
};

class Forwarder final : public ExchangeHandler {
 public:
  explicit Forwarder(size_t worker) noexcept : worker_(worker) {}
  void log_to(AccessSink* sink) noexcept { access_ = sink; }
  void on_request(Exchange& exchange) noexcept override;
  bool on_origin_failed(Exchange& exchange, const Fault& fault) noexcept override;
  void on_response(Exchange& exchange, Head& response) noexcept override;
  void on_end(Exchange& exchange) noexcept override;

 private:
  void answer(Exchange& exchange, const config::Route& route) noexcept;
  void forward(Exchange& exchange, bool fresh) noexcept;
  size_t pick_target(WorkerRuntime& under, size_t route) noexcept;

  size_t worker_;
  AccessSink* access_ = nullptr;
};

}  // namespace weir

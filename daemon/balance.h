// Balance: which endpoint of an upstream gets a request, and which upstream of a weighted `to`. Pure arithmetic over small tables
// that belong to one worker: each worker balances what it serves itself.
// Guarantees: weights hold over any run of requests (round_robin, random), or by what is in flight (least_requests); an endpoint
// that this request was already tried at is not taken while there is another. Nothing here allocates.
#pragma once

#include <cstdint>
#include <vector>

#include "config/snapshot.h"
#include "daemon/pool.h"

namespace weir {

struct Endpoint;

// Smooth weighted round robin: everyone gains its weight, the richest is taken and pays the total. A B A for weights 2 and 1.
struct SmoothWheel {
  struct Seat {
    int64_t current = 0;
    uint32_t weight = 1;
  };
  std::vector<Seat> seats;
  int64_t total = 0;

  void add(uint32_t weight);
  size_t next() noexcept;                 // at least one seat
};

// The endpoints of one upstream as one worker sees them.
struct Rotation {
  struct Target {
    const Endpoint* endpoint = nullptr;
    Pool* pool = nullptr;                 // null: the name does not resolve
    uint32_t weight = 1;
    int64_t current = 0;                  // round_robin
  };
  std::vector<Target> targets;
  config::Balance balance = config::Balance::round_robin;
  size_t reachable = 0;                   // targets that have a pool
  size_t turn = 0;                        // least_requests: where ties are looked for first
  uint64_t random = 0x9e3779b97f4a7c15u;

  void add(const Endpoint& endpoint, Pool* pool, uint32_t weight);
  // `tried`: bit (index % 64) of each target that has failed this request. nullptr: nobody is left.
  Target* pick(uint64_t tried) noexcept;
  uint64_t bit(const Target& target) const noexcept {
    return uint64_t{1} << (static_cast<size_t>(&target - targets.data()) % 64);
  }

 private:
  Target* by_turns(uint64_t tried) noexcept;
  Target* by_load(uint64_t tried) noexcept;
  Target* by_chance(uint64_t tried) noexcept;
  bool usable(const Target& target, uint64_t tried) const noexcept {
    return target.pool != nullptr && (tried == 0 || (tried & bit(target)) == 0);
  }
};

}  // namespace weir

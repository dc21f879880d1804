// Allowance: how many connections to the servers of one upstream are open in the whole process, against its `max_connections`.
// Owner: StatsRegistry, under the upstream's name, for as long as the process lives; every worker takes and gives back.
// A worker that was refused asks the others to close an idle connection, or the next one that they would keep.
#pragma once

#include <atomic>
#include <cstdint>

namespace weir {

class Allowance {
 public:
  bool take(uint64_t most) noexcept {
    // Not added first and taken back: for that moment another worker would be refused a place that is free.
    int64_t open = open_.load(std::memory_order_relaxed);
    do {
      if (static_cast<uint64_t>(open) >= most) return false;
    } while (!open_.compare_exchange_weak(open, open + 1, std::memory_order_relaxed));
    return true;
  }
  void give_back() noexcept { open_.fetch_sub(1, std::memory_order_relaxed); }
  void want() noexcept { wanted_.store(true, std::memory_order_relaxed); }
  // True once for each want(): whoever hears it closes a connection that it no longer needs.
  bool wanted() noexcept {
    return wanted_.load(std::memory_order_relaxed) && wanted_.exchange(false, std::memory_order_relaxed);
  }
  int64_t open() const noexcept { return open_.load(std::memory_order_relaxed); }

 private:
  std::atomic<int64_t> open_{0};
  std::atomic<bool> wanted_{false};
};

}  // namespace weir

// Allowance: how many connections to the servers of one upstream are open in the whole process, against its `max_connections`.
// Owner: StatsRegistry, under the upstream's name, for as long as the process lives; every worker takes and gives back.
// A worker that was refused asks the others to close an idle connection, or the next one that they would keep. It is remembered who
// asked, and for a second only: nobody closes a connection for a wish of its own, or for one that has long been met otherwise.
#pragma once

#include <atomic>
#include <cstdint>

#include "engines/clock.h"

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
  // The latest wish is the one that counts: whoever made an earlier one asks again with its next request.
  void want(size_t worker, TimePoint now) noexcept {
    wish_.store(ms(now) << kWorkerBits | (worker + 1), std::memory_order_relaxed);
  }
  // The worker has a place.
  void withdraw(size_t worker) noexcept {
    uint64_t wish = wish_.load(std::memory_order_relaxed);
    if (wish != 0 && by(wish) == worker) wish_.compare_exchange_strong(wish, 0, std::memory_order_relaxed);
  }
  // True once for each wish of another worker than this one: whoever hears it closes a connection that it no longer needs.
  bool wanted(size_t worker, TimePoint now) noexcept {
    uint64_t wish = wish_.load(std::memory_order_relaxed);
    if (wish == 0 || by(wish) == worker || ms(now) > (wish >> kWorkerBits) + kLastsMs) return false;
    return wish_.compare_exchange_strong(wish, 0, std::memory_order_relaxed);
  }
  int64_t open() const noexcept { return open_.load(std::memory_order_relaxed); }

 private:
  static constexpr unsigned kWorkerBits = 16;
  static constexpr uint64_t kLastsMs = 1000;
  static uint64_t ms(TimePoint at) noexcept {
    return static_cast<uint64_t>(std::chrono::duration_cast<std::chrono::milliseconds>(at.time_since_epoch()).count());
  }
  static size_t by(uint64_t wish) noexcept { return (wish & ((uint64_t{1} << kWorkerBits) - 1)) - 1; }

  std::atomic<int64_t> open_{0};
  std::atomic<uint64_t> wish_{0};   // when and by whom; 0: none
};

}  // namespace weir

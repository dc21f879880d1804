// Counters that one thread writes and any thread reads: plain relaxed stores, no locked instruction on the data path.
// Owner: the writing thread's Loop or worker. Readers (metrics, status) see each counter whole, not a joint snapshot.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>

namespace weir {

class Counter {
 public:
  void add(uint64_t n = 1) noexcept { value_.store(value_.load(std::memory_order_relaxed) + n, std::memory_order_relaxed); }
  void set(uint64_t n) noexcept { value_.store(n, std::memory_order_relaxed); }
  void sub(uint64_t n = 1) noexcept { value_.store(value_.load(std::memory_order_relaxed) - n, std::memory_order_relaxed); }
  uint64_t get() const noexcept { return value_.load(std::memory_order_relaxed); }

 private:
  std::atomic<uint64_t> value_{0};
};

// The phases of a tick, in order. A tick above 10 ms is counted under the phase that took most of it.
enum class Phase : uint8_t { engine, completions, timers, pump, mailbox, frees };
inline constexpr int kPhases = 6;
const char* phase_name(Phase phase) noexcept;

struct LoopStats {
  Counter ticks;
  Counter completions;
  Counter events;
  Counter timers_fired;
  Counter pumps;
  Counter gathers;                            // ticks that waited for more
  Counter idle_wakes;                         // ticks that found nothing to do
  std::array<Counter, kPhases> stalls;        // ticks above 10 ms, by phase
  Counter slabs_in_use, pool_growths, memory_held, relay_pipe_bytes;   // copied from the pool and its lease at the end of each tick
};

}  // namespace weir

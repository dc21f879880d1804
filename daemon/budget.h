// MemoryGuard: what a worker does about the process's memory budget (engines/memory_budget.h). From 80 % on its grants, queues and
// free buffers shrink; from 95 % on, or while requests wait for memory, its listeners stop accepting, and of what it serves those
// end that have let bytes wait for longest (cause memory_pressure), enough to come down to 75 %; below 92 % accepting goes on.
// After a peak it gives free buffers back to the kernel.
// Owner: a worker; its listeners sign in and out. Thread: the worker's; news of the level come by mailbox from any thread.
// Guarantees: nobody who took or gave a byte in the last second ends while another one stands still; it costs nothing per request:
// it looks ten times a second under pressure, every five seconds while there is something to give back, else never.
#pragma once

#include <vector>

#include "config/snapshot.h"
#include "daemon/stats.h"
#include "protocols/exchange/exchange.h"

namespace weir {

class Listener;

class MemoryGuard final : MemoryBudget::Watcher {
 public:
  static constexpr uint32_t kTightBytes = 16u << 10;    // each grant and queue, from the tight level on

  // teller: of all workers the one that logs the levels.
  MemoryGuard(MemoryBudget& budget, ExchangeContext& exchanges, bool teller) noexcept;
  ~MemoryGuard();
  MemoryGuard(const MemoryGuard&) = delete;

  void configure(const PipeLimits& limits) noexcept;    // what pipes may hold while there is memory; `relay` stays as it is
  void add(Listener& listener) { listeners_.push_back(&listener); }
  void remove(Listener& listener) noexcept { std::erase(listeners_, &listener); }
  bool refusing() const noexcept { return level_ == MemoryLevel::critical; }
  bool accepting() const noexcept { return !paused_; }
  MemoryLevel level() const noexcept { return level_; }
  void rest() noexcept;                                 // looks no more until something grows: at the end
  MemoryStats stats;

 private:
  struct Notice : Message { MemoryGuard* guard = nullptr; std::atomic<bool> queued{false}; };
  struct Look : Timer { MemoryGuard* guard = nullptr; };
  struct Victim;
  static void changed_entry(MemoryBudget::Watcher& watcher) noexcept;
  static void grew_entry(void* guard) noexcept;
  void follow() noexcept;
  void squeeze() noexcept;
  void pause() noexcept;
  void look() noexcept;
  bool trim() noexcept;
  void end_some() noexcept;
  size_t find_victims(Victim* victims, size_t most) noexcept;
  void tell() noexcept;
  bool owes_news() const noexcept;

  MemoryBudget& budget_;
  ExchangeContext& exchanges_;
  Loop& loop_;
  PipeLimits normal_;
  std::vector<Listener*> listeners_;
  MemoryLevel level_ = MemoryLevel::normal;
  bool teller_;
  bool paused_ = false;          // no connections are accepted
  bool pressed_ = false;         // room has to be made
  bool wants_ = false;           // requests wait here: the budget was told
  TimePoint pressed_since_{};    // and nobody has ended since
  struct Told { bool so = false; TimePoint at{}; } told_tight_, told_paused_;
  TimePoint ended_told_at_{};
  uint64_t ended_untold_ = 0;
  Notice notice_;
  Look look_;
};

}  // namespace weir

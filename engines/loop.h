// Loop: one worker's heart. One thread, one or two engines, one pool, one timer wheel, one mailbox.
// Tick: clock -> engine turns (submit, wait, reap) -> completions -> timers -> pumps -> mailbox -> deferred frees.
// Owner: a worker (or a test). Thread: the one that calls run() or tick(); only mailbox().push() and stop() are for others.
// Guarantees: submit() and cancel() make no syscall and no callback; each op completes exactly once; now() is one instant for
// a whole tick; an object given to free_later lives until the end of the tick.
// Gathering: after a tick with several events the next wait may let more arrive for up to 50 us, sized by the last ticks, where
// that is measured to take less CPU. It never reads configuration and never logs.
#pragma once

#include <array>
#include <atomic>
#include <memory>

#include "engines/clock.h"
#include "engines/engine.h"
#include "engines/mailbox.h"
#include "engines/op.h"
#include "engines/slab.h"
#include "engines/stats.h"
#include "engines/timer_wheel.h"

namespace weir {

// Something that wants to look at its state once at the end of the tick, however many events touched it (a Pipe).
// hot_*: what it will touch, as bytes of its owner, `hot_before` of them standing before the Pump itself: in a crowded tick they
// are fetched into the cache while the pump before it runs.
struct Pump {
  Pump* next_dirty = nullptr;
  bool dirty = false;
  uint16_t hot_before = 0;
  uint16_t hot_bytes = 0;
  void (*pump)(Pump&) noexcept = nullptr;

  void owned_by(const void* owner, size_t bytes) noexcept {
    hot_before = static_cast<uint16_t>(reinterpret_cast<const char*>(this) - static_cast<const char*>(owner));
    hot_bytes = static_cast<uint16_t>(bytes);
  }
};

// Memory that is given back at the end of the tick. The callee owns it then.
struct Slot {
  Slot* next_free = nullptr;
  void (*release)(Slot&) noexcept = nullptr;
};

// Whether and how long to let events gather before serving; pure, so that a table can test it. What a short sleep costs differs
// by a factor of ten between machines, so it is measured and not guessed: now and then a window of events is served the other way,
// and the way that took less CPU per event is kept (after two windows in a row that say so).
class GatherPolicy {
 public:
  struct Advice { Duration gather{0}; uint32_t events = 0; };
  static constexpr Duration kGather = std::chrono::microseconds(50);
  static constexpr uint32_t kWindowEvents = 4096;
  static constexpr uint32_t kTrialEvery = 16;  // windows

  void tick_ended(uint32_t events) noexcept;   // events of the tick that just ended
  Advice advice() const noexcept;
  // A window is over when enough events came; then the loop tells what CPU time they took, and the next window begins.
  bool window_full() const noexcept { return window_events_ >= kWindowEvents; }
  void window_ended(Duration cpu) noexcept;
  void keep_gathering() noexcept { gather_ = true; }
  bool gathering() const noexcept { return gather_ != trial_; }  // what advice() follows in this window

 private:
  uint32_t last_ = 0;
  uint32_t average_16_ = 0;                    // events per tick, times 16, decaying
  uint32_t window_events_ = 0;
  uint32_t windows_ = 0;
  bool gather_ = false;                        // the way that won
  bool trial_ = false;                         // this window goes the other way
  bool won_once_ = false;
  bool busy_ = false;                          // advice() mattered in this window
  double kept_ns_ = 0;                         // CPU per event of the window before the trial
};

class Loop {
 public:
  struct Options {
    size_t slab_bytes_max = size_t{1} << 30;
    MemoryBudget* memory = nullptr;   // the process's; null: none
    bool gather = true;
    bool gather_always = false;   // after each busy tick, without measuring: for tests
  };
  Loop(Clock& clock, const Options& options);
  ~Loop();
  Loop(const Loop&) = delete;
  Loop& operator=(const Loop&) = delete;

  // Before the first tick. With both epoll and io_uring, the ring waits and watches the epoll descriptor.
  void add_engine(std::unique_ptr<Engine> engine);
  Engine* engine(EngineKind kind) noexcept { return engines_[static_cast<size_t>(kind)].get(); }
  bool has(EngineKind kind) const noexcept { return engines_[static_cast<size_t>(kind)] != nullptr; }

  void submit(Op& op) noexcept;
  void cancel(Op& op) noexcept;               // a hint; no effect on an idle or completed op
  int open(Socket& socket, const Address& to, EngineKind kind) noexcept;   // 0 or -errno; socket.fd is set
  void adopt(Socket& socket, int fd, EngineKind kind) noexcept;            // an accepted or inherited descriptor
  void shutdown(Socket& socket, ShutdownHow how) noexcept;
  void close(Socket& socket, bool linger_reset = false) noexcept;          // nothing may be in flight
  uint64_t acked_bytes(const Socket& socket) noexcept;

  TimePoint now() const noexcept { return now_; }
  void set_timer(Timer& timer, TimePoint due) noexcept { wheel_.set(timer, due); }
  void clear_timer(Timer& timer) noexcept { wheel_.clear(timer); }
  void forget_timer(Timer& timer) noexcept { wheel_.forget(timer); }

  void mark_dirty(Pump& pump) noexcept {
    if (pump.dirty) return;
    pump.dirty = true;
    pump.next_dirty = nullptr;
    if (dirty_tail_ != nullptr) dirty_tail_->next_dirty = &pump;
    else dirty_head_ = &pump;
    dirty_tail_ = &pump;
  }
  void forget_dirty(Pump& pump) noexcept;     // before a dirty pump's memory goes away
  void free_later(Slot& slot) noexcept {
    slot.next_free = frees_;
    frees_ = &slot;
  }

  SlabPool& slabs() noexcept { return slabs_; }
  Mailbox& mailbox() noexcept { return mailbox_; }
  LoopStats& stats() noexcept { return stats_; }

  void run() noexcept;                        // until stop()
  void stop() noexcept { stopping_.store(true, std::memory_order_relaxed); wake(); }   // any thread
  void wake() noexcept { mailbox_.wake(); }   // any thread: makes the current wait return
  // One tick; sleeps at most `longest`. Returns the number of completions, timers, pumps and messages served.
  uint32_t tick(Duration longest = kForever) noexcept;
  uint32_t ops_in_flight() const noexcept { return in_flight_; }

 private:
  void wire_engines() noexcept;
  Turn engine_turns(TimePoint begin, Duration longest) noexcept;
  void leave_epoll() noexcept;
  uint32_t dispatch(bool crowded) noexcept;
  uint32_t run_pumps(bool crowded) noexcept;
  uint32_t run_frees() noexcept;
  void end_phase(Phase phase, uint32_t served) noexcept;
  void count_stall(TimePoint coarse_began) noexcept;
  void end_tick(const Turn& turn, uint32_t served) noexcept;
  void watch_relay(RelayOp& op) noexcept;
  void unwatch_relay(RelayOp& op) noexcept;
  static void relay_watch_fired(Timer& timer) noexcept;

  struct Side {
    OpList submitted;
    OpList cancelled;
  };

  Clock& clock_;
  Options options_;
  SlabPool slabs_;
  TimerWheel wheel_;
  Mailbox mailbox_;
  LoopStats stats_;
  GatherPolicy gather_;
  std::array<std::unique_ptr<Engine>, kEngineKinds> engines_;
  std::array<Side, kEngineKinds> sides_;
  OpList completed_;
  Pump* dirty_head_ = nullptr;
  Pump* dirty_tail_ = nullptr;
  Slot* frees_ = nullptr;
  TimePoint now_;
  uint32_t in_flight_ = 0;
  uint16_t generation_ = 0;     // of the socket adopted last
  Duration window_cpu_{0};      // the thread's CPU time when the gather policy's window began
  bool wired_ = false;
  bool leaving_ = false;        // some submitted op's socket is still in the epoll set of an engine that it left
  std::atomic<bool> stopping_{false};

  // Stalls. Phases are told apart with the coarse clock, and only those that did something; a tick that seems long to it is
  // then measured with the real one. So a tick reads the real clock twice, before and after waiting.
  Duration timeout_{0};         // what the engines were allowed to sleep in this tick
  TimePoint phase_began_;
  std::array<Duration, kPhases> phase_took_{};

  struct RelayWatch : Timer { Loop* loop = nullptr; RelayOp* head = nullptr; } relay_watch_;  // 50 ms; resets quiet low-water marks
};

}  // namespace weir

// TimerWheel: deadlines, in O(1). A Timer is embedded in its owner and set to an absolute time; moving it later is one store
// (the entry stays where it is and is looked at again when its old slot comes up), so re-arming on every byte costs nothing.
// Owner: a Loop. Thread: the loop's own. A timer fires at or after its due time, within one slot (4 ms) of the clock
// reading, coarse ones within 500 ms: they are rounded up to whole half seconds so that idle deadlines are served in batches.
// fire() may set, clear or forget any timer, its own included. forget() before a timer's memory goes away.
#pragma once

#include <array>
#include <cstdint>

#include "engines/clock.h"

namespace weir {

struct Timer {
  Timer* next = nullptr;
  Timer* prev = nullptr;
  TimePoint due = kNever;         // when it fires
  TimePoint slotted = kNever;     // where its entry stands in the wheel (never later than due); kNever: not in the wheel
  void (*fire)(Timer&) noexcept = nullptr;
  bool coarse = false;            // may be late by up to 500 ms

  bool armed() const noexcept { return due != kNever; }
};

class TimerWheel {
 public:
  static constexpr Duration kSlot = std::chrono::milliseconds(4);
  static constexpr Duration kCoarse = std::chrono::milliseconds(500);

  explicit TimerWheel(TimePoint now) noexcept;
  void set(Timer& timer, TimePoint due) noexcept;   // kNever clears
  void clear(Timer& timer) noexcept { timer.due = kNever; }  // lazy: the entry may stay until its slot comes up
  void forget(Timer& timer) noexcept;               // out of the wheel at once
  // Fires what is due at `now`. Returns the number fired.
  uint32_t advance(TimePoint now) noexcept;
  // When advance() should next be called: never later than the first due timer's slot; kNever when the wheel is empty.
  TimePoint next_due() const noexcept;
  size_t size() const noexcept { return size_; }    // entries in the wheel, lazily cleared ones included

 private:
  static constexpr int kLevels = 6;                 // 64^6 slots of 4 ms: 8.7 years; later ones stay in the last level
  static constexpr int kWidth = 64;
  struct Level {
    uint64_t occupied = 0;
    std::array<Timer*, kWidth> slots{};
  };
  void link(Timer& timer) noexcept;
  void unlink(Timer& timer) noexcept;

  std::array<Level, kLevels> levels_{};
  int64_t tick_ = 0;                                // the slot number that advance() has reached
  size_t size_ = 0;
};

}  // namespace weir

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
  TimePoint slotted = kNever;     // when its entry is looked at: not later than due, or in the next slot; kNever: not in the wheel
  void (*fire)(Timer&) noexcept = nullptr;
  bool coarse = false;            // may be late by up to 500 ms
  uint16_t where = 0;             // the wheel's own: level and slot of its entry

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
  static constexpr int kLevels = 6;                 // 64^6 slots of 4 ms: 8.7 years; later ones wait in the last slot of all
  static constexpr int kBits = 6;
  static constexpr int kWidth = 1 << kBits;
  static constexpr int64_t kLastTick = (int64_t{1} << (kLevels * kBits)) - 1;
  // An entry stands at the lowest level where its tick and tick_ share all higher digits (base 64). So entries of a lower
  // level are always due earlier, and within a level no slot is at or before tick_'s own.
  struct Level {
    uint64_t occupied = 0;
    std::array<Timer*, kWidth> slots{};
    // Lower bound of the ticks in a slot, so that nobody wakes only to move entries down.
    std::array<int64_t, kWidth> first{};
  };
  int64_t tick_of(const Timer& timer, int64_t earliest) const noexcept;
  void link(Timer& timer, int64_t tick) noexcept;
  void unlink(Timer& timer) noexcept;
  bool next_slot(int& level, int& slot) const noexcept;
  void move_down(int level, int slot) noexcept;
  uint32_t fire_slot(int slot) noexcept;

  std::array<Level, kLevels> levels_{};
  TimePoint base_;                                  // tick 0
  int64_t tick_ = 0;                                // what advance() has served
  int64_t target_ = 0;                              // what advance() will have served when it returns: new entries come after it
  size_t size_ = 0;
};

}  // namespace weir

#include "engines/timer_wheel.h"

#include <algorithm>
#include <bit>
#include <utility>

#include "engines/check.h"

namespace weir {
namespace {

// Rounded up, without overflow at the far end of time.
int64_t units_up(Duration span, Duration unit) noexcept {
  if (span <= Duration::zero()) return 0;
  return span / unit + (span % unit != Duration::zero() ? 1 : 0);
}

}  // namespace

TimerWheel::TimerWheel(TimePoint now) noexcept : base_(now) {}

int64_t TimerWheel::tick_of(const Timer& timer, int64_t earliest) const noexcept {
  const Duration span = timer.due - base_;
  const int64_t tick = timer.coarse ? units_up(span, kCoarse) * (kCoarse / kSlot) : units_up(span, kSlot);
  return std::clamp(tick, earliest, std::max(kLastTick, earliest));
}

void TimerWheel::link(Timer& timer, int64_t tick) noexcept {
  const uint64_t differ = static_cast<uint64_t>(tick ^ tick_) | (kWidth - 1);
  const int level = std::min((static_cast<int>(std::bit_width(differ)) - 1) / kBits, kLevels - 1);
  const int slot = static_cast<int>(tick >> (level * kBits)) & (kWidth - 1);
  Level& at = levels_[static_cast<size_t>(level)];
  Timer*& head = at.slots[static_cast<size_t>(slot)];
  int64_t& first = at.first[static_cast<size_t>(slot)];
  first = head == nullptr ? tick : std::min(first, tick);
  timer.prev = nullptr;
  timer.next = head;
  if (head != nullptr) head->prev = &timer;
  head = &timer;
  at.occupied |= uint64_t{1} << slot;
  timer.where = static_cast<uint16_t>(level * kWidth + slot);
  // An entry of a timer that was due already stands later than that; it must not be pulled forward when it moves down.
  const int64_t units = timer.coarse ? kCoarse / kSlot : 1;
  const TimePoint before = base_ + (tick - units) * kSlot;
  timer.slotted = before >= timer.due ? base_ + tick * kSlot : timer.due;
  ++size_;
}

void TimerWheel::unlink(Timer& timer) noexcept {
  Level& at = levels_[timer.where / kWidth];
  const size_t slot = timer.where % kWidth;
  if (timer.next != nullptr) timer.next->prev = timer.prev;
  if (timer.prev != nullptr) {
    timer.prev->next = timer.next;
  } else {
    WEIR_DEBUG_ASSERT(at.slots[slot] == &timer);
    at.slots[slot] = timer.next;
    if (timer.next == nullptr) at.occupied &= ~(uint64_t{1} << slot);
  }
  timer.next = timer.prev = nullptr;
  timer.slotted = kNever;
  --size_;
}

void TimerWheel::set(Timer& timer, TimePoint due) noexcept {
  timer.due = due;
  if (due >= timer.slotted) return;  // it is looked at early enough; both kNever: nothing to do
  if (timer.slotted != kNever) unlink(timer);
  link(timer, tick_of(timer, target_ + 1));
}

void TimerWheel::forget(Timer& timer) noexcept {
  if (timer.slotted != kNever) unlink(timer);
  timer.due = kNever;
}

// The occupied slot that comes next. A lower level always comes first.
bool TimerWheel::next_slot(int& level, int& slot) const noexcept {
  for (level = 0; level < kLevels; ++level) {
    const int own = static_cast<int>(tick_ >> (level * kBits)) & (kWidth - 1);
    // Bits above our own slot; shifting by 64 is not allowed, so in two steps.
    const uint64_t later = levels_[static_cast<size_t>(level)].occupied & ~((uint64_t{2} << own) - 1);
    if (later == 0) continue;
    slot = std::countr_zero(later);
    return true;
  }
  return false;
}

void TimerWheel::move_down(int level, int slot) noexcept {
  Timer*& head = levels_[static_cast<size_t>(level)].slots[static_cast<size_t>(slot)];
  Timer* list = std::exchange(head, nullptr);
  levels_[static_cast<size_t>(level)].occupied &= ~(uint64_t{1} << slot);
  while (list != nullptr) {
    Timer& timer = *list;
    list = timer.next;
    --size_;
    timer.next = timer.prev = nullptr;
    const int64_t earliest = std::max(tick_, units_up(timer.slotted - base_, kSlot));
    timer.slotted = kNever;
    if (timer.due == kNever) continue;  // cleared meanwhile
    // A timer that was set later meanwhile goes to its new place. tick_ itself is served right after this.
    link(timer, tick_of(timer, earliest));
  }
}

// Serves the entries of tick_ itself. A callback can link only behind target_, so this list only shrinks.
uint32_t TimerWheel::fire_slot(int slot) noexcept {
  Timer*& head = levels_[0].slots[static_cast<size_t>(slot)];
  uint32_t fired = 0;
  while (head != nullptr) {
    Timer& timer = *head;
    unlink(timer);
    if (timer.due == kNever) continue;
    const int64_t tick = tick_of(timer, tick_);
    if (tick > tick_) {  // moved later meanwhile
      link(timer, tick);
      continue;
    }
    timer.due = kNever;
    timer.fire(timer);
    ++fired;
  }
  return fired;
}

uint32_t TimerWheel::advance(TimePoint now) noexcept {
  const int64_t target = (now - base_) / kSlot;
  if (target <= tick_) return 0;
  target_ = target;
  uint32_t fired = 0;
  int level = 0;
  int slot = 0;
  while (next_slot(level, slot)) {
    const int shift = level * kBits;
    const int64_t above = (tick_ >> shift >> kBits) << kBits;
    const int64_t tick = (above + slot) << shift;
    if (tick > target) break;
    tick_ = tick;
    if (level > 0) move_down(level, slot);
    // Entries that were moved down to this very tick, through as many levels as it starts.
    fired += fire_slot(static_cast<int>(tick_) & (kWidth - 1));
  }
  tick_ = target;
  return fired;
}

TimePoint TimerWheel::next_due() const noexcept {
  int level = 0;
  int slot = 0;
  if (!next_slot(level, slot)) return kNever;
  const int64_t tick = levels_[static_cast<size_t>(level)].first[static_cast<size_t>(slot)];
  return base_ + tick * kSlot;
}

}  // namespace weir

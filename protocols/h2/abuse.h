// Budget: what one HTTP/2 connection may cost us beside its requests. Frames that carry no request and no body are charged, good
// work pays some of it back, and what is charged never starts anew. The session charges it for each frame header, before the
// library sees the frame. Owner: a Session. Pure arithmetic; the caller says what time it is.
// Overhead: a tenth is forgiven per accepted request and per 64 KiB of DATA sent; one frame a second is free, which keeps a quiet
// connection alive with its pings for ever. Window updates and pings answer DATA: what we send of it earns them (updates: one per
// 256 bytes, but two per frame at least, at most four times the budget; pings: one per frame), and only the rest is overhead.
// Resets: one a second is forgotten, nothing else.
#pragma once

#include <algorithm>
#include <cstdint>

#include "engines/clock.h"

namespace weir::h2 {

struct BudgetLimits {
  uint32_t overhead = 1000;   // frames
  uint32_t resets = 512;
};

class Budget {
 public:
  explicit Budget(TimePoint now) noexcept : overhead_at_(now), resets_at_(now) {}

  // false: over the limit.
  bool overhead(const BudgetLimits& limits, uint32_t frames, TimePoint now) noexcept {
    overhead_ -= std::min(overhead_, seconds_since(overhead_at_, now));
    overhead_ += frames;
    return overhead_ <= limits.overhead;
  }
  bool reset(const BudgetLimits& limits, TimePoint now) noexcept {
    resets_ -= std::min(resets_, seconds_since(resets_at_, now));
    return ++resets_ <= limits.resets;
  }
  // A WINDOW_UPDATE that let something go on is no overhead; one that did not may have been earned.
  bool window_update(const BudgetLimits& limits, bool unblocks, TimePoint now) noexcept {
    return unblocks || earned(updates_earned_) || overhead(limits, 1, now);
  }
  bool ping(const BudgetLimits& limits, TimePoint now) noexcept { return earned(pings_earned_) || overhead(limits, 1, now); }

  void request_accepted() noexcept { forgive(); }
  void data_sent(const BudgetLimits& limits, uint64_t bytes) noexcept {   // one frame
    const uint64_t updates = std::max<uint64_t>(bytes / kBytesPerUpdate, 2);
    updates_earned_ = std::min(updates_earned_ + updates, uint64_t{limits.overhead} * 4);
    pings_earned_ = std::min(pings_earned_ + 1, uint64_t{limits.overhead});
    for (sent_ += bytes; sent_ >= kBytesPerTenth; sent_ -= kBytesPerTenth) forgive();
  }

  uint64_t spent() const noexcept { return overhead_; }
  uint64_t resets() const noexcept { return resets_; }

 private:
  static constexpr uint64_t kBytesPerTenth = 64u << 10;
  static constexpr uint64_t kBytesPerUpdate = 256;

  static bool earned(uint64_t& credit) noexcept {
    if (credit == 0) return false;
    --credit;
    return true;
  }
  void forgive() noexcept { overhead_ -= (overhead_ + 9) / 10; }
  // Whole seconds since `from`, which moves on by them.
  static uint64_t seconds_since(TimePoint& from, TimePoint now) noexcept {
    const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(now - from);
    from += seconds;
    return static_cast<uint64_t>(std::max<int64_t>(seconds.count(), 0));
  }

  uint64_t overhead_ = 0;
  uint64_t resets_ = 0;
  uint64_t updates_earned_ = 0, pings_earned_ = 0;
  uint64_t sent_ = 0;          // DATA since the last tenth was forgiven
  TimePoint overhead_at_;
  TimePoint resets_at_;
};

}  // namespace weir::h2

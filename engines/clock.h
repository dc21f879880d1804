// Time as the loop sees it. One reading per tick; everything between two ticks happens at the same instant.
// Owner: whoever builds a Loop (a SystemClock in the daemon, a SimClock in tests). Thread: the loop's own.
// Guarantee: now() never goes back. Engines never call this: an engine is told how long it may wait and nothing else.
#pragma once

#include <time.h>

#include <chrono>
#include <ctime>

namespace weir {

using Duration = std::chrono::nanoseconds;
using TimePoint = std::chrono::time_point<std::chrono::steady_clock, Duration>;
inline constexpr TimePoint kNever = TimePoint::max();  // a deadline that config switched off is armed at kNever
inline constexpr Duration kForever = Duration::max();

class Clock {
 public:
  virtual ~Clock() = default;
  virtual TimePoint now() noexcept = 0;
  // CPU time that the calling thread has used; where it is unknown, no time passes.
  virtual Duration cpu_now() noexcept { return Duration::zero(); }
  // Cheaper and up to some milliseconds behind: enough to tell which phase of a tick took longer than 10 ms.
  virtual TimePoint coarse_now() noexcept { return now(); }
};

class SystemClock final : public Clock {
 public:
  Duration cpu_now() noexcept override {
    timespec used{};
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &used);
    return std::chrono::seconds(used.tv_sec) + std::chrono::nanoseconds(used.tv_nsec);
  }
  TimePoint now() noexcept override { return std::chrono::time_point_cast<Duration>(std::chrono::steady_clock::now()); }
  TimePoint coarse_now() noexcept override {
    timespec t{};
    clock_gettime(CLOCK_MONOTONIC_COARSE, &t);
    return TimePoint(std::chrono::seconds(t.tv_sec) + std::chrono::nanoseconds(t.tv_nsec));
  }
};

}  // namespace weir

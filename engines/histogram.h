// Histogram: how many durations fell under each of a fixed row of bounds, and their sum. As a Counter (stats.h): one thread
// writes with plain relaxed stores, any thread reads each number whole. add() takes four comparisons and two increments.
#pragma once

#include <array>

#include "engines/clock.h"
#include "engines/stats.h"

namespace weir {

class Histogram {
 public:
  static constexpr size_t kBounds = 15;   // with the one above them all a power of two of buckets
  static constexpr std::array<uint32_t, kBounds> kBoundsUs = {
      500,     1'000,   2'500,   5'000,     10'000,    25'000,    50'000,    100'000,
      250'000, 500'000, 1'000'000, 2'500'000, 5'000'000, 10'000'000, 60'000'000};

  void add(Duration took) noexcept {
    const uint64_t ns = took.count() > 0 ? static_cast<uint64_t>(took.count()) : 0;
    size_t at = 0;
    for (size_t step = (kBounds + 1) / 2; step != 0; step /= 2)
      if (uint64_t{kBoundsUs[at + step - 1]} * 1000 < ns) at += step;
    buckets_[at].add();
    sum_ns_.add(ns);
  }
  uint64_t bucket(size_t at) const noexcept { return buckets_[at].get(); }   // not cumulative; at kBounds: above all bounds
  uint64_t sum_ns() const noexcept { return sum_ns_.get(); }
  uint64_t count() const noexcept {
    uint64_t total = 0;
    for (const Counter& bucket : buckets_) total += bucket.get();
    return total;
  }

 private:
  std::array<Counter, kBounds + 1> buckets_;
  Counter sum_ns_;
};

}  // namespace weir

#include "engines/histogram.h"

#include <catch2/catch_test_macros.hpp>

using namespace weir;
using std::chrono::microseconds;
using std::chrono::nanoseconds;

TEST_CASE("histogram: every bound and its neighbours fall where Prometheus expects them (le)", "[stats]") {
  for (size_t at = 0; at < Histogram::kBounds; ++at) {
    INFO(at);
    Histogram histogram;
    const auto bound = microseconds(Histogram::kBoundsUs[at]);
    histogram.add(bound);
    CHECK(histogram.bucket(at) == 1);
    histogram.add(bound - nanoseconds(1));
    CHECK(histogram.bucket(at) == 2);
    histogram.add(bound + nanoseconds(1));
    CHECK(histogram.bucket(at) == 2);
    CHECK(histogram.bucket(at + 1) == 1);
    CHECK(histogram.count() == 3);
    CHECK(histogram.sum_ns() == 3u * static_cast<uint64_t>(nanoseconds(bound).count()));
  }
}

TEST_CASE("histogram: nothing and too much", "[stats]") {
  Histogram histogram;
  histogram.add(nanoseconds(0));
  histogram.add(nanoseconds(-5));
  CHECK(histogram.bucket(0) == 2);
  histogram.add(std::chrono::hours(100));
  CHECK(histogram.bucket(Histogram::kBounds) == 1);
  CHECK(histogram.count() == 3);
}

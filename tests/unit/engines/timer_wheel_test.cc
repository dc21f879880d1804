// The wheel against a plain list of deadlines.
#include "engines/timer_wheel.h"

#include <catch2/catch_test_macros.hpp>
#include <deque>
#include <random>

using namespace weir;
using namespace std::chrono_literals;

namespace {

struct Probe : Timer {
  int fired = 0;
  TimePoint fired_at{};
  const TimePoint* clock = nullptr;
  explicit Probe(const TimePoint* c = nullptr, bool is_coarse = false) : clock(c) {
    coarse = is_coarse;
    fire = [](Timer& timer) noexcept {
      auto& probe = static_cast<Probe&>(timer);
      ++probe.fired;
      if (probe.clock != nullptr) probe.fired_at = *probe.clock;
    };
  }
};

}  // namespace

TEST_CASE("timers fire once, never early, and at most a slot late", "[E12]") {
  TimePoint now = TimePoint(123456789us);
  TimerWheel wheel(now);
  std::mt19937_64 random(7);
  std::deque<Probe> probes;
  struct Expect {
    TimePoint due = kNever;
    int fired = 0;
  };
  std::vector<Expect> expects(400);
  for (size_t i = 0; i < expects.size(); ++i) probes.emplace_back(&now, i % 3 == 0);
  const Duration spans[] = {10ms, 300ms, 5s, 90s, 2h, 24h * 30};
  for (int step = 0; step < 300000; ++step) {
    const size_t i = random() % probes.size();
    Probe& probe = probes[i];
    switch (random() % 8) {
      case 0: wheel.clear(probe); expects[i].due = kNever; break;
      case 1: wheel.forget(probe); expects[i].due = kNever; break;
      case 2:
      case 3:
      case 4: {
        const auto span = static_cast<uint64_t>(spans[random() % std::size(spans)].count());
        const TimePoint due = now + Duration(static_cast<int64_t>(random() % span)) - 2ms;
        wheel.set(probe, due);
        expects[i].due = due;
        break;
      }
      default: {
        // Either to the time the wheel asks for, or anywhere.
        const TimePoint next = wheel.next_due();
        Duration by = Duration(static_cast<int64_t>(random() % 20000000));
        if (next != kNever && next > now && random() % 2 == 0) by = next - now;
        if (random() % 200 == 0) by = Duration(static_cast<int64_t>(random() % uint64_t(Duration(1h).count())));
        now += by;
        wheel.advance(now);
        for (size_t k = 0; k < probes.size(); ++k) {
          Expect& expect = expects[k];
          const Duration late = probes[k].coarse ? Duration(TimerWheel::kCoarse) : Duration(0);
          if (expect.due == kNever) {
            REQUIRE(probes[k].fired == expect.fired);
          } else if (probes[k].fired > expect.fired) {
            REQUIRE(probes[k].fired == expect.fired + 1);
            REQUIRE(probes[k].fired_at >= expect.due);
            expect = {kNever, probes[k].fired};
            REQUIRE_FALSE(probes[k].armed());
          } else {
            REQUIRE(expect.due + late + 2 * TimerWheel::kSlot > now);
          }
        }
      }
    }
    // next_due is never later than the first deadline, rounded up to its slot.
    if (step % 50 == 0) {
      for (size_t k = 0; k < probes.size(); ++k) {
        if (expects[k].due == kNever) continue;
        const Duration late = probes[k].coarse ? Duration(TimerWheel::kCoarse) : Duration(0);
        REQUIRE(wheel.next_due() <= std::max(expects[k].due, now) + late + TimerWheel::kSlot);
      }
    }
  }
  for (Probe& probe : probes) wheel.forget(probe);
  CHECK(wheel.size() == 0);
  CHECK(wheel.next_due() == kNever);
}

TEST_CASE("moving a deadline later is a store", "[E12]") {
  TimePoint now{};
  TimerWheel wheel(now);
  Probe probe(&now);
  wheel.set(probe, now + 100ms);
  const uint16_t where = probe.where;
  for (int i = 0; i < 100; ++i) {
    now += 50ms;
    wheel.set(probe, now + 100ms);
  }
  CHECK(probe.where == where);
  CHECK(wheel.advance(now) == 0);
  CHECK(probe.fired == 0);
  CHECK(wheel.advance(now + 96ms) == 0);
  CHECK(wheel.advance(now + 100ms) == 1);
}

TEST_CASE("a callback may set, clear and forget any timer") {
  TimePoint now{};
  TimerWheel wheel(now);
  struct Ring : Timer {
    TimerWheel* wheel = nullptr;
    Ring* forgets = nullptr;
    Ring* clears = nullptr;
    TimePoint again = kNever;
    int fired = 0;
  };
  const auto fire = [](Timer& timer) noexcept {
    auto& ring = static_cast<Ring&>(timer);
    ++ring.fired;
    if (ring.forgets != nullptr) ring.wheel->forget(*ring.forgets);
    if (ring.clears != nullptr) ring.wheel->clear(*ring.clears);
    if (ring.again != kNever) ring.wheel->set(ring, ring.again);
  };
  Ring a, b, c;
  for (Ring* ring : {&a, &b, &c}) {
    ring->fire = fire;
    ring->wheel = &wheel;
    wheel.set(*ring, now + 8ms);
  }
  // Whichever comes first takes the others with it.
  a.forgets = &b, a.clears = &c, b.forgets = &c, b.clears = &a, c.forgets = &a, c.clears = &b;
  CHECK(wheel.advance(now + 1s) == 1);
  CHECK(a.fired + b.fired + c.fired == 1);
  CHECK(wheel.size() == 0);

  // A timer that is set to the past by its own callback fires in the next advance, not in the same one for ever.
  Ring d;
  d.fire = fire;
  d.wheel = &wheel;
  d.again = now;
  wheel.set(d, now + 1s);
  CHECK(wheel.advance(now + 10s) == 1);
  CHECK(wheel.advance(now + 10s) == 0);
  CHECK(wheel.advance(now + 10s + TimerWheel::kSlot) == 1);
}

TEST_CASE("ten thousand coarse timers wake an idle worker at most twice a second", "[U2]") {
  TimePoint now = TimePoint(98765ms);
  TimerWheel wheel(now);
  std::mt19937_64 random(11);
  std::deque<Probe> probes;
  for (int i = 0; i < 10000; ++i) {
    probes.emplace_back(&now, true);
    wheel.set(probes.back(), now + 60s + Duration(static_cast<int64_t>(random() % 60'000'000'000)));
  }
  int wakes = 0;
  uint32_t fired = 0;
  const TimePoint begin = now;
  while (now < begin + 125s) {
    const TimePoint next = wheel.next_due();
    if (next == kNever) break;
    REQUIRE(next > now);
    now = next;
    fired += wheel.advance(now);
    ++wakes;
  }
  CHECK(fired == 10000);
  CHECK(wakes <= 2 * 61);  // due over one minute; before that nothing wakes at all
  for (const Probe& probe : probes) REQUIRE(probe.fired == 1);
}

TEST_CASE("timers beyond the wheel's span wait") {
  TimePoint now{};
  TimerWheel wheel(now);
  Probe far(&now);
  wheel.set(far, TimePoint(kNever - 1h));
  CHECK(wheel.next_due() > now + 24h * 365 * 8);
  CHECK(wheel.advance(now + 24h * 365) == 0);
  wheel.set(far, now + 24h * 365 + 10ms);
  now += 24h * 365 + 12ms;
  CHECK(wheel.advance(now) == 1);
}

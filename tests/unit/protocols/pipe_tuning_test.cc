// The cap's self-tuning, over a link in virtual time: a source that may only send what it was granted, half a round trip ago.
#include <catch2/catch_test_macros.hpp>
#include <functional>
#include <map>
#include <string>

#include "tests/unit/protocols/pipe_rig.h"

using namespace weir;
using namespace weir::test;
using namespace std::chrono_literals;

namespace {

constexpr size_t kFrame = 16'384;

// Events in virtual time; the loop ticks after each instant.
struct Timeline {
  Rig rig;
  std::multimap<TimePoint, std::function<void()>> events;

  TimePoint now() const { return rig.clock.at; }
  void at(TimePoint when, std::function<void()> what) { events.emplace(when, std::move(what)); }
  void run(Duration length) {
    const TimePoint until = now() + length;
    rig.tick();
    while (!events.empty() && events.begin()->first <= until) {
      rig.clock.at = events.begin()->first;
      rig.tick();                                        // the loop reads the clock before anything is delivered
      while (!events.empty() && events.begin()->first <= now()) {
        auto what = std::move(events.begin()->second);
        events.erase(events.begin());
        what();
      }
      rig.tick();
    }
    rig.clock.at = until;
  }
};

struct Link {
  Duration round_trip{100ms};
  double bytes_per_second = 2.5e6;
  Duration pause{0};           // the application: so long between two frames
};

// An h2 or h3 peer as a source: windows travel to it, frames travel back, cut where its window ends.
struct FarSource : TestStream {
  FarSource(Timeline& timeline, const Link& link) : time(timeline), way(link) {}
  void grant(uint64_t total) noexcept override {
    if (total <= told) return;
    told = total;
    time.at(time.now() + way.round_trip / 2, [this, total] {
      window = total;
      send();
    });
  }
  void send() {
    while (sent < window && !waiting) {
      const size_t count = std::min<uint64_t>(kFrame, window - sent);
      sent += count;
      const auto wire = std::chrono::nanoseconds(static_cast<int64_t>(static_cast<double>(count) / way.bytes_per_second * 1e9));
      free_at = std::max(free_at, time.now()) + wire;
      time.at(free_at + way.round_trip / 2, [this, count] { in->deliver(time.rig.bytes(std::string(count, 'x'))); });
      if (way.pause > Duration::zero()) {
        waiting = true;
        time.at(time.now() + way.pause, [this] {
          waiting = false;
          send();
        });
      }
    }
  }

  Timeline& time;
  Link way;
  uint64_t window = 0, sent = 0;
  TimePoint free_at{};
  bool waiting = false;
};

// Takes `bytes_per_second` through a queue of one frame; 0: as much as there is.
struct NearSink : TestStream {
  NearSink(Timeline& timeline, double rate) : time(timeline), bytes_per_second(rate) {}
  size_t room() const noexcept override { return bytes_per_second == 0 ? SIZE_MAX : kFrame - queued; }
  void send_body(Chain&& bytes) noexcept override {
    const size_t count = bytes.bytes();
    Chain gone(std::move(bytes));
    if (bytes_per_second == 0) return;
    queued += count;
    const auto wire = std::chrono::nanoseconds(static_cast<int64_t>(static_cast<double>(count) / bytes_per_second * 1e9));
    free_at = std::max(free_at, time.now()) + wire;
    time.at(free_at, [this, count] {
      queued -= count;
      out->touch();
    });
  }
  Timeline& time;
  double bytes_per_second;
  size_t queued = 0;
  TimePoint free_at{};
};

struct Scene {
  Timeline time;
  FarSource source;
  NearSink sink;
  Pipe pipe;
  Scene(const Link& link, double sink_rate, const PipeLimits& limits = {}) : source(time, link), sink(time, sink_rate) {
    source.in = sink.out = &pipe;
    pipe.open(time.rig.loop, time.rig, &source, &sink, limits, time.rig.stats);
  }
  ~Scene() { pipe.close(); }
  uint64_t consumed_in(Duration length) {
    const uint64_t before = pipe.consumed();
    time.run(length);
    return pipe.consumed() - before;
  }
};

}  // namespace

TEST_CASE("100 ms times 20 Mbit/s: the cap settles near twice the product and the link is full", "[pipe][tuning]") {
  Scene scene({.round_trip = 100ms, .bytes_per_second = 2.5e6}, 0);
  CHECK(scene.pipe.cap() == kPipeCapMin);
  scene.time.run(5s);
  const uint32_t settled = scene.pipe.cap();
  CHECK(settled >= 256u << 10);
  CHECK(settled <= 512u << 10);
  const uint64_t bytes = scene.consumed_in(20s);
  CHECK(bytes >= static_cast<uint64_t>(2.5e6 * 20 * 0.9));
  CHECK(scene.pipe.cap() == settled);      // and stays there
  CHECK(scene.time.rig.stats.cap_growths.get() >= 2);
  CHECK(scene.time.rig.stats.audits_failed.get() == 0);
}

TEST_CASE("with a fixed cap the same link idles (control)", "[pipe][tuning][X3]") {
  Scene scene({.round_trip = 100ms, .bytes_per_second = 2.5e6}, 0, {.cap_min = 64u << 10, .cap_max = 64u << 10});
  scene.time.run(5s);
  const uint64_t bytes = scene.consumed_in(20s);
  CHECK(bytes < static_cast<uint64_t>(2.5e6 * 20 * 0.5));
  CHECK(scene.pipe.cap() == 64u << 10);
}

TEST_CASE("a slow sink never makes the cap grow", "[pipe][tuning]") {
  for (const Duration round_trip : {Duration(1ms), Duration(20ms), Duration(100ms)}) {
    Scene scene({.round_trip = round_trip, .bytes_per_second = 1e9}, 100e3);   // its product: at most 10 kB
    const uint64_t bytes = scene.consumed_in(30s);
    CAPTURE(round_trip.count(), bytes);
    CHECK(scene.pipe.cap() == kPipeCapMin);
    CHECK(bytes >= static_cast<uint64_t>(100e3 * 30 * 0.95));
  }
}

TEST_CASE("a source that pauses by itself gets no more memory for it", "[pipe][tuning]") {
  // Its frames end where grants end, so it looks held back; but no doubling makes it faster, so there is only one.
  for (const Duration pause : {Duration(2ms), Duration(20ms), Duration(500ms)}) {
    Scene scene({.round_trip = 1ms, .bytes_per_second = 1e9, .pause = pause}, 0);
    scene.time.run(120s);
    CAPTURE(pause.count());
    CHECK(scene.pipe.cap() <= 2 * kPipeCapMin);
  }
}

TEST_CASE("next door the cap stays small, however fast", "[pipe][tuning]") {
  Scene scene({.round_trip = 100us, .bytes_per_second = 1e9}, 0);
  const uint64_t bytes = scene.consumed_in(1s);
  CHECK(scene.pipe.cap() == kPipeCapMin);
  CHECK(bytes > 200'000'000);
}

TEST_CASE("growth stops at the limit that was given", "[pipe][tuning]") {
  Scene scene({.round_trip = 500ms, .bytes_per_second = 100e6}, 0, {.cap_min = 64u << 10, .cap_max = 1u << 20});
  scene.time.run(60s);
  CHECK(scene.pipe.cap() == 1u << 20);
  CHECK(scene.time.rig.stats.cap_growths.get() == 4);
  scene.pipe.limit_cap(128u << 10);
  scene.time.run(5s);
  CHECK(scene.pipe.cap() == 128u << 10);
}

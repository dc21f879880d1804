// relay: bytes that go from one socket to another without ever being ours.
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators_range.hpp>

#include "engines/sim_engine.h"
#include "tests/engine_contract/world.h"

namespace weir::contract {

namespace {

struct Relay {
  explicit Relay(World& w, uint64_t in_seed) : world(w), pattern(in_seed), check(w.ledger(), in_seed, "relayed") {
    op.owner = this;
    op.socket = &from;
    op.to = &to;
    op.complete = [](Op& base) noexcept {
      auto& self = *static_cast<RelayWith&>(base).owner;
      self.world.ledger().completed(base);
      self.done = true;
      if (self.op.moved_out > self.op.moved_in) self.world.ledger().wrong("relay: more out than in");
    };
    source = world.pair(from);
    target = world.pair(to);
  }
  void start(uint64_t want) {
    done = false;
    op.want = want;
    world.submit(op);
  }
  void feed(uint64_t total) {
    while (fed < total) {
      const int64_t n = source->send(pattern.bytes(fed, std::min<uint64_t>(total - fed, 65536)));
      if (n <= 0) return;
      fed += static_cast<uint64_t>(n);
    }
  }
  void drain() {
    std::string bytes;
    target->drain(&bytes);
    check.feed(bytes);
  }
  void close() {
    world.close(from);
    world.close(to);
  }

  struct RelayWith : RelayOp { Relay* owner = nullptr; } op;
  World& world;
  Pattern pattern;
  StreamCheck check;
  Socket from, to;
  std::unique_ptr<Peer> source, target;
  uint64_t fed = 0;
  bool done = false;
};

constexpr uint64_t kMiB = 1u << 20;

}  // namespace

TEST_CASE("a relay moves exactly what it was asked for, byte by byte", "[engine][relay]") {
  const Kind kind = GENERATE(from_range(all_kinds()));
  const bool small = GENERATE(false, true);
  CAPTURE(kind_name(kind), small);
  World world(kind, {.small_buffers = small});
  Relay relay(world, 31);
  const uint64_t total = small ? kMiB : 5 * kMiB;
  relay.start(total);
  CHECK_FALSE(relay.done);
  REQUIRE(world.run([&] {
    relay.feed(total + 1000);                         // more than it may take
    relay.drain();
    return relay.done && relay.check.count() >= total;
  }));
  CHECK(relay.op.result == 0);
  CHECK(relay.op.moved_in == total);
  CHECK(relay.op.moved_out == total);
  world.ticks(5);
  relay.drain();
  CHECK(relay.check.count() == total);
  // What comes after it is there for a recv, and the target takes a send: both sockets are whole.
  Conn reader(world);
  reader.recv.socket = &relay.from;
  while (reader.received < 1000) {
    relay.feed(total + 1000);
    reader.read(65536);
    REQUIRE(world.run([&] { return reader.recv.idle(); }));
    REQUIRE(reader.recv.result > 0);
  }
  CHECK(reader.got == relay.pattern.bytes(total, 1000));
  relay.close();
  CHECK(world.verdict() == "");
}

TEST_CASE("a relay ends early at the end of its source, with all that came before it", "[engine][relay]") {
  const Kind kind = GENERATE(from_range(all_kinds()));
  const uint64_t fed = GENERATE(uint64_t{0}, uint64_t{10}, uint64_t{700'000});
  CAPTURE(kind_name(kind), fed);
  World world(kind);
  Relay relay(world, 32);
  relay.start(5 * kMiB);
  bool finished = false;
  REQUIRE(world.run([&] {
    relay.feed(fed);
    if (relay.fed == fed && !std::exchange(finished, true)) relay.source->finish();
    relay.drain();
    return relay.done;
  }));
  CHECK(relay.op.result == 0);
  CHECK(relay.op.moved_in == fed);
  CHECK(relay.op.moved_out == fed);
  REQUIRE(world.run([&] {
    relay.drain();
    return relay.check.count() == fed;
  }));
  relay.close();
  CHECK(world.verdict() == "");
}

TEST_CASE("a relay whose target is reset says which side failed, and its pipe is not used again", "[engine][relay]") {
  const Kind kind = GENERATE(from_range(all_kinds()));
  CAPTURE(kind_name(kind));
  World world(kind, {.small_buffers = false});
  Relay relay(world, 33);
  relay.start(64 * kMiB);
  // Until the target is full and bytes stand in the pipe: then the source stops being read.
  uint64_t before = 0;
  for (int still = 0; still < 40;) {
    relay.feed(64 * kMiB);
    world.ticks(1);
    still = relay.op.moved_in == before ? still + 1 : 0;
    before = relay.op.moved_in;
  }
  REQUIRE(relay.op.moved_in > relay.op.moved_out);
  relay.target->reset();
  REQUIRE(world.run([&] { return relay.done; }));
  CHECK((relay.op.result == -EPIPE || relay.op.result == -ECONNRESET));
  CHECK(relay.op.target_failed);
  CHECK(relay.op.moved_in > relay.op.moved_out);
  relay.close();
  if (world.simulated()) CHECK(static_cast<SimEngine*>(world.loop().engine(EngineKind::sim))->pipes_pooled() == 0);
  // The next relay's bytes are its own, not those that were left behind.
  Relay next(world, 34);
  next.start(300'000);
  REQUIRE(world.run([&] {
    next.feed(300'000);
    next.drain();
    return next.done && next.check.count() == 300'000;
  }));
  CHECK(next.op.result == 0);
  next.close();
  CHECK(world.verdict() == "");
}

TEST_CASE("a relay whose source is reset fails without blaming its target", "[engine][relay]") {
  const Kind kind = GENERATE(from_range(all_kinds()));
  CAPTURE(kind_name(kind));
  World world(kind);
  Relay relay(world, 35);
  relay.start(5 * kMiB);
  REQUIRE(world.run([&] {
    relay.feed(100'000);
    relay.drain();
    return relay.check.count() == 100'000;
  }));
  relay.source->reset();
  REQUIRE(world.run([&] { return relay.done; }));
  CHECK(relay.op.result == -ECONNRESET);
  CHECK_FALSE(relay.op.target_failed);
  relay.close();
  CHECK(world.verdict() == "");
}

TEST_CASE("a relay can be cancelled in the middle, and what it moved is right", "[engine][relay]") {
  const Kind kind = GENERATE(from_range(all_kinds()));
  CAPTURE(kind_name(kind));
  World world(kind);
  Relay relay(world, 36);
  relay.start(5 * kMiB);
  REQUIRE(world.run([&] {
    relay.feed(600'000);
    relay.drain();
    return relay.check.count() >= 500'000;
  }));
  world.cancel(relay.op);
  REQUIRE(world.run([&] { return relay.done; }));
  CHECK(relay.op.result == -ECANCELED);
  REQUIRE(world.run([&] {
    relay.drain();
    return relay.check.count() == relay.op.moved_out;
  }));
  // Before the engine saw it, too.
  relay.done = false;
  relay.op.want = 1000;
  world.submit(relay.op);
  world.cancel(relay.op);
  REQUIRE(world.run([&] { return relay.done; }));
  CHECK((relay.op.result == -ECANCELED || relay.op.result == 0));
  relay.close();
  CHECK(world.verdict() == "");
}

TEST_CASE("a source that trickles below the low-water mark is not held back", "[engine][relay]") {
  const Kind kind = GENERATE(from_range(all_kinds()));
  CAPTURE(kind_name(kind));
  World world(kind);
  Relay relay(world, 37);
  constexpr uint64_t kTotal = 6 * kMiB;
  relay.start(kTotal);
  REQUIRE(world.run([&] {                             // flowing: the mark is set
    relay.feed(3 * kMiB);
    relay.drain();
    return relay.check.count() == 3 * kMiB;
  }));
  for (uint64_t i = 1; i <= 5; ++i) {                 // then little comes, and then nothing
    relay.feed(3 * kMiB + i * 500);
    REQUIRE(world.run([&] {
      relay.drain();
      return relay.check.count() == 3 * kMiB + i * 500;
    }));
  }
  REQUIRE(world.run([&] {
    relay.feed(kTotal);
    relay.drain();
    return relay.done && relay.check.count() == kTotal;
  }));
  CHECK(relay.op.result == 0);
  relay.close();
  CHECK(world.verdict() == "");
}

TEST_CASE("two relays and a small connection share a loop fairly", "[engine][relay]") {
  const Kind kind = GENERATE(from_range(all_kinds()));
  CAPTURE(kind_name(kind));
  World world(kind);
  Relay one(world, 38), two(world, 39);
  Conn conn(world, "in", 40);
  auto peer = world.pair(conn.socket);
  conn.reading = true;
  conn.read(100);
  constexpr uint64_t kTotal = 32 * kMiB;
  one.start(kTotal);
  two.start(kTotal);
  uint64_t pinged = 0, widest = 0;
  REQUIRE(world.run([&] {
    one.feed(kTotal);
    two.feed(kTotal);
    one.drain();
    two.drain();
    if (conn.received == pinged && !(one.done && two.done)) {
      peer->send(Pattern(40).bytes(pinged, 10));
      pinged += 10;
    }
    const uint64_t a = one.op.moved_out, b = two.op.moved_out;
    widest = std::max(widest, a > b ? a - b : b - a);
    return one.done && two.done && one.check.count() == kTotal && two.check.count() == kTotal;
  }));
  CHECK(widest <= 3 * kRelayBytesPerTurn);
  CHECK(conn.received >= 50);                         // it was served all the while
  one.close();
  two.close();
  conn.close();
  CHECK(world.verdict() == "");
}

TEST_CASE("without pipes a relay says so before any byte moved, and copying works", "[engine][relay]") {
  World world(Kind::sim);
  world.network().faults().relay_no_pipe = 1;
  Relay relay(world, 41);
  relay.start(1000);
  relay.feed(1000);
  REQUIRE(world.run([&] { return relay.done; }));
  CHECK(relay.op.result == -EOPNOTSUPP);
  CHECK(relay.op.moved_in == 0);
  Conn reader(world, "copied", 41);
  reader.recv.socket = &relay.from;
  reader.read(65536);
  REQUIRE(world.run([&] { return reader.received == 1000; }));
  relay.close();
  CHECK(world.verdict() == "");
}

}  // namespace weir::contract

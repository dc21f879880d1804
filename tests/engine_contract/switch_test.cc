// Both engines in one loop, and connections that change between them.
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators_range.hpp>

#include "engines/sim_random.h"
#include "tests/engine_contract/world.h"

namespace weir::contract {

namespace {

// A server that answers each message of kMessage bytes with itself, and a client that checks what comes back.
constexpr size_t kMessage = 64;
struct Echo {
  Echo(World& world, uint64_t seed)
      : conn(world), pattern(seed), check(world.ledger(), seed, "echo " + std::to_string(seed)) {
    peer = world.pair(conn.socket);
    conn.reading = true;
    conn.on_recv = [this](Conn& c) {
      size_t whole = 0;
      while (c.got.size() - whole >= kMessage) whole += kMessage;
      if (whole > 0) c.write(std::string_view(c.got).substr(0, whole));
      c.got.erase(0, whole);
      if (on_message) on_message();
    };
  }
  void say(size_t count) {
    const std::string bytes = pattern.bytes(said, count);
    const int64_t n = peer->send(bytes);
    if (n > 0) said += static_cast<uint64_t>(n);
  }
  void listen() {
    std::string bytes;
    if (peer->drain(&bytes)) check.feed(bytes);
  }
  uint64_t owed() const { return said / kMessage * kMessage - check.count(); }
  void flip() {
    conn.socket.engine = conn.socket.engine == EngineKind::epoll ? EngineKind::uring : EngineKind::epoll;
    ++flips;
  }

  Conn conn;
  Pattern pattern;
  StreamCheck check;
  std::unique_ptr<Peer> peer;
  uint64_t said = 0;
  uint64_t flips = 0;
  std::function<void()> on_message;
};

}  // namespace

TEST_CASE("two engines in one loop serve 40,000 events without a stall", "[engine][X4]") {
  const bool gather = GENERATE(false, true);
  World world(Kind::both, {.gather = gather});
  std::vector<std::unique_ptr<Echo>> echoes;
  for (uint64_t i = 0; i < 16; ++i) {
    echoes.push_back(std::make_unique<Echo>(world, i + 1));
    echoes.back()->conn.read(4096);
  }
  constexpr uint64_t kEvents = 40'000;
  uint64_t heard = 0;
  // One message at a time and connection: whoever is not woken stops all that connection's traffic.
  REQUIRE(world.run([&] {
    heard = 0;
    uint64_t least = UINT64_MAX;
    for (auto& echo : echoes) {
      echo->listen();
      if (echo->owed() == 0) echo->say(kMessage);
      heard += echo->check.count() / kMessage;
      least = std::min(least, echo->check.count() / kMessage);
    }
    return 2 * heard >= kEvents && least * 16 * 2 >= kEvents / 4;
  }));
  uint64_t by_epoll = 0, by_uring = 0;
  for (auto& echo : echoes) {
    by_epoll += echo->conn.served[static_cast<size_t>(EngineKind::epoll)];
    by_uring += echo->conn.served[static_cast<size_t>(EngineKind::uring)];
  }
  CHECK(by_epoll > kEvents / 4);
  CHECK(by_uring > kEvents / 4);
  for (auto& echo : echoes) echo->conn.close();
  CHECK(world.verdict() == "");
}

TEST_CASE("an idle loop with two engines is woken by either", "[engine][X4]") {
  World world(Kind::both);
  std::vector<std::unique_ptr<Echo>> echoes;
  for (uint64_t i = 0; i < 2; ++i) {
    echoes.push_back(std::make_unique<Echo>(world, i + 1));
    echoes.back()->conn.read(4096);
  }
  REQUIRE(echoes[0]->conn.socket.engine != echoes[1]->conn.socket.engine);
  for (int round = 0; round < 3000; ++round) {
    Echo& echo = *echoes[static_cast<size_t>(round / 3 % 2)];
    echo.say(kMessage);
    // It sleeps without a limit of ours: a wake that is lost would show as a case that never ends.
    while (echo.owed() > 0) {
      world.loop().tick(std::chrono::seconds(20));
      echo.listen();
    }
  }
  for (auto& echo : echoes) {
    CHECK(echo->check.count() == 1500 * kMessage);
    echo->conn.close();
  }
  CHECK(world.verdict() == "");
}

TEST_CASE("an engine changed 100,000 times under live connections loses and reorders no byte", "[engine][A8]") {
  World world(Kind::both, {.small_buffers = GENERATE(false, true)});
  SimRandom random(2024);
  std::vector<std::unique_ptr<Echo>> echoes;
  for (uint64_t i = 0; i < 40; ++i) {
    echoes.push_back(std::make_unique<Echo>(world, i + 1));
    Echo& echo = *echoes.back();
    echo.on_message = [&echo, &random] {
      if (random.below(2) == 0) echo.flip();          // between two ops
    };
    echo.conn.read(1 + static_cast<uint32_t>(random.below(400)));
  }
  constexpr uint64_t kChanges = 100'000;
  uint64_t flips = 0;
  REQUIRE(world.run([&] {
    flips = 0;
    for (auto& echo : echoes) {
      echo->listen();
      // Half a message, one, or many at once: the server sees them split and joined as it comes.
      if (echo->owed() < 20 * kMessage) echo->say(1 + random.below(random.below(8) == 0 ? 20 * kMessage : 100));
      if (random.below(2) == 0) echo->flip();         // while ops are in flight
      flips += echo->flips;
    }
    return flips >= kChanges;
  }));
  REQUIRE(world.run([&] {                             // what is half said is finished
    uint64_t owed = 0;
    for (auto& echo : echoes) {
      echo->listen();
      if (echo->said % kMessage != 0) echo->say(kMessage - echo->said % kMessage);
      owed += echo->said % kMessage + echo->owed();
    }
    return owed == 0;
  }));
  for (auto& echo : echoes) {
    CHECK(echo->check.count() == echo->said);
    CHECK(echo->said > 1000);
    CHECK(echo->conn.served[static_cast<size_t>(EngineKind::epoll)] > 100);
    CHECK(echo->conn.served[static_cast<size_t>(EngineKind::uring)] > 100);
    echo->conn.close();
  }
  CHECK(world.verdict() == "");
}

TEST_CASE("a connection that left an engine is not reported by it any more", "[engine][A8]") {
  World world(Kind::both);
  std::vector<std::unique_ptr<Echo>> echoes;
  for (uint64_t i = 0; i < 20; ++i) {
    echoes.push_back(std::make_unique<Echo>(world, i + 1));
    echoes.back()->conn.socket.engine = EngineKind::epoll;
    echoes.back()->conn.read(4096);
  }
  const auto settled = [&] {
    for (auto& echo : echoes) {
      echo->listen();
      if (echo->owed() > 0) return false;
    }
    return true;
  };
  for (auto& echo : echoes) echo->say(kMessage);
  REQUIRE(world.run(settled));
  for (auto& echo : echoes) {
    echo->conn.socket.engine = EngineKind::uring;     // the recv in flight still ends on epoll
    echo->say(kMessage);
  }
  REQUIRE(world.run(settled));
  world.ticks(5);
  const uint64_t before = world.loop().stats().events.get();
  for (auto& echo : echoes) echo->say(kMessage / 2);  // now only the ring looks
  REQUIRE(world.run([&] {
    for (auto& echo : echoes) {
      if (echo->conn.got.size() != kMessage / 2) return false;
    }
    return true;
  }));
  CHECK(world.loop().stats().events.get() - before <= 25);   // one completion each, and no readiness beside it
  for (auto& echo : echoes) echo->conn.close();
  CHECK(world.verdict() == "");
}

}  // namespace weir::contract

// What a loop does when there is nothing to do: nothing; and how it is woken.
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators_range.hpp>

#include <thread>

#include "tests/engine_contract/acceptor.h"

namespace weir::contract {

namespace {

struct Alarm : Timer {
  Alarm() {
    fire = [](Timer& timer) noexcept {
      auto& self = static_cast<Alarm&>(timer);
      self.fired = true;
      if (self.order != nullptr) self.order->push_back(self.number);
      if (self.loop != nullptr) self.fired_at = self.loop->now();
    };
  }
  bool fired = false;
  int number = 0;
  std::vector<int>* order = nullptr;
  Loop* loop = nullptr;
  TimePoint fired_at{};
};

// Ticks until the alarm, sleeping as long as the loop likes. Returns the number of ticks.
uint64_t ticks_until(World& world, Duration wait) {
  Alarm alarm;
  world.loop().set_timer(alarm, world.loop().now() + wait);
  const uint64_t before = world.loop().stats().ticks.get();
  while (!alarm.fired) world.loop().tick(kForever);
  return world.loop().stats().ticks.get() - before;
}

}  // namespace

TEST_CASE("a thousand stalled readers and writers wake nobody", "[engine][E10]") {
  const Kind kind = GENERATE(from_range(all_kinds()));
  CAPTURE(kind_name(kind));
  World world(kind, {.slab_bytes_max = 512u << 20, .small_buffers = true});
  std::vector<std::unique_ptr<Conn>> conns;
  std::vector<std::unique_ptr<Peer>> peers;
  constexpr size_t kConns = 1000;
  Acceptor acceptor(world);
  acceptor.start();
  for (size_t i = 0; i < kConns; ++i) {
    conns.push_back(std::make_unique<Conn>(world));
    peers.push_back(world.pair(conns.back()->socket));
    conns.back()->reading = true;
    conns.back()->read(65536);                        // the peer says nothing
    if (i % 4 == 0) conns.back()->write(Pattern(i).bytes(0, 300'000));   // and some read nothing
  }
  REQUIRE(world.run([&] { return world.loop().ops_in_flight() == kConns + kConns / 4 + 1; }));
  // Until the kernel's buffers are full and all that is on its way has arrived.
  for (int quiet = 0, rounds = 0; quiet < 20; ++rounds) {
    REQUIRE(rounds < 3000);
    quiet = world.loop().tick(std::chrono::milliseconds(5)) == 0 ? quiet + 1 : 0;
  }
  const uint64_t completions = world.ledger().completions();
  const uint64_t period = ticks_until(world, std::chrono::milliseconds(300));
  CHECK(period <= 8);                                 // the timer's own, and its wheel's steps
  CHECK(world.ledger().completions() == completions);
  if (world.simulated()) CHECK(ticks_until(world, std::chrono::hours(10)) <= 16);
  for (auto& conn : conns) conn->close(), conn->out.clear();
  acceptor.close();
  CHECK(world.verdict() == "");
}

TEST_CASE("an end of file or error that nobody asks for wakes nobody again and again", "[engine][E9]") {
  const Kind kind = GENERATE(from_range(all_kinds()));
  CAPTURE(kind_name(kind));
  World world(kind);
  std::vector<std::unique_ptr<Conn>> conns;
  std::vector<std::unique_ptr<Peer>> peers;
  for (int i = 0; i < 30; ++i) {
    conns.push_back(std::make_unique<Conn>(world));
    peers.push_back(world.pair(conns.back()->socket));
    conns.back()->read(10);
    peers.back()->send("0123456789 and more than it asked for");
  }
  REQUIRE(world.run([&] {
    for (auto& conn : conns) {
      if (!conn->recv.idle()) return false;
    }
    return true;
  }));
  for (size_t i = 0; i < peers.size(); ++i) {
    if (i % 3 == 0) peers[i]->reset();
    else peers[i]->finish();
  }
  world.ticks(20);
  CHECK(ticks_until(world, std::chrono::milliseconds(200)) <= 8);
  for (auto& conn : conns) conn->close();
  CHECK(world.verdict() == "");
}

TEST_CASE("timers fire in order on an idle loop, and not before their time", "[engine][E12]") {
  const Kind kind = GENERATE(from_range(all_kinds()));
  CAPTURE(kind_name(kind));
  World world(kind);
  Conn conn(world);
  auto peer = world.pair(conn.socket);
  conn.reading = true;
  conn.read(100);
  std::vector<int> order;
  std::vector<std::unique_ptr<Alarm>> alarms;
  const TimePoint begin = world.loop().now();
  const int due_ms[] = {120, 10, 60, 30, 200};
  for (int ms : due_ms) {
    alarms.push_back(std::make_unique<Alarm>());
    alarms.back()->number = ms;
    alarms.back()->order = &order;
    alarms.back()->loop = &world.loop();
    world.loop().set_timer(*alarms.back(), begin + std::chrono::milliseconds(ms));
  }
  for (int i = 0; order.size() < 5; ++i) {
    REQUIRE(i < 1000);
    world.loop().tick(kForever);
  }
  CHECK(order == std::vector<int>{10, 30, 60, 120, 200});
  for (auto& alarm : alarms) {
    const Duration late = alarm->fired_at - (begin + std::chrono::milliseconds(alarm->number));
    CHECK(late >= Duration(0));
    if (world.simulated()) CHECK(late <= std::chrono::milliseconds(50));   // real time is the bench's
  }
  conn.close();
  CHECK(world.verdict() == "");
}

TEST_CASE("a message from another thread wakes a sleeping loop, and stop() ends run()", "[engine][U1]") {
  const Kind kind = GENERATE(from_range(all_kinds()));
  CAPTURE(kind_name(kind));
  World world(kind, {.block_when_idle = true});
  Conn conn(world);
  auto peer = world.pair(conn.socket);
  conn.reading = true;
  conn.read(100);
  struct Note : Message {
    std::atomic<int>* count = nullptr;
  };
  std::atomic<int> count{0};
  constexpr int kNotes = 300;
  std::vector<Note> notes(kNotes);
  for (Note& note : notes) {
    note.count = &count;
    note.run = [](Message& message) noexcept {
      static_cast<Note&>(message).count->fetch_add(1);
    };
  }
  std::thread other([&] {
    for (int i = 0; i < kNotes; ++i) {
      world.loop().mailbox().push(notes[static_cast<size_t>(i)]);
      if (i % 10 == 0) {                              // let it fall asleep again
        while (count.load() <= i) std::this_thread::yield();
      }
    }
  });
  while (count.load() < kNotes) world.loop().tick(kForever);
  other.join();
  CHECK(count.load() == kNotes);
  // stop() from another thread, with nothing else to say.
  World second(kind, {.block_when_idle = true});
  std::thread stopper([&] { second.loop().stop(); });
  second.loop().run();
  stopper.join();
  conn.close();
  CHECK(world.verdict() == "");
}

TEST_CASE("gathering changes when things are served, not what", "[engine]") {
  const Kind kind = GENERATE(from_range(all_kinds()));
  CAPTURE(kind_name(kind));
  World world(kind, {.gather = true});
  std::vector<std::unique_ptr<Conn>> conns;
  std::vector<std::unique_ptr<Peer>> peers;
  constexpr size_t kConns = 32;
  constexpr uint64_t kRounds = 100;
  for (size_t i = 0; i < kConns; ++i) {
    conns.push_back(std::make_unique<Conn>(world, "in", i + 1));
    peers.push_back(world.pair(conns.back()->socket));
    conns.back()->reading = true;
    conns.back()->read(65536);
  }
  for (uint64_t round = 0; round < kRounds; ++round) {
    for (size_t i = 0; i < kConns; ++i) peers[i]->send(Pattern(i + 1).bytes(round * 100, 100));
    REQUIRE(world.run([&] {
      for (auto& conn : conns) {
        if (conn->received < (round + 1) * 100) return false;
      }
      return true;
    }));
  }
  CHECK(world.loop().stats().gathers.get() > 0);
  for (auto& conn : conns) conn->close();
  CHECK(world.verdict() == "");
}

}  // namespace weir::contract

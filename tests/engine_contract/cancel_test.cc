// Cancelling and closing: what may happen, and what must never.
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators_range.hpp>

#include "engines/sim_random.h"
#include "tests/engine_contract/acceptor.h"

namespace weir::contract {

TEST_CASE("an op cancelled before the engine saw it still completes once", "[engine]") {
  const Kind kind = GENERATE(from_range(all_kinds()));
  CAPTURE(kind_name(kind));
  World world(kind);
  Conn conn(world);
  auto peer = world.pair(conn.socket);
  for (int i = 0; i < 20; ++i) {
    conn.recv_error = 0;
    conn.read(100);
    world.cancel(conn.recv);
    world.cancel(conn.recv);                          // twice does no harm
    REQUIRE(world.run([&] { return conn.recv.idle(); }));
    CHECK(conn.recv_error == ECANCELED);
  }
  world.cancel(conn.recv);                            // idle: no effect
  peer->send("after");
  conn.recv_error = 0;
  conn.reading = true;
  conn.read(100);
  REQUIRE(world.run([&] { return conn.received == 5; }));
  CHECK(conn.got == "after");
  conn.close();
  CHECK(world.verdict() == "");
}

TEST_CASE("a parked recv and a parked send can be cancelled", "[engine]") {
  const Kind kind = GENERATE(from_range(all_kinds()));
  CAPTURE(kind_name(kind));
  World world(kind, {.small_buffers = true});
  Conn conn(world);
  auto peer = world.pair(conn.socket);
  const Pattern pattern(4);
  constexpr uint64_t kTotal = 8'000'000;
  conn.read(100);
  conn.write(pattern.bytes(0, kTotal));
  world.ticks(60);
  REQUIRE(world.loop().ops_in_flight() == 2);
  world.cancel(conn.recv);
  world.cancel(conn.send);
  REQUIRE(world.run([&] { return conn.recv.idle() && (conn.send.idle() || !conn.send.cancel_asked); }));
  CHECK(conn.recv_error == ECANCELED);
  // What was accepted before the cancel went out, and nothing else; the rest can be sent afterwards.
  conn.send_error = 0;
  if (conn.send.idle()) world.submit(conn.send);
  StreamCheck check(world.ledger(), 4, "out");
  REQUIRE(world.run([&] {
    std::string bytes;
    peer->drain(&bytes);
    check.feed(bytes);
    return check.count() == kTotal;
  }));
  conn.close();
  CHECK(world.verdict() == "");
}

TEST_CASE("cancels that race with completions lose no byte", "[engine]") {
  const Kind kind = GENERATE(from_range(all_kinds()));
  CAPTURE(kind_name(kind));
  World world(kind, {.small_buffers = true, .seed = 77});
  Conn conn(world, "in", 5);
  auto peer = world.pair(conn.socket);
  const Pattern in(5), out(6);
  constexpr uint64_t kTotal = 1'000'000;
  uint64_t fed = 0;
  SimRandom random(42);
  StreamCheck check(world.ledger(), 6, "out");
  conn.write(out.bytes(0, kTotal));
  uint32_t cancels = 0;
  REQUIRE(world.run([&] {
    const size_t count = std::min<uint64_t>(1 + random.below(3000), kTotal - fed);
    if (count > 0) {
      const int64_t n = peer->send(in.bytes(fed, count));
      if (n > 0) fed += static_cast<uint64_t>(n);
    }
    if (conn.recv.idle() && !conn.ended) conn.read(1 + static_cast<uint32_t>(random.below(5000)));
    conn.send_error = conn.recv_error = 0;
    if (conn.send.idle() && !conn.out.empty()) world.submit(conn.send);
    if (random.below(3) == 0) world.cancel(conn.recv), ++cancels;
    if (random.below(5) == 0) world.cancel(conn.send);
    if (random.below(2) == 0) {
      std::string bytes;
      peer->drain(&bytes);
      check.feed(bytes);
    }
    return conn.received == kTotal && check.count() == kTotal;
  }));
  CHECK(cancels > 20);
  conn.close();
  CHECK(world.verdict() == "");
}

TEST_CASE("shutdown ends what is parked, and only then the descriptor is closed", "[engine]") {
  const Kind kind = GENERATE(from_range(all_kinds()));
  CAPTURE(kind_name(kind));
  World world(kind, {.small_buffers = true});
  Conn conn(world);
  auto peer = world.pair(conn.socket);
  conn.read(1000);
  conn.write(Pattern(1).bytes(0, 6'000'000));
  world.ticks(60);
  REQUIRE(conn.socket.in_flight == 2);
  const int fd = conn.socket.fd;
  world.loop().shutdown(conn.socket, ShutdownHow::both);
  CHECK(conn.socket.fd == fd);
  CHECK(conn.recvs == 0);                             // reported from the loop, not from here
  REQUIRE(world.run([&] { return conn.socket.in_flight == 0; }));
  CHECK(conn.ended);
  CHECK((conn.send_error == EPIPE || conn.send_error == ECONNRESET));
  world.loop().close(conn.socket);
  CHECK(conn.socket.fd == -1);
  conn.out.clear();
  peer->drain(nullptr);
  CHECK(world.verdict() == "");
}

TEST_CASE("half-closing lets the other direction go on", "[engine][E9]") {
  const Kind kind = GENERATE(from_range(all_kinds()));
  CAPTURE(kind_name(kind));
  World world(kind);
  Conn conn(world);
  auto peer = world.pair(conn.socket);
  conn.reading = true;
  conn.read(1000);
  conn.write("last words");
  REQUIRE(world.run([&] { return conn.send.idle(); }));
  world.loop().shutdown(conn.socket, ShutdownHow::write);
  std::string got;
  REQUIRE(world.run([&] {
    peer->drain(&got);
    return peer->ended;
  }));
  CHECK(got == "last words");
  for (int i = 0; i < 5; ++i) {
    peer->send("more ");
    REQUIRE(world.run([&] { return conn.received == static_cast<uint64_t>(i + 1) * 5; }));
  }
  peer->finish();
  REQUIRE(world.run([&] { return conn.ended; }));
  conn.close();
  CHECK(world.verdict() == "");
}

TEST_CASE("closing with a reset tells the peer so", "[engine]") {
  const Kind kind = GENERATE(from_range(all_kinds()));
  const bool linger_reset = GENERATE(false, true);
  CAPTURE(kind_name(kind), linger_reset);
  World world(kind);
  Conn conn(world);
  auto peer = world.pair(conn.socket);
  conn.write("x");
  REQUIRE(world.run([&] { return conn.send.idle(); }));
  world.loop().close(conn.socket, linger_reset);
  REQUIRE(world.run([&] {
    peer->drain(nullptr);
    return peer->ended || peer->error != 0;
  }));
  CHECK((peer->error == ECONNRESET) == linger_reset);
  CHECK(world.verdict() == "");
}

namespace {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr bool kSanitized = true;                     // ten times slower; the full number is the release build's
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
constexpr bool kSanitized = true;
#else
constexpr bool kSanitized = false;
#endif
#else
constexpr bool kSanitized = false;
#endif

// One descriptor number, used again and again: each life sends its own number, and may receive nothing else.
struct Life {
  explicit Life(World& w) : conn(std::make_unique<Conn>(w)) {}
  std::unique_ptr<Conn> conn;
  std::unique_ptr<Peer> peer;
  std::string said;
};

}  // namespace

TEST_CASE("descriptors that are used again meet no completion of an earlier life", "[engine][E7]") {
  const Kind kind = GENERATE(from_range(all_kinds()));
  const bool sim = kind == Kind::sim || kind == Kind::sim_faulty;
  const uint32_t kLives = kSanitized ? 30'000 : sim ? 200'000 : 60'000;
  CAPTURE(kind_name(kind));
  World world(kind);
  Acceptor acceptor(world);
  acceptor.start();
  constexpr size_t kAtOnce = 16;
  SimRandom random(7);
  // The same Socket objects too: a late event must be told apart by generation alone.
  std::vector<std::unique_ptr<Life>> lives;
  for (size_t i = 0; i < kAtOnce; ++i) lives.push_back(std::make_unique<Life>(world));
  std::vector<int> fds;
  uint32_t begun = 0, wrong = 0, reused = 0, cut = 0;
  while (begun < kLives) {
    std::vector<std::unique_ptr<Peer>> peers;
    for (auto& life : lives) {
      life->conn->got.clear();
      life->conn->received = 0;
      life->conn->ended = false;
      life->conn->recv_error = life->conn->send_error = 0;
      life->said = std::to_string(begun++) + "\n";
      life->peer = world.connect(acceptor.address);
    }
    REQUIRE(world.run([&] { return acceptor.sockets.size() == kAtOnce; }));
    for (auto& life : lives) {                        // accepted in the order of connecting
      Socket& accepted = *acceptor.sockets.front();
      const int fd = std::exchange(accepted.fd, -1);
      reused += std::find(fds.begin(), fds.end(), fd) != fds.end();
      if (fds.size() < 1000) fds.push_back(fd);
      world.loop().adopt(life->conn->socket, fd, world.engine());
      acceptor.sockets.pop_front();
      life->conn->read(100);
    }
    // Some speak, some are cut off in the middle of it, and all are closed with completions still on their way.
    for (auto& life : lives) life->peer->send(life->said);
    if (random.below(2) == 0) world.loop().tick(Duration(0));
    for (auto& life : lives) {
      if (random.below(3) == 0) life->peer->reset();
      if (random.below(3) == 0) world.cancel(life->conn->recv), ++cut;
    }
    if (random.below(2) == 0) world.loop().tick(Duration(0));
    for (auto& life : lives) {
      life->conn->close(random.below(2) == 0);
      const std::string& got = life->conn->got;
      wrong += !got.empty() && got != life->said.substr(0, got.size());
    }
    for (auto& life : lives) life->peer.reset();
  }
  CHECK(wrong == 0);
  CHECK(reused > begun / 2);
  CHECK(cut > begun / 10);
  acceptor.close();
  CHECK(world.verdict() == "");
}

}  // namespace weir::contract

// recv and send: what they deliver, what they pin, and when.
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators_range.hpp>

#include "tests/engine_contract/world.h"

namespace weir::contract {

namespace {

// Sends the pattern to a peer that reads while it waits. Returns what the peer got.
uint64_t drain_checked(Peer& peer, StreamCheck& check) {
  std::string bytes;
  peer.drain(&bytes);
  check.feed(bytes);
  return check.count();
}

// Feeds a peer's side of the stream as the connection takes it.
struct Feeder {
  Peer& peer;
  Pattern pattern;
  uint64_t total;
  uint64_t sent = 0;
  void go() {
    while (sent < total) {
      const std::string bytes = pattern.bytes(sent, std::min<uint64_t>(total - sent, 65536));
      const int64_t n = peer.send(bytes);
      if (n <= 0) return;
      sent += static_cast<uint64_t>(n);
    }
  }
};

}  // namespace

TEST_CASE("an op completes from the loop, once, and never into its caller", "[engine]") {
  const Kind kind = GENERATE(from_range(all_kinds()));
  CAPTURE(kind_name(kind));
  World world(kind);
  Conn conn(world);
  auto peer = world.pair(conn.socket);
  REQUIRE(peer->send("hello") == 5);
  world.ticks(3);              // the bytes are there before anyone asks
  conn.read(100);
  CHECK(conn.recvs == 0);
  CHECK(world.loop().ops_in_flight() == 1);
  CHECK(conn.socket.in_flight == 1);
  while (conn.received < 5) {
    if (conn.recv.idle()) conn.read(100);
    REQUIRE(world.run([&] { return conn.recv.idle(); }));
  }
  CHECK(conn.got == "hello");
  world.ticks(20);
  CHECK(conn.socket.in_flight == 0);
  conn.close();
  CHECK(world.verdict() == "");
}

TEST_CASE("recv delivers 1 to want bytes, in order, and then 0 at the end of the stream", "[engine]") {
  const Kind kind = GENERATE(from_range(all_kinds()));
  const uint32_t want = GENERATE(1u, 100u, 16384u, 70000u, 262144u);
  CAPTURE(kind_name(kind), want);
  World world(kind);
  Conn conn(world, "in", 7);
  auto peer = world.pair(conn.socket);
  Feeder feeder{*peer, Pattern(7), want == 1 ? 300u : want == 100 ? 20000u : 1000000u};
  bool finished = false;
  conn.reading = true;
  conn.read(want);
  REQUIRE(world.run([&] {
    feeder.go();
    if (feeder.sent == feeder.total && !std::exchange(finished, true)) peer->finish();
    if (feeder.sent < feeder.total) finished = false;
    return conn.ended;
  }));
  CHECK(conn.received == feeder.total);
  CHECK(conn.recv_error == 0);
  CHECK(conn.recvs >= feeder.total / want + 1);
  conn.close();
  CHECK(world.verdict() == "");
}

TEST_CASE("an idle recv pins no buffer", "[engine][M3]") {
  const Kind kind = GENERATE(from_range(all_kinds()));
  CAPTURE(kind_name(kind));
  World world(kind);
  const size_t base = world.loop().slabs().in_use();
  std::vector<std::unique_ptr<Conn>> conns;
  std::vector<std::unique_ptr<Peer>> peers;
  for (int i = 0; i < 200; ++i) {
    conns.push_back(std::make_unique<Conn>(world));
    peers.push_back(world.pair(conns.back()->socket));
    conns.back()->reading = true;
    conns.back()->read(65536);
  }
  world.ticks(10);
  CHECK(world.loop().slabs().in_use() == base);
  for (auto& peer : peers) REQUIRE(peer->send("0123456789") == 10);
  REQUIRE(world.run([&] {
    size_t done = 0;
    for (auto& conn : conns) done += conn->received == 10;
    return done == conns.size();
  }));
  world.ticks(10);
  CHECK(world.loop().slabs().in_use() == base);
  CHECK(world.loop().ops_in_flight() == 200);
  for (auto& conn : conns) conn->close();
  CHECK(world.verdict() == "");
}

TEST_CASE("send makes progress with each completion, and pins its slices until then", "[engine]") {
  const Kind kind = GENERATE(from_range(all_kinds()));
  const bool small = GENERATE(false, true);
  CAPTURE(kind_name(kind), small);
  World world(kind, {.small_buffers = small});
  Conn conn(world);
  auto peer = world.pair(conn.socket);
  constexpr uint64_t kTotal = 6'000'000;
  const Pattern pattern(9);
  conn.write(pattern.bytes(0, kTotal));
  const size_t held = world.loop().slabs().in_use();
  world.ticks(50);                                   // nobody reads
  CHECK(conn.sent < kTotal);
  CHECK(conn.sent > 0);
  CHECK(world.loop().ops_in_flight() == 1);          // the rest waits in one op
  CHECK(world.loop().slabs().in_use() >= held - conn.sent / kSlabBytes - 1);
  StreamCheck check(world.ledger(), 9, "out");
  REQUIRE(world.run([&] { return drain_checked(*peer, check) == kTotal; }));
  CHECK(conn.sent == kTotal);
  CHECK(conn.send_error == 0);
  CHECK(conn.sends >= kTotal / kSendBytesMax);
  conn.close();
  CHECK(world.verdict() == "");
}

TEST_CASE("bytes appended while a send is in flight go out after it, in order", "[engine]") {
  const Kind kind = GENERATE(from_range(all_kinds()));
  CAPTURE(kind_name(kind));
  World world(kind, {.small_buffers = true});
  Conn conn(world);
  auto peer = world.pair(conn.socket);
  const Pattern pattern(11);
  StreamCheck check(world.ledger(), 11, "out");
  uint64_t queued = 0;
  REQUIRE(world.run([&] {
    if (queued < 400'000) {                          // odd sizes, so that slices share slabs
      const size_t count = 1 + queued * 7 % 5003;
      conn.write(pattern.bytes(queued, count));
      queued += count;
    }
    drain_checked(*peer, check);
    return queued >= 400'000 && check.count() == queued;
  }));
  REQUIRE(world.run([&] { return conn.send.idle(); }));
  CHECK(conn.sent == queued);
  conn.close();
  CHECK(world.verdict() == "");
}

TEST_CASE("both directions of a connection go on at once", "[engine][W3]") {
  const Kind kind = GENERATE(from_range(all_kinds()));
  CAPTURE(kind_name(kind));
  World world(kind, {.small_buffers = true});
  Conn conn(world, "in", 3);
  auto peer = world.pair(conn.socket);
  constexpr uint64_t kTotal = 1'500'000;
  conn.write(Pattern(4).bytes(0, kTotal));
  conn.reading = true;
  conn.read(30000);
  Feeder feeder{*peer, Pattern(3), kTotal};
  StreamCheck check(world.ledger(), 4, "out");
  REQUIRE(world.run([&] {
    feeder.go();
    return drain_checked(*peer, check) == kTotal && conn.received == kTotal;
  }));
  conn.close();
  CHECK(world.verdict() == "");
}

TEST_CASE("a request and the end of its stream in one segment both arrive, and the answer goes out", "[engine][E9]") {
  const Kind kind = GENERATE(from_range(all_kinds()));
  const bool read_first = GENERATE(false, true);
  CAPTURE(kind_name(kind), read_first);
  World world(kind);
  Conn conn(world);
  auto peer = world.pair(conn.socket);
  conn.reading = true;
  if (read_first) conn.read(65536);
  REQUIRE(peer->send("GET / HTTP/1.1\r\n\r\n") == 18);
  peer->finish();
  world.ticks(3);
  if (!read_first) conn.read(65536);
  REQUIRE(world.run([&] { return conn.ended; }));
  CHECK(conn.got == "GET / HTTP/1.1\r\n\r\n");
  const std::string answer = Pattern(5).bytes(0, 3'000'000);   // far more than the kernel holds: the writer has to wait
  conn.write(answer);
  world.ticks(10);
  // While it waits for the reader the loop does not spin on the end of file that it has already seen.
  const uint64_t before = world.loop().stats().events.get();
  world.ticks(50);
  CHECK(world.loop().stats().events.get() - before <= 5);
  StreamCheck check(world.ledger(), 5, "out");
  REQUIRE(world.run([&] { return drain_checked(*peer, check) == answer.size(); }));
  conn.close();
  CHECK(world.verdict() == "");
}

TEST_CASE("a reset ends both directions with an error, after the bytes that came before it", "[engine][W2]") {
  const Kind kind = GENERATE(from_range(all_kinds()));
  CAPTURE(kind_name(kind));
  World world(kind);
  Conn conn(world);
  auto peer = world.pair(conn.socket);
  conn.write(Pattern(1).bytes(0, 6'000'000));
  conn.reading = true;
  conn.read(1000);
  world.ticks(20);
  peer->reset();
  REQUIRE(world.run([&] { return (conn.recv_error != 0 || conn.ended) && conn.send_error != 0; }));
  CHECK((conn.recv_error == ECONNRESET || conn.send_error == ECONNRESET));   // the kernel says it once
  CHECK((conn.send_error == ECONNRESET || conn.send_error == EPIPE));
  conn.out.clear();
  conn.close();
  CHECK(world.verdict() == "");
}

TEST_CASE("a pool at its limit holds back receiving and loses nothing", "[engine][M3]") {
  const Kind kind = GENERATE(from_range(all_kinds()));
  CAPTURE(kind_name(kind));
  World world(kind, {.slab_bytes_max = 4u << 20});   // 256 slabs
  Conn conn(world, "in", 21);
  auto peer = world.pair(conn.socket);
  SlabPool& pool = world.loop().slabs();
  std::vector<Slab*> taken;
  while (Slab* slab = pool.take()) taken.push_back(slab);
  Feeder feeder{*peer, Pattern(21), 500'000};
  conn.reading = true;
  conn.read(65536);
  for (int i = 0; i < 30; ++i) {
    feeder.go();
    world.ticks(1);
    if (conn.recv_error == ENOBUFS) break;
  }
  const bool told = conn.recv_error == ENOBUFS;      // an engine may also say so, and be asked again
  CHECK(conn.received <= 256 * kSlabBytes);
  for (Slab* slab : taken) SlabPool::unref(*slab);
  if (told) {
    conn.recv_error = 0;
    conn.read(65536);
  }
  REQUIRE(world.run([&] {
    feeder.go();
    return conn.received == feeder.total || conn.recv_error != 0;
  }));
  CHECK(conn.recv_error == 0);
  conn.close();
  CHECK(world.verdict() == "");
}

TEST_CASE("the bytes that the peer has acknowledged can be asked for", "[engine][T2]") {
  const Kind kind = GENERATE(from_range(all_kinds()));
  CAPTURE(kind_name(kind));
  World world(kind);
  Conn conn(world);
  auto peer = world.pair(conn.socket);
  conn.write(Pattern(2).bytes(0, 100'000));
  std::string got;
  REQUIRE(world.run([&] {
    peer->drain(&got);
    return got.size() == 100'000;
  }));
  world.ticks(5);
  // The kernel counts its SYN where it is the connecting side; at least, then, and never more than one off.
  const uint64_t acked = world.loop().acked_bytes(conn.socket);
  CHECK(acked >= 100'000);
  CHECK(acked <= 100'001);
  conn.close();
  CHECK(world.verdict() == "");
}

}  // namespace weir::contract

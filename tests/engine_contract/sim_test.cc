// The simulated world itself: that a seed fixes everything, that time is virtual, and that each fault can happen.
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators_range.hpp>

#include "engines/sim_engine.h"
#include "engines/sim_peer.h"
#include "tests/engine_contract/acceptor.h"

namespace weir::contract {

namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

// A loop of its own in a shared network.
struct Node {
  explicit Node(SimNetwork& network) : loop(network.clock(), {.slab_bytes_max = 16u << 20, .gather = false}) {
    loop.add_engine(std::make_unique<SimEngine>(network, loop.slabs()));
  }
  Loop loop;
};

// Some traffic under all harmless faults; what happened, and when, as text.
std::string trace(uint64_t seed) {
  World world(Kind::sim_faulty, {.seed = seed});
  std::string out;
  std::vector<std::unique_ptr<Conn>> conns;
  std::vector<std::unique_ptr<Peer>> peers;
  for (uint64_t i = 0; i < 5; ++i) {
    conns.push_back(std::make_unique<Conn>(world, "in", i + 1));
    peers.push_back(world.pair(conns.back()->socket));
    Conn& conn = *conns.back();
    conn.on_recv = [&out, &world, i](Conn& c) {
      out += std::to_string(i) + ":" + std::to_string(c.recv.result) + "@" +
             std::to_string(world.loop().now().time_since_epoch().count()) + " ";
    };
    conn.reading = true;
    conn.read(3000);
  }
  uint64_t fed = 0;
  const bool all = world.run([&] {
    if (fed < 20'000) {
      for (uint64_t i = 0; i < 5; ++i) peers[i]->send(Pattern(i + 1).bytes(fed, 1000));
      fed += 1000;
    }
    return std::all_of(conns.begin(), conns.end(), [&](auto& c) { return c->received == 20'000; });
  });
  if (!all) out += "unfinished";
  for (auto& conn : conns) conn->close();
  return out + world.verdict();
}

}  // namespace

TEST_CASE("the same seed gives the same run, to the nanosecond; another seed another", "[sim]") {
  const std::string first = trace(1);
  CHECK(first.find("unfinished") == std::string::npos);
  CHECK(first.size() > 500);
  CHECK(trace(1) == first);
  CHECK(trace(2) != first);
}

TEST_CASE("time is virtual: a day passes at once, and nothing else moves it", "[sim][E12]") {
  World world(Kind::sim);
  const TimePoint begin = world.loop().now();
  struct : Timer { bool fired = false; } timer;
  timer.fire = [](Timer& t) noexcept { static_cast<decltype(timer)&>(t).fired = true; };
  world.loop().set_timer(timer, begin + std::chrono::hours(24));
  for (int i = 0; i < 10; ++i) world.loop().tick(Duration(0));
  CHECK(world.network().now() - begin < milliseconds(1));
  for (int i = 0; !timer.fired; ++i) {
    REQUIRE(i < 1000);
    world.loop().tick(kForever);
  }
  CHECK(world.loop().now() - begin >= std::chrono::hours(24));
  CHECK(world.loop().now() - begin <= std::chrono::hours(24) + milliseconds(50));
}

TEST_CASE("latency and bandwidth take the time that they should", "[sim]") {
  SimNetwork network({.link = {.latency = milliseconds(10), .bytes_per_second = 1'000'000}});
  const Address address = *Address::parse("127.0.0.1:80");
  SimPeer* server = nullptr;
  network.serve(address, [&](SimPeer& peer) { server = &peer; });
  const TimePoint begin = network.now();
  SimPeer& client = network.connect_peer(address);
  Node node(network);
  Loop* loops[] = {&node.loop};
  REQUIRE(network.run_until(loops, [&] { return client.connected(); }));
  CHECK(network.now() - begin == milliseconds(20));   // one round trip
  client.send(std::string(100'000, 'x'));
  const TimePoint sent = network.now();
  REQUIRE(network.run_until(loops, [&] { return server->received_bytes() == 100'000; }));
  CHECK(network.now() - sent == milliseconds(110));   // 100 ms on the wire and 10 ms of latency
}

TEST_CASE("a peer that does not read holds the sender at the sum of its buffers", "[sim]") {
  World world(Kind::sim);
  world.network().link().send_buffer_bytes = 10'000;
  world.network().link().window_bytes = 20'000;
  Conn conn(world);
  int fd = -1;
  SimPeer& peer = world.network().pair(&fd);
  peer.allow(0);
  world.loop().adopt(conn.socket, fd, EngineKind::sim);
  conn.write(Pattern(1).bytes(0, 100'000));
  world.ticks(50);
  CHECK(conn.sent == 30'000);
  CHECK(world.loop().acked_bytes(conn.socket) == 20'000);
  peer.allow(5'000);
  world.ticks(50);
  CHECK(conn.sent == 35'000);
  peer.allow(UINT64_MAX);
  REQUIRE(world.run([&] { return peer.received_bytes() == 100'000; }));
  CHECK(Pattern(1).mismatch(0, peer.received) == std::string::npos);
  conn.close();
  CHECK(world.verdict() == "");
}

TEST_CASE("each error can be scripted, and the world goes on after it", "[sim]") {
  World world(Kind::sim);
  SECTION("recv: nothing is taken from the socket") {
    Conn conn(world);
    auto peer = world.pair(conn.socket);
    peer->send("hello");
    world.network().fail({.kind = OpKind::recv, .error = ENOBUFS, .fd = conn.socket.fd});
    conn.read(100);
    REQUIRE(world.run([&] { return conn.recv.idle(); }));
    CHECK(conn.recv_error == ENOBUFS);
    conn.read(100);
    REQUIRE(world.run([&] { return conn.recv.idle(); }));
    CHECK(conn.got == "hello");
    conn.close();
  }
  SECTION("accept: it is final, and what waits is there afterwards") {
    Acceptor acceptor(world);
    auto peer = world.connect(acceptor.address);
    world.network().fail({.kind = OpKind::accept, .error = ENFILE, .count = 2});
    for (uint32_t i = 1; i <= 2; ++i) {
      acceptor.start();
      REQUIRE(world.run([&] { return acceptor.finals == i; }));
      CHECK(acceptor.final_error == ENFILE);
    }
    acceptor.start();
    REQUIRE(world.run([&] { return acceptor.sockets.size() == 1; }));
    acceptor.close();
  }
  SECTION("send") {
    Conn conn(world);
    auto peer = world.pair(conn.socket);
    world.network().fail({.kind = OpKind::send, .error = ENOBUFS});
    conn.write("lost?");
    REQUIRE(world.run([&] { return conn.send.idle(); }));
    CHECK(conn.send_error == ENOBUFS);
    conn.send_error = 0;
    world.submit(conn.send);
    std::string got;
    REQUIRE(world.run([&] { return peer->drain(&got) && got == "lost?"; }));
    conn.close();
  }
  CHECK(world.verdict() == "");
}

TEST_CASE("each fault of chance happens when its probability is one", "[sim]") {
  World world(Kind::sim);
  SimFaults& faults = world.network().faults();
  Conn conn(world);
  auto peer = world.pair(conn.socket);
  SECTION("reset under a recv") {
    faults.reset = 1;
    peer->send("x");
    conn.read(10);
    REQUIRE(world.run([&] { return conn.recv.idle(); }));
    conn.recv_error = 0;
    if (conn.received > 0) conn.read(10);             // what came before the reset is delivered first
    REQUIRE(world.run([&] { return conn.recv.idle(); }));
    CHECK(conn.recv_error == ECONNRESET);
    char byte;
    CHECK(peer->recv(&byte, 1) == -ECONNRESET);
  }
  SECTION("a broken pipe") {
    faults.broken_pipe = 1;
    conn.write("x");
    REQUIRE(world.run([&] { return conn.send.idle(); }));
    CHECK(conn.send_error == EPIPE);
  }
  SECTION("short reads and writes") {
    faults.short_recv = faults.short_send = 1;
    conn.write(std::string(50'000, 'x'));
    peer->send(std::string(50'000, 'y'));
    conn.reading = true;
    conn.read(65536);
    std::string got;
    REQUIRE(world.run([&] {
      peer->drain(&got);
      return got.size() == 50'000 && conn.received == 50'000;
    }));
    CHECK(conn.recvs > 5);
    CHECK(conn.sends > 5);
  }
  SECTION("a completion that comes late: the socket cannot be closed before it") {
    faults.delay_completion = 1;
    peer->send("x");
    world.ticks(5);
    conn.read(10);
    world.loop().tick(Duration(0));
    CHECK(conn.socket.in_flight == 1);
    world.cancel(conn.recv);                          // too late: it has its byte already
    REQUIRE(world.run([&] { return conn.recv.idle(); }));
    CHECK(conn.got == "x");
  }
  SECTION("a cancel that comes late") {
    faults.cancel_race = 1;
    conn.read(10);
    world.loop().tick(Duration(0));
    world.cancel(conn.recv);
    world.loop().tick(Duration(0));
    CHECK_FALSE(conn.recv.idle());
    peer->send("x");
    REQUIRE(world.run([&] { return conn.recv.idle(); }));
    CHECK(conn.got == "x");
  }
  SECTION("refused and unanswered connects") {
    auto server = world.serve();
    struct Connect : ConnectOp { World* world = nullptr; } connect;
    connect.world = &world;
    connect.complete = [](Op& op) noexcept { static_cast<Connect&>(op).world->ledger().completed(op); };
    for (const int error : {ECONNREFUSED, ETIMEDOUT}) {
      faults.connect_refused = error == ECONNREFUSED;
      faults.connect_timeout = error == ETIMEDOUT;
      Socket socket;
      REQUIRE(world.loop().open(socket, server->address, EngineKind::sim) == 0);
      connect.socket = &socket;
      connect.to = server->address;
      const TimePoint begin = world.network().now();
      world.submit(connect);
      while (!connect.idle()) world.loop().tick(kForever);
      CHECK(connect.result == -error);
      CHECK((world.network().now() - begin >= seconds(100)) == (error == ETIMEDOUT));
      world.close(socket);
    }
  }
  SECTION("ENOBUFS on accept") {
    faults.accept_enobufs = 1;
    Acceptor acceptor(world);
    auto visitor = world.connect(acceptor.address);
    acceptor.start();
    REQUIRE(world.run([&] { return acceptor.finals == 1; }));
    CHECK(acceptor.final_error == ENOBUFS);
    faults.accept_enobufs = 0;
    acceptor.start();
    REQUIRE(world.run([&] { return acceptor.sockets.size() == 1; }));
    acceptor.close();
  }
  faults = SimFaults{};
  conn.close();
  CHECK(world.verdict() == "");
}

TEST_CASE("several loops live in one network, and time waits for all of them", "[sim]") {
  SimNetwork network({.seed = 5});
  Node one(network), two(network);
  Loop* loops[] = {&one.loop, &two.loop};
  const Address address = *Address::parse("127.0.0.1:8080");
  // Two listeners share one address, as reuseport sockets do; each loop serves what it gets.
  struct Server {
    Loop* loop = nullptr;
    Socket listener;
    struct Accept : AcceptOp { Server* server = nullptr; } accept;
    std::deque<Socket> sockets;
  };
  Server servers[2];
  for (int i = 0; i < 2; ++i) {
    Server& server = servers[i];
    server.loop = loops[i];
    server.accept.server = &server;
    server.accept.socket = &server.listener;
    server.accept.complete = [](Op& op) noexcept {
      auto& accept = static_cast<Server::Accept&>(op);
      for (int32_t k = 0; k < accept.result; ++k) {
        accept.server->sockets.emplace_back();
        const int fd = accept.accepted[static_cast<size_t>(k)].fd;
        accept.server->loop->adopt(accept.server->sockets.back(), fd, EngineKind::sim);
      }
    };
    const int fd = network.listen(address, 100, true);
    REQUIRE(fd >= kSimDescriptorBase);
    server.loop->adopt(server.listener, fd, EngineKind::sim);
    server.loop->submit(server.accept);
  }
  CHECK(network.listen(address) == -EADDRINUSE);
  std::vector<SimPeer*> clients;
  for (int i = 0; i < 60; ++i) {
    network.after(milliseconds(10 * i), [&] { clients.push_back(&network.connect_peer(address)); });
  }
  const TimePoint begin = network.now();
  REQUIRE(network.run_until(loops, [&] { return servers[0].sockets.size() + servers[1].sockets.size() == 60; }));
  CHECK(servers[0].sockets.size() > 10);
  CHECK(servers[1].sockets.size() > 10);
  CHECK(network.now() - begin >= milliseconds(590));
  CHECK(network.now() - begin < milliseconds(600));
  // Nothing is left to happen: the network says so instead of spinning.
  CHECK_FALSE(network.run_until(loops, [] { return false; }));
  network.run_for(loops, seconds(3600));
  for (Server& server : servers) {
    for (Socket& socket : server.sockets) server.loop->close(socket);
    server.loop->shutdown(server.listener, ShutdownHow::both);
  }
  REQUIRE(network.run_until(loops, [&] { return servers[0].accept.idle() && servers[1].accept.idle(); }));
  for (Server& server : servers) server.loop->close(server.listener);
  network.run_for(loops, seconds(1));
  CHECK(network.descriptors() == 0);
  for (SimPeer* client : clients) {
    CHECK(client->ended());
    network.forget(*client);
  }
  CHECK(network.connections() == 0);
}

TEST_CASE("a listener whose queue is full answers later, or never", "[sim]") {
  World world(Kind::sim);
  const Address address = *Address::parse("127.0.0.1:81");
  Socket listener;
  world.loop().adopt(listener, world.network().listen(address, 2), EngineKind::sim);
  std::vector<std::unique_ptr<Peer>> peers;
  std::vector<SimPeer*> clients;
  for (int i = 0; i < 4; ++i) clients.push_back(&world.network().connect_peer(address));
  for (int i = 0; i < 10; ++i) world.loop().tick(milliseconds(1));
  int up = 0;
  for (SimPeer* client : clients) up += client->connected();
  CHECK(up == 2);
  for (int i = 0; i < 300; ++i) world.loop().tick(seconds(1));
  for (SimPeer* client : clients) CHECK((client->connected() || client->connect_result() == -ETIMEDOUT));
  world.loop().close(listener);
  for (int i = 0; i < 3; ++i) world.loop().tick(milliseconds(1));
  for (SimPeer* client : clients) {
    CHECK(client->error() != 0);                      // the queued ones were reset
    world.network().forget(*client);
  }
  CHECK(world.verdict() == "");
}

}  // namespace weir::contract

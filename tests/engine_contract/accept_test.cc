// accept and connect.
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators_range.hpp>

#include <fcntl.h>
#include <sys/resource.h>
#include <unistd.h>

#include "tests/engine_contract/acceptor.h"

namespace weir::contract {

namespace {

// Uses up all descriptors but `leave` of them (a lowered limit, so that it is quick), and gives them back.
class Descriptors {
 public:
  Descriptors(World& world, unsigned leave) : world_(world) {
    if (world.simulated()) {
      world.network().set_descriptors_max(world.network().descriptors() + leave);
      return;
    }
    getrlimit(RLIMIT_NOFILE, &old_);
    const int next = ::open("/dev/null", O_RDONLY | O_CLOEXEC);
    ::close(next);
    rlimit now = old_;
    now.rlim_cur = static_cast<rlim_t>(next) + 200;
    setrlimit(RLIMIT_NOFILE, &now);
    while (true) {
      const int fd = ::open("/dev/null", O_RDONLY | O_CLOEXEC);
      if (fd < 0) break;
      held_.push_back(fd);
    }
    for (unsigned i = 0; i < leave; ++i) free_one();
  }
  void free_one() {
    if (world_.simulated()) {
      world_.network().set_descriptors_max(world_.network().descriptors_max() + 1);
      return;
    }
    ::close(held_.back());
    held_.pop_back();
  }
  ~Descriptors() {
    if (world_.simulated()) {
      world_.network().set_descriptors_max(1u << 20);
      return;
    }
    for (const int fd : held_) ::close(fd);
    setrlimit(RLIMIT_NOFILE, &old_);
  }

 private:
  World& world_;
  rlimit old_{};
  std::vector<int> held_;
};

}  // namespace

TEST_CASE("accept completes many times and then once for good, at most 64 at a time", "[engine][E8]") {
  const Kind kind = GENERATE(from_range(all_kinds()));
  CAPTURE(kind_name(kind));
  World world(kind);
  Acceptor acceptor(world);
  std::vector<std::unique_ptr<Peer>> peers;
  for (int i = 0; i < 300; ++i) peers.push_back(world.connect(acceptor.address));
  world.ticks(10);                                    // all of them wait when accepting begins
  acceptor.start();
  REQUIRE(world.run([&] { return acceptor.sockets.size() == 300; }));
  CHECK(acceptor.largest <= 64);
  CHECK(acceptor.completions >= 5);
  CHECK(acceptor.finals == 0);
  CHECK(world.loop().ops_in_flight() == 1);           // still armed
  for (int i = 0; i < 5; ++i) {
    peers.push_back(world.connect(acceptor.address));
    const auto expected = static_cast<size_t>(301 + i);
    REQUIRE(world.run([&] { return acceptor.sockets.size() == expected; }));
  }
  for (const Address& peer : acceptor.peers) {
    CHECK(peer.family() == AF_INET);
    CHECK(peer.port() != 0);
  }
  world.cancel(acceptor.op);
  REQUIRE(world.run([&] { return acceptor.finals == 1; }));
  CHECK(acceptor.final_error == ECANCELED);
  world.ticks(5);
  CHECK(acceptor.finals == 1);
  acceptor.start();                                   // and anew
  peers.push_back(world.connect(acceptor.address));
  REQUIRE(world.run([&] { return acceptor.sockets.size() == 306; }));
  acceptor.close();
  CHECK(world.verdict() == "");
}

TEST_CASE("shutting a listener down ends its accept", "[engine]") {
  const Kind kind = GENERATE(from_range(all_kinds()));
  CAPTURE(kind_name(kind));
  World world(kind);
  Acceptor acceptor(world);
  acceptor.start();
  world.ticks(3);
  acceptor.close();
  CHECK(acceptor.finals == 1);
  CHECK(acceptor.final_error != 0);
  CHECK(world.verdict() == "");
}

TEST_CASE("one flooded listener does not starve another", "[engine][E8]") {
  const Kind kind = GENERATE(from_range(all_kinds()));
  CAPTURE(kind_name(kind));
  World world(kind);
  Acceptor flooded(world), quiet(world);
  std::vector<std::unique_ptr<Peer>> peers;
  for (int i = 0; i < 400; ++i) peers.push_back(world.connect(flooded.address));
  peers.push_back(world.connect(quiet.address));
  world.ticks(5);
  flooded.start();
  quiet.start();
  REQUIRE(world.run([&] { return quiet.sockets.size() == 1; }));
  CHECK(flooded.sockets.size() <= 192);               // at most three ticks' worth came before
  REQUIRE(world.run([&] { return flooded.sockets.size() == 400; }));
  flooded.close();
  quiet.close();
  CHECK(world.verdict() == "");
}

TEST_CASE("without descriptors accept ends with EMFILE, and works again once one is free", "[engine][E8]") {
  const Kind kind = GENERATE(from_range(all_kinds()));
  CAPTURE(kind_name(kind));
  World world(kind);
  Acceptor acceptor(world), other(world);
  std::vector<std::unique_ptr<Peer>> peers;
  for (int i = 0; i < 8; ++i) peers.push_back(world.connect(acceptor.address));
  Conn conn(world);
  auto peer = world.pair(conn.socket);
  {
    Descriptors none(world, 3);
    acceptor.start();
    REQUIRE(world.run([&] { return acceptor.finals == 1; }));
    CHECK(acceptor.final_error == EMFILE);
    CHECK(acceptor.sockets.size() == 3);
    CHECK(acceptor.op.idle());
    // Nothing spins meanwhile: the owner waits and asks anew.
    const uint64_t before = world.loop().stats().events.get();
    world.ticks(50);
    CHECK(world.loop().stats().events.get() - before <= 5);
    // Others go on.
    peer->send("still here");
    conn.reading = true;
    conn.read(100);
    REQUIRE(world.run([&] { return conn.received == 10; }));
    // Asked too early it says so once more.
    acceptor.start();
    REQUIRE(world.run([&] { return acceptor.finals == 2; }));
    CHECK(acceptor.sockets.size() == 3);
    none.free_one();
    acceptor.start();
    REQUIRE(world.run([&] { return acceptor.sockets.size() == 4 && acceptor.finals == 3; }));
  }
  acceptor.start();
  REQUIRE(world.run([&] { return acceptor.sockets.size() == 8; }));
  conn.close();
  acceptor.close();
  other.close();
  CHECK(world.verdict() == "");
}

namespace {

struct Connector {
  explicit Connector(World& w) : world(w), conn(w), socket(conn.socket) {
    op.owner = this;
    op.socket = &socket;
    op.complete = [](Op& base) noexcept {
      auto& self = *static_cast<ConnectWith&>(base).owner;
      self.world.ledger().completed(base);
      self.done = true;
      self.result = base.result;
    };
  }
  void start(const Address& to) {
    done = false;
    const int opened = world.loop().open(socket, to, world.engine());
    if (opened != 0) world.ledger().wrong("open: " + std::to_string(opened));
    op.to = to;
    world.submit(op);
  }
  struct ConnectWith : ConnectOp { Connector* owner = nullptr; } op;
  World& world;
  Conn conn;                                          // what uses the connection once it stands
  Socket& socket;
  bool done = false;
  int result = 1;
};

}  // namespace

TEST_CASE("connect reaches TCP and unix listeners, and bytes flow both ways", "[engine]") {
  const Kind kind = GENERATE(from_range(all_kinds()));
  const bool unix_socket = GENERATE(false, true);
  CAPTURE(kind_name(kind), unix_socket);
  World world(kind);
  auto server = world.serve(unix_socket);
  for (int round = 0; round < 5; ++round) {
    Connector connector(world);
    connector.start(server->address);
    CHECK_FALSE(connector.done);
    REQUIRE(world.run([&] { return connector.done; }));
    REQUIRE(connector.result == 0);
    Conn& conn = connector.conn;
    std::unique_ptr<Peer> peer;
    REQUIRE(world.run([&] { return peer != nullptr || (peer = server->accept()) != nullptr; }));
    conn.write("ping");
    conn.reading = true;
    conn.read(100);
    std::string got;
    REQUIRE(world.run([&] {
      if (peer->drain(&got) && got == "ping") peer->send("pong");
      return conn.received == 4;
    }));
    CHECK(conn.got == "pong");
    conn.close();
  }
  CHECK(world.verdict() == "");
}

TEST_CASE("a refused connect says so, and its descriptor can be closed and used again", "[engine]") {
  const Kind kind = GENERATE(from_range(all_kinds()));
  CAPTURE(kind_name(kind));
  World world(kind);
  const Address nobody = world.nobody();
  for (int round = 0; round < 20; ++round) {
    Connector connector(world);
    connector.start(nobody);
    REQUIRE(world.run([&] { return connector.done; }));
    CHECK(connector.result == -ECONNREFUSED);
    world.close(connector.socket);
  }
  Connector connector(world);
  connector.start(*Address::parse("unix:/nowhere/at/all"));
  REQUIRE(world.run([&] { return connector.done; }));
  CHECK((connector.result == -ENOENT || connector.result == -ECONNREFUSED));
  world.close(connector.socket);
  CHECK(world.verdict() == "");
}

TEST_CASE("a connect that nobody answers can be cancelled", "[engine]") {
  const Kind kind = GENERATE(from_range(all_kinds()));
  CAPTURE(kind_name(kind));
  World world(kind);
  Acceptor full(world);                               // never accepts; its queue of one is soon full
  std::vector<std::unique_ptr<Peer>> peers;
  std::vector<std::unique_ptr<Connector>> connectors;
  if (world.simulated()) world.network().blackhole(full.address, true);
  else REQUIRE(::listen(full.socket.fd, 0) == 0);
  for (int i = 0; i < 8; ++i) {
    connectors.push_back(std::make_unique<Connector>(world));
    connectors.back()->start(full.address);
  }
  world.ticks(20);
  size_t pending = 0;
  for (auto& connector : connectors) pending += !connector->done;
  CHECK(pending >= 5);
  for (auto& connector : connectors) world.cancel(connector->op);
  REQUIRE(world.run([&] {
    for (auto& connector : connectors) {
      if (!connector->done) return false;
    }
    return true;
  }));
  size_t cancelled = 0;
  for (auto& connector : connectors) cancelled += connector->result == -ECANCELED;
  CHECK(cancelled == pending);
  for (auto& connector : connectors) world.close(connector->socket);
  full.close();
  CHECK(world.verdict() == "");
}

}  // namespace weir::contract

// What the epoll engine does beyond the contract: which system calls, when, and what it does at limits.
#include "engines/epoll_engine.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "engines/loop.h"
#include "tests/unit/engines/sys_probe.h"

using namespace weir;
using namespace std::chrono_literals;

namespace {

struct Bench {
  SystemClock clock;
  Loop loop;
  explicit Bench(bool gather = false, size_t slab_bytes = 16 << 20)
      : loop(clock, {.slab_bytes_max = slab_bytes, .gather = gather}) {
    auto engine = make_epoll_engine(loop.slabs());
    REQUIRE(engine.has_value());
    loop.add_engine(std::move(*engine));
    loop.tick(0ms);  // registers the wake descriptor
  }
  // Ticks until it holds; progress is what ends it, the bound only keeps a broken engine from hanging.
  template <class Done>
  bool until(Done&& done) {
    for (int i = 0; i < 2000 && !done(); ++i) loop.tick(5ms);
    return done();
  }
};

struct TestRecv : RecvOp {
  std::string got;
  std::vector<int32_t> results;
  TestRecv(Socket& s, uint32_t how_much) {
    socket = &s;
    want = how_much;
    complete = [](Op& op) noexcept {
      auto& self = static_cast<TestRecv&>(op);
      self.results.push_back(op.result);
      const size_t at = self.got.size();
      self.got.resize(at + self.bytes.bytes());
      self.bytes.copy_out(self.got.data() + at, 0, self.bytes.bytes());
      self.bytes.clear();
    };
  }
};

struct TestSend : SendOp {
  Chain out;
  Loop* loop;
  std::vector<int32_t> results;
  TestSend(Loop& l, Socket& s) : loop(&l) {
    socket = &s;
    bytes = &out;
    complete = [](Op& op) noexcept {
      auto& self = static_cast<TestSend&>(op);
      self.results.push_back(op.result);
      if (op.result <= 0) return;
      self.out.consume(static_cast<size_t>(op.result));
      if (!self.out.empty()) self.loop->submit(self);
    };
  }
};

struct Pair {
  Bench& bench;
  Socket socket;
  int peer = -1;
  explicit Pair(Bench& b) : bench(b) {
    int fds[2];
    REQUIRE(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, fds) == 0);
    b.loop.adopt(socket, fds[0], EngineKind::epoll);
    peer = fds[1];
  }
  ~Pair() {
    bench.loop.close(socket);
    if (peer >= 0) ::close(peer);
  }
  void say(std::string_view text) const { REQUIRE(::write(peer, text.data(), text.size()) == static_cast<ssize_t>(text.size())); }
  std::string hear(size_t count) const {
    std::string out(count, '\0');
    const ssize_t got = ::read(peer, out.data(), count);
    out.resize(got > 0 ? static_cast<size_t>(got) : 0);
    return out;
  }
};

struct Listener {
  Bench& bench;
  Socket socket;
  Address address;
  explicit Listener(Bench& b) : bench(b) {
    const int fd = ::socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    address = *Address::parse("127.0.0.1:0");
    REQUIRE(::bind(fd, &address.any, address.length) == 0);
    REQUIRE(::listen(fd, 1024) == 0);
    REQUIRE(::getsockname(fd, &address.any, &address.length) == 0);
    b.loop.adopt(socket, fd, EngineKind::epoll);
  }
  ~Listener() { bench.loop.close(socket); }
  int dial() const {
    const int fd = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    REQUIRE(::connect(fd, &address.any, address.length) == 0);
    return fd;
  }
};

struct TestAccept : AcceptOp {
  std::vector<int> fds;
  std::vector<int32_t> results;
  explicit TestAccept(Socket& s) {
    socket = &s;
    complete = [](Op& op) noexcept {
      auto& self = static_cast<TestAccept&>(op);
      self.results.push_back(op.result);
      for (int32_t i = 0; i < op.result; ++i) self.fds.push_back(self.accepted[static_cast<size_t>(i)].fd);
    };
  }
  ~TestAccept() {
    for (int fd : fds) ::close(fd);
  }
};

}  // namespace

TEST_CASE("a keep-alive connection costs one epoll_ctl, and each request one recv and one send") {
  SysProbe probe;
  Bench b;
  Pair pair(b);
  probe.reset();
  TestRecv recv(pair.socket, kSlabBytes);
  TestSend send(b.loop, pair.socket);
  for (int i = 0; i < 50; ++i) {
    pair.say("request");
    recv.results.clear();
    b.loop.submit(recv);
    REQUIRE(b.until([&] { return !recv.results.empty(); }));
    REQUIRE(send.out.append_copy(b.loop.slabs(), "response", 8));
    send.results.clear();
    b.loop.submit(send);
    REQUIRE(b.until([&] { return !send.results.empty(); }));
    REQUIRE(pair.hear(100) == "response");
  }
  CHECK(probe.count("epoll_add") == 1);
  CHECK(probe.count("epoll_del") == 0);
  CHECK(probe.count("recv") == 50);
  CHECK(probe.count("send") == 50);
  CHECK(probe.count("readv") + probe.count("sendmsg") == 0);
}

TEST_CASE("a connection that is done after its first request needs no epoll_ctl") {
  SysProbe probe;
  Bench b;
  Pair pair(b);
  probe.reset();
  pair.say("request");
  TestRecv recv(pair.socket, kSlabBytes);
  b.loop.submit(recv);
  REQUIRE(b.until([&] { return !recv.results.empty(); }));
  TestSend send(b.loop, pair.socket);
  REQUIRE(send.out.append_copy(b.loop.slabs(), "response", 8));
  b.loop.submit(send);
  REQUIRE(b.until([&] { return !send.results.empty(); }));
  CHECK(probe.count("epoll_add") == 0);
}

TEST_CASE("nothing is read because something was sent, and a short read ends the read") {
  SysProbe probe;
  Bench b;
  Pair pair(b);
  pair.say("abc");
  TestRecv recv(pair.socket, kSlabBytes);
  b.loop.submit(recv);
  REQUIRE(b.until([&] { return recv.got == "abc"; }));
  const int before = probe.count("recv");
  b.loop.submit(recv);
  TestSend send(b.loop, pair.socket);
  REQUIRE(send.out.append_copy(b.loop.slabs(), "xyz", 3));
  b.loop.submit(send);
  for (int i = 0; i < 5; ++i) b.loop.tick(1ms);
  CHECK(probe.count("recv") == before);
  CHECK(pair.hear(10) == "xyz");
  pair.say("def");
  REQUIRE(b.until([&] { return recv.got == "abcdef"; }));
  CHECK(probe.count("recv") == before + 1);
}

TEST_CASE("what came with the end of the stream is read, then the end", "[E9]") {
  Bench b;
  Pair pair(b);
  TestRecv recv(pair.socket, kSlabBytes);
  b.loop.submit(recv);
  for (int i = 0; i < 3; ++i) b.loop.tick(0ms);
  CHECK(recv.results.empty());
  CHECK(b.loop.slabs().in_use() == 0);  // an idle recv pins no buffer
  pair.say("last");
  ::shutdown(pair.peer, SHUT_WR);
  REQUIRE(b.until([&] { return recv.results.size() == 1; }));
  CHECK(recv.got == "last");
  b.loop.submit(recv);
  REQUIRE(b.until([&] { return recv.results.size() == 2; }));
  CHECK(recv.results[1] == 0);
  // The other direction still works.
  TestSend send(b.loop, pair.socket);
  REQUIRE(send.out.append_copy(b.loop.slabs(), "answer", 6));
  b.loop.submit(send);
  REQUIRE(b.until([&] { return !send.results.empty(); }));
  CHECK(pair.hear(10) == "answer");
  // And the loop does not spin on the half-closed socket.
  const uint64_t before = b.loop.stats().ticks.get();
  b.loop.tick(20ms);
  CHECK(b.loop.stats().ticks.get() == before + 1);
  CHECK(b.loop.stats().events.get() < 10);
}

TEST_CASE("small reads take one slab, large ones as many as the last one filled") {
  SysProbe probe;
  Bench b;
  Pair pair(b);
  const int room = 1 << 20;
  setsockopt(pair.peer, SOL_SOCKET, SO_SNDBUF, &room, sizeof room);
  const std::string block(120000, 'x');
  TestRecv recv(pair.socket, 256 << 10);
  std::string sent;
  for (int i = 0; i < 5; ++i) {
    pair.say(block);
    sent += block;
    while (recv.got.size() < sent.size()) {
      b.loop.submit(recv);
      REQUIRE(b.until([&] { return recv.idle(); }));
    }
  }
  CHECK(recv.got == sent);
  CHECK(*std::max_element(recv.results.begin(), recv.results.end()) >= 4 * static_cast<int32_t>(kSlabBytes));
  CHECK(b.loop.slabs().in_use() == 0);
  // After a small read the next one takes one slab again.
  pair.say("tiny");
  b.loop.submit(recv);
  REQUIRE(b.until([&] { return recv.idle(); }));
  const int readvs = probe.count("readv");
  pair.say("tiny");
  b.loop.submit(recv);
  REQUIRE(b.until([&] { return recv.idle(); }));
  CHECK(probe.count("readv") == readvs);
}

TEST_CASE("at the pool's limit a recv waits, nothing is lost and nobody spins", "[M3]") {
  Bench b(false, 1);
  Pair pair(b);
  Pair second(b);
  std::vector<Slab*> held;
  while (Slab* slab = b.loop.slabs().take()) held.push_back(slab);
  TestRecv recv(pair.socket, kSlabBytes);
  TestRecv recv2(second.socket, kSlabBytes);
  b.loop.submit(recv);
  b.loop.submit(recv2);
  pair.say("patience");
  second.say("also");
  for (int i = 0; i < 10; ++i) b.loop.tick(1ms);
  CHECK(recv.results.empty());
  // Asleep, not spinning: a tick takes its whole time, and finds nothing.
  const uint64_t events = b.loop.stats().events.get();
  b.loop.tick(30ms);
  CHECK(b.loop.stats().events.get() == events);
  SECTION("it goes on when a slab is free") {
    SlabPool::unref(*held.back());
    held.pop_back();
    REQUIRE(b.until([&] { return recv.got == "patience" && recv2.got == "also"; }));
  }
  SECTION("it can be cancelled meanwhile") {
    b.loop.cancel(recv);
    b.loop.tick(0ms);
    CHECK(recv.results == std::vector<int32_t>{-ECANCELED});
    SlabPool::unref(*held.back());
    held.pop_back();
    REQUIRE(b.until([&] { return recv2.got == "also"; }));
    b.loop.submit(recv);
    REQUIRE(b.until([&] { return recv.got == "patience"; }));
  }
  for (Slab* slab : held) SlabPool::unref(*slab);
  CHECK(b.loop.slabs().in_use() == 0);
}

TEST_CASE("a send that finds no room waits for it and loses nothing") {
  Bench b;
  Pair pair(b);
  TestSend send(b.loop, pair.socket);
  std::string all;
  for (int i = 0; i < 400; ++i) {
    const std::string piece(1000 + i * 7, static_cast<char>('a' + i % 26));
    REQUIRE(send.out.append_copy(b.loop.slabs(), piece.data(), piece.size()));
    all += piece;
  }
  b.loop.submit(send);
  std::string heard;
  REQUIRE(b.until([&] {
    heard += pair.hear(50000);
    return heard.size() == all.size();
  }));
  CHECK(heard == all);
  CHECK(send.results.size() > 1);
  for (int32_t result : send.results) CHECK(result > 0);
}

TEST_CASE("a send to a peer that is gone fails without a signal") {
  Bench b;
  Pair pair(b);
  ::close(std::exchange(pair.peer, -1));
  TestSend send(b.loop, pair.socket);
  REQUIRE(send.out.append_copy(b.loop.slabs(), "x", 1));
  b.loop.submit(send);
  REQUIRE(b.until([&] { return !send.results.empty(); }));
  CHECK(send.results[0] == -EPIPE);
}

TEST_CASE("a burst of connections comes in bounded portions and nothing is left behind", "[E8]") {
  Bench b;
  Listener listener(b);
  TestAccept accept(listener.socket);
  b.loop.submit(accept);
  b.loop.tick(0ms);
  std::vector<int> clients;
  for (int i = 0; i < 200; ++i) clients.push_back(listener.dial());
  REQUIRE(b.until([&] { return accept.fds.size() == 200; }));
  for (int32_t result : accept.results) CHECK((result > 0 && result <= 64));
  CHECK(accept.more);
  // Other listeners get their turn between two portions.
  CHECK(accept.results.size() >= 4);
  b.loop.cancel(accept);
  b.loop.tick(0ms);
  CHECK_FALSE(accept.more);
  CHECK(accept.results.back() == -ECANCELED);
  CHECK(accept.idle());
  for (int fd : clients) ::close(fd);
}

TEST_CASE("accept passes over connections that died, and ends when descriptors run out", "[E8]") {
  SysProbe probe;
  Bench b;
  Listener listener(b);
  TestAccept accept(listener.socket);
  b.loop.submit(accept);
  b.loop.tick(0ms);
  const int one = listener.dial();
  probe.fail("accept4", ECONNABORTED);
  REQUIRE(b.until([&] { return accept.fds.size() == 1; }));
  for (const int error : {EMFILE, ENFILE, ENOBUFS, ENOMEM}) {
    accept.results.clear();
    const int another = listener.dial();
    probe.fail("accept4", error);
    REQUIRE(b.until([&] { return !accept.results.empty(); }));
    CHECK(accept.results.back() == -error);
    CHECK_FALSE(accept.more);
    CHECK(accept.idle());
    // It does not spin on the connection that waits.
    const int calls = probe.count("accept4");
    for (int i = 0; i < 3; ++i) b.loop.tick(1ms);
    CHECK(probe.count("accept4") == calls);
    accept.results.clear();
    b.loop.submit(accept);
    REQUIRE(b.until([&] { return !accept.results.empty(); }));
    CHECK(accept.results.back() == 1);
    ::close(another);
  }
  b.loop.cancel(accept);
  b.loop.tick(0ms);
  CHECK(accept.idle());
  ::close(one);
}

TEST_CASE("a socket that cannot be registered fails its op") {
  SysProbe probe;
  Bench b;
  Pair pair(b);
  TestRecv recv(pair.socket, 10);
  probe.fail("epoll_add", ENOSPC);
  b.loop.submit(recv);
  REQUIRE(b.until([&] { return !recv.results.empty(); }));
  CHECK(recv.results[0] == -ENOSPC);
  CHECK(pair.socket.in_flight == 0);
  CHECK(b.loop.slabs().in_use() == 0);
}

TEST_CASE("what the kernel has is known before the first turn, and stays so: any thread may ask") {
  SysProbe probe;
  SlabPool pool(1 << 20);
  const auto modern = make_epoll_engine(pool);
  probe.fail("epoll_pwait2", ENOSYS);
  const auto old = make_epoll_engine(pool);
  REQUIRE((modern.has_value() && old.has_value()));
  CHECK((*modern)->tier() == "edge-triggered, epoll_pwait2, splice relay");
  CHECK((*old)->tier() == "edge-triggered, splice relay");
}

TEST_CASE("interrupted calls are made again, and an old kernel without epoll_pwait2 is served") {
  SysProbe probe;
  probe.fail("epoll_pwait2", ENOSYS);
  Bench b;
  Pair pair(b);
  probe.fail("recv", EINTR);
  pair.say("abc");
  TestRecv recv(pair.socket, 10);
  b.loop.submit(recv);
  REQUIRE(b.until([&] { return recv.got == "abc"; }));
  b.loop.tick(1ms);
  b.loop.tick(1ms);
  CHECK(probe.count("epoll_pwait2") == 1);
  CHECK(probe.count("epoll_wait") == 2);
  probe.fail("send", EINTR);
  TestSend send(b.loop, pair.socket);
  REQUIRE(send.out.append_copy(b.loop.slabs(), "x", 1));
  b.loop.submit(send);
  REQUIRE(b.until([&] { return !send.results.empty(); }));
  CHECK(send.results[0] == 1);
}

TEST_CASE("connect succeeds, fails with the socket's error, and can be cancelled") {
  Bench b;
  Listener listener(b);
  struct TestConnect : ConnectOp {
    std::vector<int32_t> results;
    explicit TestConnect(Socket& s) {
      socket = &s;
      complete = [](Op& op) noexcept { static_cast<TestConnect&>(op).results.push_back(op.result); };
    }
  };
  Socket socket;
  REQUIRE(b.loop.open(socket, listener.address, EngineKind::epoll) == 0);
  TestConnect connect(socket);
  connect.to = listener.address;
  b.loop.submit(connect);
  REQUIRE(b.until([&] { return !connect.results.empty(); }));
  CHECK(connect.results[0] == 0);
  TestSend send(b.loop, socket);
  REQUIRE(send.out.append_copy(b.loop.slabs(), "x", 1));
  b.loop.submit(send);
  REQUIRE(b.until([&] { return !send.results.empty(); }));
  CHECK(send.results[0] == 1);
  b.loop.close(socket);

  const Address closed = listener.address;
  b.loop.close(listener.socket);
  REQUIRE(b.loop.open(socket, closed, EngineKind::epoll) == 0);
  TestConnect refused(socket);
  refused.to = closed;
  b.loop.submit(refused);
  REQUIRE(b.until([&] { return !refused.results.empty(); }));
  CHECK(refused.results[0] == -ECONNREFUSED);
  b.loop.close(socket);

  const Address nobody = *Address::parse("unix:@weir-test-nobody-listens-here");
  REQUIRE(b.loop.open(socket, nobody, EngineKind::epoll) == 0);
  TestConnect missing(socket);
  missing.to = nobody;
  b.loop.submit(missing);
  REQUIRE(b.until([&] { return !missing.results.empty(); }));
  CHECK(missing.results[0] == -ECONNREFUSED);
  b.loop.close(socket);
}

TEST_CASE("the loop tries a sleep of 50 us for more after busy ticks, and never at one connection") {
  SysProbe probe;
  Bench b(true);
  std::vector<std::unique_ptr<Pair>> pairs;
  std::vector<std::unique_ptr<TestRecv>> recvs;
  for (int i = 0; i < 16; ++i) {
    pairs.push_back(std::make_unique<Pair>(b));
    recvs.push_back(std::make_unique<TestRecv>(pairs.back()->socket, 100));
  }
  const auto round = [&](size_t n) {
    for (size_t i = 0; i < n; ++i) b.loop.submit(*recvs[i]);
    b.loop.tick(0ms);
    for (size_t i = 0; i < n; ++i) pairs[i]->say("x");
    REQUIRE(b.until([&] {
      for (size_t i = 0; i < n; ++i) {
        if (!recvs[i]->idle()) return false;
      }
      return true;
    }));
  };
  for (int i = 0; i < 20; ++i) {
    round(1);
    b.loop.tick(1ms);
  }
  CHECK(probe.count("nanosleep") == 0);
  for (int i = 0; i < 8000 && probe.count("nanosleep") == 0; ++i) {  // a trial comes once in 16 windows of 4,096 events
    round(16);
    b.loop.tick(1ms);
  }
  CHECK(probe.count("nanosleep") >= 1);
}

TEST_CASE("a mailbox message and stop wake a sleeping loop", "[U1]") {
  Bench b;
  struct Stop : Message {
    Loop* loop = nullptr;
  } message;
  message.loop = &b.loop;
  message.run = [](Message& m) noexcept { static_cast<Stop&>(m).loop->stop(); };
  std::thread other([&] { b.loop.mailbox().push(message); });
  b.loop.run();  // would sleep for ever
  other.join();
  CHECK(b.loop.stats().ticks.get() <= 4);
}

TEST_CASE("reused descriptors never get the last owner's events", "[E7]") {
  Bench b;
  for (int i = 0; i < 20000; ++i) {
    Pair pair(b);
    TestRecv recv(pair.socket, 10);
    b.loop.submit(recv);
    b.loop.tick(0ms);
    pair.say("x");
    b.loop.cancel(recv);
    b.loop.tick(0ms);
    REQUIRE(recv.results.size() == 1);
    REQUIRE((recv.results[0] == -ECANCELED || recv.results[0] == 1));
  }
  CHECK(b.loop.ops_in_flight() == 0);
  CHECK(b.loop.slabs().in_use() == 0);
}

// Relays over real sockets: bytes equal, the low-water mark's life, pipes reused or closed, limits of unprivileged users.
#include "engines/relay.h"

#include <fcntl.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <string>
#include <utility>

#include "engines/epoll_engine.h"
#include "engines/loop.h"
#include "tests/unit/engines/sys_probe.h"

using namespace weir;
using namespace std::chrono_literals;

namespace {

// Two TCP connections with the relay between their inner ends.
struct Scene {
  SystemClock clock;
  Loop loop{clock, {.slab_bytes_max = 1 << 20, .gather = false}};
  Socket from, to;
  int source = -1;
  int sink = -1;
  struct TestRelay : RelayOp {
    int completions = 0;
  } relay;

  Scene() {
    auto engine = make_epoll_engine(loop.slabs());
    REQUIRE(engine.has_value());
    loop.add_engine(std::move(*engine));
    source = connect_to(from);
    sink = connect_to(to);
    relay.socket = &from;
    relay.to = &to;
    relay.complete = [](Op& op) noexcept { ++static_cast<TestRelay&>(op).completions; };
  }
  ~Scene() {
    if (!relay.idle()) {
      loop.cancel(relay);
      loop.tick(0ms);
    }
    loop.close(from);
    loop.close(to);
    for (int fd : {source, sink}) {
      if (fd >= 0) ::close(fd);
    }
  }
  int connect_to(Socket& socket) {
    const int listener = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    Address address = *Address::parse("127.0.0.1:0");
    REQUIRE(::bind(listener, &address.any, address.length) == 0);
    REQUIRE(::listen(listener, 1) == 0);
    REQUIRE(::getsockname(listener, &address.any, &address.length) == 0);
    const int fd = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    REQUIRE(::connect(fd, &address.any, address.length) == 0);
    const int inner = ::accept4(listener, nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC);
    REQUIRE(inner >= 0);
    ::close(listener);
    REQUIRE(::fcntl(fd, F_SETFL, O_NONBLOCK) == 0);
    loop.adopt(socket, inner, EngineKind::epoll);
    return fd;
  }
  void start(uint64_t want) {
    relay.want = want;
    loop.submit(relay);
  }
  int lowat() const {
    int value = 0;
    socklen_t length = sizeof value;
    REQUIRE(::getsockopt(from.fd, SOL_SOCKET, SO_RCVLOWAT, &value, &length) == 0);
    return value;
  }
  template <class Done>
  bool until(Done&& done) {
    for (int i = 0; i < 20000 && !done(); ++i) loop.tick(1ms);
    return done();
  }
  // Feeds and drains without blocking; true when `count` bytes came out and equalled the pattern.
  bool pass(size_t count) {
    size_t fed = 0;
    size_t heard = 0;
    std::string in(1 << 18, '\0');
    std::string out(1 << 18, '\0');
    bool equal = true;
    until([&] {
      while (fed < count) {
        const size_t part = std::min(in.size(), count - fed);
        for (size_t i = 0; i < part; ++i) in[i] = pattern(fed + i);
        const ssize_t sent = ::write(source, in.data(), part);
        if (sent <= 0) break;
        fed += static_cast<size_t>(sent);
      }
      for (;;) {
        const ssize_t got = ::read(sink, out.data(), out.size());
        if (got <= 0) break;
        for (size_t i = 0; i < static_cast<size_t>(got); ++i) equal &= out[i] == pattern(heard + i);
        heard += static_cast<size_t>(got);
      }
      return heard >= count;
    });
    return equal && heard == count;
  }
  static char pattern(size_t at) { return static_cast<char>((at * 31 + (at >> 12)) & 0xff); }
};

}  // namespace

TEST_CASE("a large body passes whole, and the next one uses the same pipe") {
  SysProbe probe;
  Scene s;
  for (int i = 0; i < 3; ++i) {
    s.start(20'000'000);
    CHECK(s.pass(20'000'000));
    REQUIRE(s.until([&] { return s.relay.idle(); }));
    CHECK(s.relay.result == 0);
    CHECK(s.relay.moved_in == 20'000'000);
    CHECK(s.relay.moved_out == 20'000'000);
    CHECK(s.lowat() == 1);
    CHECK(s.relay.completions == i + 1);
    CHECK(s.from.in_flight == 0);
    CHECK(s.to.in_flight == 0);
  }
  CHECK(probe.count("pipe2") == 1);
}

TEST_CASE("bytes behind the body stay in the socket") {
  Scene s;
  const std::string body(50000, 'b');
  REQUIRE(::write(s.source, (body + "next").data(), body.size() + 4) == static_cast<ssize_t>(body.size() + 4));
  s.start(body.size());
  REQUIRE(s.until([&] { return s.relay.idle(); }));
  CHECK(s.relay.moved_out == body.size());
  struct R : RecvOp {
  } recv;
  recv.socket = &s.from;
  recv.want = 100;
  recv.complete = [](Op&) noexcept {};
  s.loop.submit(recv);
  REQUIRE(s.until([&] { return recv.idle(); }));
  REQUIRE(recv.result == 4);
  CHECK(recv.bytes.front().view() == "next");
}

TEST_CASE("the end of the source ends the relay after its bytes left") {
  Scene s;
  s.start(1'000'000);
  REQUIRE(::write(s.source, "short body", 10) == 10);
  ::shutdown(s.source, SHUT_WR);
  REQUIRE(s.until([&] { return s.relay.idle(); }));
  CHECK(s.relay.result == 0);
  CHECK(s.relay.moved_in == 10);
  CHECK(s.relay.moved_out == 10);
  char out[20];
  CHECK(::read(s.sink, out, sizeof out) == 10);
}

TEST_CASE("the low-water mark comes with sustained flow and goes before the tail, or when the source goes quiet") {
  SysProbe probe;
  Scene s;
  s.start(1 << 30);
  // Drips set no mark.
  for (int i = 0; i < 20; ++i) {
    REQUIRE(::write(s.source, "drip", 4) == 4);
    REQUIRE(s.until([&] { return s.relay.moved_out == static_cast<uint64_t>(i + 1) * 4; }));
  }
  CHECK(probe.lowats.empty());
  char drips[80];
  ssize_t dripped = 0;  // the last ones may still be with the sender (Nagle)
  REQUIRE(s.until([&] { return (dripped += std::max<ssize_t>(0, ::read(s.sink, drips, sizeof drips))) == 80; }));
  CHECK(s.pass(30'000'000));
  REQUIRE_FALSE(probe.lowats.empty());
  CHECK(probe.lowats.front() == static_cast<int>(kRelayLowat));
  // A few bytes below a mark that stands are seen after the watch has looked at it.
  const uint64_t before = s.relay.moved_out;
  REQUIRE(::write(s.source, "end", 3) == 3);
  REQUIRE(s.until([&] { return s.relay.moved_out == before + 3; }));
  REQUIRE(s.until([&] { return s.lowat() == 1; }));
  CHECK_FALSE(s.relay.lowat_set);
}

TEST_CASE("no mark is set when less than one is left") {
  SysProbe probe;
  Scene s;
  s.start(400'000);
  CHECK(s.pass(400'000));
  REQUIRE(s.until([&] { return s.relay.idle(); }));
  for (size_t i = 0; i < probe.lowats.size(); ++i) CHECK(probe.lowats[i] == (i % 2 == 0 ? static_cast<int>(kRelayLowat) : 1));
  CHECK(probe.lowats.size() % 2 == 0);
  CHECK(s.lowat() == 1);
}

TEST_CASE("a cancelled relay ends once; a pipe with bytes in it is never used again") {
  SysProbe probe;
  Scene s;
  s.start(1 << 30);
  std::string block(1 << 18, 'x');
  // Fill until the sink is full and the pipe holds something.
  REQUIRE(s.until([&] {
    [[maybe_unused]] const ssize_t sent = ::write(s.source, block.data(), block.size());
    return s.relay.moved_in - s.relay.moved_out > 100000;
  }));
  s.loop.cancel(s.relay);
  s.loop.tick(0ms);
  CHECK(s.relay.completions == 1);
  CHECK(s.relay.result == -ECANCELED);
  CHECK(s.lowat() == 1);
  CHECK(s.relay.pipe[0] == -1);
  s.start(100);
  s.loop.tick(0ms);
  CHECK(probe.count("pipe2") == 2);
}

TEST_CASE("a target that is gone fails the relay and is named") {
  Scene s;
  s.start(1 << 30);
  s.loop.tick(0ms);
  const linger now = {.l_onoff = 1, .l_linger = 0};
  SECTION("while bytes come") {
    setsockopt(s.sink, SOL_SOCKET, SO_LINGER, &now, sizeof now);
    ::close(std::exchange(s.sink, -1));
    std::string block(1 << 16, 'x');
    REQUIRE(s.until([&] {
      [[maybe_unused]] const ssize_t sent = ::write(s.source, block.data(), block.size());
      return s.relay.idle();
    }));
    CHECK(s.relay.target_failed);
    CHECK(s.relay.result < 0);
  }
  SECTION("while the source is silent") {
    setsockopt(s.sink, SOL_SOCKET, SO_LINGER, &now, sizeof now);
    ::close(std::exchange(s.sink, -1));
    REQUIRE(s.until([&] { return s.relay.idle(); }));
    CHECK(s.relay.target_failed);
    CHECK(s.relay.result == -ECONNRESET);
  }
}

TEST_CASE("a source that fails is not the target") {
  Scene s;
  s.start(1 << 30);
  s.loop.tick(0ms);
  const linger now = {.l_onoff = 1, .l_linger = 0};
  setsockopt(s.source, SOL_SOCKET, SO_LINGER, &now, sizeof now);
  ::close(std::exchange(s.source, -1));
  REQUIRE(s.until([&] { return s.relay.idle(); }));
  CHECK(s.relay.result == -ECONNRESET);
  CHECK_FALSE(s.relay.target_failed);
}

TEST_CASE("without pipes a relay says so before any byte moved") {
  SysProbe probe;
  SECTION("no descriptors") { probe.fail("pipe2", EMFILE, 100); }
  SECTION("pipes too small to be of use") {
    probe.pipe_bytes_max = 0;
    probe.pipe_bytes_reported = 8192;
  }
  Scene s;
  REQUIRE(::write(s.source, "body", 4) == 4);
  s.start(4);
  REQUIRE(s.until([&] { return s.relay.idle(); }));
  CHECK(s.relay.result == -EOPNOTSUPP);
  CHECK(s.relay.moved_in == 0);
  CHECK_FALSE(s.relay.target_failed);
}

TEST_CASE("a relay whose socket cannot be registered says which one") {
  SysProbe probe;
  Scene s;
  s.loop.tick(0ms);  // registers the wake descriptor
  bool is_target = false;
  SECTION("the source") {}
  SECTION("the target") {
    is_target = true;
    struct R : RecvOp {
    } recv;  // parks on the source, so that only the target is left to register
    recv.socket = &s.from;
    recv.want = 1;
    recv.complete = [](Op&) noexcept {};
    s.loop.submit(recv);
    s.loop.tick(0ms);
    s.loop.cancel(recv);
    s.loop.tick(0ms);
    REQUIRE(recv.result == -ECANCELED);
  }
  probe.fail("epoll_add", ENOSPC);
  s.start(4);
  REQUIRE(s.until([&] { return s.relay.idle(); }));
  CHECK(s.relay.result == -ENOSPC);
  CHECK(s.relay.target_failed == is_target);
  CHECK(s.from.in_flight + s.to.in_flight == 0);
}

TEST_CASE("an unprivileged user's smaller pipe works") {
  SysProbe probe;
  SECTION("a quarter") {
    probe.pipe_bytes_max = 256 << 10;
    Scene s;
    s.start(5'000'000);
    CHECK(s.pass(5'000'000));
    CHECK(s.relay.pipe_capacity == 256u << 10);
  }
  SECTION("what it had") {
    probe.pipe_bytes_max = 0;
    Scene s;
    s.start(5'000'000);
    CHECK(s.pass(5'000'000));
    CHECK(s.relay.pipe_capacity == 64u << 10);
  }
}

TEST_CASE("no more pipes are open than were allowed; one that comes back may be had again", "[E13]") {
  MemoryLease lease(nullptr);
  RelayPipes pipes(lease, 2);
  RelayOp a, b, c;
  CHECK(pipes.take(a));
  CHECK(pipes.take(b));
  CHECK_FALSE(pipes.take(c));
  CHECK(pipes.open() == 2);
  pipes.give_back(a, true);    // kept
  CHECK(pipes.open() == 2);
  CHECK(pipes.take(c));
  pipes.give_back(b, false);   // closed
  CHECK(pipes.open() == 1);
  CHECK(pipes.take(a));
  CHECK_FALSE(pipes.take(b));
  pipes.give_back(a, true);
  pipes.give_back(c, true);
}

TEST_CASE("one relay moves a bounded amount in a step, and then asks to go on") {
  SysProbe probe;
  Scene s;
  std::string block(1 << 16, 'x');
  while (::write(s.source, block.data(), block.size()) > 0) {}
  MemoryLease lease(nullptr);
  RelayPipes pipes(lease);
  s.relay.want = 1 << 30;
  uint32_t budget = 10000;
  CHECK(relay_step(s.relay, pipes, budget) == RelayStep::again);
  CHECK(budget == 0);
  CHECK(s.relay.moved_out == 10000);
  budget = 5000;
  CHECK(relay_step(s.relay, pipes, budget) == RelayStep::again);
  CHECK(s.relay.moved_out == 15000);
  relay_end(s.relay, pipes, -ECANCELED, false);
  CHECK(pipes.idle() == 0);  // it was not empty
}

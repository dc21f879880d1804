// The N-th system call fails, for every N: whatever it is, nothing crashes, each op completes once, memory and
// descriptors come back. And interrupted calls (EINTR) change nothing at all.
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators_range.hpp>

#include <dirent.h>

#include "engines/sys.h"
#include "tests/engine_contract/acceptor.h"

namespace weir::contract {

namespace {

struct Injection {
  uint64_t calls = 0;      // so far
  uint64_t fail_at = 0;    // this one, counted from 1; 0: none
  uint64_t every = 0;      // or each so-manieth that can be interrupted
  bool failed = false;
};
Injection injection;

bool hit(bool interruptible) {
  ++injection.calls;
  const bool now = injection.every > 0 ? interruptible && injection.calls % injection.every == 0
                                       : injection.calls == injection.fail_at;
  injection.failed |= now;
  return now;
}

// The failure that the kernel could give there.
template <auto kMember, int kError, bool kInterruptible>
struct Wrap;
template <class R, class... Args, R (*Sys::*kMember)(Args...), int kError, bool kInterruptible>
struct Wrap<kMember, kError, kInterruptible> {
  static R call(Args... args) {
    if (hit(kInterruptible)) {
      errno = injection.every > 0 ? EINTR : kError;
      return -1;
    }
    return (kKernel.*kMember)(args...);
  }
};

constexpr Sys kFailing = {
    .recv = Wrap<&Sys::recv, ECONNRESET, true>::call,
    .readv = Wrap<&Sys::readv, ECONNRESET, true>::call,
    .send = Wrap<&Sys::send, ENOBUFS, true>::call,
    .sendmsg = Wrap<&Sys::sendmsg, EPIPE, true>::call,
    .accept4 = Wrap<&Sys::accept4, EMFILE, true>::call,
    .connect = Wrap<&Sys::connect, ENETUNREACH, false>::call,
    .socket = Wrap<&Sys::socket, EMFILE, false>::call,
    .setsockopt = Wrap<&Sys::setsockopt, ENOBUFS, false>::call,
    .getsockopt = Wrap<&Sys::getsockopt, ENOBUFS, false>::call,
    .epoll_ctl = Wrap<&Sys::epoll_ctl, ENOSPC, false>::call,
    .epoll_wait = Wrap<&Sys::epoll_wait, EINTR, true>::call,
    .epoll_pwait2 = Wrap<&Sys::epoll_pwait2, EINTR, true>::call,
    .splice = Wrap<&Sys::splice, ENOMEM, true>::call,
    .pipe2 = Wrap<&Sys::pipe2, EMFILE, false>::call,
    .set_pipe_bytes = Wrap<&Sys::set_pipe_bytes, EPERM, false>::call,
    .get_pipe_bytes = Wrap<&Sys::get_pipe_bytes, EBADF, false>::call,
    .nanosleep = Wrap<&Sys::nanosleep, EINTR, true>::call,
};

struct Installed {
  explicit Installed(const Injection& how) {
    injection = how;
    sys = &kFailing;
  }
  ~Installed() { sys = &kKernel; }
};

size_t open_descriptors() {
  size_t count = 0;
  DIR* directory = opendir("/proc/self/fd");
  while (readdir(directory) != nullptr) ++count;
  closedir(directory);
  return count;
}

struct Outcome {
  bool whole = true;       // all that was to happen did
  bool stuck = false;
};

void relay_some(World& world, Socket& from, Socket& to, Peer& source, Peer& target, Outcome& outcome) {
  struct Relay : RelayOp { World* world = nullptr; bool done = false; } relay;
  relay.world = &world;
  relay.socket = &from;
  relay.to = &to;
  constexpr uint64_t kTotal = 900'000;
  relay.want = kTotal;
  relay.complete = [](Op& op) noexcept {
    auto& self = static_cast<Relay&>(op);
    self.world->ledger().completed(op);
    self.done = true;
  };
  world.submit(relay);
  const Pattern pattern(3);
  StreamCheck check(world.ledger(), 3, "relayed");
  uint64_t fed = 0;
  std::string bytes;
  outcome.stuck |= !world.run([&] {
    if (fed < kTotal) {
      const int64_t n = source.send(pattern.bytes(fed, std::min<uint64_t>(kTotal - fed, 65536)));
      if (n > 0) fed += static_cast<uint64_t>(n);
    }
    bytes.clear();
    target.drain(&bytes);
    check.feed(bytes);
    return relay.done && check.count() >= relay.moved_out;
  });
  outcome.whole &= relay.result == 0 && check.count() == kTotal;
}

// A life in small: accept, connect, both directions, a relay, a cancel, close. It goes on as far as it can.
Outcome live(World& world) {
  Outcome outcome;
  const auto wait = [&](const std::function<bool()>& done) {
    const bool ok = world.run(done);
    outcome.stuck |= !ok;
  };
  Acceptor acceptor(world);
  acceptor.start();
  auto peer = world.connect(acceptor.address);
  wait([&] { return acceptor.sockets.size() == 1 || acceptor.op.idle(); });
  if (acceptor.sockets.empty()) {                     // as an owner does: wait, and ask anew
    acceptor.start();
    wait([&] { return acceptor.sockets.size() == 1 || acceptor.op.idle(); });
  }
  Conn conn(world, "in", 1);
  auto server = world.serve();
  struct Connect : ConnectOp { World* world = nullptr; bool done = false; } connect;
  connect.world = &world;
  connect.socket = &conn.socket;
  connect.to = server->address;
  connect.complete = [](Op& op) noexcept {
    auto& self = static_cast<Connect&>(op);
    self.world->ledger().completed(op);
    self.done = true;
  };
  if (world.loop().open(conn.socket, server->address, world.engine()) == 0) {
    world.submit(connect);
    wait([&] { return connect.done; });
    outcome.whole &= connect.result == 0;
  } else {
    outcome.whole = false;
  }
  std::unique_ptr<Peer> far;
  if (connect.done && connect.result == 0) {
    wait([&] { return far != nullptr || (far = server->accept()) != nullptr; });
    conn.write(Pattern(2).bytes(0, 400'000));
    far->send(Pattern(1).bytes(0, 30'000));
    conn.reading = true;
    conn.read(65536);
    StreamCheck check(world.ledger(), 2, "out");
    std::string bytes;
    wait([&] {
      bytes.clear();
      far->drain(&bytes);
      check.feed(bytes);
      return (check.count() == 400'000 || conn.send_error != 0) && (conn.received == 30'000 || conn.recv_error != 0);
    });
    world.cancel(conn.recv);
    wait([&] { return conn.recv.idle(); });
    outcome.whole &= conn.received == 30'000 && check.count() == 400'000;
  } else {
    outcome.whole = false;
  }
  if (!acceptor.sockets.empty() && conn.socket.fd >= 0 && far != nullptr && conn.socket.in_flight == 0) {
    relay_some(world, *acceptor.sockets[0], conn.socket, *peer, *far, outcome);
  } else {
    outcome.whole = false;
  }
  conn.close();
  acceptor.close();
  return outcome;
}

}  // namespace

TEST_CASE("whichever system call fails, each op completes once and nothing leaks", "[engine][E13]") {
  const Kind kind = GENERATE(from_range(kernel_kinds()));
  CAPTURE(kind_name(kind));
  uint64_t failed = 0;
  const size_t descriptors = open_descriptors();
  for (uint64_t n = 1;; ++n) {
    World world(kind);
    CAPTURE(n);
    Outcome outcome;
    {
      const Installed installed({.fail_at = n});
      outcome = live(world);
    }
    CHECK_FALSE(outcome.stuck);
    REQUIRE(world.verdict() == "");
    if (!injection.failed) {
      CHECK(outcome.whole);                           // the last round met no failure
      break;
    }
    ++failed;
    REQUIRE(n < 2000);
  }
  CHECK(failed >= 20);
  CHECK(open_descriptors() == descriptors);
}

TEST_CASE("interrupted system calls change nothing", "[engine]") {
  const Kind kind = GENERATE(from_range(kernel_kinds()));
  const uint64_t every = GENERATE(uint64_t{2}, uint64_t{3}, uint64_t{7});
  CAPTURE(kind_name(kind), every);
  World world(kind);
  Outcome outcome;
  {
    const Installed installed({.every = every});
    outcome = live(world);
  }
  CHECK(injection.failed);
  CHECK_FALSE(outcome.stuck);
  CHECK(outcome.whole);
  CHECK(world.verdict() == "");
}

}  // namespace weir::contract

// What only the io_uring engine does: buffers, wide receives, the accept backlog. The shared contract is
// tests/engine_contract.
#include <dirent.h>
#include <netinet/tcp.h>
#include <sys/resource.h>

#include <cerrno>
#include <cstring>
#include <vector>

#include <catch2/catch_test_macros.hpp>

#include "tests/unit/engines/uring_world.h"

using namespace weir;
using namespace weir::uring_test;

namespace {

int open_descriptors() {
  int count = 0;
  DIR* dir = opendir("/proc/self/fd");
  while (readdir(dir) != nullptr) ++count;
  closedir(dir);
  return count;
}

struct Acceptor : AcceptOp {
  std::vector<int> fds;
  int most = 0;
  bool ended = false;
  explicit Acceptor(Socket& s) {
    socket = &s;
    complete = [](Op& op) noexcept {
      auto& self = static_cast<Acceptor&>(op);
      self.most = std::max(self.most, self.result);
      for (int i = 0; i < self.result; ++i) self.fds.push_back(self.accepted[static_cast<size_t>(i)].fd);
      self.ended = !self.more;
    };
  }
  ~Acceptor() {
    for (const int fd : fds) ::close(fd);
  }
};

}  // namespace

TEST_CASE("much that waits comes in one receive of many slabs, and nothing stays pinned", "[uring]") {
  if (!this_kernel().has(UringFeature::wide_recv)) SKIP("this kernel has no wide receive");
  World world;
  REQUIRE(world.ready);
  const Door door;
  auto [near, far] = door.pair();
  Socket socket;
  world.loop.adopt(socket, far.release(), EngineKind::uring);
  Reader reader(socket);
  reader.want = 256 * 1024;
  world.loop.submit(reader);  // nothing there: it must wait, and hold no slab
  world.ticks(3);
  REQUIRE(!reader.idle());
  const size_t idle_slabs = world.loop.slabs().in_use();

  const std::string text = pattern(120'000);
  size_t sent = 0;
  while (sent < text.size()) {
    const ssize_t n = ::send(near.get(), text.data() + sent, text.size() - sent, MSG_NOSIGNAL);
    if (n > 0)
      sent += static_cast<size_t>(n);
    else if (!world.run([&] { return reader.idle(); }))
      break;
  }
  int most = 0;
  CHECK(world.run([&] {
    most = std::max(most, reader.slices_last);
    if (reader.idle() && reader.got.size() < text.size()) {
      reader.want = 256 * 1024;
      world.loop.submit(reader);
    }
    return reader.got.size() == text.size();
  }));
  CHECK(reader.got == text);
  CHECK(most > 1);
  if (reader.idle()) world.loop.submit(reader);
  world.ticks(3);
  CHECK(world.loop.slabs().in_use() == idle_slabs);
  near.reset();
  CHECK(world.run([&] { return reader.idle(); }));
  CHECK(reader.result == 0);
  world.loop.close(socket);
}

TEST_CASE("a receive never brings more than was asked for", "[uring]") {
  World world;
  REQUIRE(world.ready);
  const Door door;
  auto [near, far] = door.pair();
  Socket socket;
  world.loop.adopt(socket, far.release(), EngineKind::uring);
  Reader reader(socket);
  const std::string text = pattern(100'000);
  REQUIRE(::send(near.get(), text.data(), text.size(), 0) == static_cast<ssize_t>(text.size()));
  for (const uint32_t want : {1u, 100u, 16'384u, 16'385u, 20'000u, 40'000u}) {
    reader.want = want;
    world.loop.submit(reader);
    REQUIRE(world.run([&] { return reader.idle(); }));
    CHECK(reader.result >= 1);
    CHECK(reader.result <= static_cast<int>(want));
  }
  CHECK(text.starts_with(reader.got));
  world.loop.close(socket);
}

TEST_CASE("receives that find no buffer wait without spinning and lose nothing", "[uring][E10]") {
  World world(size_t{1} << 20);  // 64 slabs, 16 of them in the ring
  REQUIRE(world.ready);
  const Door door;
  constexpr size_t kPairs = 40;
  std::vector<Fd> near;
  std::vector<std::unique_ptr<Socket>> sockets;
  std::vector<std::unique_ptr<Reader>> readers;
  for (size_t i = 0; i < kPairs; ++i) {
    auto [n, f] = door.pair();
    near.push_back(std::move(n));
    sockets.push_back(std::make_unique<Socket>());
    world.loop.adopt(*sockets.back(), f.release(), EngineKind::uring);
    // Keeps what it reads: the slab stays in use until the test lets it go.
    readers.push_back(std::make_unique<Reader>(*sockets.back()));
    readers.back()->complete = [](Op&) noexcept {};
    readers.back()->want = 100;
    world.loop.submit(*readers.back());
  }
  world.ticks(2);
  std::vector<Slab*> hoard;
  while (world.loop.slabs().in_use() < world.loop.slabs().limit()) hoard.push_back(world.loop.slabs().take());
  for (Fd& fd : near) REQUIRE(::send(fd.get(), "hello", 5, 0) == 5);
  const auto served = [&] {
    size_t count = 0;
    for (const auto& r : readers) count += r->idle() && r->result == 5;
    return count;
  };
  world.run([&] { return served() == 16; });
  world.ticks(20);
  CHECK(served() == 16);  // as many as there were buffers; the others wait
  const uint64_t starved = world.stats.starved_recvs.get();
  const uint64_t events = world.loop.stats().events.get();
  world.ticks(50);
  CHECK(world.stats.starved_recvs.get() == starved);
  CHECK(world.loop.stats().events.get() == events);
  // One cancelled while it waits for a buffer ends at once.
  Reader* waiting = nullptr;
  for (const auto& r : readers) {
    if (!r->idle()) waiting = r.get();
  }
  REQUIRE(waiting != nullptr);
  world.loop.cancel(*waiting);
  CHECK(world.run([&] { return waiting->idle(); }));
  CHECK(waiting->result == -ECANCELED);
  for (Slab* slab : hoard) SlabPool::unref(*slab);
  CHECK(world.run([&] { return served() == kPairs - 1; }));
  for (size_t i = 0; i < kPairs; ++i) {
    readers[i]->bytes.clear();
    world.loop.close(*sockets[i]);
  }
}

TEST_CASE("a flood of connections arrives in bounded pieces, and the listener pauses", "[uring][E8]") {
  World world;
  REQUIRE(world.ready);
  const Door door;
  Socket listener;
  world.loop.adopt(listener, ::dup(door.fd.get()), EngineKind::uring);
  std::vector<Fd> clients;
  constexpr size_t kClients = 700;
  for (size_t i = 0; i < kClients; ++i) clients.push_back(door.dial());
  Acceptor accept(listener);
  world.loop.submit(accept);
  CHECK(world.run([&] { return accept.fds.size() == kClients; }));
  CHECK(accept.most <= 64);
  CHECK(world.stats.accepts_paused.get() >= 1);
  clients.push_back(door.dial());  // and goes on after the pause
  CHECK(world.run([&] { return accept.fds.size() == kClients + 1; }));
  world.loop.cancel(accept);
  CHECK(world.run([&] { return accept.ended; }));
  CHECK(accept.result == -ECANCELED);
  world.loop.close(listener);
}

TEST_CASE("connections accepted before a cancel are delivered before its end", "[uring]") {
  const int before = open_descriptors();
  {
    World world;
    REQUIRE(world.ready);
    const Door door;
    Socket listener;
    world.loop.adopt(listener, ::dup(door.fd.get()), EngineKind::uring);
    std::vector<Fd> clients;
    for (int i = 0; i < 200; ++i) clients.push_back(door.dial());
    Acceptor accept(listener);
    world.loop.submit(accept);
    while (accept.fds.empty()) world.loop.tick();
    world.loop.cancel(accept);
    CHECK(world.run([&] { return accept.ended; }));
    // Whatever was not delivered must still be in the listener's own queue.
    size_t left = 0;
    for (int fd; (fd = ::accept(door.fd.get(), nullptr, nullptr)) >= 0; ::close(fd)) ++left;
    CHECK(accept.fds.size() + left == clients.size());
    world.loop.close(listener);
  }
  CHECK(open_descriptors() == before);
}

TEST_CASE("an engine that ends with undelivered connections closes them", "[uring]") {
  const int before = open_descriptors();
  {
    World world;
    REQUIRE(world.ready);
    const Door door;
    Socket listener;
    world.loop.adopt(listener, ::dup(door.fd.get()), EngineKind::uring);
    std::vector<Fd> clients;
    for (int i = 0; i < 200; ++i) clients.push_back(door.dial());
    Acceptor accept(listener);
    world.loop.submit(accept);
    while (accept.fds.empty()) world.loop.tick();
    CHECK(accept.fds.size() < 200);
    ::close(listener.fd);
  }
  // The kernel lets go of a ring a moment after it was closed.
  for (int i = 0; i < 100 && open_descriptors() != before; ++i) usleep(10'000);
  CHECK(open_descriptors() == before);
}

TEST_CASE("out of descriptors ends the accept, and it can be asked again", "[uring][E8]") {
  World world;
  REQUIRE(world.ready);
  const Door door;
  Socket listener;
  world.loop.adopt(listener, ::dup(door.fd.get()), EngineKind::uring);
  Acceptor accept(listener);
  world.loop.submit(accept);
  world.ticks(2);
  Fd client = door.dial();
  rlimit old{};
  getrlimit(RLIMIT_NOFILE, &old);
  const rlimit none{static_cast<rlim_t>(open_descriptors() - 3), old.rlim_max};
  REQUIRE(setrlimit(RLIMIT_NOFILE, &none) == 0);
  const bool ended = world.run([&] { return accept.ended || !accept.fds.empty(); });
  setrlimit(RLIMIT_NOFILE, &old);
  CHECK(ended);
  if (accept.fds.empty()) {
    CHECK(accept.result == -EMFILE);
    world.loop.submit(accept);
    CHECK(world.run([&] { return accept.fds.size() == 1; }));
  }
  world.loop.cancel(accept);
  CHECK(world.run([&] { return accept.ended; }));
  world.loop.close(listener);
}

TEST_CASE("reused descriptors and late cancels meet nobody", "[uring][E7]") {
  World world;
  REQUIRE(world.ready);
  const Door door;
  Socket socket;
  for (int round = 0; round < 2000; ++round) {
    auto [near, far] = door.pair();
    world.loop.adopt(socket, far.release(), EngineKind::uring);
    Reader reader(socket);
    reader.want = 1000;
    world.loop.submit(reader);
    if (round % 3 != 0) world.loop.tick(Duration::zero());
    const std::string text = "round " + std::to_string(round);
    if (round % 2 != 0) REQUIRE(::send(near.get(), text.data(), text.size(), 0) == static_cast<ssize_t>(text.size()));
    world.loop.cancel(reader);
    REQUIRE(world.run([&] { return reader.idle(); }));
    if (reader.result > 0)
      CHECK(reader.got == text);
    else
      CHECK(reader.result == -ECANCELED);
    world.loop.close(socket, true);
  }
  CHECK(world.stats.stale.get() == 0);
  CHECK(world.loop.ops_in_flight() == 0);
}

TEST_CASE("more operations in one turn than the queues hold all end", "[uring]") {
  SystemClock clock;
  Loop loop(clock, {.slab_bytes_max = size_t{16} << 20, .gather = false});
  UringStats stats;
  UringOptions options;
  options.sq_entries = 8;
  options.cq_entries = 16;
  options.probe = &this_kernel();
  options.stats = &stats;
  auto made = make_uring_engine(loop.slabs(), options);
  REQUIRE(made);
  loop.add_engine(std::move(*made));
  const Door door;
  constexpr size_t kPairs = 200;
  std::vector<Fd> near;
  std::vector<std::unique_ptr<Socket>> sockets;
  std::vector<std::unique_ptr<Reader>> readers;
  std::vector<std::unique_ptr<Writer>> writers;
  std::vector<Chain> chains(kPairs);
  for (size_t i = 0; i < kPairs; ++i) {
    auto [n, f] = door.pair();
    near.push_back(std::move(n));
    sockets.push_back(std::make_unique<Socket>());
    loop.adopt(*sockets.back(), f.release(), EngineKind::uring);
    readers.push_back(std::make_unique<Reader>(*sockets.back()));
    REQUIRE(::send(near.back().get(), "ping", 4, 0) == 4);
    for (int k = 0; k < 40; ++k) {  // each slice in a slab of its own: scratch is short too
      Slab* slab = loop.slabs().take();
      if (slab == nullptr) break;
      std::memset(slab->data, 'a' + k, 3);
      slab->used = 3;
      chains[i].append(Slice(slab, 0, 3));
      if (i % 8 != 0 && k == 1) break;
    }
    writers.push_back(std::make_unique<Writer>(*sockets.back(), chains[i]));
    readers.back()->want = 100;
    loop.submit(*readers.back());
    if (!chains[i].empty()) loop.submit(*writers.back());
  }
  bool all = false;
  for (int i = 0; i < 2000 && !all; ++i) {
    loop.tick(std::chrono::milliseconds(1));
    all = loop.ops_in_flight() == 0;
  }
  CHECK(all);
  for (size_t i = 0; i < kPairs; ++i) {
    CHECK(readers[i]->got == "ping");
    CHECK(chains[i].empty());
    loop.close(*sockets[i]);
  }
  CHECK(stats.cq_lost.get() == 0);
  CHECK(stats.cq_overflows.get() > 0);
}

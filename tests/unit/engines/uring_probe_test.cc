// What is probed, what a failed probe costs, and what a refusal says.
#include <cerrno>
#include <cstring>
#include <optional>

#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators_range.hpp>

#include "tests/unit/engines/uring_world.h"

using namespace weir;
using namespace weir::uring_test;

namespace {

UringFeature failing;
int fail_one(UringFeature feature) noexcept { return feature == failing ? EOPNOTSUPP : 0; }

// One exchange with everything in it: accept, connect, large send, large receive, end of file.
void serve_one(World& world) {
  const Door door;
  Socket listener;
  world.loop.adopt(listener, ::dup(door.fd.get()), EngineKind::uring);
  struct Acceptor : AcceptOp {
    std::vector<Accepted> all;
    bool ended = false;
  } accept;
  accept.socket = &listener;
  accept.complete = [](Op& op) noexcept {
    auto& self = static_cast<Acceptor&>(op);
    for (int i = 0; i < self.result; ++i) self.all.push_back(self.accepted[static_cast<size_t>(i)]);
    self.ended = !self.more;
  };
  world.loop.submit(accept);

  Socket out;
  REQUIRE(world.loop.open(out, door.address, EngineKind::uring) == 0);
  struct Connector : ConnectOp {
    bool done = false;
  } connect;
  connect.socket = &out;
  connect.to = door.address;
  connect.complete = [](Op& op) noexcept { static_cast<Connector&>(op).done = true; };
  world.loop.submit(connect);
  REQUIRE(world.run([&] { return connect.done && accept.all.size() == 1; }));
  CHECK(connect.result == 0);
  sockaddr_in self{};
  socklen_t length = sizeof self;
  ::getsockname(out.fd, reinterpret_cast<sockaddr*>(&self), &length);
  CHECK(accept.all[0].peer.port() == ntohs(self.sin_port));

  Socket in;
  world.loop.adopt(in, accept.all[0].fd, EngineKind::uring);
  const std::string text = pattern(1'000'000);
  Chain bytes;
  REQUIRE(bytes.append_copy(world.loop.slabs(), text.data(), text.size()));
  Writer writer(out, bytes);
  Reader reader(in);
  world.loop.submit(writer);
  const bool all = world.run([&] {
    if (writer.idle() && !bytes.empty()) world.loop.submit(writer);
    if (reader.idle() && reader.got.size() < text.size()) {
      reader.want = 200'000;
      world.loop.submit(reader);
    }
    return reader.idle() && reader.got.size() == text.size();
  });
  CHECK(all);
  CHECK(reader.got == text);

  world.loop.shutdown(out, ShutdownHow::write);
  world.loop.submit(reader);
  CHECK(world.run([&] { return reader.idle(); }));
  CHECK(reader.result == 0);
  world.loop.submit(reader);  // a cancelled one ends too
  world.loop.cancel(accept);
  world.ticks(2);
  world.loop.cancel(reader);
  CHECK(world.run([&] { return reader.idle() && accept.ended; }));
  CHECK(accept.result == -ECANCELED);
  for (Socket* socket : {&listener, &out, &in}) world.loop.close(*socket);
  CHECK(world.loop.ops_in_flight() == 0);
  CHECK(world.stats.stale.get() == 0);
}

RefusalFacts facts(int error) {
  RefusalFacts f;
  f.error = error;
  f.step = "io_uring_setup";
  f.need_each_bytes = 104 << 10;
  f.rings = 2;
  f.memlock_bytes = 64 << 10;
  f.descriptors = 1024;
  f.kernel = "6.1.0";
  return f;
}

}  // namespace

TEST_CASE("this kernel has all that the engine needs", "[E2]") {
  const UringProbe& probe = this_kernel();
  INFO(probe.missing());
  CHECK(!probe.refusal);
  for (int i = 0; i < kUringRequired; ++i) CHECK(probe.errors[static_cast<size_t>(i)] == 0);
}

TEST_CASE("a failed probe switches off that feature alone and says why", "[E2]") {
  const int index = GENERATE(Catch::Generators::range(kUringRequired, kUringFeatures));
  failing = static_cast<UringFeature>(index);
  const UringProbe probe = probe_uring(fail_one);
  INFO(uring_feature_name(failing));
  REQUIRE(!probe.refusal);
  for (int i = 0; i < kUringFeatures; ++i) {
    const auto at = static_cast<size_t>(i);
    CHECK(probe.errors[at] == (i == index ? EOPNOTSUPP : this_kernel().errors[at]));
  }
  World world(size_t{64} << 20, &probe);
  REQUIRE(world.ready);
  CHECK(world.tier.find(std::string(uring_feature_name(failing)) + " (Operation not supported)") != std::string::npos);
  serve_one(world);
}

TEST_CASE("with all features the same exchange works, by the features", "[E2]") {
  World world;
  REQUIRE(world.ready);
  serve_one(world);
  if (this_kernel().has(UringFeature::wide_recv)) CHECK(world.stats.wide_recvs.get() > 0);
}

TEST_CASE("without a required feature there is no engine, and the refusal names it", "[E2][E3]") {
  const int index = GENERATE(Catch::Generators::range(0, kUringRequired));
  failing = static_cast<UringFeature>(index);
  const UringProbe probe = probe_uring(fail_one);
  REQUIRE(probe.refusal);
  CHECK(probe.refusal->error == EOPNOTSUPP);
  CHECK(probe.refusal->text.find(index == 0 ? "io_uring_setup" : uring_feature_name(failing)) != std::string::npos);
  SlabPool pool(1 << 20);
  UringOptions options;
  options.probe = &probe;
  const auto made = make_uring_engine(pool, options);
  REQUIRE(!made);
  CHECK(made.error().text == probe.refusal->text);
  CHECK(pool.in_use() == 0);
}

TEST_CASE("arithmetic tells which ENOMEM may pass", "[E4]") {
  RefusalFacts f = facts(ENOMEM);
  CHECK(judge_memlock(f) == MemlockVerdict::never);
  f.memlock_bytes = 2 * f.need_each_bytes;
  CHECK(judge_memlock(f) == MemlockVerdict::perhaps_later);
  f.memlock_bytes -= 1;
  CHECK(judge_memlock(f) == MemlockVerdict::never);
  f.rings = 1;
  CHECK(judge_memlock(f) == MemlockVerdict::perhaps_later);
  f.ipc_lock = true;
  CHECK(judge_memlock(f) == MemlockVerdict::not_memlock);
  f.ipc_lock = false;
  f.memlock_bytes = UINT64_MAX;
  CHECK(judge_memlock(f) == MemlockVerdict::not_memlock);
}

TEST_CASE("a refusal is one sentence with limit, need, remedy and errno", "[E3][E4]") {
  struct Row {
    int error;
    void (*change)(RefusalFacts&);
    UringCause cause;
    const char* text;
  };
  const Row rows[] = {
      {ENOMEM, [](RefusalFacts&) {}, UringCause::memlock,
       "io_uring needs 208 KiB of locked memory for 2 workers and RLIMIT_MEMLOCK allows 64 KiB: raise it "
       "(LimitMEMLOCK= in "
       "the unit, ulimit -l) to at least 208 KiB, or choose engine: epoll (io_uring_setup: Cannot allocate memory, "
       "errno 12)"},
      {ENOMEM, [](RefusalFacts& f) { f.memlock_bytes = 8 << 20; }, UringCause::memlock,
       "io_uring needs 208 KiB of locked memory for 2 workers, and of the 8192 KiB that RLIMIT_MEMLOCK allows to all "
       "processes "
       "of this user too much is in use: end the others or raise it (LimitMEMLOCK= in the unit, ulimit -l), or choose "
       "engine: "
       "epoll (io_uring_setup: Cannot allocate memory, errno 12)"},
      {ENOMEM,
       [](RefusalFacts& f) {
         f.ipc_lock = true;
         f.rings = 1;
       },
       UringCause::memory,
       "io_uring needs 104 KiB of locked memory for 1 worker and the kernel had none to give: free memory, or choose "
       "engine: "
       "epoll (io_uring_setup: Cannot allocate memory, errno 12)"},
      {EMFILE, [](RefusalFacts&) {}, UringCause::descriptors,
       "io_uring needs a descriptor for each worker and RLIMIT_NOFILE (1024) or the system's table is full: raise "
       "LimitNOFILE=, "
       "or choose engine: epoll (io_uring_setup: Too many open files, errno 24)"},
      {EPERM,
       [](RefusalFacts& f) {
         f.sysctl_disabled = 2;
         f.seccomp = 2;
       },
       UringCause::sysctl,
       "io_uring is switched off by sysctl kernel.io_uring_disabled = 2: set it to 0, or choose engine: epoll "
       "(io_uring_setup: "
       "Operation not permitted, errno 1)"},
      {EPERM, [](RefusalFacts& f) { f.sysctl_disabled = 1; }, UringCause::sysctl,
       "io_uring is switched off by sysctl kernel.io_uring_disabled = 1: set it to 0 or add weir's group as "
       "kernel.io_uring_group, or choose engine: epoll (io_uring_setup: Operation not permitted, errno 1)"},
      {EPERM, [](RefusalFacts& f) { f.seccomp = 2; }, UringCause::seccomp,
       "io_uring is forbidden by a seccomp filter: allow io_uring_setup, io_uring_enter and io_uring_register "
       "(SystemCallFilter=@io-event in the unit, or the container's profile), or choose engine: epoll (io_uring_setup: "
       "Operation not permitted, errno 1)"},
      {EPERM, [](RefusalFacts&) {}, UringCause::kernel,
       "io_uring is forbidden by a security module of the kernel: allow it there, or choose engine: epoll "
       "(io_uring_setup: "
       "Operation not permitted, errno 1)"},
      {ENOSYS, [](RefusalFacts&) {}, UringCause::kernel,
       "io_uring is not built into this kernel (6.1.0): use one with CONFIG_IO_URING, or choose engine: epoll "
       "(io_uring_setup: "
       "Function not implemented, errno 38)"},
      {EINVAL, [](RefusalFacts&) {}, UringCause::kernel,
       "io_uring of this kernel (6.1.0) lacks what weir needs: use Linux 6.1 or later, or choose engine: epoll "
       "(io_uring_setup: "
       "Invalid argument, errno 22)"},
  };
  for (const Row& row : rows) {
    RefusalFacts f = facts(row.error);
    row.change(f);
    const UringRefusal refusal = explain_refusal(f);
    CHECK(refusal.text == row.text);
    CHECK(refusal.cause == row.cause);
    CHECK(refusal.error == row.error);
  }
}

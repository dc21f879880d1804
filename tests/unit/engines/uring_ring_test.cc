// The ring itself: its flags, its restrictions, and the window onto the slab pool.
#include "engines/uring_ring.h"

#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <string>

#include <catch2/catch_test_macros.hpp>

#include "engines/uring_buffers.h"
#include "tests/unit/engines/uring_world.h"

using namespace weir;
using uring_test::pattern;

namespace {

// Submits one SQE and gives its result; -ETIME when nothing came.
template <class F>
int run(UringRing& ring, F prepare, unsigned* flags = nullptr) {
  io_uring_sqe* sqe = ring.sqe();
  prepare(sqe);
  sqe->user_data = 7;
  int result = -ETIME;
  for (int i = 0; i < 100 && result == -ETIME; ++i) {
    ring.enter({.timeout = std::chrono::milliseconds(10)});
    ring.reap([&](uint64_t, int32_t res, unsigned f) {
      result = res;
      if (flags != nullptr) *flags = f;
    });
  }
  return result;
}

}  // namespace

TEST_CASE("no ring has a submission thread", "[E5]") {
  UringRing ring;
  REQUIRE(ring.create(64, 256) == 0);
  CHECK((ring.setup_flags() & IORING_SETUP_SQPOLL) == 0);
  CHECK((ring.setup_flags() & IORING_SETUP_SINGLE_ISSUER) != 0);
  CHECK((ring.setup_flags() & IORING_SETUP_DEFER_TASKRUN) != 0);
  // The kernel's own word for it.
  std::ifstream info("/proc/self/fdinfo/" + std::to_string(ring.raw().ring_fd));
  std::string thread;
  for (std::string line; std::getline(info, line);) {
    if (line.starts_with("SqThread:")) thread = line;
  }
  CHECK(thread == "SqThread:\t-1");
}

TEST_CASE("a ring does what the engine uses and refuses all else", "[E5]") {
  if (!uring_test::this_kernel().has(UringFeature::restrictions)) SKIP("this kernel has no restrictions");
  UringRing ring;
  REQUIRE(ring.create(64, 256) == 0);
  REQUIRE(ring.restrict() == 0);
  REQUIRE(ring.enable() == 0);
  int ends[2];
  REQUIRE(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, ends) == 0);
  char byte = 'w';
  CHECK(run(ring, [&](io_uring_sqe* s) { io_uring_prep_send(s, ends[0], &byte, 1, 0); }) == 1);
  CHECK(run(ring, [&](io_uring_sqe* s) { io_uring_prep_poll_add(s, ends[1], 1); }) > 0);
  CHECK(run(ring, [&](io_uring_sqe* s) { io_uring_prep_nop(s); }) == -EACCES);
  CHECK(run(ring, [&](io_uring_sqe* s) { io_uring_prep_read(s, ends[1], &byte, 1, 0); }) == -EACCES);
  CHECK(run(ring, [&](io_uring_sqe* s) { io_uring_prep_openat(s, AT_FDCWD, "/etc/hostname", O_RDONLY, 0); }) ==
        -EACCES);
  CHECK(run(ring, [&](io_uring_sqe* s) { io_uring_prep_close(s, ends[0]); }) == -EACCES);
  CHECK(run(ring, [&](io_uring_sqe* s) {
          io_uring_prep_recv(s, ends[1], &byte, 1, 0);
          s->flags |= IOSQE_ASYNC;
        }) == -EACCES);
  CHECK(io_uring_register_files_sparse(&ring.raw(), 4) == -EACCES);
  close(ends[0]);
  close(ends[1]);
}

TEST_CASE("what a ring is charged is computed in whole pages", "[E3]") {
  CHECK(uring_ring_bytes(64, 64, 0) == 4096 + 4096);
  CHECK(uring_ring_bytes(512, 4096, 128) == 32768 + 69632 + 4096);
  CHECK(uring_ring_bytes(500, 4000, 128) == uring_ring_bytes(512, 4096, 128));
}

TEST_CASE("messages that do not fit into the queue or its scratch are submitted in pieces", "[uring]") {
  UringRing ring;
  REQUIRE(ring.create(8, 64) == 0);
  REQUIRE(ring.enable() == 0);
  int ends[2];
  REQUIRE(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, ends) == 0);
  const std::string text = pattern(50 * 64);
  for (size_t i = 0; i < 50; ++i) {
    msghdr* message = nullptr;
    iovec* parts = nullptr;
    REQUIRE(ring.scratch(message, parts));
    for (size_t k = 0; k < 64; ++k) parts[k] = {const_cast<char*>(&text[i * 64 + k]), 1};
    message->msg_iov = parts;
    message->msg_iovlen = 64;
    io_uring_sqe* sqe = ring.sqe();
    REQUIRE(sqe != nullptr);
    io_uring_prep_sendmsg(sqe, ends[0], message, 0);
  }
  ring.enter({});
  int sent = 0;
  ring.reap([&](uint64_t, int32_t res, unsigned) { sent += res; });
  CHECK(sent == 50 * 64);
  std::string got(50 * 64, '\0');
  CHECK(recv(ends[1], got.data(), got.size(), MSG_WAITALL) == 50 * 64);
  CHECK(got == text);
  close(ends[0]);
  close(ends[1]);
}

TEST_CASE("the buffer ring is a window onto the pool", "[uring][M2]") {
  SlabPool pool(size_t{kSlabsPerSegment} * kSlabBytes);  // one segment: 64 slabs
  UringRing ring;
  REQUIRE(ring.create(64, 256) == 0);
  UringBuffers buffers(pool);
  REQUIRE(buffers.attach(ring.raw(), 32) == 0);
  REQUIRE(ring.enable() == 0);
  buffers.top_up();
  CHECK(buffers.held() == 16);  // a quarter of the pool
  CHECK(pool.in_use() == 16);
  int ends[2];
  REQUIRE(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, ends) == 0);
  const auto receive = [&](io_uring_sqe* s) {
    io_uring_prep_recv(s, ends[1], nullptr, kSlabBytes, 0);
    s->flags |= IOSQE_BUFFER_SELECT;
    s->buf_group = UringBuffers::kGroup;
  };

  SECTION("many times around, each buffer's bytes are in the slab it maps to") {
    for (int i = 0; i < 200; ++i) {
      const std::string text = "message " + std::to_string(i);
      REQUIRE(send(ends[0], text.data(), text.size(), 0) == static_cast<ssize_t>(text.size()));
      unsigned flags = 0;
      REQUIRE(run(ring, receive, &flags) == static_cast<int>(text.size()));
      REQUIRE((flags & IORING_CQE_F_BUFFER) != 0);
      Slab& slab = buffers.take(static_cast<uint16_t>(flags >> IORING_CQE_BUFFER_SHIFT));
      CHECK(slab.refs == 1);
      CHECK(std::string_view(slab.data, text.size()) == text);
      CHECK(buffers.held() == 15);
      SlabPool::unref(slab);
      buffers.top_up();
      CHECK(buffers.held() == 16);
    }
    CHECK(pool.in_use() == 16);
  }
  SECTION("at the pool's limit the ring stays short, and fills again later") {
    std::vector<Slab*> taken;
    while (Slab* slab = pool.take()) taken.push_back(slab);
    unsigned flags = 0;
    for (int i = 0; i < 16; ++i) {
      REQUIRE(send(ends[0], "x", 1, 0) == 1);
      REQUIRE(run(ring, receive, &flags) == 1);
      taken.push_back(&buffers.take(static_cast<uint16_t>(flags >> IORING_CQE_BUFFER_SHIFT)));
      buffers.top_up();
    }
    CHECK(buffers.held() == 0);
    REQUIRE(send(ends[0], "x", 1, 0) == 1);
    CHECK(run(ring, receive) == -ENOBUFS);
    SlabPool::unref(*taken.back());
    taken.pop_back();
    buffers.top_up();
    CHECK(buffers.held() == 1);
    CHECK(run(ring, receive, &flags) == 1);
    for (Slab* slab : taken) SlabPool::unref(*slab);
  }
  close(ends[0]);
  close(ends[1]);
  ring.close();
  const unsigned held = buffers.held();
  const size_t in_use = pool.in_use();
  buffers.detach();
  CHECK(pool.in_use() == in_use - held);
}

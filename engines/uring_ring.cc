#include "engines/uring_ring.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cerrno>

namespace weir {
namespace {

constexpr uint64_t kRingPage = 4096;
constexpr uint64_t pages(uint64_t bytes) { return (bytes + kRingPage - 1) / kRingPage * kRingPage; }

__kernel_timespec timespec_of(Duration d) noexcept {
  const auto ns = std::max<int64_t>(d.count(), 0);
  return {.tv_sec = ns / 1'000'000'000, .tv_nsec = ns % 1'000'000'000};
}

// Where liburing needs some timeout and we have none.
constexpr Duration kLongSleep = std::chrono::hours(24);

}  // namespace

uint64_t uring_ring_bytes(unsigned sq_entries, unsigned cq_entries, unsigned buffers) noexcept {
  const uint64_t sq = std::bit_ceil(std::max(sq_entries, 1u));
  const uint64_t cq = std::bit_ceil(std::max(cq_entries, 1u));
  constexpr uint64_t kHeader = 320;  // struct io_rings, rounded up to cache lines
  return pages(sq * sizeof(io_uring_sqe)) + pages(kHeader + cq * sizeof(io_uring_cqe) + sq * sizeof(uint32_t)) +
         (buffers == 0 ? 0 : pages(uint64_t{buffers} * sizeof(io_uring_buf)));
}

int uring_restrict(io_uring& ring) noexcept {
  constexpr std::array kOps = {IORING_OP_ACCEPT, IORING_OP_CONNECT, IORING_OP_RECV,     IORING_OP_RECVMSG,
                               IORING_OP_SEND,   IORING_OP_SENDMSG, IORING_OP_POLL_ADD, IORING_OP_ASYNC_CANCEL};
  std::array<io_uring_restriction, kOps.size() + 2> allowed{};
  size_t n = 0;
  for (const auto op : kOps) {
    allowed[n].opcode = IORING_RESTRICTION_SQE_OP;
    allowed[n++].sqe_op = static_cast<uint8_t>(op);
  }
  allowed[n].opcode = IORING_RESTRICTION_SQE_FLAGS_ALLOWED;
  allowed[n++].sqe_flags = IOSQE_BUFFER_SELECT;
  allowed[n].opcode = IORING_RESTRICTION_REGISTER_OP;
  allowed[n++].register_op = IORING_REGISTER_ENABLE_RINGS;
  return io_uring_register_restrictions(&ring, allowed.data(), static_cast<unsigned>(n));
}

int UringRing::create(unsigned sq_entries, unsigned cq_entries) {
  io_uring_params params{};
  params.flags = kUringSetupFlags | IORING_SETUP_R_DISABLED;
  params.cq_entries = cq_entries;
  const int rc = io_uring_queue_init_params(sq_entries, &ring_, &params);
  if (rc < 0) return rc;
  open_ = true;
  // A child that forks off (the binary upgrade) must not share the queues.
  io_uring_ring_dontfork(&ring_);
  messages_max_ = params.sq_entries;
  iovecs_ = std::make_unique<iovec[]>(kIovecs);
  messages_ = std::make_unique<msghdr[]>(messages_max_);
  return 0;
}

int UringRing::enable() noexcept { return io_uring_enable_rings(&ring_); }

void UringRing::close() noexcept {
  if (!open_) return;
  io_uring_queue_exit(&ring_);
  open_ = false;
}

void UringRing::submitted() noexcept {
  if (io_uring_sq_ready(&ring_) != 0) return;  // the kernel stopped half-way: what it has not read must stay
  iovecs_used_ = 0;
  messages_used_ = 0;
}

void UringRing::flush() noexcept {
  io_uring_submit(&ring_);
  submitted();
}

io_uring_sqe* UringRing::sqe() noexcept {
  io_uring_sqe* sqe = io_uring_get_sqe(&ring_);
  if (__builtin_expect(sqe != nullptr, 1)) return sqe;
  flush();
  return io_uring_get_sqe(&ring_);
}

bool UringRing::scratch(msghdr*& message, iovec*& iovecs) noexcept {
  // Room in the submission queue first: once scratch is taken, sqe() must not flush it away.
  if (iovecs_used_ + kIovecsPerMessage > kIovecs || messages_used_ == messages_max_ ||
      io_uring_sq_space_left(&ring_) == 0) {
    flush();
    if (iovecs_used_ + kIovecsPerMessage > kIovecs || messages_used_ == messages_max_ ||
        io_uring_sq_space_left(&ring_) == 0) {
      return false;
    }
  }
  message = &messages_[messages_used_++];
  *message = msghdr{};
  iovecs = &iovecs_[iovecs_used_];
  iovecs_used_ += kIovecsPerMessage;
  return true;
}

void UringRing::enter(const Enter& how) noexcept {
  const unsigned ready = io_uring_cq_ready(&ring_);
  if (how.timeout <= Duration::zero() || ready > 0) {
    const unsigned flags = __atomic_load_n(ring_.sq.kflags, __ATOMIC_RELAXED);
    if ((flags & (IORING_SQ_TASKRUN | IORING_SQ_CQ_OVERFLOW)) == 0) {
      if (io_uring_sq_ready(&ring_) == 0) return;
      if (ready > 0) return flush();
    }
    io_uring_submit_and_get_events(&ring_);
    return submitted();
  }

  io_uring_cqe* cqe = nullptr;
  if (how.gather > Duration::zero() && how.gather_events > 1) {
    const auto gather = std::min(how.gather, how.timeout);
    if (how.min_wait) {
      __kernel_timespec until = timespec_of(std::min(how.timeout, kLongSleep));
      const auto us = std::chrono::duration_cast<std::chrono::microseconds>(gather).count();
      io_uring_submit_and_wait_min_timeout(&ring_, &cqe, how.gather_events, &until, static_cast<unsigned>(us), nullptr);
      return submitted();
    }
    __kernel_timespec until = timespec_of(gather);
    io_uring_submit_and_wait_timeout(&ring_, &cqe, how.gather_events, &until, nullptr);
    submitted();
    if (io_uring_cq_ready(&ring_) > 0 || gather == how.timeout) return;
  }
  if (how.timeout == kForever) {
    io_uring_submit_and_wait(&ring_, 1);
  } else {
    __kernel_timespec until = timespec_of(how.timeout);
    io_uring_submit_and_wait_timeout(&ring_, &cqe, 1, &until, nullptr);
  }
  submitted();
}

}  // namespace weir

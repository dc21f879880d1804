// UringRing: one io_uring instance: SINGLE_ISSUER | DEFER_TASKRUN, created disabled so that any thread may build it,
// and bound to the thread that calls enable(). Never SQPOLL. Restricted to the ops below where the kernel has
// restrictions. Owner: a UringEngine. Thread: enable() and all after it on the loop's own. sqe() submits what is queued
// when the queue is full. Scratch memory (iovecs, msghdrs) lives until the kernel has taken the submission that uses it
// (IORING_FEAT_SUBMIT_STABLE is required) and is given back as a whole.
#pragma once

#include <liburing.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include <cstdint>
#include <memory>

#include "engines/clock.h"

namespace weir {

inline constexpr unsigned kUringSetupFlags = IORING_SETUP_SINGLE_ISSUER | IORING_SETUP_DEFER_TASKRUN |
                                             IORING_SETUP_TASKRUN_FLAG | IORING_SETUP_SUBMIT_ALL | IORING_SETUP_CQSIZE |
                                             IORING_SETUP_CLAMP;
inline constexpr unsigned kUringNeededFeatures = IORING_FEAT_NODROP | IORING_FEAT_SUBMIT_STABLE | IORING_FEAT_EXT_ARG;

// Locked memory that one ring is charged: both queues and the buffer ring, in whole pages.
uint64_t uring_ring_bytes(unsigned sq_entries, unsigned cq_entries, unsigned buffers) noexcept;
// Allows the ops and flags that the engine uses and nothing else. To be called on a disabled ring. 0 or -errno.
int uring_restrict(io_uring& ring) noexcept;

class UringRing {
 public:
  UringRing() noexcept = default;
  ~UringRing() { close(); }
  UringRing(const UringRing&) = delete;
  UringRing& operator=(const UringRing&) = delete;

  int create(unsigned sq_entries, unsigned cq_entries);      // 0 or -errno
  int restrict() noexcept { return uring_restrict(ring_); }  // after the buffer ring is registered
  int enable() noexcept;                                     // on the loop's thread; 0 or -errno
  void close() noexcept;

  io_uring_sqe* sqe() noexcept;  // nullptr: the kernel takes no more until completions are reaped
  // Scratch for one SENDMSG or RECVMSG: an array of kIovecsPerMessage and a zeroed header. False: as with sqe().
  static constexpr unsigned kIovecsPerMessage = 64;
  bool scratch(msghdr*& message, iovec*& iovecs) noexcept;
  void give_back(unsigned unused_iovecs) noexcept { iovecs_used_ -= unused_iovecs; }  // of the last scratch()

  struct Enter {
    Duration timeout{0};         // kForever sleeps until something completes
    Duration gather{0};          // let more completions come in for so long,
    unsigned gather_events = 0;  // but not more than these
    bool min_wait = false;       // the kernel can do that in one call
  };
  // Submits, runs task work, and sleeps if nothing has completed and the timeout allows. No syscall if there is nothing
  // to do.
  void enter(const Enter& how) noexcept;

  template <class F>
  unsigned reap(F&& each) noexcept {
    unsigned head = 0;
    unsigned count = 0;
    io_uring_cqe* cqe = nullptr;
    io_uring_for_each_cqe(&ring_, head, cqe) {
      const io_uring_cqe& c = *cqe;
      each(c.user_data, c.res, c.flags);
      ++count;
    }
    io_uring_cq_advance(&ring_, count);
    return count;
  }

  io_uring& raw() noexcept { return ring_; }
  bool open() const noexcept { return open_; }
  bool overflowed() const noexcept { return io_uring_cq_has_overflow(&ring_); }
  unsigned lost() const noexcept { return *ring_.cq.koverflow; }  // completions the kernel had no memory for
  unsigned unsubmitted() const noexcept { return io_uring_sq_ready(&ring_); }
  unsigned setup_flags() const noexcept { return ring_.flags; }

 private:
  void flush() noexcept;
  void submitted() noexcept;

  static constexpr unsigned kIovecs = 1024;
  io_uring ring_{};
  bool open_ = false;
  std::unique_ptr<iovec[]> iovecs_;
  std::unique_ptr<msghdr[]> messages_;
  unsigned iovecs_used_ = 0;
  unsigned messages_used_ = 0;
  unsigned messages_max_ = 0;
};

}  // namespace weir

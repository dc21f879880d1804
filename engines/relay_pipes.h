// RelayPipes: pipes kept for relays, so that a relay costs no pipe2(2) in steady state. Only empty pipes come back.
// Owner: an engine. Thread: the loop's own. Each pipe holds kRelayPipeBytes where the kernel allows it (unprivileged users
// have a limit over all their pipes: fs.pipe-user-pages-soft), else what it got, down to kPipeBytesMin; below that, or
// without descriptors, take() fails and the relay's owner copies instead. So it does once `most` are open: each has two
// descriptors, which the process needs for connections too. At most kIdleMax idle pipes keep their descriptors.
// What a pipe may hold (RelayOp::pipe_capacity, at most kRelayHeldMax) is charged to the lease while a relay has it. The more of
// the budget is leased the smaller are the pipes that are given out; from the tight level on there are none.
#pragma once

#include <array>
#include <climits>
#include <cstdint>

#include "engines/memory_budget.h"
#include "engines/op.h"

namespace weir {

class RelayPipes {
 public:
  static constexpr uint32_t kPipeBytesMin = 64u << 10;
  static constexpr unsigned kIdleMax = 32;

  explicit RelayPipes(MemoryLease& lease, unsigned most = UINT_MAX) noexcept : lease_(lease), most_(most) {}
  ~RelayPipes();
  RelayPipes(const RelayPipes&) = delete;
  RelayPipes& operator=(const RelayPipes&) = delete;

  [[nodiscard]] bool take(RelayOp& op) noexcept;         // fills op.pipe and op.pipe_capacity
  void give_back(RelayOp& op, bool is_empty) noexcept;   // not empty: closed; op.pipe is {-1, -1} after it
  unsigned open() const noexcept { return open_; }       // those in use and the idle ones
  // What a relay may hold now; 0: nothing.
  static uint32_t bytes_allowed(const MemoryLease& lease) noexcept;
  unsigned idle() const noexcept { return idle_; }
  uint64_t opened() const noexcept { return opened_; }

 private:
  struct Pipe {
    int fds[2];
    uint32_t bytes;
  };
  bool make(RelayOp& op, uint32_t bytes) noexcept;

  MemoryLease& lease_;
  std::array<Pipe, kIdleMax> pipes_{};
  unsigned most_;
  unsigned open_ = 0;
  unsigned idle_ = 0;
  uint64_t opened_ = 0;
};

}  // namespace weir

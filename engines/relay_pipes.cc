#include "engines/relay_pipes.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>

#include "engines/sys.h"

namespace weir {

RelayPipes::~RelayPipes() {
  while (idle_ > 0) {
    const Pipe& pipe = pipes_[--idle_];
    ::close(pipe.fds[0]);
    ::close(pipe.fds[1]);
  }
}

// Steps, so that many relays at once share what is there: with 256 MiB some 130 of the largest, then 200 of the middle size, then
// 800 of the smallest reach the tight level.
uint32_t RelayPipes::bytes_allowed(const MemoryLease& lease) noexcept {
  if (lease.level() != MemoryLevel::normal) return 0;
  const unsigned percent = lease.percent();
  return percent < 40 ? kRelayHeldMax : percent < 60 ? kRelayHeldMax / 3 : kPipeBytesMin;
}

bool RelayPipes::take(RelayOp& op) noexcept {
  const uint32_t allowed = bytes_allowed(lease_);
  if (allowed == 0) return false;
  // A pooled pipe that is larger than allowed now may still be used: it is its filling that is bounded.
  if (idle_ > 0) {
    const Pipe& pipe = pipes_[--idle_];
    op.pipe[0] = pipe.fds[0];
    op.pipe[1] = pipe.fds[1];
    op.pipe_bytes = pipe.bytes;
  } else if (!make(op, allowed)) {
    return false;
  }
  op.pipe_capacity = std::min(op.pipe_bytes, allowed);
  if (!lease_.take(op.pipe_capacity)) {
    op.pipe_capacity = 0;
    give_back(op, true);
    return false;
  }
  lease_.pipe_bytes += op.pipe_capacity;
  return true;
}

// The size in slots of one page: segments of the network fill a slot each, so it is more than the bytes that are let in.
bool RelayPipes::make(RelayOp& op, uint32_t bytes) noexcept {
  if (open_ >= most_) return false;
  int fds[2];
  if (sys->pipe2(fds, O_NONBLOCK | O_CLOEXEC) != 0) return false;
  int got = -1;
  for (uint32_t ask = bytes > kRelayHeldMax / 3 ? kRelayPipeBytes : kRelayPipeBytes / 4; got < 0 && ask > kPipeBytesMin; ask /= 4)
    got = sys->set_pipe_bytes(fds[1], static_cast<int>(ask));
  if (got < 0) got = sys->get_pipe_bytes(fds[1]);
  if (got < static_cast<int>(kPipeBytesMin)) {
    ::close(fds[0]);
    ::close(fds[1]);
    return false;
  }
  ++opened_;
  ++open_;
  op.pipe[0] = fds[0];
  op.pipe[1] = fds[1];
  op.pipe_bytes = static_cast<uint32_t>(got);
  return true;
}

void RelayPipes::give_back(RelayOp& op, bool is_empty) noexcept {
  if (op.pipe[0] < 0) return;
  if (op.pipe_capacity > 0) {
    lease_.give(op.pipe_capacity);
    lease_.pipe_bytes -= op.pipe_capacity;
  }
  if (is_empty && idle_ < kIdleMax) {
    pipes_[idle_++] = {{op.pipe[0], op.pipe[1]}, op.pipe_bytes};
  } else {
    --open_;
    ::close(op.pipe[0]);
    ::close(op.pipe[1]);
  }
  op.pipe[0] = op.pipe[1] = -1;
}

}  // namespace weir

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

bool RelayPipes::take(RelayOp& op) noexcept {
  if (idle_ > 0) {
    const Pipe& pipe = pipes_[--idle_];
    op.pipe[0] = pipe.fds[0];
    op.pipe[1] = pipe.fds[1];
    op.pipe_capacity = pipe.capacity;
    return true;
  }
  if (open_ >= most_) return false;
  int fds[2];
  if (sys->pipe2(fds, O_NONBLOCK | O_CLOEXEC) != 0) return false;
  int capacity = -1;
  for (uint32_t ask = kRelayPipeBytes; capacity < 0 && ask > kPipeBytesMin; ask /= 4) {
    capacity = sys->set_pipe_bytes(fds[1], static_cast<int>(ask));
  }
  if (capacity < 0) capacity = sys->get_pipe_bytes(fds[1]);
  if (capacity < static_cast<int>(kPipeBytesMin)) {
    ::close(fds[0]);
    ::close(fds[1]);
    return false;
  }
  ++opened_;
  ++open_;
  op.pipe[0] = fds[0];
  op.pipe[1] = fds[1];
  op.pipe_capacity = static_cast<uint32_t>(capacity);
  return true;
}

void RelayPipes::give_back(RelayOp& op, bool is_empty) noexcept {
  if (op.pipe[0] < 0) return;
  if (is_empty && idle_ < kIdleMax) {
    pipes_[idle_++] = {{op.pipe[0], op.pipe[1]}, op.pipe_capacity};
  } else {
    --open_;
    ::close(op.pipe[0]);
    ::close(op.pipe[1]);
  }
  op.pipe[0] = op.pipe[1] = -1;
}

}  // namespace weir

#include "engines/relay.h"

#include <fcntl.h>

#include <algorithm>
#include <cerrno>

#include "engines/sys.h"

namespace weir {
namespace {

// A read of this much tells a bulk transfer from a trickle. When it was wrong, the mark is undone by Loop's relay watch.
constexpr ssize_t kFlowingBytes = 16 << 10;

// A mark that cannot be undone is still set: the relay watch tries again, and nothing is waited for that never comes.
void set_lowat(RelayOp& op, int bytes) noexcept {
  if (sys->setsockopt(op.socket->fd, SOL_SOCKET, SO_RCVLOWAT, &bytes, sizeof bytes) == 0) op.lowat_set = bytes != 1;
}

enum class Fill : uint8_t { some, dry, ended, failed };

// Source to pipe. dry: nothing to read, or (with bytes in the pipe) perhaps no slot free: the caller empties it and asks again.
Fill fill_pipe(RelayOp& op, size_t count) noexcept {
  for (;;) {
    const ssize_t got = sys->splice(op.socket->fd, op.pipe[1], count, SPLICE_F_MOVE | SPLICE_F_NONBLOCK);
    if (got > 0) {
      op.moved_in += static_cast<uint64_t>(got);
      if (got >= kFlowingBytes) op.flowing = true;
      return Fill::some;
    }
    if (got == 0) return Fill::ended;
    if (errno == EINTR) continue;
    if (errno == EAGAIN) return Fill::dry;
    op.result = -errno;
    return Fill::failed;
  }
}

// Pipe to target. Bytes sent, 0 when the target takes none, or -errno.
ssize_t drain_pipe(RelayOp& op, size_t count) noexcept {
  for (;;) {
    const ssize_t sent = sys->splice(op.pipe[0], op.to->fd, count, SPLICE_F_MOVE | SPLICE_F_NONBLOCK);
    if (sent >= 0) {
      op.moved_out += static_cast<uint64_t>(sent);
      return sent;
    }
    if (errno == EINTR) continue;
    return errno == EAGAIN ? 0 : -errno;
  }
}

// What to do before waiting for the source, so that the kernel wakes us once per kRelayLowat instead of once per segment.
void choose_lowat(RelayOp& op) noexcept {
  const bool enough_left = op.want - op.moved_in >= kRelayLowat;
  if (op.lowat_set || !op.flowing || !enough_left) return;
  op.flowing = false;  // the next mark, once this one is undone, takes another large read
  set_lowat(op, static_cast<int>(kRelayLowat));
}

}  // namespace

void relay_lower(RelayOp& op) noexcept {
  op.flowing = false;
  if (op.lowat_set) set_lowat(op, 1);
}

void relay_end(RelayOp& op, RelayPipes& pipes, int32_t result, bool target) noexcept {
  for (int tries = 0; op.lowat_set && tries < 2; ++tries) set_lowat(op, 1);  // the socket is someone else's from here on
  pipes.give_back(op, op.moved_in == op.moved_out);
  op.result = result;
  op.target_failed = target;
}

RelayStep relay_step(RelayOp& op, RelayPipes& pipes, uint32_t& budget) noexcept {
  if (op.pipe[0] < 0) {
    op.flowing = op.source_ended = false;
    if (!pipes.take(op)) {
      relay_end(op, pipes, -EOPNOTSUPP, false);
      return RelayStep::failed;
    }
  }
  for (;;) {
    if (budget == 0 && op.moved_out < op.want) return RelayStep::again;
    const uint64_t held = op.moved_in - op.moved_out;
    const uint64_t left = op.want - op.moved_in;
    Fill fill = Fill::dry;
    if (!op.source_ended && left > 0 && held < op.pipe_capacity) {
      fill = fill_pipe(op, static_cast<size_t>(std::min<uint64_t>(left, op.pipe_capacity - held)));
      if (fill == Fill::failed) {
        relay_end(op, pipes, op.result, false);
        return RelayStep::failed;
      }
      if (fill == Fill::ended) op.source_ended = true;
      // Before the tail: what is left may be less than the mark, and then it would never be reported.
      if (op.lowat_set && op.want - op.moved_in < kRelayLowat) set_lowat(op, 1);
    }
    const uint64_t full = op.moved_in - op.moved_out;
    if (full == 0) {
      if (op.source_ended || op.moved_in == op.want) {
        relay_end(op, pipes, 0, false);
        return RelayStep::done;
      }
      choose_lowat(op);
      return RelayStep::want_source_readable;
    }
    const ssize_t sent = drain_pipe(op, static_cast<size_t>(std::min<uint64_t>(full, budget)));
    if (sent < 0) {
      relay_end(op, pipes, static_cast<int32_t>(sent), true);
      return RelayStep::failed;
    }
    if (sent == 0) return RelayStep::want_target_writable;
    budget -= static_cast<uint32_t>(sent);
  }
}

}  // namespace weir

// The relay's core, shared by the epoll and io_uring engines: splice(2) from source to pipe to target, without blocking.
// Callers: engines, on the loop's thread. relay_step() moves what it can and says what it waits for; the engine brings the
// readiness and calls again. done and failed end the relay: op.result and target_failed are set, the pipe is back in the pool
// (or closed), SO_RCVLOWAT is 1, and the engine completes the op. Call it again only for a relay that has not ended.
// SO_RCVLOWAT is raised only after one read of kRelayLowat or more (sustained flow) with as much still to come, and lowered
// before the tail. SPLICE_F_MORE is not used: nothing is certain to follow before the next readiness event.
#pragma once

#include <cstdint>

#include "engines/op.h"
#include "engines/relay_pipes.h"

namespace weir {

enum class RelayStep : uint8_t {
  done,                  // op.result = 0
  want_source_readable,
  want_target_writable,
  again,                 // the turn's budget is spent: step again in the next turn, and do not sleep before it
  failed,                // op.result = -errno (-EOPNOTSUPP: no pipe was to be had, nothing moved)
};

// Moves at most `budget` bytes into the target and takes them off it (start each relay's turn with kRelayBytesPerTurn).
RelayStep relay_step(RelayOp& op, RelayPipes& pipes, uint32_t& budget) noexcept;
// Ends a relay from outside with this result: a cancel (-ECANCELED), or an error seen on one side (target: which one).
void relay_end(RelayOp& op, RelayPipes& pipes, int32_t result, bool target) noexcept;
// Undoes the low-water mark; bytes below it become visible to readiness again.
void relay_lower(RelayOp& op) noexcept;

}  // namespace weir

// What connections may cost in memory, worked out from the limits alone: what status prints, and what a budget is checked against.
// Pure. The sizes of the daemon's objects are bounds that daemon/budget.cc asserts. See docs/memory.md for the sums.
#pragma once

#include <algorithm>
#include <cstdint>

#include "config/snapshot.h"

namespace weir::config {

inline constexpr uint64_t kIdleConnectionBytes = 1024;     // a client connection between two requests: its object, no buffer
inline constexpr uint64_t kExchangeBytes = 9 * 1024;       // one request in work: its object and the connection to its origin
inline constexpr uint64_t kBufferBytes = 16 * 1024;        // buffers come in this size
inline constexpr uint64_t kQueueBytes = 256 * 1024;        // output that waits for its peer, each side
inline constexpr uint64_t kPinned = 4;                     // a piece of a quarter buffer may keep a whole one from others
inline constexpr uint64_t kGrantsPercent = 80;             // up to here connections may grow; beyond it all grants shrink

inline constexpr uint64_t kWorkerBytes = 512 * 1024;       // what a worker has before it serves anybody

// One connection with a request in work, both bodies held back at pipes of this size and both heads as large as allowed.
inline uint64_t connection_bytes(const Limits& limits, uint64_t pipe_bytes, uint64_t queue_bytes = kQueueBytes) {
  const uint64_t heads = limits.request_head_bytes + limits.response_head_bytes + 4 * kBufferBytes;
  return kIdleConnectionBytes + kExchangeBytes + heads + 2 * kPinned * (pipe_bytes + queue_bytes);
}
inline uint64_t worst_connection_bytes(const Limits& limits) { return connection_bytes(limits, limits.pipe_max_bytes); }

// With less a worker could not serve even one connection with everything shrunk.
inline uint64_t worker_minimum_bytes(const Limits& limits) {
  return kWorkerBytes + connection_bytes(limits, kBufferBytes, kBufferBytes);
}
inline uint64_t workers_carried(const Limits& limits, uint64_t memory_bytes) {
  return std::max<uint64_t>(memory_bytes / 100 * kGrantsPercent / worker_minimum_bytes(limits), 1);
}

// How many idle connections a budget carries beside the work of one.
inline uint64_t connections_carried(uint64_t memory_bytes) {
  return std::max<uint64_t>(memory_bytes / 100 * kGrantsPercent / kIdleConnectionBytes, 1);
}

}  // namespace weir::config

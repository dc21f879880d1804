// One descriptor and what the engines must remember of it between two ops.
// Owner: a connection or listener, which embeds it; it stays at one address while fd >= 0. Thread: the loop's own.
// At most one reader (recv, accept, or the source of a relay) and one writer (send, connect, or the target of a relay) are
// in flight. `engine` names who gets the NEXT op; ops in flight end where they began, so a change needs no pause.
// Closing: Loop::shutdown, wait until in_flight is 0, Loop::close. Never close(2) on fd.
#pragma once

#include <cstdint>

namespace weir {

// What may wait in the kernel beyond the peer's window (TCP_NOTSENT_LOWAT): more would be memory and delay, not speed.
inline constexpr int kNotSentLowatBytes = 256 << 10;

struct Op;

enum class EngineKind : uint8_t { epoll, uring, sim };
inline constexpr int kEngineKinds = 3;
const char* engine_name(EngineKind kind) noexcept;  // "epoll", "io_uring", "sim"
struct Address;

struct Socket {
  int fd = -1;
  EngineKind engine = EngineKind::epoll;
  uint8_t in_flight = 0;      // ops submitted and not yet completed; a relay counts once on each of its two sockets
  uint16_t generation = 0;    // new at each adopt and each close; travels in kernel cookies so that a late event meets nobody
  // The epoll engine's own notes.
  bool registered = false;    // in the epoll set
  bool readable = false;      // a recv would not block, as far as we know
  bool writable = false;
  bool listening = false;     // has been accepting
  bool peer_closed = false;   // EPOLLRDHUP, EPOLLHUP or EPOLLERR seen: a short read does not end reading
  // The io_uring engine's own notes.
  bool more_to_read = true;   // last receive said that the socket is not empty (or nothing is known): do not poll first
  Op* reader = nullptr;       // ops parked in the engine until the socket is ready
  Op* writer = nullptr;
};

// What the engines do alike: the bodies of Engine::open, close and acked_bytes for real descriptors.
int open_stream(const Address& to) noexcept;
void close_stream(int fd, bool linger_reset) noexcept;
uint64_t tcp_acked_bytes(int fd) noexcept;

}  // namespace weir

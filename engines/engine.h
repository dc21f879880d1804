// Engine: turns submitted ops into completed ones. epoll, io_uring and the simulated one all pass tests/engine_contract.
// Owner: a Loop. Thread: the loop's own. An engine reads no clock and no random number, calls no callback, and keeps no op
// that it was not given. turn() order: cancels, then submitted ops, then wait, then reap.
// Every op it was given ends up on `completed` exactly once (accept: see op.h), in this turn or a later one, through finish().
// An op that it keeps, it marks with keep(). Op::next of a kept op belongs to the Loop (the list of cancels). A submitted op with
// cancel_asked set completes with -ECANCELED untried. An op on `completed` is not touched until the loop has served it.
#pragma once

#include <string>
#include <string_view>

#include "engines/clock.h"
#include "engines/op.h"

namespace weir {

struct Wait {
  Duration timeout;          // how long turn() may sleep: 0 polls, kForever sleeps until something happens
  Duration gather{0};        // > 0: let more events come in for this long before serving (see loop.h)
  uint32_t gather_events = 0;  // stop gathering at so many events, where the kernel can count them
};

struct Turn {
  uint32_t events = 0;       // things the kernel told us (readiness events or completions), not ops done at submit
  bool woken = false;        // the wake descriptor fired: the mailbox has something
  bool foreign_ready = false;  // the watched foreign descriptor (see watch) has events
  bool runnable = false;     // it has work of its own for the next turn (a relay over its budget): nobody may sleep before it
};

inline void keep(Op& op) noexcept { op.state = OpState::in_engine; }
inline void finish(Op& op, int32_t result, OpList& completed) noexcept {
  op.result = result;
  op.state = OpState::completed;
  completed.push(op);
}

enum class ShutdownHow : uint8_t { write, both };

class Engine {
 public:
  virtual ~Engine() = default;
  virtual EngineKind kind() const noexcept = 0;
  virtual Turn turn(OpList& submitted, OpList& cancelled, OpList& completed, const Wait& wait) noexcept = 0;

  // A new non-blocking stream socket for `to`, with the options origins get (TCP_NODELAY). Returns the descriptor or -errno.
  virtual int open(const Address& to) noexcept = 0;
  // shutdown(2). Errors are not reported: the peer may be gone, and the ops in flight say so.
  virtual void shutdown(Socket& socket, ShutdownHow how) noexcept = 0;
  // Forgets and closes. The loop has checked that nothing is in flight, and raises the generation and clears the notes after
  // it. linger_reset: SO_LINGER 0 first (sends RST).
  virtual void close(Socket& socket, bool linger_reset) noexcept = 0;
  // The socket's next op goes to another engine and nothing of it is parked here: forget it, keep the descriptor.
  virtual void leave(Socket& socket) noexcept = 0;
  // Bytes that the peer has acknowledged since the connection began (TCP_INFO tcpi_bytes_acked); 0 where unknown.
  virtual uint64_t acked_bytes(const Socket& socket) noexcept = 0;
  // Undoes the low-water mark of a relay that went quiet, and looks at it in the next turn.
  virtual void relay_quiet(RelayOp& op) noexcept = 0;

  // turn() returns with woken = true when this descriptor (an eventfd) becomes readable. Set once, before the first turn.
  virtual void set_wake(int eventfd) noexcept = 0;
  // A second engine's descriptor that this one waits on for it. Only io_uring can; -1 where an engine has none to show.
  virtual void watch(int fd) noexcept { (void)fd; }
  virtual int watchable_fd() const noexcept { return -1; }

  virtual std::string tier() const = 0;  // the feature tier in words, for the log line and /status
};

}  // namespace weir

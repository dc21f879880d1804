// Op: one thing asked of the kernel. It lives inside its owner, is never allocated or copied, and completes exactly once
// (accept: many times with more = true, then one final time). Life: idle -> submitted -> in_engine -> completed -> idle.
// Owner: a connection, listener or pipe. Thread: the loop's own. `complete` runs from the loop, never from submit() or
// cancel(); there `result` is >= 0 or -errno, and the op is idle again, so the callback may submit it anew.
// A cancelled op may still succeed; a cancelled recv may carry bytes. ECANCELED is only one of its possible results.
#pragma once

#include <array>
#include <cstdint>

#include "engines/address.h"
#include "engines/chain.h"
#include "engines/check.h"
#include "engines/socket.h"

namespace weir {

enum class OpKind : uint8_t { accept, connect, recv, send, relay };
enum class OpState : uint8_t { idle, submitted, in_engine, completed };

struct Op {
  Op* next = nullptr;  // link of whichever list holds it
  void (*complete)(Op&) noexcept = nullptr;
  Socket* socket = nullptr;
  int32_t result = 0;
  OpKind kind;
  OpState state = OpState::idle;
  EngineKind engine = EngineKind::epoll;  // who has it; set by submit
  bool cancel_asked : 1 = false;
  bool queued : 1 = false;  // an engine's own note: it stands in one of its lists

  explicit Op(OpKind k) noexcept : kind(k) {}
  Op(const Op&) = delete;
  Op& operator=(const Op&) = delete;
  bool idle() const noexcept { return state == OpState::idle; }
};

// result: the number of entries of `accepted` (1..64), or -errno. more = true: the op is still armed and will complete again.
// After a completion with more = false it is idle. EMFILE, ENFILE, ENOBUFS, ENOMEM end it: the owner waits and submits anew.
struct Accepted {
  int fd;
  Address peer;
};
struct AcceptOp : Op {
  bool more = false;
  std::array<Accepted, 64> accepted;  // bounds accepts per tick and listener
  AcceptOp() noexcept : Op(OpKind::accept) {}
};

// result: 0, or -errno. The socket came from Loop::open.
struct ConnectOp : Op {
  Address to;
  ConnectOp() noexcept : Op(OpKind::connect) {}
};

// Asks for 1..want bytes. result: bytes appended to `bytes` (slices of the loop's pool), 0 at end of file, or -errno.
// While it waits it pins no buffer. `bytes` must be empty at submit; the owner moves it out in `complete`.
struct RecvOp : Op {
  uint32_t want = 0;
  Chain bytes;
  RecvOp() noexcept : Op(OpKind::recv) {}
};

// Sends from the front of *bytes, which must not be empty. result: bytes that the kernel accepted (1 or more), or -errno.
// The owner then calls bytes->consume(result) and submits again if some are left. While in flight the owner may append to
// *bytes, and must not consume from it, move it or free it. The engine never changes *bytes. At most kSendBytesMax a send.
inline constexpr uint32_t kSendBytesMax = 1u << 20;
inline constexpr uint32_t kSendSlicesMax = 64;
struct SendOp : Op {
  Chain* bytes = nullptr;
  SendOp() noexcept : Op(OpKind::send) {}
};

// Moves `want` bytes from `socket` to `to` inside the kernel: splice(2) through a pooled pipe, by readiness.
// It completes when all have left, at end of file of the source (result 0 and moved_out < want), on an error, or when
// cancelled; result: 0, or -errno with `target_failed` telling which side. moved_in and moved_out only grow and may be read at
// any time: they are the progress that deadlines look at. Bytes that were in the pipe when it failed are lost with it
// (moved_in > moved_out: both sides must be closed). -EOPNOTSUPP before any byte moved: no pipe was to be had, copy instead.
// SO_RCVLOWAT belongs to the relay while it runs and is 1 again when it completes. Never more than kRelayBytesPerTurn a turn.
inline constexpr uint32_t kRelayBytesPerTurn = 4u << 20;
inline constexpr uint32_t kRelayPipeBytes = 1u << 20;
inline constexpr uint32_t kRelayHeldMax = 768u << 10;   // let into a pipe before its target has taken some
inline constexpr uint32_t kRelayLowat = 256u << 10;
struct RelayOp : Op {
  Socket* to = nullptr;
  uint64_t want = 0;
  uint64_t moved_in = 0;   // taken from the source
  uint64_t moved_out = 0;  // accepted by the target
  bool target_failed = false;
  // the engine's own
  int pipe[2] = {-1, -1};
  uint32_t pipe_bytes = 0;      // its size in the kernel
  uint32_t pipe_capacity = 0;   // what may be let in: the memory that this relay is charged for
  bool lowat_set = false;
  bool flowing = false;         // a large read came since the mark was last touched: wait for kRelayLowat at once
  bool source_ended = false;
  uint64_t lowat_mark = 0;      // moved_in at the last look of Loop's relay watch
  RelayOp* watch_next = nullptr;
  RelayOp* watch_prev = nullptr;
  RelayOp() noexcept : Op(OpKind::relay) {}
};

// A first-in first-out list of ops through Op::next. Holds no memory.
class OpList {
 public:
  bool empty() const noexcept { return head_ == nullptr; }
  Op* front() const noexcept { return head_; }
  void push(Op& op) noexcept {
    op.next = nullptr;
    if (tail_ != nullptr) tail_->next = &op;
    else head_ = &op;
    tail_ = &op;
  }
  Op* pop() noexcept {
    Op* op = head_;
    if (op != nullptr) {
      head_ = op->next;
      if (head_ == nullptr) tail_ = nullptr;
      op->next = nullptr;
    }
    return op;
  }
  void append(OpList& other) noexcept {
    if (other.head_ == nullptr) return;
    if (tail_ != nullptr) tail_->next = other.head_;
    else head_ = other.head_;
    tail_ = other.tail_;
    other.head_ = other.tail_ = nullptr;
  }

 private:
  Op* head_ = nullptr;
  Op* tail_ = nullptr;
};

}  // namespace weir

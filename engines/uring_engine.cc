#include "engines/uring_engine.h"

#include <poll.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>
#include <vector>

#include "engines/relay.h"
#include "engines/sys.h"
#include "engines/uring_buffers.h"
#include "engines/uring_ring.h"

namespace weir {
namespace {

constexpr unsigned kWideSlabs = 16;     // most slabs of one receive: 256 KiB
constexpr size_t kAcceptBacklog = 256;  // accepted and not yet delivered: above this the listener pauses
constexpr Duration kAgainPause = std::chrono::milliseconds(1);
constexpr Duration kEnomemStep = std::chrono::milliseconds(50);
constexpr Duration kEnomemPatienceMax = std::chrono::seconds(10);

// user_data: what a completion is about, 12 bits of generation, and a pointer. A late completion whose generation has
// passed meets nobody.
enum class Kind : uint8_t { ack, op, wide, relay_ready, relay_gone, accept, wake, foreign };
constexpr int kPointerBits = 48;
constexpr uint16_t kGenerationMask = 0xfff;

uint64_t cookie(Kind kind, const void* what = nullptr, uint16_t generation = 0) noexcept {
  const auto pointer = reinterpret_cast<uint64_t>(what);
  WEIR_DEBUG_ASSERT(pointer >> kPointerBits == 0);
  return uint64_t{static_cast<uint8_t>(kind)} << 60 |
         static_cast<uint64_t>(generation & kGenerationMask) << kPointerBits | pointer;
}
Kind kind_of(uint64_t data) noexcept { return static_cast<Kind>(data >> 60); }
uint16_t generation_of(uint64_t data) noexcept { return data >> kPointerBits & kGenerationMask; }
template <class T>
T* pointer_of(uint64_t data) noexcept {
  return reinterpret_cast<T*>(data & ((uint64_t{1} << kPointerBits) - 1));
}

uint64_t cookie_of(Kind kind, const Op& op) noexcept { return cookie(kind, &op, op.socket->generation); }

// What the kernel is doing for one AcceptOp. Slots stay where they are and are used again, with another generation.
struct AcceptSlot {
  AcceptOp* op = nullptr;  // nullptr: free
  uint16_t generation = 0;
  bool armed = false;     // the kernel has it
  bool stopping = false;  // a cancel is on its way: to pause, or because the owner asked
  int32_t end = 0;        // how it ends once the backlog is delivered; 0: goes on
  Address peer;           // one-shot accepts only
  std::vector<Accepted> backlog;
  size_t delivered = 0;  // of the backlog
  size_t waiting() const noexcept { return backlog.size() - delivered; }
};

class UringEngine final : public Engine {
 public:
  UringEngine(SlabPool& pool, const UringOptions& options, const UringProbe& probe)
      : pool_(pool), probe_(probe), buffers_(pool), stats_(options.stats != nullptr ? *options.stats : own_stats_) {
    // What a burst may need, so that the data path does not allocate.
    starved_.reserve(256);
    again_.reserve(256);
    ready_relays_.reserve(64);
  }
  ~UringEngine() override {
    ring_.close();
    buffers_.detach();
    for (const auto& slot : accepts_) {
      for (size_t i = slot->delivered; i < slot->backlog.size(); ++i) ::close(slot->backlog[i].fd);
    }
  }

  int create(const UringOptions& options);

  EngineKind kind() const noexcept override { return EngineKind::uring; }
  Turn turn(OpList& submitted, OpList& cancelled, OpList& completed, const Wait& wait) noexcept override;
  int open(const Address& to) noexcept override { return open_stream(to); }
  void shutdown(Socket& socket, ShutdownHow how) noexcept override {
    ::shutdown(socket.fd, how == ShutdownHow::write ? SHUT_WR : SHUT_RDWR);
  }
  void close(Socket& socket, bool linger_reset) noexcept override { close_stream(socket.fd, linger_reset); }
  void leave(Socket& socket) noexcept override { socket.more_to_read = true; }
  uint64_t acked_bytes(const Socket& socket) noexcept override { return tcp_acked_bytes(socket.fd); }
  // Lowering the mark makes the kernel look at the socket again, and so at the poll that waits on it.
  void relay_quiet(RelayOp& op) noexcept override { relay_lower(op); }
  void set_wake(int eventfd) noexcept override { wake_.fd = eventfd; }
  void watch(int fd) noexcept override { foreign_.fd = fd; }
  std::string tier() const override;

 private:
  struct Watch {
    int fd = -1;
    bool armed = false;
  };

  bool has(UringFeature feature) const noexcept { return probe_.has(feature); }
  void start() noexcept;
  void arm(Watch& watch, Kind kind) noexcept;
  void take(Op& op) noexcept;
  bool try_prepare(Op& op) noexcept;  // false: the kernel takes no more now
  void prepare(Op& op) noexcept;
  bool prepare_recv(RecvOp& op) noexcept;
  bool prepare_wide(RecvOp& op, bool& full) noexcept;
  bool prepare_send(SendOp& op) noexcept;
  bool prepare_connect(ConnectOp& op) noexcept;
  void retry_parked() noexcept;
  void cancel(Op& op) noexcept;
  void cancel_cookie(uint64_t data) noexcept;
  void complete(Op& op, int32_t result) noexcept;

  void on_completion(uint64_t data, int32_t res, unsigned flags) noexcept;
  void on_op(Op& op, int32_t res, unsigned flags) noexcept;
  void on_recv(RecvOp& op, int32_t res, unsigned flags) noexcept;
  void on_wide(RecvOp& op, int32_t res, unsigned flags) noexcept;
  void drop_buffer(unsigned flags) noexcept;
  template <class T>
  T* live(uint64_t data) noexcept;

  AcceptSlot* slot_of(const Op& op) noexcept;
  void start_accept(AcceptOp& op) noexcept;
  void arm_accept(AcceptSlot& slot) noexcept;
  void stop_accept(AcceptSlot& slot) noexcept;
  void on_accept(AcceptSlot& slot, int32_t res, unsigned flags) noexcept;
  void accepts_after_reap() noexcept;
  bool deliver(AcceptSlot& slot) noexcept;

  void step_relay(RelayOp& op) noexcept;
  bool poll_for(RelayOp& op, Kind kind, int fd, short events) noexcept;
  void finish_relay(RelayOp& op) noexcept;
  static bool relay_ended(const RelayOp& op) noexcept;
  void cancel_relay(RelayOp& op) noexcept;
  void on_relay(RelayOp& op, Kind kind) noexcept;
  void run_relays() noexcept;

  SlabPool& pool_;
  UringProbe probe_;
  UringRing ring_;
  UringBuffers buffers_;
  UringStats own_stats_;
  UringStats& stats_;
  bool restricted_ = false;
  bool started_ = false;
  Watch wake_, foreign_;
  std::vector<std::unique_ptr<AcceptSlot>> accepts_;
  bool accepts_pending_ = false;  // some slot has something to deliver, or wants arming
  std::vector<RecvOp*> starved_;  // no buffer was to be had; in order
  std::vector<Op*> again_;        // no room in the kernel's queues
  std::vector<RelayOp*> ready_relays_;
  std::vector<RelayOp*> running_relays_;
  RelayPipes pipes_;
  OpList* completed_ = nullptr;  // during a turn
  Turn turn_;
};

int UringEngine::create(const UringOptions& options) {
  if (const int rc = ring_.create(options.sq_entries, options.cq_entries); rc < 0) return rc;
  if (const int rc = buffers_.attach(ring_.raw(), options.buffers); rc < 0) return rc;
  if (has(UringFeature::restrictions)) {
    if (const int rc = ring_.restrict(); rc < 0) return rc;
    restricted_ = true;
  }
  return 0;
}

// On the loop's thread at last: from here on only this thread may submit.
void UringEngine::start() noexcept {
  WEIR_ASSERT(ring_.enable() == 0);
  started_ = true;
}

void UringEngine::arm(Watch& watch, Kind kind) noexcept {
  if (watch.fd < 0 || watch.armed) return;
  io_uring_sqe* sqe = ring_.sqe();
  if (sqe == nullptr) return;  // next turn
  if (has(UringFeature::multishot_poll))
    io_uring_prep_poll_multishot(sqe, watch.fd, POLLIN);
  else
    io_uring_prep_poll_add(sqe, watch.fd, POLLIN);
  sqe->user_data = cookie(kind);
  watch.armed = true;
}

Turn UringEngine::turn(OpList& submitted, OpList& cancelled, OpList& completed, const Wait& wait) noexcept {
  if (!started_) start();
  completed_ = &completed;
  turn_ = Turn{};
  arm(wake_, Kind::wake);
  arm(foreign_, Kind::foreign);
  while (Op* op = cancelled.pop()) cancel(*op);
  buffers_.top_up();
  retry_parked();
  while (Op* op = submitted.pop()) take(*op);

  UringRing::Enter how{.timeout = wait.timeout,
                       .gather = wait.gather,
                       .gather_events = wait.gather_events,
                       .min_wait = has(UringFeature::min_wait)};
  if (!completed.empty() || !ready_relays_.empty() || accepts_pending_)
    how.timeout = Duration::zero();
  else if (!again_.empty())
    how.timeout = std::min(how.timeout, kAgainPause);
  ring_.enter(how);
  if (ring_.overflowed()) stats_.cq_overflows.add();
  ring_.reap([this](uint64_t data, int32_t res, unsigned flags) { on_completion(data, res, flags); });
  if (ring_.lost() != stats_.cq_lost.get()) stats_.cq_lost.set(ring_.lost());
  run_relays();
  if (accepts_pending_) accepts_after_reap();
  turn_.runnable = !ready_relays_.empty() || accepts_pending_;
  completed_ = nullptr;
  return turn_;
}

void UringEngine::complete(Op& op, int32_t result) noexcept { finish(op, result, *completed_); }

// ---- into the kernel

void UringEngine::take(Op& op) noexcept {
  keep(op);
  if (op.cancel_asked) {
    if (op.kind == OpKind::accept) static_cast<AcceptOp&>(op).more = false;
    return complete(op, -ECANCELED);
  }
  switch (op.kind) {
    case OpKind::accept: return start_accept(static_cast<AcceptOp&>(op));
    case OpKind::relay: return step_relay(static_cast<RelayOp&>(op));
    default: return prepare(op);
  }
}

bool UringEngine::try_prepare(Op& op) noexcept {
  switch (op.kind) {
    case OpKind::recv: return prepare_recv(static_cast<RecvOp&>(op));
    case OpKind::send: return prepare_send(static_cast<SendOp&>(op));
    case OpKind::connect: return prepare_connect(static_cast<ConnectOp&>(op));
    default: return true;
  }
}

void UringEngine::prepare(Op& op) noexcept {
  if (try_prepare(op)) return;
  stats_.again.add();
  again_.push_back(&op);
}

bool UringEngine::prepare_recv(RecvOp& op) noexcept {
  WEIR_DEBUG_ASSERT(op.want > 0 && op.bytes.empty());
  Socket& socket = *op.socket;
  if (op.want > kSlabBytes && socket.more_to_read && has(UringFeature::wide_recv)) {
    bool full = false;
    if (prepare_wide(op, full)) return true;
    if (full) return false;
  }
  if (buffers_.held() == 0) {
    stats_.starved_recvs.add();
    starved_.push_back(&op);
    return true;
  }
  io_uring_sqe* sqe = ring_.sqe();
  if (sqe == nullptr) return false;
  io_uring_prep_recv(sqe, socket.fd, nullptr, std::min(op.want, kSlabBytes), 0);
  sqe->flags |= IOSQE_BUFFER_SELECT;
  sqe->buf_group = UringBuffers::kGroup;
  if (!socket.more_to_read && has(UringFeature::poll_first)) sqe->ioprio |= IORING_RECVSEND_POLL_FIRST;
  sqe->user_data = cookie_of(Kind::op, op);
  return true;
}

// Much is wanted and bytes are known to be there: slabs of our own, and an answer at once (MSG_DONTWAIT), so that they
// are pinned for no longer than this turn. A bundle of provided buffers would do the same, but kernels take it for more
// than was asked (io_uring goes on with all that is in the socket), and credit is absolute.
bool UringEngine::prepare_wide(RecvOp& op, bool& full) noexcept {
  const auto want = std::min(op.want, kWideSlabs * kSlabBytes);
  uint32_t room = 0;
  while (room < want) {
    Slab* slab = pool_.take();
    if (slab == nullptr) break;
    const auto piece = std::min(kSlabBytes, want - room);
    op.bytes.append(Slice(slab, 0, piece));
    room += piece;
  }
  msghdr* message = nullptr;
  iovec* parts = nullptr;
  const bool worth_it = room > kSlabBytes;
  full = worth_it && !ring_.scratch(message, parts);
  if (!worth_it || full) {
    op.bytes.clear();
    return false;
  }
  message->msg_iov = parts;
  message->msg_iovlen = op.bytes.fill(parts, UringRing::kIovecsPerMessage, room);
  ring_.give_back(UringRing::kIovecsPerMessage - static_cast<unsigned>(message->msg_iovlen));
  io_uring_sqe* sqe = ring_.sqe();
  io_uring_prep_recvmsg(sqe, op.socket->fd, message, MSG_DONTWAIT);
  sqe->user_data = cookie_of(Kind::wide, op);
  stats_.wide_recvs.add();
  return true;
}

bool UringEngine::prepare_send(SendOp& op) noexcept {
  WEIR_DEBUG_ASSERT(!op.bytes->empty());
  const Slice& front = op.bytes->front();
  if (front.size() == op.bytes->bytes() || front.size() >= kSendBytesMax) {
    io_uring_sqe* sqe = ring_.sqe();
    if (sqe == nullptr) return false;
    io_uring_prep_send(sqe, op.socket->fd, front.data(), std::min(front.size(), kSendBytesMax), MSG_NOSIGNAL);
    sqe->user_data = cookie_of(Kind::op, op);
    return true;
  }
  msghdr* message = nullptr;
  iovec* parts = nullptr;
  if (!ring_.scratch(message, parts)) return false;
  static_assert(UringRing::kIovecsPerMessage == kSendSlicesMax);
  message->msg_iov = parts;
  message->msg_iovlen = op.bytes->fill(parts, kSendSlicesMax, kSendBytesMax);
  ring_.give_back(kSendSlicesMax - static_cast<unsigned>(message->msg_iovlen));
  io_uring_sqe* sqe = ring_.sqe();
  io_uring_prep_sendmsg(sqe, op.socket->fd, message, MSG_NOSIGNAL);
  sqe->user_data = cookie_of(Kind::op, op);
  return true;
}

bool UringEngine::prepare_connect(ConnectOp& op) noexcept {
  io_uring_sqe* sqe = ring_.sqe();
  if (sqe == nullptr) return false;
  io_uring_prep_connect(sqe, op.socket->fd, &op.to.any, op.to.length);
  sqe->user_data = cookie_of(Kind::op, op);
  return true;
}

// What waited for buffers gets as many as there are; what waited for room in the queues is tried in order.
void UringEngine::retry_parked() noexcept {
  if (!starved_.empty() && buffers_.held() > 0) {
    const size_t count = std::min<size_t>(starved_.size(), buffers_.held());
    size_t done = 0;
    while (done < count && prepare_recv(*starved_[done])) ++done;
    starved_.erase(starved_.begin(), starved_.begin() + static_cast<ptrdiff_t>(done));
  }
  size_t done = 0;
  const size_t count = again_.size();
  while (done < count && try_prepare(*again_[done])) ++done;
  again_.erase(again_.begin(), again_.begin() + static_cast<ptrdiff_t>(done));
}

// ---- cancels

void UringEngine::cancel_cookie(uint64_t data) noexcept {
  io_uring_sqe* sqe = ring_.sqe();
  if (sqe == nullptr) return;  // a cancel is a hint
  io_uring_prep_cancel64(sqe, data, 0);
  sqe->user_data = cookie(Kind::ack);
}

void UringEngine::cancel(Op& op) noexcept {
  const auto forget = [&op](auto& list) {
    const auto at = std::find(list.begin(), list.end(), &op);
    if (at == list.end()) return false;
    list.erase(at);
    return true;
  };
  if (op.kind == OpKind::accept) {
    if (AcceptSlot* slot = slot_of(op); slot != nullptr) stop_accept(*slot);
    return;
  }
  if (op.kind == OpKind::relay) {
    cancel_relay(static_cast<RelayOp&>(op));
    return;
  }
  if (forget(starved_) || forget(again_)) return complete(op, -ECANCELED);
  cancel_cookie(cookie_of(Kind::op, op));
}

// ---- out of the kernel

// The op that a completion belongs to, unless its life is over.
template <class T>
T* UringEngine::live(uint64_t data) noexcept {
  T* op = pointer_of<T>(data);
  const bool ours = op->state == OpState::in_engine && op->engine == EngineKind::uring &&
                    (op->socket->generation & kGenerationMask) == generation_of(data);
  if (__builtin_expect(ours, 1)) return op;
  stats_.stale.add();
  return nullptr;
}

void UringEngine::drop_buffer(unsigned flags) noexcept {
  if ((flags & IORING_CQE_F_BUFFER) == 0) return;
  SlabPool::unref(buffers_.take(static_cast<uint16_t>(flags >> IORING_CQE_BUFFER_SHIFT)));
}

void UringEngine::on_completion(uint64_t data, int32_t res, unsigned flags) noexcept {
  const Kind kind = kind_of(data);
  if (kind == Kind::ack) return;
  ++turn_.events;
  switch (kind) {
    case Kind::op:
      if (Op* op = live<Op>(data)) return on_op(*op, res, flags);
      return drop_buffer(flags);
    case Kind::wide:
      if (Op* op = live<Op>(data)) on_wide(static_cast<RecvOp&>(*op), res, flags);
      return;
    case Kind::relay_ready:
    case Kind::relay_gone:
      if (Op* op = live<Op>(data)) on_relay(static_cast<RelayOp&>(*op), kind);
      return;
    case Kind::accept: {
      AcceptSlot& slot = *pointer_of<AcceptSlot>(data);
      if (slot.op != nullptr && (slot.generation & kGenerationMask) == generation_of(data))
        return on_accept(slot, res, flags);
      stats_.stale.add();
      if (res >= 0) ::close(res);
      return;
    }
    case Kind::wake:
      turn_.woken = true;
      wake_.armed = (flags & IORING_CQE_F_MORE) != 0;
      return;
    case Kind::foreign:
      turn_.foreign_ready = true;
      foreign_.armed = (flags & IORING_CQE_F_MORE) != 0;
      return;
    case Kind::ack: return;
  }
}

void UringEngine::on_op(Op& op, int32_t res, unsigned flags) noexcept {
  if (op.kind == OpKind::recv) return on_recv(static_cast<RecvOp&>(op), res, flags);
  // No answer for the owner: every completion of a send is progress or an error.
  const bool nothing = op.kind == OpKind::send && (res == -EAGAIN || res == -EINTR || res == 0);
  if (!nothing) return complete(op, res);
  if (op.cancel_asked) return complete(op, -ECANCELED);
  stats_.again.add();
  again_.push_back(&op);
}

void UringEngine::on_recv(RecvOp& op, int32_t res, unsigned flags) noexcept {
  op.socket->more_to_read = (flags & IORING_CQE_F_SOCK_NONEMPTY) != 0;
  if (res > 0) {
    Slab& slab = buffers_.take(static_cast<uint16_t>(flags >> IORING_CQE_BUFFER_SHIFT));
    slab.used = static_cast<uint32_t>(res);
    op.bytes.append(Slice(&slab, 0, slab.used));
    return complete(op, res);
  }
  drop_buffer(flags);
  const bool no_buffer = res == -ENOBUFS;
  if (!no_buffer && res != -EAGAIN && res != -EINTR) return complete(op, res);
  if (op.cancel_asked) return complete(op, -ECANCELED);
  if (no_buffer) {
    stats_.starved_recvs.add();
    starved_.push_back(&op);
  } else {
    stats_.again.add();
    again_.push_back(&op);
  }
}

void UringEngine::on_wide(RecvOp& op, int32_t res, unsigned flags) noexcept {
  op.socket->more_to_read = (flags & IORING_CQE_F_SOCK_NONEMPTY) != 0;
  if (res <= 0) {
    op.bytes.clear();
    if (res != -EAGAIN && res != -EINTR) return complete(op, res);
    if (op.cancel_asked) return complete(op, -ECANCELED);
    op.socket->more_to_read = false;
    return prepare(op);
  }
  Chain got = op.bytes.take(static_cast<size_t>(res));
  op.bytes = std::move(got);
  for (ChainNode* node = op.bytes.first(); node != nullptr; node = node->next)
    node->slice.slab()->used = node->slice.size();
  complete(op, res);
}

// ---- accepting

AcceptSlot* UringEngine::slot_of(const Op& op) noexcept {
  for (const auto& slot : accepts_) {
    if (slot->op == &op) return slot.get();
  }
  return nullptr;
}

void UringEngine::start_accept(AcceptOp& op) noexcept {
  AcceptSlot* slot = nullptr;
  for (const auto& s : accepts_) {
    if (s->op == nullptr) slot = s.get();
  }
  if (slot == nullptr) {
    slot = accepts_.emplace_back(std::make_unique<AcceptSlot>()).get();
    slot->backlog.reserve(kAcceptBacklog * 2);
  }
  slot->op = &op;
  ++slot->generation;
  slot->armed = slot->stopping = false;
  slot->end = 0;
  op.more = true;
  arm_accept(*slot);
}

void UringEngine::arm_accept(AcceptSlot& slot) noexcept {
  io_uring_sqe* sqe = ring_.sqe();
  if (sqe == nullptr) {
    accepts_pending_ = true;
    return;
  }
  constexpr int kFlags = SOCK_NONBLOCK | SOCK_CLOEXEC;
  const int fd = slot.op->socket->fd;
  if (has(UringFeature::multishot_accept)) {
    io_uring_prep_multishot_accept(sqe, fd, nullptr, nullptr, kFlags);
  } else {
    slot.peer.length = sizeof slot.peer.un;
    io_uring_prep_accept(sqe, fd, &slot.peer.any, &slot.peer.length, kFlags);
  }
  sqe->user_data = cookie(Kind::accept, &slot, slot.generation);
  slot.armed = true;
  slot.stopping = false;
}

void UringEngine::stop_accept(AcceptSlot& slot) noexcept {
  if (!slot.armed) {
    if (slot.end == 0) slot.end = -ECANCELED;
    accepts_pending_ = true;
    return;
  }
  cancel_cookie(cookie(Kind::accept, &slot, slot.generation));
  slot.stopping = true;
}

// Errors of the connection that was to be accepted, not of the listener: the next one may be fine (accept(2)).
bool passing_error(int32_t res) noexcept {
  switch (-res) {
    case EAGAIN:
    case EINTR:
    case ECONNABORTED:
    case EPROTO:
    case ENOPROTOOPT:
    case ENETDOWN:
    case ENETUNREACH:
    case EHOSTDOWN:
    case EHOSTUNREACH:
    case ENONET: return true;
    default: return false;
  }
}

void UringEngine::on_accept(AcceptSlot& slot, int32_t res, unsigned flags) noexcept {
  accepts_pending_ = true;
  slot.armed = (flags & IORING_CQE_F_MORE) != 0;
  if (res >= 0) {
    Accepted accepted{.fd = res, .peer = {}};
    if (has(UringFeature::multishot_accept)) {
      // Fails only when the peer has reset meanwhile: then the address stays unknown and the first receive tells.
      socklen_t length = sizeof accepted.peer.un;
      if (getpeername(res, &accepted.peer.any, &length) == 0) accepted.peer.length = length;
    } else {
      accepted.peer = slot.peer;
    }
    slot.backlog.push_back(accepted);
    return;
  }
  // An end that was asked for to pause is no end; the owner's own cancel is.
  const bool pause = res == -ECANCELED && slot.stopping && !slot.op->cancel_asked;
  if (!slot.armed && !pause && !passing_error(res)) slot.end = res;
}

// At most once a turn and listener, up to 64 connections: other listeners have their turn too.
bool UringEngine::deliver(AcceptSlot& slot) noexcept {
  AcceptOp& op = *slot.op;
  if (const size_t count = std::min(slot.waiting(), op.accepted.size()); count > 0) {
    std::copy_n(slot.backlog.begin() + static_cast<ptrdiff_t>(slot.delivered), count, op.accepted.begin());
    slot.delivered += count;
    if (slot.waiting() == 0) {
      slot.backlog.clear();
      slot.delivered = 0;
    }
    op.more = true;
    complete(op, static_cast<int32_t>(count));
    return slot.waiting() > 0 || slot.end != 0;
  }
  if (slot.end == 0) return false;
  op.more = false;
  slot.op = nullptr;
  complete(op, slot.end);
  return false;
}

void UringEngine::accepts_after_reap() noexcept {
  accepts_pending_ = false;
  for (const auto& place : accepts_) {
    AcceptSlot& slot = *place;
    if (slot.op == nullptr) continue;
    // Without multishot the next one is asked for here; with it, this is a pause that ended or a kernel that let go.
    if (!slot.armed && slot.end == 0) {
      if (slot.op->cancel_asked)
        slot.end = -ECANCELED;
      else if (slot.waiting() < kAcceptBacklog / 2)
        arm_accept(slot);
    } else if (slot.armed && !slot.stopping && slot.waiting() >= kAcceptBacklog) {
      stats_.accepts_paused.add();
      stop_accept(slot);
    }
    if (deliver(slot)) accepts_pending_ = true;
  }
}

// ---- relays
// By readiness: at most one poll brings the source or the target (noted in socket->reader), and a second one, armed the
// first time the source has nothing, tells when the target dies (noted in to->writer): a silent source would hide that
// for ever. A relay that has ended completes when neither is in the kernel any more.

void UringEngine::step_relay(RelayOp& op) noexcept {
  uint32_t budget = kRelayBytesPerTurn;
  switch (relay_step(op, pipes_, budget)) {
    case RelayStep::done:
    case RelayStep::failed: return finish_relay(op);
    case RelayStep::again: return ready_relays_.push_back(&op);
    case RelayStep::want_source_readable:
      if (op.to->writer != &op && poll_for(op, Kind::relay_gone, op.to->fd, 0)) op.to->writer = &op;
      if (poll_for(op, Kind::relay_ready, op.socket->fd, POLLIN))
        op.socket->reader = &op;
      else
        ready_relays_.push_back(&op);
      return;
    case RelayStep::want_target_writable:
      if (poll_for(op, Kind::relay_ready, op.to->fd, POLLOUT))
        op.socket->reader = &op;
      else
        ready_relays_.push_back(&op);
      return;
  }
}

bool UringEngine::poll_for(RelayOp& op, Kind kind, int fd, short events) noexcept {
  io_uring_sqe* sqe = ring_.sqe();
  if (sqe == nullptr) return false;
  io_uring_prep_poll_add(sqe, fd, static_cast<unsigned>(events));
  sqe->user_data = cookie_of(kind, op);
  return true;
}

// The relay has its result: relay_end was called. No poll of it may outlive it.
void UringEngine::finish_relay(RelayOp& op) noexcept {
  const bool polls_ready = op.socket->reader == &op;
  const bool polls_gone = op.to->writer == &op;
  if (!polls_ready && !polls_gone) return complete(op, op.result);
  if (polls_ready) cancel_cookie(cookie_of(Kind::relay_ready, op));
  if (polls_gone) cancel_cookie(cookie_of(Kind::relay_gone, op));
}

bool UringEngine::relay_ended(const RelayOp& op) noexcept { return op.pipe[0] < 0; }

void UringEngine::cancel_relay(RelayOp& op) noexcept {
  if (relay_ended(op)) return;  // on its way out
  std::erase(ready_relays_, &op);
  relay_end(op, pipes_, -ECANCELED, false);
  finish_relay(op);
}

void UringEngine::on_relay(RelayOp& op, Kind kind) noexcept {
  (kind == Kind::relay_ready ? op.socket->reader : op.to->writer) = nullptr;
  if (relay_ended(op)) {
    if (op.socket->reader != &op && op.to->writer != &op) complete(op, op.result);
    return;
  }
  if (kind == Kind::relay_ready) return ready_relays_.push_back(&op);
  std::erase(ready_relays_, &op);
  int error = 0;
  socklen_t length = sizeof error;
  if (sys->getsockopt(op.to->fd, SOL_SOCKET, SO_ERROR, &error, &length) != 0) error = errno;
  relay_end(op, pipes_, error != 0 ? -error : -EPIPE, true);
  finish_relay(op);
}

// Each once; those over their budget come again in the next turn.
void UringEngine::run_relays() noexcept {
  if (ready_relays_.empty()) return;
  running_relays_.swap(ready_relays_);
  for (RelayOp* op : running_relays_) step_relay(*op);
  running_relays_.clear();
}

std::string UringEngine::tier() const {
  std::string text = has(UringFeature::multishot_accept) ? "multishot accept" : "one-shot accept";
  if (has(UringFeature::poll_first)) text += ", poll-first";
  if (has(UringFeature::wide_recv)) text += ", wide recv";
  if (has(UringFeature::min_wait)) text += ", min-wait";
  text += ", splice relay, " + std::to_string(buffers_.entries()) + " buffers of 16 KiB";
  text += restricted_ ? "; restricted" : "; not restricted";
  if (const std::string missing = probe_.missing(); !missing.empty()) text += "; off: " + missing;
  return text;
}

// Sleeps between two tries for locked memory; true while another try is allowed.
class Patience {
 public:
  explicit Patience(Duration longest) noexcept : left_(std::min(longest, kEnomemPatienceMax)) {}
  bool wait() noexcept {
    if (left_ < kEnomemStep) return false;
    left_ -= kEnomemStep;
    const timespec step{.tv_sec = 0, .tv_nsec = kEnomemStep.count()};
    ::nanosleep(&step, nullptr);
    return true;
  }

 private:
  Duration left_;
};

}  // namespace

// ENOMEM has three causes, and only one of them goes away by itself: locked memory of rings that were closed a moment
// ago and are still counted. Arithmetic tells the others apart, and those refuse at once.
std::expected<std::unique_ptr<Engine>, UringRefusal> make_uring_engine(SlabPool& pool, const UringOptions& options) {
  RefusalFacts facts = RefusalFacts::read();
  facts.need_each_bytes = uring_ring_bytes(options.sq_entries, options.cq_entries, options.buffers);
  facts.rings = options.rings;
  const bool may_wait = judge_memlock(facts) == MemlockVerdict::perhaps_later;
  Patience patience(options.enomem_patience);
  for (;;) {
    UringProbe probe = options.probe != nullptr ? *options.probe : probe_uring();
    int error = 0;
    if (probe.refusal) {
      error = probe.refusal->error;
      if (error != ENOMEM) return std::unexpected(*probe.refusal);
      facts.step = "probe";
    } else {
      auto engine = std::make_unique<UringEngine>(pool, options, probe);
      error = -engine->create(options);
      if (error == 0) return engine;
      facts.step = "io_uring_setup";
    }
    if (error != ENOMEM || !may_wait || (options.probe != nullptr && probe.refusal) || !patience.wait()) {
      facts.error = error;
      return std::unexpected(explain_refusal(facts));
    }
  }
}

}  // namespace weir

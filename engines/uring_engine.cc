#include "engines/uring_engine.h"

#include <poll.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "engines/uring_impl.h"

namespace weir {
namespace uring {
namespace {

constexpr Duration kAgainPause = std::chrono::milliseconds(1);
constexpr Duration kEnomemStep = std::chrono::milliseconds(50);
constexpr Duration kEnomemPatienceMax = std::chrono::seconds(10);

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

int UringEngine::create(const UringOptions& options, std::string& step) {
  step = "io_uring_setup";
  if (const int rc = ring_.create(options.sq_entries, options.cq_entries); rc < 0) return rc;
  step = "io_uring_register of the buffer ring";
  if (const int rc = buffers_.attach(ring_.raw(), options.buffers, options.rings); rc < 0) return rc;
  if (has(UringFeature::restrictions)) {
    step = "io_uring_register of the restrictions";
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
  retry_cancels();
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
  else if (!again_.empty() || !pending_cancels_.empty())
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
      if (Op* op = live<Op>(data)) on_relay(static_cast<RelayOp&>(*op), kind, res, flags);
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

}  // namespace uring

// ENOMEM has three causes, and only one of them goes away by itself: locked memory of rings that were closed a moment
// ago and are still counted. Arithmetic tells the others apart, and those refuse at once.
std::expected<std::unique_ptr<Engine>, UringRefusal> make_uring_engine(SlabPool& pool, const UringOptions& options) {
  RefusalFacts facts = RefusalFacts::read();
  facts.need_each_bytes = uring_ring_bytes(options.sq_entries, options.cq_entries, options.buffers);
  facts.rings = options.rings;
  const bool may_wait = judge_memlock(facts) == MemlockVerdict::perhaps_later;
  uring::Patience patience(options.enomem_patience);
  for (;;) {
    UringProbe probe = options.probe != nullptr ? *options.probe : probe_uring();
    int error = 0;
    if (probe.refusal) {
      error = probe.refusal->error;
      if (error != ENOMEM) return std::unexpected(*probe.refusal);
      facts.step = "probe";
    } else {
      auto engine = std::make_unique<uring::UringEngine>(pool, options, probe);
      error = -engine->create(options, facts.step);
      if (error == 0) return engine;
    }
    if (error != ENOMEM || !may_wait || (options.probe != nullptr && probe.refusal) || !patience.wait()) {
      facts.error = error;
      return std::unexpected(explain_refusal(facts));
    }
  }
}

}  // namespace weir

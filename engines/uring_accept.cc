#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "engines/uring_impl.h"

namespace weir::uring {

namespace {

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
    case ENONET:
    case EOPNOTSUPP:
    case EPERM:
    case ETIMEDOUT: return true;
    default: return false;
  }
}

}  // namespace

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

}  // namespace weir::uring

#include <algorithm>
#include <cerrno>

#include "engines/uring_impl.h"

namespace weir::uring {

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
  if (pending_cancels_.empty() && try_prepare(op)) return;
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
    Slab* slab = pool_.take_for_input();
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
  if (!pending_cancels_.empty()) return;
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
  if (!pending_cancels_.empty() || !try_cancel(data)) pending_cancels_.push_back(data);
}

void UringEngine::retry_cancels() noexcept {
  size_t done = 0;
  while (done < pending_cancels_.size() && try_cancel(pending_cancels_[done])) ++done;
  pending_cancels_.erase(pending_cancels_.begin(), pending_cancels_.begin() + static_cast<ptrdiff_t>(done));
}

bool UringEngine::try_cancel(uint64_t data) noexcept {
  io_uring_sqe* sqe = ring_.sqe();
  if (sqe == nullptr) return false;
  io_uring_prep_cancel64(sqe, data, 0);
  sqe->user_data = cookie(Kind::ack);
  return true;
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

}  // namespace weir::uring

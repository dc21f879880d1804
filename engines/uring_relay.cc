#include <poll.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "engines/sys.h"
#include "engines/uring_impl.h"

namespace weir::uring {

// By readiness: at most one poll brings the source or the target (noted in socket->reader), and a second one, armed the
// first time the source has nothing, tells when the target dies (noted in to->writer): a silent source would hide that
// for ever. A relay that has ended completes when neither is in the kernel any more.
// The second one is multishot: the kernel adds POLLRDHUP to every poll, and a peer that has only finished sending still reads.
// Such an event comes once and the poll stays; a one-shot poll would have to be armed again and would fire again at once.

void UringEngine::step_relay(RelayOp& op) noexcept {
  uint32_t budget = kRelayBytesPerTurn;
  switch (relay_step(op, pipes_, budget)) {
    case RelayStep::done:
    case RelayStep::failed: return finish_relay(op);
    case RelayStep::again: return ready_relays_.push_back(&op);
    case RelayStep::want_source_readable:
      if (op.to->writer != &op && poll_for(op, Kind::relay_gone, op.to->fd, 0, true)) op.to->writer = &op;
      if (poll_for(op, Kind::relay_ready, op.socket->fd, POLLIN, false))
        op.socket->reader = &op;
      else
        ready_relays_.push_back(&op);
      return;
    case RelayStep::want_target_writable:
      if (poll_for(op, Kind::relay_ready, op.to->fd, POLLOUT, false))
        op.socket->reader = &op;
      else
        ready_relays_.push_back(&op);
      return;
  }
}

bool UringEngine::poll_for(RelayOp& op, Kind kind, int fd, short events, bool multishot) noexcept {
  io_uring_sqe* sqe = ring_.sqe();
  if (sqe == nullptr) return false;
  if (multishot && has(UringFeature::multishot_poll)) io_uring_prep_poll_multishot(sqe, fd, static_cast<unsigned>(events));
  else io_uring_prep_poll_add(sqe, fd, static_cast<unsigned>(events));
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

void UringEngine::on_relay(RelayOp& op, Kind kind, int result, unsigned flags) noexcept {
  const bool alive = kind == Kind::relay_gone && result >= 0 && (result & (POLLERR | POLLHUP)) == 0;
  if ((flags & IORING_CQE_F_MORE) != 0) {  // the poll of a target goes on
    if (alive || relay_ended(op)) return;
    std::erase(ready_relays_, &op);
    end_with_socket_error(op);
    return finish_relay(op);
  }
  (kind == Kind::relay_ready ? op.socket->reader : op.to->writer) = nullptr;
  if (relay_ended(op)) {
    if (op.socket->reader != &op && op.to->writer != &op) complete(op, op.result);
    return;
  }
  if (kind == Kind::relay_ready) return ready_relays_.push_back(&op);
  if (alive || result == -ECANCELED) return;  // armed again when the source next has nothing
  std::erase(ready_relays_, &op);
  end_with_socket_error(op);
  finish_relay(op);
}

void UringEngine::end_with_socket_error(RelayOp& op) noexcept {
  int error = 0;
  socklen_t length = sizeof error;
  if (sys->getsockopt(op.to->fd, SOL_SOCKET, SO_ERROR, &error, &length) != 0) error = errno;
  relay_end(op, pipes_, error != 0 ? -error : -EPIPE, true);
}

// Each once; those over their budget come again in the next turn.
void UringEngine::run_relays() noexcept {
  if (ready_relays_.empty()) return;
  running_relays_.swap(ready_relays_);
  for (RelayOp* op : running_relays_) step_relay(*op);
  running_relays_.clear();
}

}  // namespace weir::uring

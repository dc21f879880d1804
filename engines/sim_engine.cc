#include "engines/sim_engine.h"

#include <poll.h>

#include <algorithm>
#include <array>

#include "engines/check.h"

namespace weir {

SimEngine::SimEngine(SimNetwork& network, SlabPool& pool, EngineKind kind) : network_(network), pool_(pool), kind_(kind) {
  network_.attach(*this);
}

SimEngine::~SimEngine() { network_.detach(*this); }

SimEngine::Entry& SimEngine::entry(int fd) {
  WEIR_ASSERT(fd >= kSimDescriptorBase);
  const auto index = static_cast<size_t>(fd - kSimDescriptorBase);
  if (index >= entries_.size()) entries_.resize(index + 1);
  return entries_[index];
}

void SimEngine::mark_ready(int fd) noexcept {
  if (fd < kSimDescriptorBase) return;
  Entry& e = entry(fd);
  if (e.queued || (e.reader == nullptr && e.writer == nullptr)) return;
  e.queued = true;
  ready_.push_back(fd);
}

// ---- the turn

Turn SimEngine::turn(OpList& submitted, OpList& cancelled, OpList& completed, const Wait& wait) noexcept {
  Turn turn;
  events_ = 0;
  wake_at_ = kNever;
  network_.run_due();
  for (const int fd : std::exchange(reported_, {})) {
    entry(fd).reported = false;
    mark_ready(fd);
  }
  for (const int fd : std::exchange(due_, {})) mark_ready(fd);
  for (const int fd : std::exchange(hungry_, {})) mark_ready(fd);
  while (Op* op = cancelled.pop()) drop(*op, completed);
  while (Op* op = submitted.pop()) take(*op, completed);
  serve_ready(completed);
  release_deferred(completed);
  sleep(wait, completed);
  if (network_.random().chance(network_.faults().reorder)) shuffle(completed);
  turn.events = events_;
  turn.woken = wake_fired();
  turn.runnable = busy();
  return turn;
}

void SimEngine::sleep(const Wait& wait, OpList& completed) {
  const TimePoint begin = network_.now();
  const TimePoint until = wait.timeout >= kNever - begin ? kNever : begin + wait.timeout;
  wake_at_ = until;
  if (!network_.may_sleep()) return;
  while (completed.empty() && !busy() && reported_.empty() && network_.now() < until && !wake_fired()) {
    const TimePoint next = std::min(network_.next_event(), until);
    if (next == kNever) {
      if (!network_.blocks_when_idle() || wake_fd_ < 0) break;
      pollfd p{wake_fd_, POLLIN, 0};
      poll(&p, 1, -1);
      break;
    }
    network_.advance_to(next);
    serve_ready(completed);
    release_deferred(completed);
    if (network_.stop_asked()) break;
  }
  if (completed.empty() || wait.gather <= Duration(0)) return;
  const TimePoint gathered = network_.now() + wait.gather;
  while (events_ < wait.gather_events && network_.now() < gathered && !network_.stop_asked()) {
    network_.advance_to(std::min(network_.next_event(), gathered));
    serve_ready(completed);
    release_deferred(completed);
  }
}

bool SimEngine::wake_fired() noexcept {
  pollfd p{wake_fd_, POLLIN, 0};
  return wake_fd_ >= 0 && poll(&p, 1, 0) == 1;
}

void SimEngine::shuffle(OpList& completed) {
  std::vector<Op*> ops;
  while (Op* op = completed.pop()) ops.push_back(op);
  for (size_t i = ops.size(); i > 1; --i) std::swap(ops[i - 1], ops[network_.random().below(i)]);
  for (Op* op : ops) completed.push(*op);
}

// Only what is ready now: what becomes ready meanwhile has its turn in the next round.
void SimEngine::serve_ready(OpList& completed) {
  for (const int fd : std::exchange(ready_, {})) {
    entry(fd).queued = false;
    if (Op* reader = entry(fd).reader; reader != nullptr) {
      ++events_;
      try_parked(*reader, fd, completed);
    }
    if (Op* writer = entry(fd).writer; writer != nullptr) {
      ++events_;
      try_parked(*writer, fd, completed);
    }
  }
}

void SimEngine::release_deferred(OpList& completed) {
  for (size_t i = 0; i < deferred_.size();) {
    const Deferred d = deferred_[i];
    if (d.at > network_.now()) {
      ++i;
      continue;
    }
    deferred_.erase(deferred_.begin() + static_cast<ptrdiff_t>(i));
    ++events_;
    if (!d.cancel) {
      d.op->state = OpState::completed;
      completed.push(*d.op);
    } else if (!finish_if_ready(*d.op, completed)) {
      give_up(*d.op, completed);
    }
    i = 0;  // the list may have changed
  }
}

// ---- from submit to completion

void SimEngine::park(Op& op) {
  ++parked_;
  const int fd = op.socket->fd;
  Entry& e = entry(fd);
  const SimEnd end = network_.descriptor_end(fd);
  if (op.kind == OpKind::accept) network_.listener_owner(fd, this);
  else network_.set_owner(end, this, fd);
  Op*& slot = op.kind == OpKind::send || op.kind == OpKind::connect ? e.writer : e.reader;
  WEIR_ASSERT(slot == nullptr);
  slot = &op;
  if (op.kind != OpKind::relay) return;
  Socket& to = *static_cast<RelayOp&>(op).to;
  network_.set_owner(network_.descriptor_end(to.fd), this, to.fd);
  WEIR_ASSERT(entry(to.fd).writer == nullptr);
  entry(to.fd).writer = &op;
}

bool SimEngine::is_parked(const Op& op) {
  const Entry& e = entry(op.socket->fd);
  return e.reader == &op || e.writer == &op;
}

void SimEngine::unpark(Op& op) {
  --parked_;
  Entry& e = entry(op.socket->fd);
  if (e.reader == &op) e.reader = nullptr;
  if (e.writer == &op) e.writer = nullptr;
  if (op.kind == OpKind::relay) entry(static_cast<RelayOp&>(op).to->fd).writer = nullptr;
  std::erase_if(deferred_, [&](const Deferred& d) { return d.op == &op; });  // a cancel that came too late
}

void SimEngine::take(Op& op, OpList& completed) {
  op.state = OpState::in_engine;
  park(op);
  if (op.cancel_asked && !network_.random().chance(network_.faults().cancel_race)) give_up(op, completed);
  else if (op.cancel_asked) release_cancelled(op, completed);
  else try_parked(op, op.socket->fd, completed);
}

void SimEngine::drop(Op& op, OpList& completed) {
  if (!is_parked(op)) return;  // already done, only not yet reported
  if (network_.random().chance(network_.faults().cancel_race)) {
    const Duration wait = network_.some_delay();
    deferred_.push_back({&op, network_.now() + wait, true});
    network_.poke(*this, -1, wait);
    note(op, "will be cancelled");
  } else {
    release_cancelled(op, completed);
  }
}

void SimEngine::release_cancelled(Op& op, OpList& completed) {
  if (!finish_if_ready(op, completed)) give_up(op, completed);
}

bool SimEngine::finish_if_ready(Op& op, OpList& completed) {
  if (op.kind == OpKind::accept || op.kind == OpKind::relay || attempt(op) != Verdict::done) return false;
  unpark(op);
  finish(op, completed);
  return true;
}

void SimEngine::give_up(Op& op, OpList& completed) {
  unpark(op);
  op.result = -ECANCELED;
  note(op, "is cancelled");
  if (op.kind == OpKind::accept) static_cast<AcceptOp&>(op).more = false;
  if (op.kind == OpKind::relay) end_relay(static_cast<RelayOp&>(op), -ECANCELED, false);
  finish(op, completed);
}

void SimEngine::try_parked(Op& op, int fd, OpList& completed) {
  const SimFaults& faults = network_.faults();
  if (op.kind != OpKind::accept && network_.random().chance(faults.hold_back)) {
    network_.poke(*this, fd, network_.some_delay());
    return;
  }
  switch (attempt(op)) {
    case Verdict::wait:
      return;
    case Verdict::again:
      due_.push_back(fd);
      return;
    case Verdict::done:
      break;
  }
  if (op.kind == OpKind::accept && static_cast<AcceptOp&>(op).more) {  // stays armed
    op.state = OpState::completed;
    completed.push(op);
    return;
  }
  unpark(op);
  finish(op, completed);
}

void SimEngine::finish(Op& op, OpList& completed) {
  if (op.kind != OpKind::accept && network_.random().chance(network_.faults().delay_completion)) {
    const Duration wait = network_.some_delay();
    deferred_.push_back({&op, network_.now() + wait, false});
    network_.poke(*this, -1, wait);
    note(op, "is done and will be told");
    return;
  }
  op.state = OpState::completed;
  completed.push(op);
}

// Only what chance did: that the others came to their end is seen on the wire.
void SimEngine::note(const Op& op, const char* what) const {
  if (!network_.tracing()) return;
  static constexpr const char* kNames[] = {"accept", "connect", "recv", "send", "relay"};
  std::string text = std::string(engine_name(kind_)) + ": " + kNames[static_cast<size_t>(op.kind)];
  if (op.kind != OpKind::accept) text += " on " + SimNetwork::name_of(network_.descriptor_end(op.socket->fd));
  network_.note(text + " " + what);
}

// ---- sockets

int SimEngine::open(const Address&) noexcept {
  const SimEnd end = network_.open_end(this, nullptr);
  const int fd = network_.descriptor_open(end);
  if (fd < 0) network_.close(end, false);
  else network_.set_owner(end, this, fd);
  return fd;
}

void SimEngine::shutdown(Socket& socket, ShutdownHow how) noexcept {
  if (network_.descriptor_listens(socket.fd)) network_.listener_shutdown(socket.fd);
  else network_.shutdown(network_.descriptor_end(socket.fd), how);
}

void SimEngine::close(Socket& socket, bool linger_reset) noexcept {
  leave(socket);
  if (network_.descriptor_listens(socket.fd)) network_.listener_close(socket.fd);
  else network_.close(network_.descriptor_end(socket.fd), linger_reset);
  network_.descriptor_free(socket.fd);
}

void SimEngine::leave(Socket& socket) noexcept {
  const Entry& e = entry(socket.fd);
  WEIR_ASSERT(e.reader == nullptr && e.writer == nullptr);
}

uint64_t SimEngine::acked_bytes(const Socket& socket) noexcept {
  return network_.acked(network_.descriptor_end(socket.fd));
}

}  // namespace weir

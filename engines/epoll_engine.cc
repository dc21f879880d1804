#include "engines/epoll_engine.h"

#include <sys/prctl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "engines/relay.h"
#include "engines/sys.h"

namespace weir {
namespace {

constexpr uint32_t kInterest = EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET;
constexpr uint32_t kListenInterest = EPOLLIN | EPOLLET;
constexpr uint32_t kGone = EPOLLHUP | EPOLLERR;
constexpr int kPointerBits = 48;
constexpr unsigned kTimerSlackNs = 1000;  // the default of 50 us would double a gathering sleep
constexpr uint64_t kWakeTag = 0;

uint64_t tag_of(Socket& socket) noexcept {
  const auto address = reinterpret_cast<uintptr_t>(&socket);
  WEIR_DEBUG_ASSERT(address >> kPointerBits == 0);
  return static_cast<uint64_t>(address) | static_cast<uint64_t>(socket.generation) << kPointerBits;
}

timespec to_timespec(Duration span) noexcept {
  const auto whole = std::chrono::duration_cast<std::chrono::seconds>(span);
  return {.tv_sec = static_cast<time_t>(whole.count()), .tv_nsec = static_cast<long>((span - whole).count())};
}

// Errors of accept4 that concern one connection, which is then gone from the queue.
bool skips_connection(int error) noexcept {
  switch (error) {
    case ECONNABORTED: case EPROTO: case ENETDOWN: case ENOPROTOOPT: case EHOSTDOWN: case ENONET: case EHOSTUNREACH:
    case EOPNOTSUPP: case ENETUNREACH: case EPERM: case ETIMEDOUT: case EINTR: return true;
    default: return false;
  }
}

// Parked here, and not about to run anyway.
bool may_serve(const Op* op) noexcept {
  return op != nullptr && op->engine == EngineKind::epoll && op->state == OpState::in_engine && !op->queued;
}

}  // namespace

std::expected<std::unique_ptr<Engine>, int> make_epoll_engine(SlabPool& pool, unsigned relay_pipes_max) {
  const int fd = ::epoll_create1(EPOLL_CLOEXEC);
  if (fd < 0) return std::unexpected(errno);
  epoll_event none = {};
  const timespec no_time = {};
  const int tried = sys->epoll_pwait2(fd, &none, 1, &no_time);  // Linux 5.11, and where no filter forbids it
  const bool has_pwait2 = tried >= 0 || errno == EINTR;
  return std::make_unique<EpollEngine>(pool, fd, has_pwait2, relay_pipes_max);
}

EpollEngine::EpollEngine(SlabPool& pool, int epoll_fd, bool has_pwait2, unsigned relay_pipes_max) noexcept
    : pool_(pool), pipes_(pool.lease(), relay_pipes_max), epoll_fd_(epoll_fd), has_pwait2_(has_pwait2) {
  for (auto* list : {&runnable_, &runnable_now_, &starved_, &starved_now_}) list->reserve(64);
}

EpollEngine::~EpollEngine() { ::close(epoll_fd_); }

std::string EpollEngine::tier() const {
  return has_pwait2_ ? "edge-triggered, epoll_pwait2, splice relay" : "edge-triggered, splice relay";
}

// ---- a turn

Socket* EpollEngine::socket_of(const epoll_event& event) noexcept {
  return reinterpret_cast<Socket*>(event.data.u64 & ((uint64_t{1} << kPointerBits) - 1));
}

Turn EpollEngine::turn(OpList& submitted, OpList& cancelled, OpList& completed, const Wait& wait) noexcept {
  if (!tuned_) {
    tuned_ = true;
    ::prctl(PR_SET_TIMERSLACK, kTimerSlackNs);
  }
  completed_ = &completed;
  while (Op* op = cancelled.pop()) cancel_op(*op);
  run_again();
  while (Op* op = submitted.pop()) {
    // What the last tick left may be cold again; a system call's time is enough to fetch the next one.
    if (const Op* next = submitted.front(); next != nullptr) __builtin_prefetch(next, 1);
    start(*op);
  }

  // Few are busy and something is done: serve it before asking for more. Never twice in a row, so nobody waits longer than a tick.
  const bool skip = !completed.empty() && quiet_ && wait.gather == Duration::zero() && runnable_.empty();
  quiet_ = !skip;
  if (skip) {
    completed_ = nullptr;
    return Turn{};
  }
  if (wait.gather > Duration::zero()) gather(wait.gather);
  const bool sleepy = completed.empty() && runnable_.empty();
  const int count = collect(sleepy ? wait.timeout : Duration::zero());
  Turn turn{.events = static_cast<uint32_t>(std::max(count, 0))};
  quiet_ = turn.events < kQuietEvents;
  for (int i = 0; i < count; ++i) {
    if (i + 2 < count) __builtin_prefetch(socket_of(events_[static_cast<size_t>(i) + 2]));
    serve(events_[static_cast<size_t>(i)], turn);
  }
  turn.runnable = !runnable_.empty() || count == kEventsMax;
  completed_ = nullptr;
  return turn;
}

// What stopped at its bound in the last turn, and what found no slab then, if there is one now.
void EpollEngine::run_again() noexcept {
  if (!runnable_.empty()) {
    runnable_now_.swap(runnable_);
    for (Op* op : runnable_now_) {
      if (op->state == OpState::completed) {  // the loop has not served it yet: the second turn of one tick
        runnable_.push_back(op);
        continue;
      }
      op->queued = false;
      if (op->kind == OpKind::accept) try_accept(static_cast<AcceptOp&>(*op));
      else step_relay(static_cast<RelayOp&>(*op));
    }
    runnable_now_.clear();
  }
  if (!starved_.empty() && pool_.may_take_for_input()) {
    starved_now_.swap(starved_);
    for (Op* op : starved_now_) {
      if (!starved_.empty()) {  // there is none for this one either
        starved_.push_back(op);
        continue;
      }
      op->queued = false;
      try_recv(static_cast<RecvOp&>(*op));
    }
    starved_now_.clear();
  }
}

void EpollEngine::gather(Duration how_long) noexcept {
  const timespec nap = to_timespec(how_long);
  sys->nanosleep(&nap, nullptr);
}

int EpollEngine::collect(Duration timeout) noexcept {
  if (timeout <= Duration::zero()) return sys->epoll_wait(epoll_fd_, events_.data(), kEventsMax, 0);
  if (timeout == kForever) return sys->epoll_wait(epoll_fd_, events_.data(), kEventsMax, -1);
  if (has_pwait2_) {
    const timespec limit = to_timespec(timeout);
    return sys->epoll_pwait2(epoll_fd_, events_.data(), kEventsMax, &limit);
  }
  const auto ms = std::chrono::ceil<std::chrono::milliseconds>(timeout).count();
  return sys->epoll_wait(epoll_fd_, events_.data(), kEventsMax, static_cast<int>(std::min<int64_t>(ms, 1 << 30)));
}

void EpollEngine::serve(const epoll_event& event, Turn& turn) noexcept {
  if (event.data.u64 == kWakeTag) {
    turn.woken = true;
    return;
  }
  Socket& socket = *socket_of(event);
  if (socket.generation != static_cast<uint16_t>(event.data.u64 >> kPointerBits) || !socket.registered) return;
  const uint32_t events = event.events;
  if ((events & (EPOLLRDHUP | kGone)) != 0) socket.peer_closed = true;
  if ((events & (EPOLLIN | EPOLLRDHUP | kGone)) != 0) {
    socket.readable = true;
    if (may_serve(socket.reader)) serve_reader(*socket.reader);
  }
  if ((events & (EPOLLOUT | kGone)) != 0) {
    socket.writable = true;
    if (may_serve(socket.writer)) serve_writer(*socket.writer, events);
  }
}

void EpollEngine::serve_reader(Op& op) noexcept {
  switch (op.kind) {
    case OpKind::recv: return try_recv(static_cast<RecvOp&>(op));
    case OpKind::accept: return try_accept(static_cast<AcceptOp&>(op));
    default: return step_relay(static_cast<RelayOp&>(op));
  }
}

void EpollEngine::serve_writer(Op& op, uint32_t events) noexcept {
  switch (op.kind) {
    case OpKind::send: return try_send(static_cast<SendOp&>(op));
    case OpKind::connect: return finish_connect(static_cast<ConnectOp&>(op));
    default: break;
  }
  auto& relay = static_cast<RelayOp&>(op);
  if ((events & EPOLLERR) == 0) return step_relay(relay);
  // The target is dead; a source that says nothing would hide that for ever.
  int error = 0;
  socklen_t length = sizeof error;
  if (sys->getsockopt(relay.to->fd, SOL_SOCKET, SO_ERROR, &error, &length) != 0) error = errno;
  relay_end(relay, pipes_, error != 0 ? -error : -EPIPE, true);
  end(relay, relay.result);
}

// ---- submitted ops

void EpollEngine::start(Op& op) noexcept {
  if (op.cancel_asked) return finish(op, -ECANCELED, *completed_);
  Socket& socket = *op.socket;
  keep(op);
  switch (op.kind) {
    case OpKind::recv:
      socket.reader = &op;
      if (socket.readable) return try_recv(static_cast<RecvOp&>(op));
      return park_reader(op);
    case OpKind::send:
      socket.writer = &op;
      if (socket.writable || !socket.registered) return try_send(static_cast<SendOp&>(op));
      return;
    case OpKind::accept:
      socket.reader = &op;
      socket.listening = true;
      static_cast<AcceptOp&>(op).more = true;
      return try_accept(static_cast<AcceptOp&>(op));
    case OpKind::connect: return start_connect(static_cast<ConnectOp&>(op));
    case OpKind::relay: return start_relay(static_cast<RelayOp&>(op));
  }
}

void EpollEngine::try_accept(AcceptOp& op) noexcept {
  Socket& socket = *op.socket;
  // The kernel's oldest connection first. ET: what is left after the last one taken here gives no new event, so it runs again.
  int32_t count = 0;
  while (count < static_cast<int32_t>(op.accepted.size())) {
    Accepted& next = op.accepted[static_cast<size_t>(count)];
    next.peer.length = sizeof(sockaddr_un);
    const int fd = sys->accept4(socket.fd, &next.peer.any, &next.peer.length, SOCK_NONBLOCK | SOCK_CLOEXEC);
    if (fd >= 0) {
      next.fd = fd;
      ++count;
      continue;
    }
    if (skips_connection(errno)) continue;
    if (errno == EAGAIN) {
      socket.readable = false;
      if (count > 0) break;
      return park_reader(op);
    }
    // Out of descriptors or memory: what was accepted is told first, the error comes with the next try.
    if (count > 0) break;
    op.more = false;
    return end(op, -errno);
  }
  if (!socket.registered) {
    const int error = register_socket(socket);  // only now: most listeners have nothing waiting when they begin
    if (error != 0) {
      // It cannot be waited for, so it is looked at in each turn until it can.
      socket.readable = true;
    }
  }
  if (socket.readable) run_later(op);
  finish(op, count, *completed_);
}

void EpollEngine::start_connect(ConnectOp& op) noexcept {
  Socket& socket = *op.socket;
  socket.writer = &op;
  if (sys->connect(socket.fd, &op.to.any, op.to.length) == 0) {
    socket.writable = true;
    return end(op, 0);
  }
  if (errno != EINPROGRESS && errno != EINTR) return end(op, -errno);
  socket.writable = false;
  park_writer(op);
}

void EpollEngine::finish_connect(ConnectOp& op) noexcept {
  int error = 0;
  socklen_t length = sizeof error;
  if (sys->getsockopt(op.socket->fd, SOL_SOCKET, SO_ERROR, &error, &length) != 0) error = errno;
  end(op, -error);
}

void EpollEngine::try_send(SendOp& op) noexcept {
  Socket& socket = *op.socket;
  const Chain& bytes = *op.bytes;
  ssize_t sent = 0;
  do {
    if (bytes.first()->next == nullptr) {
      const Slice& only = bytes.front();
      sent = sys->send(socket.fd, only.data(), std::min(only.size(), kSendBytesMax), MSG_NOSIGNAL);
    } else {
      std::array<iovec, kSendSlicesMax> pieces;
      msghdr message = {};
      message.msg_iov = pieces.data();
      message.msg_iovlen = bytes.fill(pieces.data(), kSendSlicesMax, kSendBytesMax);
      sent = sys->sendmsg(socket.fd, &message, MSG_NOSIGNAL);
    }
  } while (sent < 0 && errno == EINTR);
  if (sent >= 0) return end(op, static_cast<int32_t>(sent));
  if (errno != EAGAIN) return end(op, -errno);
  socket.writable = false;
  park_writer(op);
}

// ---- receiving

// As many as the last large read filled, doubled when it filled them all, so that small reads take and give back one slab.
unsigned EpollEngine::take_slabs(uint32_t want) noexcept {
  const unsigned useful = (want + kSlabBytes - 1) / kSlabBytes;
  const unsigned count = std::clamp(std::min(useful, recv_slabs_), 1u, kRecvSlabsMax);
  unsigned taken = 0;
  while (taken < count && (slabs_[taken] = pool_.take_for_input()) != nullptr) ++taken;
  return taken;
}

// Bytes read, or -errno.
ssize_t EpollEngine::read_into(int fd, Slab& slab, uint32_t want) noexcept {
  ssize_t got = 0;
  do {
    got = sys->recv(fd, slab.data, want, 0);
  } while (got < 0 && errno == EINTR);
  return got < 0 ? -errno : got;
}

ssize_t EpollEngine::read_into_slabs(int fd, unsigned count, uint32_t want) noexcept {
  std::array<iovec, kRecvSlabsMax> pieces;
  for (unsigned i = 0; i < count; ++i) {
    pieces[i] = {slabs_[i]->data, std::min(want, kSlabBytes)};
    want -= static_cast<uint32_t>(pieces[i].iov_len);
  }
  ssize_t got = 0;
  do {
    got = sys->readv(fd, pieces.data(), static_cast<int>(count));
  } while (got < 0 && errno == EINTR);
  return got < 0 ? -errno : got;
}

// Takes over the slab; an empty slice gives it back.
void EpollEngine::deliver(RecvOp& op, Slab& slab, uint32_t got) noexcept {
  slab.used = got;
  op.bytes.append(Slice(&slab, 0, got));
}

void EpollEngine::end_recv(RecvOp& op, ssize_t got, size_t capacity) noexcept {
  Socket& socket = *op.socket;
  if (got == -EAGAIN) {
    socket.readable = false;
    return park_reader(op);
  }
  if (got > 0 && static_cast<size_t>(got) < capacity && !socket.peer_closed) socket.readable = false;
  end(op, static_cast<int32_t>(got));
}

void EpollEngine::starve(RecvOp& op) noexcept {
  op.queued = true;
  starved_.push_back(&op);
}

void EpollEngine::try_recv(RecvOp& op) noexcept {
  WEIR_DEBUG_ASSERT(op.bytes.empty() && op.want > 0);
  if (op.want > kSlabBytes) return try_recv_large(op);
  Slab* slab = pool_.take_for_input();
  if (slab == nullptr) return starve(op);
  const ssize_t got = read_into(op.socket->fd, *slab, op.want);
  deliver(op, *slab, got > 0 ? static_cast<uint32_t>(got) : 0);
  end_recv(op, got, op.want);
}

void EpollEngine::try_recv_large(RecvOp& op) noexcept {
  const unsigned slabs = take_slabs(op.want);
  if (slabs == 0) return starve(op);
  const size_t capacity = std::min<size_t>(op.want, size_t{slabs} * kSlabBytes);
  const ssize_t got = slabs == 1 ? read_into(op.socket->fd, *slabs_[0], kSlabBytes)
                                 : read_into_slabs(op.socket->fd, slabs, op.want);
  size_t left = got > 0 ? static_cast<size_t>(got) : 0;
  if (left > 0) {
    const auto filled = static_cast<unsigned>((left + kSlabBytes - 1) / kSlabBytes);
    recv_slabs_ = left == capacity ? std::min(filled * 2, kRecvSlabsMax) : filled;
  }
  for (unsigned i = 0; i < slabs; ++i) {
    const auto part = static_cast<uint32_t>(std::min<size_t>(left, kSlabBytes));
    left -= part;
    deliver(op, *slabs_[i], part);
  }
  end_recv(op, got, capacity);
}

// ---- relays

void EpollEngine::start_relay(RelayOp& op) noexcept {
  op.socket->reader = &op;
  op.to->writer = &op;
  // Both from the start: readiness of either side can come at any time while the relay runs.
  for (Socket* socket : {op.socket, op.to}) {
    const int error = socket->registered ? 0 : register_socket(*socket);
    if (error == 0) continue;
    op.target_failed = socket == op.to;
    return end(op, error);
  }
  step_relay(op);
}

void EpollEngine::step_relay(RelayOp& op) noexcept {
  uint32_t budget = kRelayBytesPerTurn;
  switch (relay_step(op, pipes_, budget)) {
    case RelayStep::done:
    case RelayStep::failed: return end(op, op.result);
    case RelayStep::again: return run_later(op);
    case RelayStep::want_source_readable: op.socket->readable = false; return;
    case RelayStep::want_target_writable: op.to->writable = false; return;
  }
}

void EpollEngine::relay_quiet(RelayOp& op) noexcept {
  relay_lower(op);
  if (!op.queued) run_later(op);
}

// ---- parking

int EpollEngine::register_socket(Socket& socket) noexcept {
  epoll_event event = {};
  event.events = socket.listening ? kListenInterest : kInterest;
  event.data.u64 = tag_of(socket);
  if (sys->epoll_ctl(epoll_fd_, EPOLL_CTL_ADD, socket.fd, &event) != 0) return -errno;
  socket.registered = true;
  return 0;
}

// ADD reports what is ready already, so nothing is lost between the try and the registration.
void EpollEngine::park_reader(Op& op) noexcept {
  if (op.socket->registered) return;
  const int error = register_socket(*op.socket);
  if (error == 0) return;
  if (op.kind == OpKind::accept) static_cast<AcceptOp&>(op).more = false;
  end(op, error);
}

void EpollEngine::park_writer(Op& op) noexcept {
  if (op.socket->registered) return;
  const int error = register_socket(*op.socket);
  if (error != 0) end(op, error);
}

void EpollEngine::unpark(Op& op) noexcept {
  Socket& socket = *op.socket;
  if (socket.reader == &op) socket.reader = nullptr;
  if (socket.writer == &op) socket.writer = nullptr;
  if (op.kind != OpKind::relay) return;
  auto& relay = static_cast<RelayOp&>(op);
  if (relay.to->writer == &op) relay.to->writer = nullptr;
}

void EpollEngine::end(Op& op, int32_t result) noexcept {
  unpark(op);
  finish(op, result, *completed_);
}

void EpollEngine::cancel_op(Op& op) noexcept {
  if (op.queued) {
    op.queued = false;
    std::erase(op.kind == OpKind::recv ? starved_ : runnable_, &op);
  }
  if (op.kind == OpKind::relay) relay_end(static_cast<RelayOp&>(op), pipes_, -ECANCELED, false);
  if (op.kind == OpKind::accept) static_cast<AcceptOp&>(op).more = false;
  end(op, -ECANCELED);
}

// ---- sockets

int EpollEngine::open(const Address& to) noexcept { return open_stream(to); }

void EpollEngine::shutdown(Socket& socket, ShutdownHow how) noexcept {
  ::shutdown(socket.fd, how == ShutdownHow::write ? SHUT_WR : SHUT_RDWR);
}

// close(2) takes a descriptor out of the epoll set by itself, unless another process holds a copy, as with inherited listeners.
void EpollEngine::close(Socket& socket, bool linger_reset) noexcept {
  if (socket.registered && socket.listening) leave(socket);
  close_stream(socket.fd, linger_reset);
}

void EpollEngine::leave(Socket& socket) noexcept {
  if (!socket.registered) return;
  sys->epoll_ctl(epoll_fd_, EPOLL_CTL_DEL, socket.fd, nullptr);
  socket.registered = false;
  // Should it come back, nothing is known about it.
  socket.readable = socket.writable = true;
  socket.peer_closed = false;
}

uint64_t EpollEngine::acked_bytes(const Socket& socket) noexcept { return tcp_acked_bytes(socket.fd); }

void EpollEngine::set_wake(int eventfd) noexcept {
  epoll_event event = {};
  event.events = EPOLLIN | EPOLLET;
  event.data.u64 = kWakeTag;
  WEIR_ASSERT(sys->epoll_ctl(epoll_fd_, EPOLL_CTL_ADD, eventfd, &event) == 0);
}

}  // namespace weir

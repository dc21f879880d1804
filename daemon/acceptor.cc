#include "daemon/acceptor.h"

#include <algorithm>
#include <cerrno>

namespace weir {

namespace {
constexpr Duration kRetryAccept = std::chrono::milliseconds(100);
constexpr Duration kServeQueue = std::chrono::milliseconds(20);      // without an accept in this time the queue is empty
constexpr Duration kServeQueueMax = std::chrono::milliseconds(200);  // under a load that never pauses
}  // namespace

Acceptor::Acceptor(Loop& loop, AcceptorOwner& owner, std::string bind, int fd, EngineKind engine)
    : loop_(loop), owner_(owner), bind_(std::move(bind)) {
  complete = completed_entry;
  release = release_entry;
  due_.self = this;
  due_.fire = due_entry;
  loop_.adopt(socket_, fd, engine);
  socket = &socket_;
  loop_.submit(*this);
}

void Acceptor::completed_entry(Op& op) noexcept { static_cast<Acceptor&>(op).completed(); }

void Acceptor::completed() noexcept {
  for (int i = 0; i < result; ++i) {
    Accepted& one = accepted[static_cast<size_t>(i)];
    one.peer = one.peer.unmapped();
    owner_.on_accepted(one);
  }
  if (closing_ && result > 0) look_again(kServeQueue);
  if (more) return;
  if (ending_) {
    shut();
  } else if (result >= 0 || result == -ECANCELED) {
    if (!paused_ || closing_) loop_.submit(*this);  // to the engine that the socket has now
  } else {
    look_again(closing_ ? kServeQueue : kRetryAccept);
    owner_.on_accept_failed(-result);
  }
}

void Acceptor::look_again(Duration wait) noexcept { loop_.set_timer(due_, std::min(loop_.now() + wait, close_by_)); }

void Acceptor::due_entry(Timer& timer) noexcept {
  Acceptor& self = *static_cast<Due&>(timer).self;
  if (!self.idle()) {
    if (self.closing_) self.end();  // nothing came any more, or they never stop
  } else if (self.closing_ && self.loop_.now() >= self.close_by_) {
    self.end();
  } else if (!self.paused_ || self.closing_) {
    self.loop_.submit(self);
    if (self.closing_) self.look_again(kServeQueue);
  }
}

void Acceptor::change_engine(EngineKind kind) noexcept {
  if (closing_ || socket_.engine == kind) return;
  socket_.engine = kind;
  loop_.cancel(*this);
}

void Acceptor::pause(bool pause) noexcept {
  paused_ = pause;
  if (closing_) return;
  if (pause) loop_.cancel(*this);
  else if (idle() && !due_.armed()) loop_.submit(*this);
}

void Acceptor::close() noexcept {
  if (closing_) return;
  closing_ = true;
  close_by_ = loop_.now() + kServeQueueMax;
  if (idle()) loop_.submit(*this);  // it waited for descriptors; those in the queue still want one
  look_again(kServeQueue);
}

void Acceptor::close_now() noexcept {
  closing_ = true;
  end();
}

void Acceptor::end() noexcept {
  ending_ = true;
  if (idle()) shut();
  else loop_.cancel(*this);
}

void Acceptor::shut() noexcept {
  if (socket_.fd < 0) return;
  loop_.forget_timer(due_);
  loop_.close(socket_);
  loop_.free_later(*this);
}

void Acceptor::release_entry(Slot& slot) noexcept {
  auto& self = static_cast<Acceptor&>(slot);
  self.owner_.on_acceptor_closed(self);
}

}  // namespace weir

#include "protocols/transport/tcp.h"

#include <cerrno>

namespace weir {

TcpTransport::TcpTransport(Loop& loop, TransportOwner& owner) noexcept : loop_(loop), owner_(&owner) {
  recv_.self = send_.self = this;
  recv_.socket = send_.socket = &socket_;
  recv_.complete = recv_done;
  send_.complete = send_done;
  send_.bytes = &out_;
  closer_.self = this;
  closer_.release = release;
}

TcpTransport::~TcpTransport() { WEIR_ASSERT(socket_.fd < 0 && recv_.idle() && send_.idle()); }

void TcpTransport::read(uint32_t want) noexcept {
  if (!recv_.idle() || eof_ || closing_ || stopped_ || want == 0) return;
  recv_.want = want;
  loop_.submit(recv_);
}

void TcpTransport::stop_reading() noexcept {
  stopped_ = true;
  loop_.cancel(recv_);
}

void TcpTransport::flush() noexcept {
  if (!send_.idle() || closing_ || write_shut_) return;
  if (!out_.empty()) {
    loop_.submit(send_);
  } else if (finish_) {
    write_shut_ = true;
    loop_.shutdown(socket_, ShutdownHow::write);
  }
}

void TcpTransport::finish_writing() noexcept {
  finish_ = true;
  flush();
}

void TcpTransport::recv_done(Op& op) noexcept {
  auto& recv = static_cast<Recv&>(op);
  TcpTransport& self = *recv.self;
  if (self.closing_) {
    recv.bytes.clear();
    self.try_close();
    return;
  }
  if (self.stopped_) {
    recv.bytes.clear();
    return;
  }
  if (op.result > 0) {
    self.owner_->on_bytes(std::move(recv.bytes));
  } else if (op.result == 0) {
    self.eof_ = true;
    self.owner_->on_eof();
  } else if (op.result == -ECANCELED) {
    self.loop_.submit(recv);  // it moves to the engine that has the socket now
  } else {
    self.owner_->on_error(-op.result, false);
  }
}

void TcpTransport::send_done(Op& op) noexcept {
  TcpTransport& self = *static_cast<Send&>(op).self;
  if (op.result > 0) self.out_.consume(static_cast<size_t>(op.result));
  if (self.closing_) {
    self.try_close();
    return;
  }
  if (op.result > 0) {
    self.owner_->on_sent(static_cast<size_t>(op.result));
    self.flush();
  } else if (op.result == -ECANCELED) {
    self.flush();
  } else {
    self.owner_->on_error(op.result == 0 ? EPIPE : -op.result, true);
  }
}

void TcpTransport::close(bool reset) noexcept {
  if (closing_) return;
  closing_ = true;
  reset_ = reset;
  if (socket_.in_flight != 0) {
    loop_.cancel(recv_);
    loop_.cancel(send_);
    // A receive ends by its cancellation alone. What is sent or moved by a relay may wait for the peer, which shutdown ends.
    if (recv_.idle() || socket_.in_flight > 1) loop_.shutdown(socket_, ShutdownHow::both);
  }
  try_close();
}

void TcpTransport::try_close() noexcept {
  if (socket_.in_flight != 0 || close_queued_) return;
  close_queued_ = true;
  loop_.free_later(closer_);
}

void TcpTransport::release(Slot& slot) noexcept {
  TcpTransport& self = *static_cast<Closer&>(slot).self;
  if (self.socket_.in_flight != 0) {  // a relay or connect was begun in the same tick; its end comes back through foreign_op_done
    self.close_queued_ = false;
    return;
  }
  self.out_.clear();
  if (self.socket_.fd >= 0) self.loop_.close(self.socket_, self.reset_);
  self.owner_->on_closed();
}

void TcpTransport::change_engine(EngineKind kind) noexcept {
  if (socket_.engine == kind || closing_) return;
  socket_.engine = kind;
  loop_.cancel(recv_);  // a send in flight ends where it is: it may already be in the kernel's hands
}

}  // namespace weir

// TcpTransport: a plain stream socket (TCP or unix) as a Transport: one RecvOp, one SendOp, one output chain.
// Owner: a connection embeds it. Thread: the loop's own. It holds no buffer while it waits for input.
#pragma once

#include "protocols/transport/transport.h"

namespace weir {

class TcpTransport final : public Transport {
 public:
  TcpTransport(Loop& loop, TransportOwner& owner) noexcept;
  ~TcpTransport() override;

  void read(uint32_t want) noexcept override;
  bool reading() const noexcept override { return !recv_.idle(); }
  void stop_reading() noexcept override;
  bool at_eof() const noexcept override { return eof_; }
  Chain& out() noexcept override { return out_; }
  const Chain& out() const noexcept override { return out_; }
  void flush() noexcept override;
  bool sending() const noexcept override { return !send_.idle(); }
  void finish_writing() noexcept override;
  void close(bool reset) noexcept override;
  bool closing() const noexcept override { return closing_; }
  Socket* plain_socket() noexcept override { return &socket_; }
  uint64_t acked_bytes() noexcept override { return loop_.acked_bytes(socket_); }
  void change_engine(EngineKind kind) noexcept override;

  void set_owner(TransportOwner& owner) noexcept { owner_ = &owner; }   // who is told from now on
  Socket& socket() noexcept { return socket_; }
  EngineKind engine() const noexcept { return socket_.engine; }
  // Someone else's op on this socket (connect, relay) ended while the transport was closing.
  void foreign_op_done() noexcept { if (closing_) try_close(); }

 private:
  struct Recv : RecvOp { TcpTransport* self = nullptr; };
  struct Send : SendOp { TcpTransport* self = nullptr; };
  struct Closer : Slot { TcpTransport* self = nullptr; };
  static void recv_done(Op& op) noexcept;
  static void send_done(Op& op) noexcept;
  static void release(Slot& slot) noexcept;
  void try_close() noexcept;

  Loop& loop_;
  TransportOwner* owner_;
  Socket socket_;
  Recv recv_;
  Send send_;
  Chain out_;
  Closer closer_;
  bool eof_ = false;
  bool stopped_ = false;       // stop_reading()
  bool finish_ = false;        // shut the write side down once out_ is empty
  bool write_shut_ = false;
  bool closing_ = false;
  bool reset_ = false;
  bool close_queued_ = false;
};

}  // namespace weir

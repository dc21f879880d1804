// SocketTransport: the transport that a connection embeds: a plain socket, with TLS over it where that is asked for. Not a
// Transport itself: its calls are bound when it is compiled, and a plain connection pays a test of one pointer.
// Owner: a connection, which is the TransportOwner of what the calls go to. Thread: the loop's own.
#pragma once

#include <memory>
#include <new>

#include "protocols/transport/tcp.h"
#include "protocols/transport/tls_transport.h"

namespace weir {

class SocketTransport {
 public:
  SocketTransport(Loop& loop, TransportOwner& owner) noexcept : loop_(loop), owner_(&owner), tcp_(loop, owner) {}

  // TLS from here on; before anything is read or sent. false: no memory, nothing has changed.
  bool secure(const TlsSetup& setup, TlsTransport::Side side, const char* server_name = nullptr) noexcept {
    tls_.reset(new (std::nothrow) TlsTransport(loop_, tcp_, *owner_, setup, side));
    if (tls_ == nullptr) return false;
    tcp_.set_owner(*tls_);
    out_ = &tls_->out();
    tls_->start(server_name);
    return true;
  }
  // Another connection goes on with what this one has begun; it is told of all that comes, on_closed included.
  void set_owner(TransportOwner& owner) noexcept {
    owner_ = &owner;
    if (tls_ != nullptr) tls_->set_owner(owner);
    else tcp_.set_owner(owner);
  }
  const TlsTransport* tls() const noexcept { return tls_.get(); }   // null: plain

  void read(uint32_t want) noexcept {
    if (tls_ != nullptr) [[unlikely]] tls_->read(want);
    else tcp_.read(want);
  }
  bool reading() const noexcept {
    if (tls_ != nullptr) [[unlikely]] return tls_->reading();
    return tcp_.reading();
  }
  void stop_reading() noexcept {
    if (tls_ != nullptr) [[unlikely]] tls_->stop_reading();
    else tcp_.stop_reading();
  }
  bool at_eof() const noexcept {
    if (tls_ != nullptr) [[unlikely]] return tls_->at_eof();
    return tcp_.at_eof();
  }
  bool truncated() const noexcept { return tls_ != nullptr && tls_->truncated(); }
  Chain& out() noexcept { return *out_; }
  const Chain& out() const noexcept { return *out_; }
  void flush() noexcept {
    if (tls_ != nullptr) [[unlikely]] tls_->flush();
    else tcp_.flush();
  }
  bool sending() const noexcept {
    if (tls_ != nullptr) [[unlikely]] return tls_->sending();
    return tcp_.sending();
  }
  void finish_writing() noexcept {
    if (tls_ != nullptr) [[unlikely]] tls_->finish_writing();
    else tcp_.finish_writing();
  }
  void close(bool reset) noexcept {
    if (tls_ != nullptr) [[unlikely]] tls_->close(reset);
    else tcp_.close(reset);
  }
  bool closing() const noexcept {
    if (tls_ != nullptr) [[unlikely]] return tls_->closing();
    return tcp_.closing();
  }
  Socket* plain_socket() noexcept { return tls_ != nullptr ? nullptr : tcp_.plain_socket(); }
  std::string_view alpn() const noexcept { return tls_ != nullptr ? tls_->alpn() : std::string_view(); }
  uint64_t acked_bytes() noexcept { return tcp_.acked_bytes(); }
  void change_engine(EngineKind kind) noexcept { tcp_.change_engine(kind); }

  Socket& socket() noexcept { return tcp_.socket(); }
  EngineKind engine() const noexcept { return tcp_.engine(); }
  void foreign_op_done() noexcept { tcp_.foreign_op_done(); }   // see TcpTransport

 private:
  Loop& loop_;
  TransportOwner* owner_;
  TcpTransport tcp_;
  Chain* out_ = &tcp_.out();
  std::unique_ptr<TlsTransport> tls_;
};

}  // namespace weir

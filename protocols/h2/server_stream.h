// ServerStream: one request and its answer on an HTTP/2 connection from a client. It is the Stream that its exchange talks to, and
// what the session keeps of it. Bytes of the body that came and are not granted yet wait here (never more than the window that the
// client was told), and bytes of the answer that are not framed yet (at most kQueueBytes).
// Owner: its ServerConn, until both the exchange has left it and the library has. Thread: the loop's own.
// Its one timer bounds what it is owed: body bytes (client_body, then stream_idle), or window for what waits (write).
#pragma once

#include "protocols/exchange/exchange.h"
#include "protocols/h2/session.h"

namespace weir::h2 {

class ServerConn;

class ServerStream final : public Stream, public SessionStream {
 public:
  static constexpr size_t kQueueBytes = 32u << 10;

  explicit ServerStream(ServerConn& conn) noexcept;
  ~ServerStream() override;
  ServerStream(const ServerStream&) = delete;

  // Stream
  void grant(uint64_t total) noexcept override;
  size_t room() const noexcept override { return queue.bytes() < kQueueBytes ? kQueueBytes - queue.bytes() : 0; }
  void send_body(Chain&& bytes) noexcept override;
  void send_end(const Head* trailers) noexcept override;
  void send_head(const Head& head, std::span<const ExtraField> extra) noexcept override;
  void abort(const Fault& fault) noexcept override;
  void detach() noexcept override;
  bool source_live() const noexcept override;
  bool sink_live() const noexcept override;
  const Address* peer_address() const noexcept override;

  const Exchange* exchange() const noexcept { return exchange_; }

 private:
  friend class ServerConn;
  struct Due : Timer { ServerStream* self = nullptr; };

  void move_body() noexcept;                 // what may be moved from `received` to the pipe, and its end
  void arm() noexcept;
  TimePoint read_due() const noexcept;
  TimePoint write_due() const noexcept;
  static void due_entry(Timer& timer) noexcept;
  void timed_out() noexcept;
  const ClientSideTimeouts* own_timeouts() const noexcept {
    return exchange_ == nullptr ? nullptr : exchange_->client_timeouts;
  }

  ServerConn& conn_;
  Exchange* exchange_ = nullptr;
  Head* trailers_ = nullptr;      // received
  Chain waiting_;                 // body that came and was not granted yet
  uint64_t received_ = 0;         // of the body
  uint64_t told_ = kInitialWindow;   // the client may have sent so much
  uint64_t granted_ = 0;          // by the pipe
  What problem_ = What::none;     // with its head, known before it is dispatched
  bool head_complete_ = false;
  bool dispatched_ = false;
  bool head_sent_ = false;
  bool given_up_ = false;         // the request is of no more use: what still comes of it is dropped
  bool touched_ = false;          // stands in one of the connection's two lists
  bool framed_ = false;
  TimePoint since_;               // the last body byte came, or more was granted
  TimePoint framed_at_;           // the last byte of the answer was framed, or the first one queued
  Due due_;
  ServerStream* next_touched_ = nullptr;
  ServerStream* next_framed_ = nullptr;
  ServerStream* next_ = nullptr;  // all of the connection's
  ServerStream* prev_ = nullptr;
};

}  // namespace weir::h2

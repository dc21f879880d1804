// ServerConn: one HTTP/2 connection from a client (RFC 9113): many streams, each with an exchange of its own.
// Everything happens in advance(), once a tick after any event: read what came, dispatch the requests that are complete and still
// wanted, move bodies, make frames, flush, arm the receive and the timer. So a stream that is reset in the batch that opened it
// reaches no origin, and the answers of one tick leave in one write.
// Owner: a listener's worker, through ServerConnHost (told when the memory may go). Thread: the loop's own.
// Guarantees: a connection that we end says GOAWAY(last processed) last of all; what it holds for a client is bounded by windows,
// queues and the header limit; what a client owes has a deadline. States, and their ends: server_conn.cc has the picture.
#pragma once

#include "protocols/h2/head_block.h"
#include "protocols/h2/server_stream.h"
#include "protocols/transport/socket_transport.h"

namespace weir::h2 {

// Zero switches that one off.
struct ServerTimeouts {
  Duration client_header{0}, client_body{0}, stream_idle{0}, keepalive{0}, write{0}, linger{0};
};

enum class ServerTimeoutKind : uint8_t { client_header, client_body, stream_idle, keepalive, write, linger };
inline constexpr int kServerTimeoutKinds = 6;

struct ServerStats {
  Counter open, requests, bytes_in, bytes_out;
  Counter streams, busy;       // open now; connections that have some
  Counter drains;              // connections that were told to drain
  Counter refused, resets;     // streams: over the limit; by the client
  std::array<Counter, kServerTimeoutKinds> timeouts;
  std::array<std::array<Counter, kErrorCodes>, kEndCauses> goaways;
};

// What the connections of one listener on one worker share; a reload changes it in place.
struct ServerPolicy {
  HeadLimits head;
  uint64_t request_body_max = UINT64_MAX;
  ServerTimeouts timeouts;
  SessionLimits session;
  ExchangeHandler* handler = nullptr;
  void* listener = nullptr;
  bool draining = false;
};

// What the HTTP/2 connections of one worker share. Owner: the worker.
struct ServerContext {
  explicit ServerContext(ExchangeContext& e) noexcept : exchanges(e), small(e.loop.slabs()) {}
  ExchangeContext& exchanges;
  SmallBytes small;
  SlotPool<ServerStream> streams;
  uint32_t conns = 0;
};

struct ServerConnHost {
  virtual void conn_closed(ServerConn& conn) noexcept = 0;   // the last call: free it

 protected:
  ~ServerConnHost() = default;
};

class ServerConn final : public TransportOwner, public SessionOwner {
 public:
  // It goes on with another's transport, which it is told of from now on; `first` was read from it already. The transport's memory
  // is `carrier`'s, and has to live until conn_closed.
  ServerConn(ServerContext& context, ServerConnHost& host, const ServerPolicy& policy, ServerStats& stats,
             SocketTransport& transport, void* carrier, const Address& peer, Chain&& first) noexcept;
  ~ServerConn();

  void drain() noexcept;                   // two GOAWAYs, then its streams are served out
  void cut(const Fault& fault) noexcept;   // now; GOAWAY if the client takes it at once
  void change_engine(EngineKind kind) noexcept { transport_.change_engine(kind); }
  const Address& peer() const noexcept { return peer_; }
  TimePoint opened_at() const noexcept { return opened_at_; }
  EngineKind engine() const noexcept { return transport_.engine(); }
  void* carrier() const noexcept { return carrier_; }
  size_t streams() const noexcept { return stream_count_; }
  template <class F>
  void each_exchange(F&& f) const {
    for (const ServerStream* s = streams_; s != nullptr; s = s->next_)
      if (s->exchange_ != nullptr) f(*s->exchange_);
  }

  ServerConn* next = nullptr;              // the host's list
  ServerConn* prev = nullptr;

 private:
  friend class ServerStream;
  enum class State : uint8_t { open, finishing, lingering, closing };
  enum class Drain : uint8_t { none, announced, told };
  struct Work : Pump { ServerConn* self = nullptr; };
  struct Due : Timer { ServerConn* self = nullptr; };

  // TransportOwner
  void on_bytes(Chain&& bytes) noexcept override;
  void on_eof() noexcept override { touch(); }
  void on_sent(size_t count) noexcept override;
  void on_error(int error, bool sending) noexcept override;
  void on_closed() noexcept override;

  // SessionOwner
  SessionStream* stream_begins(int32_t id) noexcept override;
  void trailers_begin(SessionStream& stream) noexcept override;
  bool field(SessionStream& stream, std::string_view name, std::string_view value) noexcept override;
  void block_ended(SessionStream& stream, bool trailers, bool ends) noexcept override;
  void data(SessionStream& stream, Slice&& bytes) noexcept override;
  void ended(SessionStream& stream) noexcept override;
  void closed(SessionStream& stream, ErrorCode code) noexcept override;
  bool framed(SessionStream& stream, size_t bytes) noexcept override;
  void ping_answered() noexcept override;
  void goaway_made(ErrorCode code, EndCause cause) noexcept override;

  static void advance_entry(Pump& pump) noexcept;
  static void due_entry(Timer& timer) noexcept;
  void touch() noexcept { loop_.mark_dirty(work_); }
  void touch(ServerStream& stream) noexcept;
  void advance() noexcept;
  void read_input() noexcept;
  void serve_streams() noexcept;
  void serve(ServerStream& stream) noexcept;
  void dispatch(ServerStream& stream) noexcept;
  void end_half_streams() noexcept;
  void make_frames() noexcept;
  void drop(ServerStream& stream) noexcept;
  void end_streams(const Fault& fault) noexcept;
  void owe_credit(uint32_t bytes) noexcept;
  void give_credit() noexcept;
  uint64_t held() const noexcept;
  void step_drain() noexcept;
  void finish(TimePoint by) noexcept;
  void settle() noexcept;
  void arm_receive() noexcept;
  void arm_timer() noexcept;
  TimePoint read_due() const noexcept;
  TimePoint write_due() const noexcept;
  TimePoint window_due() const noexcept;
  void read_timed_out() noexcept;
  void write_timed_out() noexcept;
  void end(ErrorCode code, EndCause cause, const Fault& fault, TimePoint by) noexcept;
  void close_now(bool reset) noexcept;
  void audit() const noexcept;
  void count_timeout(ServerTimeoutKind kind) noexcept { stats_.timeouts[static_cast<size_t>(kind)].add(); }
  bool owes() const noexcept { return transport_.sending() || !transport_.out().empty(); }
  TimePoint after(TimePoint from, Duration wait) const noexcept { return wait.count() == 0 ? kNever : from + wait; }

  Loop& loop_;
  ServerContext& context_;
  ServerConnHost& host_;
  const ServerPolicy& policy_;
  ServerStats& stats_;
  SocketTransport& transport_;
  void* const carrier_;
  Chain in_;
  Session session_;
  HeadBlock block_;
  ServerStream* streams_ = nullptr;
  ServerStream* touched_ = nullptr;     // in the order in which they were
  ServerStream* touched_last_ = nullptr;
  ServerStream* framed_ = nullptr;
  size_t stream_count_ = 0;         // that there are
  size_t open_count_ = 0;           // of these, that the client knows open
  State state_ = State::open;
  Drain drain_ = Drain::none;
  bool draining_ = false;
  bool answered_ping_ = false;
  bool half_ended_ = false;         // the client's end of file was dealt with
  uint64_t requests_ = 0;
  uint32_t credit_owed_ = 0;        // of the connection's window: received, and not given back yet
  uint64_t held_seen_ = 0;          // what the streams held when that was last counted
  uint64_t credited_since_ = 0;
  TimePoint drain_at_ = kNever;     // the next step of the drain
  TimePoint finish_by_ = kNever;
  uint64_t progress_seen_ = 0;      // of what we owe, at looked_at_
  const TimePoint opened_at_;
  TimePoint since_;                 // idle since, or what the state's own deadline counts from
  TimePoint block_since_;           // a header block is being read since
  TimePoint data_at_;               // the last body byte was framed, or the first one queued
  TimePoint sent_at_;               // last progress of what we owe
  TimePoint looked_at_{};           // later than sent_at_: when the peer's acknowledgements were noted
  Work work_;
  Due due_;
  Address peer_;
  uint8_t peer_text_size_ = 0;
  char peer_text_[46];
};

}  // namespace weir::h2

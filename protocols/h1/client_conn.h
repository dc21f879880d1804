// ClientConn: one HTTP/1.1 connection to an origin (RFC 9112). One exchange at a time; between them it waits in its endpoint's
// pool. Heads may be sent to it while it still connects; body bytes wait in the pipe until it is connected.
// As in ServerConn everything happens in advance(), idempotent, once a tick.
// Owner: an endpoint's pool, through ClientConnHost (told when it is reusable and when the memory may go). Thread: the loop's own.
// Guarantees: reused only after a whole answer to a whole request with nothing left over on either side; a failure is told to
// the exchange exactly once, with whose fault it was and whether the request may be tried again.
#pragma once

#include "engines/histogram.h"
#include "protocols/h1/inbound.h"
#include "protocols/h1/writer.h"
#include "protocols/transport/tcp.h"

namespace weir::h1 {

class ClientConn;

struct ClientTimeouts {
  Duration connect{0}, response{0}, origin_body{0}, stream_idle{0}, origin_idle{0};
};

enum class ClientTimeoutKind : uint8_t { connect, response, origin_body, stream_idle, origin_idle };
inline constexpr int kClientTimeoutKinds = 5;

struct ClientStats {
  Counter opened, open, reused, requests, connect_failed;
  Histogram connected;   // how long the connects took that succeeded
  std::array<Counter, kClientTimeoutKinds> timeouts;
};

struct ClientPolicy {
  HeadLimits head{64u << 10, kFieldsMax};
  ClientTimeouts timeouts;
};

struct ClientConnHost {
  virtual void conn_idle(ClientConn& conn) noexcept = 0;     // ready for another exchange
  virtual void conn_closing(ClientConn& conn) noexcept = 0;  // not reusable any more: take it off the idle list
  virtual void conn_closed(ClientConn& conn) noexcept = 0;   // the last call: free it
 protected:
  ~ClientConnHost() = default;
};

class ClientConn final : public Stream, public TransportOwner {
 public:
  ClientConn(ExchangeContext& context, ClientConnHost& host, const ClientPolicy& policy, ClientStats& stats) noexcept;
  ~ClientConn() override;

  // 0, or an errno that no attempt will mend (no descriptor): the object is then to be freed by the caller at once.
  int connect(const Address& to, EngineKind engine) noexcept;
  void begin(Exchange& exchange) noexcept;    // then Exchange::connect(*this)
  void use(const ClientTimeouts& timeouts, uint32_t head_bytes_max) noexcept {  // for this exchange
    timeouts_ = timeouts;
    policy_.head.head_bytes = head_bytes_max;
  }
  void close() noexcept;                      // when idle: the pool gives it up
  bool reused() const noexcept { return uses_ > 1; }
  bool idle() const noexcept { return state_ == State::idle; }
  // May be used again: nothing came that nobody asked for, and its time is not up.
  bool clean() const noexcept {
    return idle() && inbound_.in.empty() && !transport_.at_eof() && loop_.now() < due();
  }

  ClientConn* next = nullptr;                 // the pool's idle list
  ClientConn* prev = nullptr;
  bool listed = false;

  // Stream
  void grant(uint64_t total) noexcept override;
  size_t room() const noexcept override;
  void send_body(Chain&& bytes) noexcept override;
  void send_end(const Head* trailers) noexcept override;
  void send_head(const Head& head, std::span<const ExtraField> extra) noexcept override;
  void abort(const Fault& fault) noexcept override;
  void detach() noexcept override;
  bool source_live() const noexcept override;
  bool sink_live() const noexcept override;
  uint64_t acked_bytes() noexcept override { return transport_.acked_bytes(); }
  size_t buffered() const noexcept override { return inbound_.in.charge() + inbound_.head.charge() + transport_.out().charge(); }
  Socket* relay_source(uint64_t* left) noexcept override;
  Socket* relay_target() noexcept override;
  bool relay_target_soon() const noexcept override;
  void relay_begin(bool as_source) noexcept override;
  void relay_progress(bool as_source) noexcept override;
  void relay_end(bool as_source, uint64_t moved, int error) noexcept override;

 private:
  enum class State : uint8_t { connecting, idle, busy, closing };
  struct Work : Pump { ClientConn* self = nullptr; };
  struct Due : Timer { ClientConn* self = nullptr; };
  struct Connect : ConnectOp { ClientConn* self = nullptr; };

  void on_bytes(Chain&& bytes) noexcept override;
  void on_eof() noexcept override;
  void on_sent(size_t count) noexcept override;
  void on_error(int error, bool sending) noexcept override;
  void on_closed() noexcept override;

  static void advance_entry(Pump& pump) noexcept;
  static void due_entry(Timer& timer) noexcept;
  static void connect_done(Op& op) noexcept;
  void touch() noexcept { loop_.mark_dirty(work_); }
  void advance() noexcept;
  void read_heads() noexcept;
  void limit_idle(uint32_t seconds) noexcept;
  void read_body() noexcept;
  void release() noexcept;                    // after an exchange: to the pool, or away
  void settle() noexcept;
  void arm_receive() noexcept;
  TimePoint due() const noexcept;
  void timed_out() noexcept;
  void fail(What what, int detail = 0) noexcept;
  void close_now() noexcept;
  bool owes() const noexcept { return relay_out_ || transport_.sending() || !transport_.out().empty(); }
  TimePoint after(TimePoint from, Duration wait) const noexcept { return wait.count() == 0 ? kNever : from + wait; }

  Loop& loop_;
  ExchangeContext& context_;
  // What every exchange uses stands together; what only the connection's beginning and end use comes last.
  ClientConnHost& host_;
  ClientStats& stats_;
  TcpTransport transport_;
  Inbound inbound_;
  Exchange* exchange_ = nullptr;
  State state_ = State::connecting;
  bool engaged_ = false;          // an exchange began and release() has not run yet
  bool wrote_ = false;            // a byte of the request left us
  bool answer_begun_ = false;     // a byte of it came: what was asked may have been done, and is not asked again
  bool head_received_ = false;
  bool request_ended_ = false;
  bool reusable_ = false;         // the answer's head allows another exchange
  uint8_t interim_ = 0;           // 1xx answers so far
  bool relay_out_ = false;
  bool broken_ = false;           // output could not be written for want of memory
  bool write_failed_ = false;     // nothing more can be sent; an answer may still come
  BodyKind framing_ = BodyKind::none;  // of the request being sent
  Method method_ = Method::get;
  uint32_t uses_ = 0;
  uint64_t progress_seen_ = 0;    // of a relay, when a deadline last came up
  TimePoint since_;               // last progress: connect began, bytes went or came
  Work work_;
  Due due_;
  ClientTimeouts timeouts_;
  ClientPolicy policy_;
  Connect connect_;
};

}  // namespace weir::h1

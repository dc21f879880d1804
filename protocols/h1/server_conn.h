// ServerConn: one HTTP/1.x connection from a client (RFC 9112). One exchange at a time, pipelined requests in order.
// Everything happens in advance(), which runs once a tick after any event and may be run at any time: parse, hand body bytes to
// the pipe, flush, arm the receive, set the one timer from the state. States and their ends: server_conn.cc has the picture.
// Owner: a listener's worker, through ServerConnHost (told when the memory may go). Thread: the loop's own.
// Guarantees: a head never holds more than its limit; a client that half-closes gets its whole answer; an early answer survives an
// unread request body (write side shut, input discarded until EOF or `linger`); bytes owed without progress end it (`write`); a
// request for which there is no memory waits for it, as long as a head may take (`client_header`), and is then answered 503.
#pragma once

#include "protocols/h1/inbound.h"
#include "protocols/h1/writer.h"
#include "protocols/transport/socket_transport.h"

namespace weir::h1 {

class ServerConn;

// Zero switches that one off; with linger it is the discarding itself that is off.
struct ServerTimeouts {
  Duration client_header{0}, client_body{0}, stream_idle{0}, keepalive{0}, write{0}, linger{0};
};

enum class ServerTimeoutKind : uint8_t { client_header, client_body, stream_idle, keepalive, write, linger };
inline constexpr int kServerTimeoutKinds = 6;

struct ServerStats {
  Counter accepted, open, requests, bytes_in, bytes_out;
  std::array<Counter, kServerTimeoutKinds> timeouts;
};

// What the connections of one listener on one worker share; a reload changes it in place.
struct ServerPolicy {
  HeadLimits head;
  uint64_t request_body_max = UINT64_MAX;
  ServerTimeouts timeouts;
  ExchangeHandler* handler = nullptr;
  void* listener = nullptr;
  const TlsSetup* tls = nullptr;     // null: plain; outlives the connections
  bool draining = false;
  bool h1 = true;               // false: HTTP/2 is all there is
  bool h2 = false;              // a connection whose client chooses HTTP/2 is handed over
};

struct ServerConnHost {
  // HTTP/2 is what its client chose (by the preface, or in the handshake) and what the policy lets it: `first` was read already.
  // Another goes on with its transport, and gives this object's memory back when that has closed: nothing follows from here.
  virtual void conn_speaks_h2(ServerConn& conn, Chain&& first) noexcept { (void)conn, (void)first; }
  virtual void conn_closed(ServerConn& conn) noexcept = 0;   // the last call: free it
 protected:
  ~ServerConnHost() = default;
};

class ServerConn final : public Stream, public TransportOwner {
 public:
  ServerConn(ExchangeContext& context, ServerConnHost& host, const ServerPolicy& policy, ServerStats& stats, int fd,
             EngineKind engine, const Address& peer) noexcept;
  ~ServerConn() override;

  void drain() noexcept;             // the next answer says "connection: close"; idle for a second: closed
  void cut(const Fault& fault) noexcept;   // now
  void change_engine(EngineKind kind) noexcept { transport_.change_engine(kind); }
  bool idle() const noexcept { return state_ == State::idle; }
  bool closing() const noexcept { return state_ == State::closing; }
  bool awaits_memory() const noexcept { return memory_wait_.waiting; }
  // For the memory budget. progress() is another number whenever bytes moved or another request began.
  Exchange* exchange() noexcept { return exchange_; }
  size_t buffered() const noexcept override;  // of its exchange too
  uint64_t progress() const noexcept;
  // Answered with the fault's status where no answer has begun, else cut.
  void end_for_memory() noexcept;
  bool answers_for_memory() const noexcept { return exchange_ != nullptr && !head_sent_ && !owes(); }
  struct MemoryMark {
    uint64_t progress = 0, acked = 0;
    TimePoint since{}, acked_since{};         // of either number
  } memory_mark;
  void hand_over() noexcept;         // to the host, see conn_speaks_h2
  SocketTransport& transport() noexcept { return transport_; }
  const Address& peer() const noexcept { return peer_; }
  const Exchange* exchange() const noexcept { return exchange_; }
  TimePoint opened_at() const noexcept { return opened_at_; }
  EngineKind engine() const noexcept { return transport_.engine(); }

  ServerConn* next = nullptr;        // the host's list
  ServerConn* prev = nullptr;

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
  Socket* relay_source(uint64_t* left) noexcept override;
  Socket* relay_target() noexcept override;
  bool relay_target_soon() const noexcept override;
  void relay_begin(bool as_source) noexcept override;
  void relay_progress(bool as_source) noexcept override;
  void relay_end(bool as_source, uint64_t moved, int error) noexcept override;
  const Address* peer_address() const noexcept override { return &peer_; }

 private:
  enum class State : uint8_t { idle, head, exchange, finishing, lingering, closing };
  struct Work : Pump { ServerConn* self = nullptr; };
  struct Due : Timer { ServerConn* self = nullptr; };

  // TransportOwner
  void on_bytes(Chain&& bytes) noexcept override;
  void on_eof() noexcept override;
  void on_sent(size_t count) noexcept override;
  void on_error(int error, bool sending) noexcept override;
  void on_closed() noexcept override;
  void on_ready() noexcept override;

  static void advance_entry(Pump& pump) noexcept;
  static void due_entry(Timer& timer) noexcept;
  void touch() noexcept { loop_.mark_dirty(work_); }
  void advance() noexcept;
  bool read_head() noexcept;                  // true: go on
  bool read_preface() noexcept;               // the first bytes are h2's, or may become so: dealt with
  bool make_exchange() noexcept;
  void request_begins() noexcept;
  void refuse_for_memory() noexcept;
  bool run_exchange() noexcept;
  void request_failed(What what, bool answerable) noexcept;
  void next_request() noexcept;
  void discard_rest() noexcept;
  void answered_early(uint16_t status) noexcept;
  bool worth_discarding() const noexcept;
  void finish(bool linger) noexcept;
  void settle() noexcept;                     // receive, flush, timer
  void arm_receive() noexcept;
  void arm_timer() noexcept;
  TimePoint read_due() const noexcept;
  TimePoint write_due() const noexcept;
  bool ending() const noexcept { return draining_ || policy_.draining; }
  void read_timed_out() noexcept;
  void write_timed_out() noexcept;
  void close_now(bool reset) noexcept;
  void forget_exchange() noexcept;
  void count_timeout(ServerTimeoutKind kind) noexcept { stats_.timeouts[static_cast<size_t>(kind)].add(); }
  bool owes() const noexcept { return relay_out_ || transport_.sending() || !transport_.out().empty(); }
  bool nothing_follows() const noexcept { return transport_.at_eof() && inbound_.in.empty(); }
  TimePoint after(TimePoint from, Duration wait) const noexcept { return wait.count() == 0 ? kNever : from + wait; }

  Loop& loop_;
  ExchangeContext& context_;
  ServerConnHost& host_;
  const ServerPolicy& policy_;
  ServerStats& stats_;
  SocketTransport transport_;
  Inbound inbound_;
  Exchange* exchange_ = nullptr;
  State state_ = State::idle;
  bool first_ = true;             // no request yet: the header timeout runs from the accept
  bool draining_ = false;
  bool handed_over_ = false;      // its transport serves another
  bool close_after_ = false;
  bool linger_ = false;           // finishing: discard what still comes before closing
  bool request_bad_ = false;      // what is still to come of it is of no use
  bool discarding_ = false;       // nobody wants what is still to come of it: read and dropped, for the next request behind it
  bool head_sent_ = false;        // the final response head of this exchange
  BodyKind framing_ = BodyKind::none;  // of the response being sent
  bool relay_out_ = false;
  bool broken_ = false;           // output could not be written for want of memory: what stands in it is not a message
  uint64_t body_bytes_ = 0;
  uint64_t discarded_ = 0;
  uint64_t progress_seen_ = 0;    // of what we owe, at looked_at_
  const TimePoint opened_at_;
  TimePoint since_;               // when the state that the read deadline counts from began, or its last byte came
  TimePoint sent_at_;             // last progress of what we owe
  TimePoint looked_at_{};         // later than sent_at_: when the peer's acknowledgements were noted
  ClientSideTimeouts last_;       // of the exchange whose answer is still being sent, once that exchange is over
  Work work_;
  Due due_;
  MemoryWaiter memory_wait_;
  Address peer_;
  uint8_t peer_text_size_ = 0;
  char peer_text_[46];
};

}  // namespace weir::h1

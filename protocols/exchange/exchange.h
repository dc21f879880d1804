// Exchange: one request and its answer, joining a client stream and (perhaps) an origin stream by two pipes. Its life is the
// table in exchange.cc: routing -> awaiting -> responding -> done. The handler (daemon) decides where a request goes; the streams
// report heads, ends and faults; nobody else changes its state.
// Owner: ExchangeContext's pool; it frees itself at the end of a tick, after handler.on_end, once no relay of its pipes is in
// flight. Thread: the loop's own. Each exchange ends exactly once, with fault() telling why (none: well).
// It never picks a status by hand (fault.cc has the table) and never touches a socket.
#pragma once

#include <span>
#include <string_view>

#include "engines/slot_pool.h"
#include "protocols/exchange/pipe.h"

namespace weir {

class Exchange;
struct TlsFacts;

// Client-side deadlines that a route may set for its exchanges; zero switches one off.
struct ClientSideTimeouts {
  Duration client_body{0}, stream_idle{0}, write{0};
};

struct ExchangeHandler {
  // The request head is complete. Calls exchange.connect() or exchange.respond() or exchange.fail(), now or in a later tick.
  virtual void on_request(Exchange& exchange) noexcept = 0;
  // The origin failed before its response head. true: the handler has called connect() again; false: answer with the fault.
  virtual bool on_origin_failed(Exchange& exchange, const Fault& fault) noexcept = 0;
  // The final response head is about to be sent: fields may be removed, those returned go out behind them. Their memory is the
  // handler's, until its next call.
  virtual std::span<const ExtraField> on_response(Exchange& exchange, Head& response) noexcept = 0;
  // An answer of ours is about to be sent, with all its fields; as on_response.
  virtual std::span<const ExtraField> on_local_answer(Exchange& exchange, Head& answer) noexcept {
    (void)exchange;
    (void)answer;
    return {};
  }
  // Fields outside of these heads are about to be passed on: an interim answer's or a trailer section's. They may be removed.
  virtual void on_more_fields(Exchange& exchange, Head& fields, bool from_client) noexcept {
    (void)exchange;
    (void)fields;
    (void)from_client;
  }
  // The last call, exactly once. exchange.fault() says how it ended.
  virtual void on_end(Exchange& exchange) noexcept = 0;

 protected:
  ~ExchangeHandler() = default;
};

// "Mon, 30 Nov 2026 18:42:15 GMT" (RFC 9110 section 5.6.7), made at most once a second.
class DateCache {
 public:
  std::string_view text(TimePoint now) noexcept;

 private:
  TimePoint valid_until_{};
  char text_[32] = {};
};

struct ExchangeStats {
  Counter started, ended, failed;
  Counter bytes_from_client, bytes_to_client;
  Counter waited_for_memory;      // requests that did not begin at once
};

// Whoever has received a request and waits for the memory to begin it. Lives in its connection.
struct MemoryWaiter {
  Pump* pump = nullptr;           // run when it is worth trying again
  MemoryWaiter* next = nullptr;
  MemoryWaiter* prev = nullptr;
  bool waiting = false;
};

// What the exchanges of one worker share. Owner: the worker.
struct ExchangeContext {
  explicit ExchangeContext(Loop& l) noexcept : loop(l) {}
  // Whether another exchange may begin: there is memory for all that it needs to come to an end. Else `waiter` stands in line
  // (first come, first served) and is pumped when some is free.
  bool may_begin(MemoryWaiter& waiter) noexcept {
    if (first_waiter == nullptr && loop.slabs().lease().level() == MemoryLevel::normal) [[likely]] return true;
    return may_begin_under_pressure(waiter);
  }
  void stand_in_line(MemoryWaiter& waiter) noexcept;
  void pack(Chain& head) noexcept;   // what someone in line holds, to take less room
  void stop_waiting(MemoryWaiter& waiter) noexcept;
  void wake_waiting() noexcept {   // some memory is free
    if (first_waiter != nullptr) [[unlikely]] loop.mark_dirty(*first_waiter->pump);
  }
  bool may_begin_under_pressure(MemoryWaiter& waiter) noexcept;
  MemoryWaiter* first_waiter = nullptr;
  MemoryWaiter* last_waiter = nullptr;
  Slice waiting_room;             // the slab that they share
  Loop& loop;
  SlotPool<Exchange> exchanges;
  SlotPool<Head> trailers;
  Head response;          // scratch: the response head being passed on or made, valid within one call
  PipeLimits limits;
  PipeStats pipes;
  ExchangeStats stats;
  DateCache date;
};

enum class ExchangeState : uint8_t { routing, awaiting, responding, done };

class Exchange final : public Slot, public Pipe::Owner {
 public:
  Exchange(ExchangeContext& context, ExchangeHandler& handler, Stream& client, void* listener) noexcept;
  ~Exchange() = default;

  // -- from the client stream
  Head& request() noexcept { return request_; }
  const Head& request() const noexcept { return request_; }
  void start() noexcept;                                 // request() is filled in; its target is normalised here
  // The client is gone (answerable = false), or its message turned bad or late while it can still be answered.
  void client_failed(const Fault& fault, bool answerable) noexcept;

  // -- from the handler
  void connect(Stream& origin, std::span<const ExtraField> extra) noexcept;
  void respond(uint16_t status, std::string_view content_type, std::string_view body,
               std::span<const ExtraField> extra) noexcept;
  void fail(const Fault& fault) noexcept;                // the answer that the fault's table row gives

  // -- from the origin stream
  void informational(Head& head) noexcept;               // 1xx
  void response_head(Head& head) noexcept;
  void origin_failed(const Fault& fault) noexcept;       // reported once; the stream forgets this exchange before it calls

  Pipe& up() noexcept { return up_; }
  Pipe& down() noexcept { return down_; }
  Head* new_trailers(bool from_client) noexcept;         // to parse into; lives as long as the exchange; nullptr: no memory

  ExchangeState state() const noexcept { return state_; }
  const Fault& fault() const noexcept { return fault_; }
  uint16_t status() const noexcept { return status_; }   // sent to the client; 0: none was
  Stream* origin() noexcept { return origin_; }
  const Address* peer() const noexcept { return client_ == nullptr ? nullptr : client_->peer_address(); }
  ExchangeContext& context() noexcept { return context_; }
  TimePoint started_at() const noexcept { return started_at_; }
  TimePoint answered_at() const noexcept { return answered_at_; }   // the origin's response head came; kNever: it did not
  uint64_t bytes_from_client() const noexcept { return up_.opened() ? up_.delivered() : bytes_from_client_; }  // body
  uint64_t bytes_to_client() const noexcept { return down_.opened() ? down_.consumed() : bytes_to_client_; }  // body

  uint64_t request_body_max = UINT64_MAX;               // bytes that the handler lets the client send of it
  const ClientSideTimeouts* client_timeouts = nullptr;  // null: the listener's; outlives the exchange
  std::string_view client_ip;  // as text; the client connection's memory, or the request's (a trusted proxy names the client)
  std::string_view peer_ip;    // likewise: the other end of the client connection

  // The handler's notes about this exchange.
  void* listener = nullptr;       // as given by the client stream
  void* snapshot = nullptr;       // the configuration it runs under
  uint32_t route = UINT32_MAX;    // index there
  uint32_t target = 0;            // which of the route's upstreams
  uint32_t listener_index = 0;    // index there
  const void* endpoint = nullptr; // whom it was last sent to
  Duration connect_took{-1};      // of the connection that it opened; negative: it opened none
  uint8_t attempts = 0;
  bool retried_reused = false;
  bool origin_reused = false;     // the origin's connection had served before
  bool request_written = false;   // a byte of the request left for the origin that failed
  bool peer_trusted = false;      // it may say where the request came from
  bool https = false;             // the client's own connection was secure
  const TlsFacts* tls = nullptr;  // of the connection it came over; null: plain
  std::string_view request_id;    // the request's memory, or request_id_text
  char request_id_text[32];
  void* origin_pick = nullptr;    // the place in a rotation that it takes up now
  uint64_t tried = 0;             // places where it failed

 private:
  void pipe_finished(Pipe& pipe) noexcept override;
  void pipe_failed(Pipe& pipe, const Fault& fault) noexcept override;
  void pipe_idle(Pipe& pipe) noexcept override;
  void pipe_trailers(Pipe& pipe, Head& trailers) noexcept override;
  enum class Event : uint8_t { connect, answer, response_done, cut };
  void go(Event event) noexcept;
  void finish(const Fault& fault) noexcept;
  void release_when_idle() noexcept;
  static void release_entry(Slot& slot) noexcept;

  ExchangeContext& context_;
  ExchangeHandler& handler_;
  Stream* client_;
  Stream* origin_ = nullptr;
  Pipe up_, down_;
  ExchangeState state_ = ExchangeState::routing;
  bool up_done_ = false;      // the request was passed on in full (or has no body)
  bool release_queued_ = false;
  uint16_t status_ = 0;
  Fault fault_;
  TimePoint started_at_;
  TimePoint answered_at_ = kNever;
  uint64_t bytes_to_client_ = 0, bytes_from_client_ = 0;
  Head* trailers_[2] = {nullptr, nullptr};
  Head request_;
};

}  // namespace weir

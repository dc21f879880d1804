#include "protocols/h1/client_conn.h"

#include <cerrno>

namespace weir::h1 {

//   connecting --(connected)--> busy --(whole answer, whole request, nothing over)--> idle --(begin)--> busy
//        |                        |                                                    |
//        +---- connect_failed ----+---- fault, abort, close asked ---------------------+--> closing

namespace {
constexpr uint8_t kInterimMax = 32;  // 1xx answers to one request
}

ClientConn::ClientConn(ExchangeContext& context, ClientConnHost& host, const ClientPolicy& policy, ClientStats& stats) noexcept
    : loop_(context.loop), context_(context), host_(host), stats_(stats), transport_(context.loop, *this),
      since_(context.loop.now()), timeouts_(policy.timeouts), policy_(policy) {
  work_.self = due_.self = connect_.self = this;
  work_.pump = advance_entry;
  work_.owned_by(this, reinterpret_cast<const char*>(&policy_) - reinterpret_cast<const char*>(this));
  due_.fire = due_entry;
  connect_.complete = connect_done;
  connect_.socket = &transport_.socket();
}

ClientConn::~ClientConn() {
  loop_.forget_timer(due_);
  loop_.forget_dirty(work_);
}

int ClientConn::connect(const Address& to, EngineKind engine) noexcept {
  const int result = loop_.open(transport_.socket(), to, engine);
  if (result < 0) return -result;
  stats_.opened.add();
  stats_.open.add();
  connect_.to = to;
  loop_.submit(connect_);
  touch();
  return 0;
}

void ClientConn::connect_done(Op& op) noexcept {
  ClientConn& self = *static_cast<Connect&>(op).self;
  if (self.state_ == State::closing) {
    self.transport_.foreign_op_done();
    return;
  }
  if (op.result < 0) {
    self.stats_.connect_failed.add();
    self.fail(What::connect_failed, -op.result);
    return;
  }
  const Duration took = self.loop_.now() - self.since_;
  self.stats_.connected.add(took);
  if (self.exchange_ != nullptr) self.exchange_->connect_took = took;
  self.state_ = self.engaged_ ? State::busy : State::idle;
  self.since_ = self.loop_.now();
  if (self.out != nullptr) self.out->touch();
  self.touch();
}

void ClientConn::begin(Exchange& exchange) noexcept {
  exchange_ = &exchange;
  engaged_ = true;
  interim_ = 0;
  head_received_ = request_ended_ = reusable_ = answer_begun_ = wrote_ = false;
  method_ = exchange.request().method;
  if (state_ == State::idle) state_ = State::busy;
  ++uses_;
  if (uses_ > 1) stats_.reused.add();
  stats_.requests.add();
  since_ = loop_.now();
  inbound_.begin_body(BodyKind::none, 0);
  touch();
}

void ClientConn::advance_entry(Pump& pump) noexcept { static_cast<Work&>(pump).self->advance(); }

void ClientConn::advance() noexcept {
  if (broken_ && state_ != State::closing) fail(What::out_of_memory);
  if (state_ == State::busy) {
    if (exchange_ != nullptr && !head_received_) read_heads();
    if (exchange_ != nullptr && head_received_) read_body();
    if (state_ == State::busy && exchange_ == nullptr) release();
  }
  if (state_ == State::idle && (!inbound_.in.empty() || transport_.at_eof())) close_now();  // bytes that nobody asked for
  if (state_ != State::closing) settle();
}

void ClientConn::read_heads() noexcept {
  while (!head_received_ && !inbound_.in.empty()) {
    Head& head = context_.response;
    head.reset();
    ParseResult result;
    const auto parser = [&](const char* data, size_t size, size_t& scanned) noexcept {
      return parse_response_head(data, size, scanned, policy_.head, method_, head);
    };
    if (!inbound_.head.parse(inbound_.in, loop_.slabs(), policy_.head.head_bytes, result, parser)) {
      fail(What::out_of_memory);
      return;
    }
    if (result.state == Parse::need_more) break;
    if (result.state == Parse::bad) {
      fail(result.what, static_cast<int>(result.at));
      return;
    }
    inbound_.head.take(inbound_.in, result.consumed, head);
    if (head.status == 101) {  // we never ask for an upgrade, so an origin may not answer with one
      fail(What::bad_response);
      return;
    }
    if (head.status < 200) {  // the response deadline runs on, so they cannot go on for ever
      if (++interim_ > kInterimMax) {
        fail(What::bad_response);
        return;
      }
      exchange_->informational(head);
      continue;
    }
    since_ = loop_.now();
    head_received_ = true;
    reusable_ = method_ != Method::connect && head.keep_alive && head.body != BodyKind::until_close;
    if (head.keep_alive_s != UINT32_MAX) limit_idle(head.keep_alive_s);
    inbound_.begin_body(head.body, head.content_length);
    exchange_->response_head(head);  // may end the exchange at once
    head.reset();
  }
  if (!head_received_ && exchange_ != nullptr && transport_.at_eof())
    fail(inbound_.in.empty() ? What::origin_closed : What::bad_response);
}

// The origin closes an idle connection after so long. Ours ends before that: a request that meets its close would be lost.
void ClientConn::limit_idle(uint32_t seconds) noexcept {
  if (seconds == 0) reusable_ = false;
  const Duration told = seconds > 1 ? Duration(std::chrono::seconds(seconds - 1)) : Duration(std::chrono::milliseconds(500));
  if (timeouts_.origin_idle.count() == 0 || told < timeouts_.origin_idle) timeouts_.origin_idle = told;
}

void ClientConn::read_body() noexcept {
  if (in == nullptr) return;
  const uint64_t before = in->delivered();
  const What bad = inbound_.move_body(*in, *exchange_, false, policy_.head, loop_.slabs());
  if (in->delivered() != before) since_ = loop_.now();
  if (bad != What::none) {
    fail(bad == What::out_of_memory ? bad : What::response_framing);
    return;
  }
  if (!transport_.at_eof() || !inbound_.body_cut_short()) return;
  if (inbound_.reader.eof() == BodyReader::State::done) in->end(nullptr);
  else fail(What::response_short);
}

void ClientConn::release() noexcept {
  engaged_ = false;
  const bool whole = request_ended_ && inbound_.body_done() && !owes() && inbound_.in.empty();
  if (!reusable_ || write_failed_ || !whole || transport_.at_eof()) {
    close_now();
    return;
  }
  state_ = State::idle;
  since_ = loop_.now();
  inbound_.head.reset();
  host_.conn_idle(*this);
}

void ClientConn::settle() noexcept {
  if (state_ != State::connecting) {
    arm_receive();
    if (!relay_out_) transport_.flush();
  }
  const TimePoint when = due();
  if (when == due_.due) return;
  due_.coarse = state_ == State::idle;
  loop_.set_timer(due_, when);
}

void ClientConn::arm_receive() noexcept {
  if (transport_.reading() || transport_.at_eof() || inbound_.relaying) return;  // a cancelled relay may still run
  if (state_ == State::busy && head_received_ && !inbound_.body_done()) {
    if (inbound_.delivered_now) {  // the pipe looks first; then this comes again
      inbound_.delivered_now = false;
      touch();
      return;
    }
    transport_.read(inbound_.body_want(in));
    return;
  }
  if (head_received_ && !inbound_.in.empty()) return;  // bytes beyond the answer: it is not reused, more is not wanted
  transport_.read(kSlabBytes);
}

TimePoint ClientConn::due() const noexcept {
  switch (state_) {
    case State::connecting: return after(since_, timeouts_.connect);
    case State::idle: return after(since_, timeouts_.origin_idle);
    case State::busy:
      if (write_failed_) {  // the rest of the request waits for nobody: what is owed is the answer alone
        if (!head_received_) return after(since_, timeouts_.response);
      } else if (!head_received_ || !request_ended_ || owes()) {
        if (!request_ended_ && !owes()) return kNever;  // the client's turn: its own deadline stands
        return head_received_ && request_ended_ && !owes() ? kNever : after(since_, timeouts_.response);
      }
      if (in == nullptr || inbound_.body_done() || (!inbound_.relaying && inbound_.body_want(in) == 0)) return kNever;
      return after(since_, inbound_.reader.kind() == BodyKind::length ? timeouts_.origin_body : timeouts_.stream_idle);
    case State::closing: return kNever;
  }
  return kNever;
}

void ClientConn::timed_out() noexcept {
  const auto count = [this](ClientTimeoutKind kind) { stats_.timeouts[static_cast<size_t>(kind)].add(); };
  switch (state_) {
    case State::connecting:
      count(ClientTimeoutKind::connect);
      fail(What::connect_timeout);
      break;
    case State::idle:
      count(ClientTimeoutKind::origin_idle);
      close_now();
      break;
    case State::busy:
      if (!head_received_ || owes()) {
        count(ClientTimeoutKind::response);
        fail(What::response_timeout);
      } else if (inbound_.reader.kind() == BodyKind::length) {
        count(ClientTimeoutKind::origin_body);
        fail(What::origin_body_timeout);
      } else {
        count(ClientTimeoutKind::stream_idle);
        fail(What::stream_idle_timeout);
      }
      break;
    case State::closing: break;
  }
}

void ClientConn::due_entry(Timer& timer) noexcept {
  ClientConn& self = *static_cast<Due&>(timer).self;
  if (self.loop_.now() >= self.due()) {
    // A relay moves bytes without telling: what it moved since the last look counts.
    const uint64_t progress =
        (self.inbound_.relaying ? self.in->delivered() : 0) + (self.relay_out_ ? self.out->consumed() : 0);
    const bool clients_turn = (self.inbound_.relaying && !self.in->relay_awaits_source()) ||
                              (self.relay_out_ && self.out->relay_awaits_source());
    if ((progress != self.progress_seen_ && progress != 0) || clients_turn) self.since_ = self.loop_.now();
    else self.timed_out();
    self.progress_seen_ = progress;
  }
  self.touch();
}

// Told to the exchange once; this object forgets it first.
void ClientConn::fail(What what, int detail) noexcept {
  Exchange* exchange = std::exchange(exchange_, nullptr);
  in = out = nullptr;
  close_now();
  if (exchange == nullptr) return;
  exchange->origin_reused = reused();
  exchange->request_written = wrote_;
  Fault fault = make_fault(what, detail);
  if (answer_begun_) fault.retry = Retry::no;
  exchange->origin_failed(fault);
}

void ClientConn::close_now() noexcept {
  if (state_ == State::closing) return;
  state_ = State::closing;
  loop_.clear_timer(due_);
  inbound_.in.clear();
  host_.conn_closing(*this);
  if (!connect_.idle()) loop_.cancel(connect_);
  transport_.close(false);
}

void ClientConn::close() noexcept { close_now(); }

void ClientConn::on_bytes(Chain&& bytes) noexcept {
  answer_begun_ = engaged_;
  inbound_.head.append(inbound_.in, loop_.slabs(), std::move(bytes));
  touch();
}

void ClientConn::on_eof() noexcept { touch(); }

void ClientConn::on_sent(size_t) noexcept {
  wrote_ = true;
  since_ = loop_.now();
  if (out != nullptr) out->touch();
  touch();
}

// After a failed send the origin's answer may still be here: it said no and closed before it had read the whole request. The
// receive in flight tells; the response deadline bounds it.
void ClientConn::on_error(int error, bool sending) noexcept {
  if (state_ == State::idle) {
    close_now();
    return;
  }
  if (sending && state_ == State::busy && exchange_ != nullptr && (transport_.reading() || inbound_.relaying)) {
    write_failed_ = true;
    transport_.out().clear();
    touch();
    return;
  }
  fail(sending ? What::origin_write_failed : What::origin_reset, error);
}

void ClientConn::on_closed() noexcept {
  stats_.open.sub();
  host_.conn_closed(*this);
}

// ---- Stream

void ClientConn::grant(uint64_t total) noexcept {
  inbound_.granted = total;
  since_ = loop_.now();
  touch();
}

size_t ClientConn::room() const noexcept {
  const size_t queued = transport_.out().bytes();
  const size_t most = context_.limits.queue_max;
  return state_ == State::connecting || relay_out_ || write_failed_ || queued >= most ? 0 : most - queued;
}

void ClientConn::send_head(const Head& head, std::span<const ExtraField> extra) noexcept {
  Framing framing;
  framing.body = head.body == BodyKind::streamed ? BodyKind::chunked : head.body;
  framing.length = head.content_length;
  framing.write_length = head.body == BodyKind::length || head.has_length;
  framing_ = framing.body;
  request_ended_ = head.body == BodyKind::none;
  if (!write_request_head(transport_.out(), loop_.slabs(), head, framing, extra)) broken_ = true;
  touch();
}

void ClientConn::send_body(Chain&& bytes) noexcept {
  if (!owes()) since_ = loop_.now();
  if (framing_ != BodyKind::chunked) append_body(transport_.out(), loop_.slabs(), std::move(bytes));
  else if (!write_chunk(transport_.out(), loop_.slabs(), std::move(bytes))) broken_ = true;
  touch();
}

void ClientConn::send_end(const Head* trailers) noexcept {
  request_ended_ = true;
  since_ = loop_.now();
  if (framing_ == BodyKind::chunked && !write_last_chunk(transport_.out(), loop_.slabs(), trailers)) broken_ = true;
  touch();
}

void ClientConn::abort(const Fault&) noexcept {
  exchange_ = nullptr;
  in = out = nullptr;
  close_now();
}

void ClientConn::detach() noexcept {
  exchange_ = nullptr;
  in = out = nullptr;
  touch();
}

bool ClientConn::source_live() const noexcept {
  return inbound_.relaying || transport_.reading() || work_.dirty || !inbound_.in.empty() || transport_.at_eof() ||
         state_ == State::closing;
}

bool ClientConn::sink_live() const noexcept {
  return owes() || work_.dirty || state_ == State::connecting || write_failed_ || state_ == State::closing || room() > 0;
}

Socket* ClientConn::relay_source(uint64_t* left) noexcept {
  if (inbound_.reader.kind() != BodyKind::length || !inbound_.in.empty() || transport_.reading() || transport_.at_eof() ||
      state_ != State::busy)
    return nullptr;
  *left = inbound_.reader.left();
  return transport_.plain_socket();
}

Socket* ClientConn::relay_target() noexcept {
  const bool ready = framing_ == BodyKind::length && !owes() && !write_failed_ && state_ == State::busy;
  return ready ? transport_.plain_socket() : nullptr;
}

bool ClientConn::relay_target_soon() const noexcept {
  return framing_ == BodyKind::length && !write_failed_ && state_ != State::closing;
}

void ClientConn::relay_begin(bool as_source) noexcept {
  (as_source ? inbound_.relaying : relay_out_) = true;
  since_ = loop_.now();
  touch();  // its deadline runs from here
}

void ClientConn::relay_progress(bool) noexcept {
  since_ = loop_.now();
  touch();
}

void ClientConn::relay_end(bool as_source, uint64_t moved, int error) noexcept {
  if (as_source) {
    inbound_.relaying = false;
    inbound_.reader.relayed(moved);
  } else {
    relay_out_ = false;
  }
  since_ = loop_.now();
  transport_.foreign_op_done();
  if (error != 0 && error != ECANCELED) on_error(error, !as_source);
  touch();
}

}  // namespace weir::h1

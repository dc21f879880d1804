#include "protocols/h1/server_conn.h"

#include <cerrno>

#include "protocols/h1/preface.h"

namespace weir::h1 {

//            first byte         head complete              answered and request read
//   idle ----------------> head --------------> exchange -----------------------------> idle
//    |                      |                      |  answered, and this connection is to end
//    | keepalive, drain     | 408, 400 ...         v
//    |                      +----> exchange -> finishing --(sent)--> lingering --(EOF, linger)--> closing
//    +-----------------------------------------------> closing  <--- any cut
//
// Where the answer is there before the whole request is (exchange), the rest of a short one is read and dropped, so
// that the next request can follow; a long one ends the connection. finishing goes straight to closing where the client
// asked for the end itself and nothing unread is left.

namespace {
// While draining an idle connection is kept this long after its last answer: a request that crosses our close would be lost.
constexpr Duration kDrainIdle = std::chrono::seconds(1);
constexpr uint64_t kDiscardBytesMax = 64u << 10;  // of a request's body that is dropped to keep its connection
constexpr size_t kReadAheadBytes = kSlabBytes;   // pipelined input held while an exchange runs
// So long after the kernel took bytes for the last time the peer's acknowledgements are noted; `write` counts from that note.
// Those that were still on their way when the kernel took the bytes would otherwise pass for a reader, once.
constexpr Duration kFirstLook = std::chrono::seconds(1);
}  // namespace

ServerConn::ServerConn(ExchangeContext& context, ServerConnHost& host, const ServerPolicy& policy, ServerStats& stats, int fd,
                       EngineKind engine, const Address& peer) noexcept
    : loop_(context.loop), context_(context), host_(host), policy_(policy), stats_(stats), transport_(context.loop, *this),
      opened_at_(context.loop.now()), since_(context.loop.now()), sent_at_(context.loop.now()), peer_(peer) {
  work_.self = due_.self = this;
  work_.pump = advance_entry;
  work_.owned_by(this, reinterpret_cast<const char*>(&due_) - reinterpret_cast<const char*>(this));
  due_.fire = due_entry;
  memory_wait_.pump = &work_;
  peer_text_size_ = static_cast<uint8_t>(peer_.host_text(peer_text_));
  loop_.adopt(transport_.socket(), fd, engine);
  if (policy.tls != nullptr) broken_ = !transport_.secure(*policy.tls, TlsTransport::Side::server);
  stats_.accepted.add();
  stats_.open.add();
  touch();
}

ServerConn::~ServerConn() {
  context_.stop_waiting(memory_wait_);
  loop_.forget_timer(due_);
  loop_.forget_dirty(work_);
  if (!handed_over_) stats_.open.sub();
}

void ServerConn::advance_entry(Pump& pump) noexcept { static_cast<Work&>(pump).self->advance(); }

void ServerConn::advance() noexcept {
  if (broken_ && state_ != State::closing) cut(make_fault(What::out_of_memory));
  for (bool again = true; again;) {
    again = false;
    switch (state_) {
      case State::idle:
        if (!inbound_.in.empty() && transport_.out().bytes() < context_.limits.queue_max) {
          state_ = State::head;
          since_ = first_ ? since_ : loop_.now();
          again = true;
        } else if (transport_.at_eof()) {
          finish(false);
        }
        break;
      case State::head: again = read_head(); break;
      case State::exchange: again = run_exchange(); break;
      case State::finishing:
        if (owes()) break;
        if (!linger_ || transport_.at_eof()) {
          close_now(false);
          return;
        }
        state_ = State::lingering;
        since_ = loop_.now();
        transport_.finish_writing();
        again = true;
        break;
      case State::lingering:
        inbound_.in.clear();
        if (transport_.at_eof()) close_now(false);
        break;
      case State::closing: return;
    }
  }
  if (state_ != State::closing) settle();
}

bool ServerConn::make_exchange() noexcept {
  exchange_ = context_.exchanges.make(context_, *policy_.handler, *this, policy_.listener);
  if (exchange_ == nullptr) return false;
  exchange_->client_ip = {peer_text_, peer_text_size_};
  if (const TlsTransport* tls = transport_.tls(); tls != nullptr) [[unlikely]] {
    exchange_->https = true;
    exchange_->tls = &tls->facts();
  }
  return true;
}

// Whoever has waited for as long as a head may take. An exchange for it is kept free near the budget's end; without one there
// is nothing to answer with.
void ServerConn::refuse_for_memory() noexcept {
  context_.stop_waiting(memory_wait_);
  if (!make_exchange()) {
    close_now(true);
    return;
  }
  request_begins();
  request_failed(What::memory_pressure, true);
}

void ServerConn::request_begins() noexcept {
  first_ = false;
  state_ = State::exchange;
  since_ = loop_.now();
  head_sent_ = request_bad_ = discarding_ = false;
  body_bytes_ = discarded_ = 0;
  inbound_.begin_body(BodyKind::none, 0);
  stats_.requests.add();
  context_.stats.started.add();
}

void ServerConn::hand_over() noexcept {
  state_ = State::closing;
  handed_over_ = true;
  context_.stop_waiting(memory_wait_);
  stats_.open.sub();
  loop_.clear_timer(due_);
  Chain first = std::move(inbound_.in);
  host_.conn_speaks_h2(*this, std::move(first));
}

// Where h2 is not spoken its clients are told so, in the one form that both understand.
bool ServerConn::read_preface() noexcept {
  const Preface preface = find_preface(inbound_.in);
  if (preface == Preface::none) return false;
  if (preface == Preface::partial) {
    if (transport_.at_eof()) finish(false);
  } else if (preface == Preface::whole && policy_.h2 && transport_.tls() == nullptr) {
    hand_over();
  } else if (!make_exchange()) {
    context_.stand_in_line(memory_wait_);
  } else {
    request_begins();
    request_failed(preface == Preface::whole ? What::bad_version : What::bad_request_line, true);
  }
  return true;
}

bool ServerConn::read_head() noexcept {
  if (!context_.may_begin(memory_wait_)) {
    context_.pack(inbound_.in);
    return false;
  }
  if (first_ && read_preface()) return state_ == State::exchange;
  if (!make_exchange()) {
    context_.stand_in_line(memory_wait_);
    return false;
  }
  Head& request = exchange_->request();
  ParseResult result;
  const auto parser = [&](const char* data, size_t size, size_t& scanned) noexcept {
    return parse_request_head(data, size, scanned, policy_.head, request);
  };
  if (!inbound_.head.parse(inbound_.in, loop_.slabs(), policy_.head.head_bytes, result, parser)) {
    context_.exchanges.destroy(std::exchange(exchange_, nullptr));
    context_.stand_in_line(memory_wait_);
    return false;
  }
  if (result.state == Parse::need_more) {
    context_.exchanges.destroy(std::exchange(exchange_, nullptr));
    if (transport_.at_eof()) finish(false);  // answers to earlier requests may still be on their way
    return false;
  }
  request_begins();
  if (result.state == Parse::bad) {
    request_failed(result.what, true);
    return true;
  }
  inbound_.head.take(inbound_.in, result.consumed, request);
  inbound_.begin_body(request.body, request.content_length);
  inbound_.reader.limit(policy_.request_body_max);
  if (!request.keep_alive || ending()) close_after_ = true;
  if (request.body == BodyKind::length && request.content_length > policy_.request_body_max) {
    request_failed(What::body_too_large, true);
    return true;
  }
  exchange_->start();
  if (exchange_ != nullptr && exchange_->request_body_max < policy_.request_body_max)
    inbound_.reader.limit(exchange_->request_body_max);
  return true;
}

// The request can no longer be read to its end: this connection closes after the answer. Told once: the answer to it is on its
// way then, and a second fault would cut it.
void ServerConn::request_failed(What what, bool answerable) noexcept {
  request_bad_ = true;
  close_after_ = true;
  linger_ = true;
  if (exchange_ != nullptr) exchange_->client_failed(make_fault(what), answerable);
}

bool ServerConn::run_exchange() noexcept {
  if (discarding_) {
    discard_rest();
  } else if (exchange_ != nullptr && in != nullptr && !request_bad_) {
    const uint64_t before = in->delivered();
    const What bad = inbound_.move_body(*in, *exchange_, true, policy_.head, loop_.slabs());
    if (in->delivered() != before) {
      since_ = loop_.now();
      body_bytes_ = in->delivered();
    }
    if (bad != What::none) {
      request_failed(bad, true);
    } else if (transport_.at_eof() && inbound_.body_cut_short()) {
      request_failed(What::client_closed, false);
    }
  }
  if (exchange_ != nullptr || state_ != State::exchange) return false;
  next_request();
  return state_ != State::exchange;
}

// The exchange is over and its answer stands in the output.
void ServerConn::next_request() noexcept {
  if (!inbound_.body_done()) {
    if (close_after_ || request_bad_ || !worth_discarding()) finish(true);
    else if (!std::exchange(discarding_, true)) touch();  // else: until its end comes, or client_body
  } else if (close_after_ || nothing_follows()) {
    finish(linger_ || ending() || !inbound_.in.empty());
  } else {
    state_ = State::idle;
    since_ = loop_.now();
    inbound_.head.reset();
  }
}

void ServerConn::discard_rest() noexcept {
  if (inbound_.body_done() || request_bad_) return;
  bool bad = false;
  const uint64_t count = inbound_.discard_body(context_, policy_.head, bad);
  if (count != 0) since_ = loop_.now();
  discarded_ += count;
  if (inbound_.body_done()) return;
  request_bad_ = bad || discarded_ > kDiscardBytesMax || transport_.at_eof();
}

// A client that waits for 100 Continue may never send its body.
bool ServerConn::worth_discarding() const noexcept {
  const BodyReader& rest = inbound_.reader;
  if (inbound_.relaying || rest.state() == BodyReader::State::bad) return false;
  return rest.kind() == BodyKind::length ? rest.left() <= kDiscardBytesMax : rest.kind() == BodyKind::chunked;
}

// The answer begins before the request has been read to its end. One of ours needs nothing of the rest, and has to say
// now whether the connection goes on: what is here is dropped at once, the remainder must be known to be short.
void ServerConn::answered_early(uint16_t status) noexcept {
  bool close = status >= 400;
  if (exchange_->origin() == nullptr && worth_discarding()) {
    const bool awaited = exchange_->request().expect_continue && inbound_.in.empty() && body_bytes_ == 0;
    discarding_ = true;
    discard_rest();
    close = status == 413 ||   // who sends too much is not asked for more
            (!inbound_.body_done() && (awaited || request_bad_ || inbound_.reader.kind() != BodyKind::length));
  } else if (exchange_->origin() == nullptr) {
    close = true;
  }
  if (close) close_after_ = linger_ = true;
}

void ServerConn::finish(bool linger) noexcept {
  state_ = State::finishing;
  linger_ = linger && policy_.timeouts.linger.count() != 0;
  if (!linger_) transport_.stop_reading();
  touch();
}

void ServerConn::settle() noexcept {
  arm_receive();
  if (!relay_out_) transport_.flush();
  arm_timer();
}

void ServerConn::arm_receive() noexcept {
  if (transport_.reading() || transport_.at_eof() || inbound_.relaying) return;  // a cancelled relay may still run
  switch (state_) {
    case State::idle:  // not empty: it waits for the output to be taken
      if (inbound_.in.bytes() < kReadAheadBytes) transport_.read(kSlabBytes);
      break;
    case State::head:
      if (!memory_wait_.waiting) transport_.read(kSlabBytes);
      break;
    case State::exchange:
      if (!inbound_.body_done()) {
        if (discarding_) {
          if (!request_bad_) transport_.read(kSlabBytes);
          break;
        }
        if (inbound_.delivered_now) {  // the pipe looks first; then this comes again
          inbound_.delivered_now = false;
          touch();
          return;
        }
        transport_.read(inbound_.body_want(in));
      } else if (inbound_.in.bytes() < kReadAheadBytes) {
        transport_.read(kSlabBytes);
      }
      break;
    case State::lingering: transport_.read(kSlabBytes); break;
    case State::finishing:
    case State::closing: break;
  }
}

TimePoint ServerConn::read_due() const noexcept {
  const ServerTimeouts& t = policy_.timeouts;
  switch (state_) {
    case State::idle: {
      if (owes()) return kNever;
      const TimePoint due = after(since_, first_ ? t.client_header : t.keepalive);
      const TimePoint drained = ending() ? since_ + kDrainIdle : kNever;
      return due < drained ? due : drained;
    }
    case State::head: return after(since_, t.client_header);
    case State::exchange:
      if (request_bad_ || inbound_.body_done()) return kNever;
      if (discarding_ && exchange_ == nullptr) return after(since_, last_.client_body);
      if (!discarding_ && (in == nullptr || (!inbound_.relaying && inbound_.body_want(in) == 0))) return kNever;
      if (exchange_ != nullptr && exchange_->client_timeouts != nullptr) {
        const ClientSideTimeouts& own = *exchange_->client_timeouts;
        return after(since_, head_sent_ && !discarding_ ? own.stream_idle : own.client_body);
      }
      return after(since_, head_sent_ && !discarding_ ? t.stream_idle : t.client_body);
    case State::lingering: return after(since_, t.linger);
    case State::finishing:
    case State::closing: return kNever;
  }
  return kNever;
}

TimePoint ServerConn::write_due() const noexcept {
  if (!owes()) return kNever;
  Duration write = last_.write;
  if (exchange_ != nullptr)
    write = exchange_->client_timeouts != nullptr ? exchange_->client_timeouts->write : policy_.timeouts.write;
  return looked_at_ > sent_at_ ? after(looked_at_, write) : after(sent_at_, write < kFirstLook ? write : kFirstLook);
}

void ServerConn::arm_timer() noexcept {
  const TimePoint reading = read_due();
  const TimePoint writing = write_due();
  const TimePoint due = reading < writing ? reading : writing;
  if (due == due_.due) return;
  due_.coarse = state_ == State::idle && !first_;
  loop_.set_timer(due_, due);
}

void ServerConn::due_entry(Timer& timer) noexcept {
  ServerConn& self = *static_cast<Due&>(timer).self;
  if (self.loop_.now() >= self.write_due()) self.write_timed_out();
  if (self.state_ != State::closing && self.loop_.now() >= self.read_due()) self.read_timed_out();
  self.touch();
}

void ServerConn::write_timed_out() noexcept {
  // The kernel took nothing new, but the peer still reads what it had; or a relay moved bytes without telling.
  const uint64_t progress = transport_.acked_bytes() + (relay_out_ && out != nullptr ? out->consumed() : 0);
  if (looked_at_ <= sent_at_ || progress != progress_seen_ || (relay_out_ && out != nullptr && out->relay_awaits_source())) {
    progress_seen_ = progress;
    looked_at_ = loop_.now();
    return;
  }
  count_timeout(ServerTimeoutKind::write);
  cut(make_fault(What::write_timeout));
}

void ServerConn::read_timed_out() noexcept {
  switch (state_) {
    case State::idle:
      if (first_ && !ending() && loop_.slabs().lease().level() == MemoryLevel::critical) {
        refuse_for_memory();  // its request may well be here, and was not read
        break;
      }
      if (!ending()) count_timeout(first_ ? ServerTimeoutKind::client_header : ServerTimeoutKind::keepalive);
      close_now(false);
      break;
    case State::head:
      if (memory_wait_.waiting) {
        refuse_for_memory();
        break;
      }
      count_timeout(ServerTimeoutKind::client_header);
      if (!make_exchange()) {
        close_now(true);
        return;
      }
      request_begins();
      request_failed(What::client_header_timeout, true);
      break;
    case State::exchange:
      if (discarding_) {
        count_timeout(ServerTimeoutKind::client_body);
        request_bad_ = true;  // the connection ends when the answer has gone
        break;
      }
      if (inbound_.relaying && (in->delivered() != body_bytes_ || !in->relay_awaits_source())) {
        body_bytes_ = in->delivered();
        since_ = loop_.now();
        return;
      }
      count_timeout(head_sent_ ? ServerTimeoutKind::stream_idle : ServerTimeoutKind::client_body);
      request_failed(head_sent_ ? What::stream_idle_timeout : What::client_body_timeout, true);
      break;
    case State::lingering:
      count_timeout(ServerTimeoutKind::linger);
      close_now(false);
      break;
    case State::finishing:
    case State::closing: break;
  }
}

void ServerConn::on_bytes(Chain&& bytes) noexcept {
  stats_.bytes_in.add(bytes.bytes());
  if (state_ == State::lingering) {
    bytes.clear();
    touch();  // asks for more
    return;
  }
  inbound_.head.append(inbound_.in, loop_.slabs(), std::move(bytes));  // small pieces share slabs
  touch();
}

void ServerConn::on_eof() noexcept { touch(); }

void ServerConn::on_sent(size_t count) noexcept {
  stats_.bytes_out.add(count);
  sent_at_ = loop_.now();
  if (out != nullptr) out->touch();
  touch();
}

void ServerConn::on_error(int error, bool sending) noexcept {
  cut(make_fault(sending ? What::client_write_failed : What::client_reset, error));
}

void ServerConn::on_closed() noexcept { host_.conn_closed(*this); }

// The handshake has settled which protocol it is; a client that named none speaks what there is.
void ServerConn::on_ready() noexcept {
  if (state_ != State::closing && policy_.h2 && (transport_.alpn() == "h2" || !policy_.h1)) hand_over();
}

void ServerConn::cut(const Fault& fault) noexcept {
  if (exchange_ != nullptr) exchange_->client_failed(fault, false);  // comes back through abort()
  close_now(true);
}

void ServerConn::close_now(bool reset) noexcept {
  if (state_ == State::closing) return;
  state_ = State::closing;
  context_.stop_waiting(memory_wait_);
  loop_.clear_timer(due_);
  transport_.close(reset);  // what was read stays: the exchange that ends by this may have to tell of a head that lies there
}

size_t ServerConn::buffered() const noexcept {
  size_t bytes = inbound_.in.charge() + inbound_.head.charge() + transport_.out().charge();
  if (exchange_ == nullptr) return bytes;
  bytes += exchange_->up().charge() + exchange_->down().charge();
  if (Stream* origin = exchange_->origin()) bytes += origin->buffered();
  return bytes;
}

uint64_t ServerConn::progress() const noexcept {
  if (exchange_ == nullptr) return inbound_.in.bytes();
  const Pipe& up = exchange_->up();
  const Pipe& down = exchange_->down();
  return static_cast<uint64_t>(exchange_->started_at().time_since_epoch().count()) + up.delivered() + up.consumed() +
         down.delivered() + down.consumed();
}

void ServerConn::end_for_memory() noexcept {
  if (answers_for_memory()) request_failed(What::memory_pressure, true);
  else cut(make_fault(What::memory_pressure));
}

void ServerConn::drain() noexcept {
  draining_ = true;
  touch();
}

// ---- Stream

void ServerConn::grant(uint64_t total) noexcept {
  inbound_.granted = total;
  since_ = loop_.now();
  touch();
}

size_t ServerConn::room() const noexcept {
  const size_t queued = transport_.out().bytes();
  const size_t most = context_.limits.queue_max;
  return relay_out_ || queued >= most ? 0 : most - queued;
}

void ServerConn::send_head(const Head& head, std::span<const ExtraField> extra) noexcept {
  Framing framing;
  if (head.status < 200 && exchange_->request().version == Version::http10) return;  // RFC 9110 section 15.2
  if (head.status >= 200) {
    head_sent_ = true;
    const Head& request = exchange_->request();
    framing.body = head.body;
    if (head.body == BodyKind::length || (head.body == BodyKind::none && head.has_length)) {
      framing.length = head.content_length;
      framing.write_length = true;
    } else if (head.body != BodyKind::none) {
      framing.body = request.version == Version::http10 ? BodyKind::until_close : BodyKind::chunked;
    }
    if (framing.body == BodyKind::until_close) close_after_ = true;
    if (!inbound_.body_done() && !request_bad_) [[unlikely]] answered_early(head.status);
    // What a client sends behind a CONNECT that was refused may be meant for the tunnel: it is no request.
    if (ending() || request.method == Method::connect) close_after_ = true;
    framing.close = close_after_ || (nothing_follows() && inbound_.body_done());
    framing.keep_alive = !framing.close && request.version == Version::http10;
    framing_ = framing.body;
  }
  if (!owes()) sent_at_ = loop_.now();
  if (!write_response_head(transport_.out(), loop_.slabs(), head, framing, extra)) broken_ = true;
  touch();
}

void ServerConn::send_body(Chain&& bytes) noexcept {
  if (!owes()) sent_at_ = loop_.now();
  if (framing_ != BodyKind::chunked) append_body(transport_.out(), loop_.slabs(), std::move(bytes));
  else if (!write_chunk(transport_.out(), loop_.slabs(), std::move(bytes))) broken_ = true;
  touch();
}

void ServerConn::send_end(const Head* trailers) noexcept {
  if (framing_ == BodyKind::chunked && !write_last_chunk(transport_.out(), loop_.slabs(), trailers)) broken_ = true;
  touch();
}

// What its route asked of the client holds until its answer has gone.
void ServerConn::forget_exchange() noexcept {
  const ServerTimeouts& t = policy_.timeouts;
  if (exchange_->client_timeouts != nullptr) last_ = *exchange_->client_timeouts;
  else last_ = {.client_body = t.client_body, .stream_idle = t.stream_idle, .write = t.write};
  exchange_ = nullptr;
  in = out = nullptr;
}

void ServerConn::abort(const Fault& fault) noexcept {
  forget_exchange();
  // A body that only the close ends must not look whole. Else what is queued still goes: it may hold whole answers to earlier
  // requests, and the one that broke off shows as short. That it has left our own queue says nothing: the kernel may hold it, and
  // throws it away when input meets a closed socket.
  const bool until_close = head_sent_ && framing_ == BodyKind::until_close;
  if (fault.side == Side::client || until_close || (!owes() && transport_.at_eof())) close_now(until_close);
  else finish(true);
}

void ServerConn::detach() noexcept {
  forget_exchange();
  touch();
}

bool ServerConn::source_live() const noexcept {
  return inbound_.relaying || transport_.reading() || work_.dirty || !inbound_.in.empty() || transport_.at_eof() ||
         transport_.closing();
}

bool ServerConn::sink_live() const noexcept { return owes() || work_.dirty || room() > 0 || transport_.closing(); }

Socket* ServerConn::relay_source(uint64_t* left) noexcept {
  if (inbound_.reader.kind() != BodyKind::length || !inbound_.in.empty() || transport_.reading() || transport_.at_eof() ||
      transport_.closing())
    return nullptr;
  *left = inbound_.reader.left();
  return transport_.plain_socket();
}

Socket* ServerConn::relay_target() noexcept {
  return framing_ == BodyKind::length && !owes() && !transport_.closing() ? transport_.plain_socket() : nullptr;
}

bool ServerConn::relay_target_soon() const noexcept {
  return framing_ == BodyKind::length && !transport_.closing() && transport_.tls() == nullptr;
}

void ServerConn::relay_begin(bool as_source) noexcept {
  (as_source ? inbound_.relaying : relay_out_) = true;
  (as_source ? since_ : sent_at_) = loop_.now();
  touch();  // its deadline runs from here
}

void ServerConn::relay_progress(bool as_source) noexcept {
  (as_source ? since_ : sent_at_) = loop_.now();
  touch();
}

void ServerConn::relay_end(bool as_source, uint64_t moved, int error) noexcept {
  if (as_source) {
    inbound_.relaying = false;
    stats_.bytes_in.add(moved);
    inbound_.reader.relayed(moved);
    since_ = loop_.now();
  } else {
    relay_out_ = false;
    stats_.bytes_out.add(moved);
    sent_at_ = loop_.now();
  }
  transport_.foreign_op_done();
  if (error != 0 && error != ECANCELED && exchange_ != nullptr)
    exchange_->client_failed(make_fault(as_source ? What::client_reset : What::client_write_failed, error), false);
  touch();
}

}  // namespace weir::h1

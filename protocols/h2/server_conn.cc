#include "protocols/h2/server_conn.h"

#include <cerrno>

namespace weir::h2 {

//           session over (error, timeout, drained, cut),
//           or the client is done                        sent              EOF, linger
//   open ----------------------------------> finishing ------> lingering --------------> closing
//     |                                                                                   ^
//     +------------------------------ the transport failed -------------------------------+
//
// Drain, while open: none --(asked; idle ones a little later each)--> announced: GOAWAY(2^31-1) and a PING
//   --(its answer, or a second)--> told: GOAWAY(last accepted); the streams there are end; then the session is over.

namespace {
constexpr size_t kOutBytesMax = 256u << 10;       // unsent output: less of it made early leaves more to priorities and resets
constexpr size_t kCloggedBytes = 2 * kOutBytesMax;
constexpr uint32_t kReadBytesMax = 64u << 10;
constexpr uint64_t kHeldMax = 4u << 20;           // above it the connection's window waits
constexpr Duration kLookAgain = std::chrono::milliseconds(50);   // whether less is held
constexpr Duration kDrainWait = std::chrono::seconds(1);
constexpr Duration kDrainSpread = std::chrono::milliseconds(500);
constexpr Duration kCutGrace = std::chrono::milliseconds(500);   // for a GOAWAY and what stands before it to leave
constexpr Duration kFirstLook = std::chrono::seconds(1);         // see h1::ServerConn: acknowledgements that are on their way
}  // namespace

ServerConn::ServerConn(ServerContext& context, ServerConnHost& host, const ServerPolicy& policy, ServerStats& stats,
                       SocketTransport& transport, void* carrier, const Address& peer, Chain&& first) noexcept
    : loop_(context.exchanges.loop), context_(context), host_(host), policy_(policy), stats_(stats), transport_(transport),
      carrier_(carrier), in_(std::move(first)), session_(*this, policy.session, context.small, transport_.out(), loop_.now()),
      opened_at_(loop_.now()), since_(opened_at_), block_since_(opened_at_), data_at_(opened_at_), sent_at_(opened_at_),
      peer_(peer) {
  work_.self = due_.self = this;
  work_.pump = advance_entry;
  due_.fire = due_entry;
  peer_text_size_ = static_cast<uint8_t>(peer_.host_text(peer_text_));
  transport_.set_owner(*this);
  ++context_.conns;
  stats_.open.add();
  (void)session_.start();                   // out of memory: the session is over
  touch();
}

ServerConn::~ServerConn() {
  loop_.forget_timer(due_);
  loop_.forget_dirty(work_);
  stats_.open.sub();
  if (--context_.conns == 0) context_.small.drop();
}

void ServerConn::advance_entry(Pump& pump) noexcept { static_cast<Work&>(pump).self->advance(); }

void ServerConn::advance() noexcept {
  switch (state_) {
    case State::open:
      read_input();
      if (transport_.at_eof() && in_.empty()) end_half_streams();
      serve_streams();
      step_drain();
      give_credit();
      make_frames();
      if (session_.over()) {
        end_streams(make_fault(What::client_protocol));
        finish(kNever);
      } else if (transport_.at_eof() && stream_count_ == 0) {
        session_.end(ErrorCode::no_error, EndCause::drained);
        finish(kNever);
      }
      break;
    case State::finishing: break;
    case State::lingering:
      in_.clear();
      if (transport_.at_eof()) close_now(false);
      break;
    case State::closing: return;
  }
  if (state_ == State::finishing && !owes()) {
    if (transport_.at_eof() || policy_.timeouts.linger.count() == 0) {
      close_now(false);
    } else {
      state_ = State::lingering;
      since_ = loop_.now();
      transport_.finish_writing();
    }
  }
  if (state_ != State::closing) settle();
}

void ServerConn::read_input() noexcept {
  const bool block_was_open = session_.block_open();
  while (!in_.empty() && !session_.over()) {
    session_.receive(in_.front(), loop_.now());
    in_.consume(in_.front().size());
  }
  if (session_.block_open() && !block_was_open) block_since_ = loop_.now();
  if (!session_.block_open() && stream_count_ == 0) block_.release();
}

// ---- streams

void ServerConn::touch(ServerStream& stream) noexcept {
  touch();
  if (stream.touched_) return;
  stream.touched_ = true;
  stream.next_touched_ = nullptr;
  if (touched_ != nullptr) touched_last_->next_touched_ = &stream;
  else touched_ = &stream;
  touched_last_ = &stream;
}

void ServerConn::serve_streams() noexcept {
  while (touched_ != nullptr && !session_.over()) {
    ServerStream& stream = *touched_;
    touched_ = stream.next_touched_;
    stream.touched_ = false;
    serve(stream);
  }
}

void ServerConn::serve(ServerStream& stream) noexcept {
  if (stream.closed) {
    stream.touched_ = true;   // it is on its way out, whatever the exchange says to it
    if (stream.exchange_ != nullptr && stream.dispatched_) stream.exchange_->client_failed(make_fault(What::client_reset), false);
    drop(stream);
    return;
  }
  if (stream.head_complete_ && !stream.dispatched_) dispatch(stream);
  if (stream.exchange_ != nullptr && stream.dispatched_ && !stream.given_up_) {
    const uint64_t most = std::min(policy_.request_body_max, stream.exchange_->request_body_max);
    const What what = stream.received_ > most ? What::body_too_large : stream.problem_;
    if (what != What::none) {
      stream.given_up_ = true;
      stream.exchange_->client_failed(make_fault(what), true);
    }
  }
  if (!stream.given_up_) stream.move_body();
  stream.arm();
}

// The request is whole, and its client still wants it after all that was read with it.
void ServerConn::dispatch(ServerStream& stream) noexcept {
  stream.dispatched_ = true;
  stream.since_ = loop_.now();
  ++requests_;
  stats_.requests.add();
  context_.exchanges.stats.started.add();
  session_.accepted(stream.id);
  const Head& request = stream.exchange_->request();
  What what = std::exchange(stream.problem_, What::none);
  if (what == What::none && request.body == BodyKind::length && request.content_length > policy_.request_body_max)
    what = What::body_too_large;
  if (what == What::none) {
    stream.exchange_->start();
  } else {
    stream.given_up_ = true;
    stream.exchange_->client_failed(make_fault(what), true);
  }
}

void ServerConn::drop(ServerStream& stream) noexcept {
  if (stream.exchange_ != nullptr) {   // it was never dispatched
    block_.forget(stream.exchange_->request());
    context_.exchanges.exchanges.destroy(std::exchange(stream.exchange_, nullptr));
  }
  if (stream.trailers_ != nullptr) block_.forget(*stream.trailers_);
  if (stream.prev_ != nullptr) stream.prev_->next_ = stream.next_;
  else streams_ = stream.next_;
  if (stream.next_ != nullptr) stream.next_->prev_ = stream.prev_;
  stats_.streams.sub();
  if (--stream_count_ == 0) {
    since_ = loop_.now();
    stats_.busy.sub();
  }
  context_.streams.destroy(&stream);
}

// The client will say no more: requests that are not whole never will be. The others get their answers.
void ServerConn::end_half_streams() noexcept {
  if (std::exchange(half_ended_, true)) return;
  for (ServerStream* s = streams_; s != nullptr; s = s->next_) {
    if (s->remote_ended || s->closed) continue;
    if (s->exchange_ != nullptr && s->dispatched_) s->exchange_->client_failed(make_fault(What::client_closed), false);
    else session_.reset(*s, ErrorCode::cancel);
  }
}

// The session is over: nobody hears of these streams any more.
void ServerConn::end_streams(const Fault& fault) noexcept {
  touched_ = touched_last_ = framed_ = nullptr;
  while (streams_ != nullptr) {
    ServerStream& stream = *streams_;
    stream.touched_ = true;
    if (stream.exchange_ != nullptr && stream.dispatched_) stream.exchange_->client_failed(fault, false);
    drop(stream);
  }
  open_count_ = 0;
}

// ---- what the session tells

SessionStream* ServerConn::stream_begins(int32_t) noexcept {
  block_.begin(nullptr);
  if (open_count_ >= session_.streams_told()) {
    stats_.refused.add();
    return nullptr;
  }
  ServerStream* stream = context_.streams.make(*this);
  if (stream == nullptr) return nullptr;
  stream->exchange_ =
      context_.exchanges.exchanges.make(context_.exchanges, *policy_.handler, *stream, policy_.listener);
  if (stream->exchange_ == nullptr) {
    context_.streams.destroy(stream);
    return nullptr;
  }
  stream->exchange_->client_ip = {peer_text_, peer_text_size_};
  if (const TlsTransport* tls = transport_.tls(); tls != nullptr) {
    stream->exchange_->https = true;
    stream->exchange_->tls = &tls->facts();
  }
  stream->next_ = streams_;
  if (streams_ != nullptr) streams_->prev_ = stream;
  streams_ = stream;
  if (stream_count_++ == 0) stats_.busy.add();
  ++open_count_;
  stats_.streams.add();
  block_.begin(&stream->exchange_->request());
  return stream;
}

void ServerConn::trailers_begin(SessionStream& of) noexcept {
  auto& stream = static_cast<ServerStream&>(of);
  if (!stream.given_up_ && stream.trailers_ == nullptr) stream.trailers_ = context_.exchanges.trailers.make();
  block_.begin(stream.given_up_ ? nullptr : stream.trailers_);
}

bool ServerConn::field(SessionStream&, std::string_view name, std::string_view value) noexcept {
  return block_.add(name, value, policy_.head);
}

void ServerConn::block_ended(SessionStream& of, bool trailers, bool ends) noexcept {
  auto& stream = static_cast<ServerStream&>(of);
  if (trailers) {
    if (const What what = block_.finish_trailers(context_.small); what != What::none) stream.problem_ = what;
  } else {
    stream.problem_ = block_.finish_request(ends, context_.small);
    stream.head_complete_ = true;
  }
  touch(stream);
}

void ServerConn::data(SessionStream& of, Slice&& bytes) noexcept {
  auto& stream = static_cast<ServerStream&>(of);
  owe_credit(bytes.size());
  stream.received_ += bytes.size();
  if (!stream.given_up_) {
    Chain chain;
    chain.append(std::move(bytes));
    stream.waiting_.append_compact(loop_.slabs(), std::move(chain));
  }
  touch(stream);
}

void ServerConn::ended(SessionStream& of) noexcept { touch(static_cast<ServerStream&>(of)); }

void ServerConn::closed(SessionStream& of, ErrorCode code) noexcept {
  --open_count_;
  if (code != ErrorCode::no_error) stats_.resets.add();
  touch(static_cast<ServerStream&>(of));
}

bool ServerConn::framed(SessionStream& of, size_t) noexcept {
  auto& stream = static_cast<ServerStream&>(of);
  stream.framed_at_ = data_at_ = loop_.now();
  if (!std::exchange(stream.framed_, true)) {
    stream.next_framed_ = framed_;
    framed_ = &stream;
  }
  return stream.queue.empty() && stream.out != nullptr && stream.out->held() > 0;
}

void ServerConn::ping_answered() noexcept { answered_ping_ = true; }

void ServerConn::goaway_made(ErrorCode code, EndCause cause) noexcept {
  stats_.goaways[static_cast<size_t>(cause)][static_cast<size_t>(code)].add();
}

// ---- frames and credit

void ServerConn::make_frames() noexcept {
  const bool owed = owes();
  if (session_.fill(kOutBytesMax)) touch();
  while (framed_ != nullptr) {
    ServerStream& stream = *framed_;
    framed_ = stream.next_framed_;
    stream.framed_ = false;
    if (stream.out != nullptr) stream.out->touch();
    stream.arm();
  }
  if (!owed && owes()) sent_at_ = loop_.now();
  audit();
}

// The counters that deadlines and budgets look at, against what they count.
void ServerConn::audit() const noexcept {
#ifndef NDEBUG
  size_t count = 0, open = 0, queued = 0;
  for (const ServerStream* s = streams_; s != nullptr; s = s->next_) {
    ++count;
    open += !s->closed;
    queued += !s->queue.empty();
  }
  WEIR_ASSERT(count == stream_count_ && open == open_count_ && (queued == session_.queued() || session_.over()));
#endif
}

void ServerConn::owe_credit(uint32_t bytes) noexcept { credit_owed_ += bytes; }

// Credit goes back on receipt, so that one stream that nobody reads does not starve its siblings; but not for ever.
void ServerConn::give_credit() noexcept {
  if (credit_owed_ == 0) return;
  if (held_seen_ + credited_since_ + credit_owed_ > kHeldMax) {
    held_seen_ = held();
    credited_since_ = 0;
    if (held_seen_ > kHeldMax) return;
  }
  credited_since_ += credit_owed_;
  session_.credit_connection(std::exchange(credit_owed_, 0));
}

uint64_t ServerConn::held() const noexcept {
  uint64_t sum = 0;
  for (const ServerStream* s = streams_; s != nullptr; s = s->next_) {
    sum += s->waiting_.bytes();
    if (s->in != nullptr && s->in->opened()) sum += s->in->delivered() - s->in->consumed();
  }
  return sum;
}

// ---- the end

void ServerConn::drain() noexcept {
  if (std::exchange(draining_, true)) return;
  // Idle ones go one after the other: their clients come again elsewhere, and not all at once. Steps of the golden section spread
  // any number of them evenly.
  const uint64_t place = stats_.drains.get() * 309;
  stats_.drains.add();
  const auto spread = std::chrono::milliseconds(place % static_cast<uint64_t>(kDrainSpread / std::chrono::milliseconds(1)));
  if (drain_ == Drain::none) drain_at_ = stream_count_ > 0 ? loop_.now() : loop_.now() + spread;
  touch();
}

void ServerConn::step_drain() noexcept {
  const bool wanted = draining_ ? loop_.now() >= drain_at_ : policy_.draining && requests_ > 0;
  if (drain_ == Drain::none && wanted) {
    session_.announce_goaway();
    session_.ping();
    drain_ = Drain::announced;
    drain_at_ = loop_.now() + kDrainWait;
  } else if (drain_ == Drain::announced && (answered_ping_ || loop_.now() >= drain_at_)) {
    session_.refuse_further();
    drain_ = Drain::told;
    drain_at_ = kNever;
  }
}

void ServerConn::finish(TimePoint by) noexcept {
  state_ = State::finishing;
  finish_by_ = by;
  in_.clear();
  if (!transport_.sending()) sent_at_ = loop_.now();
  touch();
}

void ServerConn::end(ErrorCode code, EndCause cause, const Fault& fault, TimePoint by) noexcept {
  session_.end(code, cause);
  end_streams(fault);
  finish(by);
}

void ServerConn::cut(const Fault& fault) noexcept {
  if (state_ != State::open) {
    close_now(true);
    return;
  }
  const bool memory = fault.what == What::out_of_memory || fault.what == What::overloaded;
  end(memory ? ErrorCode::enhance_your_calm : ErrorCode::no_error, memory ? EndCause::memory : EndCause::shutdown, fault,
      loop_.now() + kCutGrace);
}

void ServerConn::close_now(bool reset) noexcept {
  if (state_ == State::closing) return;
  session_.abandon();
  state_ = State::closing;
  loop_.clear_timer(due_);
  in_.clear();
  transport_.close(reset);
}

// ---- the transport

void ServerConn::on_bytes(Chain&& bytes) noexcept {
  stats_.bytes_in.add(bytes.bytes());
  if (state_ == State::open) in_.append(std::move(bytes));
  else bytes.clear();
  touch();
}

void ServerConn::on_sent(size_t count) noexcept {
  stats_.bytes_out.add(count);
  sent_at_ = loop_.now();
  touch();
}

void ServerConn::on_error(int error, bool sending) noexcept {
  session_.abandon();
  end_streams(make_fault(sending ? What::client_write_failed : What::client_reset, error));
  close_now(true);
}

void ServerConn::on_closed() noexcept { host_.conn_closed(*this); }

// ---- receive, flush, timer

void ServerConn::settle() noexcept {
  arm_receive();
  transport_.flush();
  arm_timer();
}

void ServerConn::arm_receive() noexcept {
  if (transport_.reading() || transport_.at_eof()) return;
  // A client that does not read the answers to its control frames is not listened to meanwhile.
  if (state_ == State::open && transport_.out().bytes() < kCloggedBytes) transport_.read(kReadBytesMax);
  else if (state_ == State::lingering) transport_.read(kReadBytesMax);
}

TimePoint ServerConn::read_due() const noexcept {
  const ServerTimeouts& t = policy_.timeouts;
  switch (state_) {
    case State::open:
      if (!session_.settings_seen()) return after(opened_at_, t.client_header);
      if (session_.block_open()) return after(block_since_, t.client_header);
      return stream_count_ > 0 || owes() ? kNever : after(since_, t.keepalive);
    case State::finishing: return finish_by_;
    case State::lingering: return std::min(after(since_, t.linger), finish_by_);
    case State::closing: return kNever;
  }
  return kNever;
}

TimePoint ServerConn::write_due() const noexcept {
  if (!owes()) return kNever;
  const Duration write = policy_.timeouts.write;
  return looked_at_ > sent_at_ ? after(looked_at_, write) : after(sent_at_, write < kFirstLook ? write : kFirstLook);
}

// Body waits for the connection's window, which the client owes.
TimePoint ServerConn::window_due() const noexcept {
  if (state_ != State::open || session_.over() || session_.queued() == 0 || !session_.connection_window_shut()) return kNever;
  return after(data_at_, policy_.timeouts.write);
}

void ServerConn::arm_timer() noexcept {
  TimePoint due = std::min({read_due(), write_due(), window_due()});
  if (state_ == State::open) {
    due = std::min(due, drain_at_);
    if (credit_owed_ > 0) due = std::min(due, loop_.now() + kLookAgain);
  }
  if (due == due_.due) return;
  due_.coarse = state_ == State::open && stream_count_ == 0 && drain_at_ == kNever;
  loop_.set_timer(due_, due);
}

void ServerConn::due_entry(Timer& timer) noexcept {
  ServerConn& self = *static_cast<Due&>(timer).self;
  const TimePoint now = self.loop_.now();
  if (now >= self.window_due()) {
    self.count_timeout(ServerTimeoutKind::write);
    self.end(ErrorCode::no_error, EndCause::timeout, make_fault(What::write_timeout), kNever);
  }
  if (now >= self.write_due()) self.write_timed_out();
  if (self.state_ != State::closing && now >= self.read_due()) self.read_timed_out();
  self.touch();
}

void ServerConn::write_timed_out() noexcept {
  const uint64_t progress = transport_.acked_bytes();
  if (looked_at_ <= sent_at_ || progress != progress_seen_) {   // the kernel took nothing new, but the peer reads what it had
    progress_seen_ = progress;
    looked_at_ = loop_.now();
    return;
  }
  if (state_ != State::open) {
    close_now(true);
    return;
  }
  count_timeout(ServerTimeoutKind::write);
  end(ErrorCode::no_error, EndCause::timeout, make_fault(What::write_timeout), loop_.now() + kCutGrace);
}

void ServerConn::read_timed_out() noexcept {
  switch (state_) {
    case State::open: {
      const bool idle = session_.settings_seen() && !session_.block_open();
      count_timeout(idle ? ServerTimeoutKind::keepalive : ServerTimeoutKind::client_header);
      end(ErrorCode::no_error, EndCause::timeout, make_fault(idle ? What::keepalive_timeout : What::client_header_timeout), kNever);
      break;
    }
    case State::finishing: close_now(true); break;
    case State::lingering:
      if (loop_.now() < finish_by_) count_timeout(ServerTimeoutKind::linger);
      close_now(false);
      break;
    case State::closing: break;
  }
}

}  // namespace weir::h2

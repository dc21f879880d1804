#include "protocols/h2/server_stream.h"

#include <cstring>
#include <new>

#include "protocols/h2/response_fields.h"
#include "protocols/h2/server_conn.h"

namespace weir::h2 {
namespace {

// What a client is told of an answer that breaks off (RFC 9113 section 7).
ErrorCode code_for(const Fault& fault) noexcept {
  switch (fault.what) {
    case What::client_body_timeout:
    case What::stream_idle_timeout:
    case What::write_timeout:
    case What::body_too_large:
    case What::shutting_down: return ErrorCode::cancel;
    default: return fault.side == Side::client ? ErrorCode::protocol_error : ErrorCode::internal_error;
  }
}

}  // namespace

ServerStream::ServerStream(ServerConn& conn) noexcept
    : conn_(conn), since_(conn.loop_.now()), framed_at_(conn.loop_.now()) {
  due_.self = this;
  due_.fire = due_entry;
}

ServerStream::~ServerStream() {
  conn_.loop_.forget_timer(due_);
  if (trailers_ != nullptr) conn_.context_.exchanges.trailers.destroy(trailers_);
}

const Address* ServerStream::peer_address() const noexcept { return &conn_.peer_; }

// ---- the request

void ServerStream::grant(uint64_t total) noexcept {
  granted_ = total;
  since_ = conn_.loop_.now();
  // A body whose length is known and within what was told already needs no more.
  const bool covered = exchange_ != nullptr && exchange_->request().body == BodyKind::length &&
                       exchange_->request().content_length <= told_;
  if (total > told_ && !covered && !remote_ended) {
    conn_.session_.credit_stream(*this, static_cast<uint32_t>(total - told_));
    told_ = total;
  }
  conn_.touch(*this);
}

void ServerStream::move_body() noexcept {
  if (exchange_ == nullptr || in == nullptr || !in->opened() || in->ended()) return;
  if (!waiting_.empty() && granted_ > in->delivered()) {
    const uint64_t credit = granted_ - in->delivered();
    since_ = conn_.loop_.now();
    in->deliver(waiting_.bytes() <= credit ? std::exchange(waiting_, Chain()) : waiting_.take(static_cast<size_t>(credit)));
  }
  if (waiting_.empty() && remote_ended) in->end(trailers_ != nullptr && trailers_->field_count != 0 ? trailers_ : nullptr);
}

bool ServerStream::source_live() const noexcept {
  return closed || touched_ || !waiting_.empty() || remote_ended || told_ > received_;
}

// ---- the answer

void ServerStream::send_head(const Head& head, std::span<const ExtraField> extra) noexcept {
  if (head.status == 101) return;
  const ResponseFields fields(head, extra);
  if (head.status < 200) {
    conn_.session_.inform(*this, fields.view());
  } else {
    head_sent_ = true;
    since_ = framed_at_ = conn_.loop_.now();
    conn_.session_.respond(*this, fields.view(), head.body == BodyKind::none);
    if (const Field* priority = head.find(FieldId::priority); priority != nullptr)
      conn_.session_.prioritise(*this, priority->value_view());
  }
  conn_.touch(*this);
}

void ServerStream::send_body(Chain&& bytes) noexcept {
  if (queue.empty()) framed_at_ = conn_.loop_.now();
  if (conn_.session_.queued() == 0) conn_.data_at_ = conn_.loop_.now();
  conn_.session_.send(*this, std::move(bytes));
  conn_.touch(*this);
}

void ServerStream::send_end(const Head* trailers_given) noexcept {
  std::unique_ptr<char[]> packed;
  size_t bytes = 0;
  if (trailers_given != nullptr)
    for (const Field& field : *trailers_given)
      if (field.forwarded()) bytes += sizeof(TrailerSize) + field.name_size + field.value_size;
  if (bytes > 0) packed.reset(new (std::nothrow) char[bytes]);
  if (packed != nullptr) {
    char* at = packed.get();
    for (const Field& field : *trailers_given) {
      if (!field.forwarded()) continue;
      const TrailerSize size{field.name_size, field.value_size};
      std::memcpy(at, &size, sizeof size);
      std::memcpy(at + sizeof size, field.name, field.name_size);
      if (field.value_size != 0) std::memcpy(at + sizeof size + field.name_size, field.value, field.value_size);
      at += sizeof size + field.name_size + field.value_size;
    }
  }
  conn_.session_.finish(*this, std::move(packed), static_cast<uint32_t>(bytes));
  conn_.touch(*this);
}

bool ServerStream::sink_live() const noexcept { return closed || touched_ || !queue.empty() || room() > 0; }

void ServerStream::abort(const Fault& fault) noexcept {
  detach();
  conn_.session_.reset(*this, code_for(fault));
}

void ServerStream::detach() noexcept {
  exchange_ = nullptr;
  in = out = nullptr;
  given_up_ = true;
  waiting_.clear();
  conn_.touch(*this);
}

// ---- time

TimePoint ServerStream::read_due() const noexcept {
  if (exchange_ == nullptr || !dispatched_ || given_up_ || remote_ended || in == nullptr) return kNever;
  if (!waiting_.empty() || told_ <= received_) return kNever;
  const ClientSideTimeouts* own = own_timeouts();
  const ServerTimeouts& t = conn_.policy_.timeouts;
  if (head_sent_) return conn_.after(since_, own != nullptr ? own->stream_idle : t.stream_idle);
  return conn_.after(since_, own != nullptr ? own->client_body : t.client_body);
}

// Only a client that owes this stream window keeps its bytes waiting; what waits for the connection is bounded there.
TimePoint ServerStream::write_due() const noexcept {
  if (queue.empty() || closed || !conn_.session_.stream_window_shut(*this)) return kNever;
  const ClientSideTimeouts* own = own_timeouts();
  return conn_.after(framed_at_, own != nullptr ? own->write : conn_.policy_.timeouts.write);
}

void ServerStream::arm() noexcept {
  const TimePoint reading = read_due();
  const TimePoint writing = write_due();
  const TimePoint due = reading < writing ? reading : writing;
  if (due != due_.due) conn_.loop_.set_timer(due_, due);
}

void ServerStream::due_entry(Timer& timer) noexcept { static_cast<Due&>(timer).self->timed_out(); }

void ServerStream::timed_out() noexcept {
  const TimePoint now = conn_.loop_.now();
  if (now >= write_due()) {
    conn_.count_timeout(ServerTimeoutKind::write);
    if (exchange_ != nullptr) exchange_->client_failed(make_fault(What::write_timeout), false);
    else conn_.session_.reset(*this, ErrorCode::cancel);
  } else if (now >= read_due()) {
    conn_.count_timeout(head_sent_ ? ServerTimeoutKind::stream_idle : ServerTimeoutKind::client_body);
    given_up_ = true;
    exchange_->client_failed(make_fault(head_sent_ ? What::stream_idle_timeout : What::client_body_timeout), true);
  }
  conn_.touch(*this);
}

}  // namespace weir::h2

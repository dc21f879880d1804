#include "protocols/h2/session.h"

#include <nghttp2/nghttp2.h>

#include <algorithm>
#include <cstring>

#include "engines/check.h"

namespace weir::h2 {
namespace {

constexpr size_t kJoinBytes = 2048;             // a body frame up to this size is copied behind its header
constexpr uint32_t kFieldsSentMax = 320;        // of one head
constexpr uint32_t kRacingFrameMin = 1024;      // what a frame for a stream that we reset takes of its credit at least
constexpr uint64_t kNever64 = uint64_t{1} << 62;

const nghttp2_option* library_options() noexcept {
  static const nghttp2_option* const kOptions = [] {
    nghttp2_option* options = nullptr;
    WEIR_ASSERT(nghttp2_option_new(&options) == 0);
    nghttp2_option_set_no_auto_window_update(options, 1);
    nghttp2_option_set_no_recv_client_magic(options, 1);
    nghttp2_option_set_builtin_recv_extension_type(options, NGHTTP2_PRIORITY_UPDATE);
    nghttp2_option_set_max_send_header_block_length(options, size_t{4} << 20);
    // Above ours: the budget ends a connection first, and says why.
    nghttp2_option_set_max_outbound_ack(options, size_t{1} << 31);
    nghttp2_option_set_max_settings(options, size_t{1} << 20);
    nghttp2_option_set_max_continuations(options, size_t{1} << 31);
    nghttp2_option_set_stream_reset_rate_limit(options, kNever64, kNever64);
    nghttp2_option_set_glitch_rate_limit(options, kNever64, kNever64);
    return options;
  }();
  return kOptions;
}

nghttp2_nv nv_of(std::string_view name, std::string_view value) noexcept {
  const auto bytes = [](std::string_view text) { return reinterpret_cast<uint8_t*>(const_cast<char*>(text.data())); };
  return {bytes(name), bytes(value), name.size(), value.size(), NGHTTP2_NV_FLAG_NONE};
}

struct Nvs {
  std::array<nghttp2_nv, kFieldsSentMax> at;
  size_t count = 0;
  explicit Nvs(std::span<const HeaderView> fields) noexcept {
    for (const HeaderView& field : fields)
      if (count < at.size()) at[count++] = nv_of(field.name, field.value);
  }
};

std::string_view view(const uint8_t* data, size_t size) noexcept { return {reinterpret_cast<const char*>(data), size}; }

ErrorCode code_of(uint32_t number) noexcept {
  return number < kErrorCodes ? static_cast<ErrorCode>(number) : ErrorCode::internal_error;
}

uint32_t error_in_goaway(const uint8_t* frame) noexcept {
  const uint8_t* at = frame + kFrameHeaderBytes + 4;
  return uint32_t{at[0]} << 24 | uint32_t{at[1]} << 16 | uint32_t{at[2]} << 8 | at[3];
}

bool is_error_goaway(const uint8_t* frame, size_t size) noexcept {
  return size >= kFrameHeaderBytes + 8 && FrameHeader::parse(frame).is(FrameType::goaway) &&
         FrameHeader::parse(frame).length == size - kFrameHeaderBytes && error_in_goaway(frame) != NGHTTP2_NO_ERROR;
}

// A stream error that says that the peer did something wrong: it counts as a reset, or a peer could have us do what it must not.
bool peers_fault(uint32_t code) noexcept {
  return code == NGHTTP2_PROTOCOL_ERROR || code == NGHTTP2_FLOW_CONTROL_ERROR || code == NGHTTP2_STREAM_CLOSED ||
         code == NGHTTP2_FRAME_SIZE_ERROR;
}

}  // namespace

// What the library calls. Each is given the session as its user data.
struct Session::Callbacks {
  static Session& self(void* user) noexcept { return *static_cast<Session*>(user); }

  static int begin_headers(nghttp2_session* session, const nghttp2_frame* frame, void* user) noexcept {
    Session& s = self(user);
    const int32_t id = frame->hd.stream_id;
    if (frame->headers.cat != NGHTTP2_HCAT_REQUEST) {
      SessionStream* stream = s.stream(id);
      if (stream != nullptr) s.owner_.trailers_begin(*stream);
      return 0;
    }
    s.last_seen_ = id;
    SessionStream* stream = s.owner_.stream_begins(id);
    if (stream == nullptr) {
      if (!s.charge(1)) return NGHTTP2_ERR_CALLBACK_FAILURE;
      nghttp2_submit_rst_stream(session, NGHTTP2_FLAG_NONE, id, NGHTTP2_REFUSED_STREAM);
      return NGHTTP2_ERR_TEMPORAL_CALLBACK_FAILURE;
    }
    stream->id = id;
    nghttp2_session_set_stream_user_data(session, id, stream);
    return 0;
  }

  static int header(nghttp2_session*, const nghttp2_frame* frame, const uint8_t* name, size_t name_size, const uint8_t* value,
                    size_t value_size, uint8_t, void* user) noexcept {
    Session& s = self(user);
    SessionStream* stream = s.stream(frame->hd.stream_id);
    if (stream == nullptr || s.owner_.field(*stream, view(name, name_size), view(value, value_size))) return 0;
    s.wanted_code_ = ErrorCode::enhance_your_calm;
    s.wanted_cause_ = EndCause::header_list;
    return NGHTTP2_ERR_CALLBACK_FAILURE;
  }

  // Without this the library leaves such a field out and goes on.
  static int invalid_header(nghttp2_session*, const nghttp2_frame*, const uint8_t*, size_t, const uint8_t*, size_t, uint8_t,
                            void*) noexcept {
    return NGHTTP2_ERR_TEMPORAL_CALLBACK_FAILURE;
  }

  static int frame_received(nghttp2_session*, const nghttp2_frame* frame, void* user) noexcept {
    Session& s = self(user);
    const bool ends = (frame->hd.flags & NGHTTP2_FLAG_END_STREAM) != 0;
    switch (frame->hd.type) {
      case NGHTTP2_HEADERS:
      case NGHTTP2_DATA: {
        SessionStream* stream = s.stream(frame->hd.stream_id);
        if (stream == nullptr) return 0;
        if (frame->hd.type == NGHTTP2_HEADERS) s.owner_.block_ended(*stream, frame->headers.cat != NGHTTP2_HCAT_REQUEST, ends);
        else if (s.data_in_frame_ == 0 && !ends && !s.charge(1)) return NGHTTP2_ERR_CALLBACK_FAILURE;
        if (!ends) return 0;
        stream->remote_ended = true;
        s.owner_.ended(*stream);
        return 0;
      }
      case NGHTTP2_SETTINGS:
        if ((frame->hd.flags & NGHTTP2_FLAG_ACK) == 0) s.settings_seen_ = true;
        return 0;
      case NGHTTP2_PING:
        if ((frame->hd.flags & NGHTTP2_FLAG_ACK) != 0 && s.pings_ > 0) {
          --s.pings_;
          s.owner_.ping_answered();
        }
        return 0;
      default: return 0;
    }
  }

  static int data_chunk(nghttp2_session*, uint8_t, int32_t id, const uint8_t* data, size_t size, void* user) noexcept {
    Session& s = self(user);
    s.data_in_frame_ += static_cast<uint32_t>(size);
    SessionStream* stream = s.stream(id);
    if (stream == nullptr) {
      s.credit_connection(static_cast<uint32_t>(size));
      return 0;
    }
    const auto* from = reinterpret_cast<const uint8_t*>(s.input_->data());
    s.owner_.data(*stream, s.input_->share(static_cast<uint32_t>(data - from), static_cast<uint32_t>(size)));
    return 0;
  }

  static int stream_closed(nghttp2_session*, int32_t id, uint32_t code, void* user) noexcept {
    Session& s = self(user);
    SessionStream* stream = s.stream(id);
    if (stream == nullptr) return 0;
    if (!stream->queue.empty()) {
      --s.queued_;
      stream->queue.clear();
    }
    stream->closed = true;
    s.owner_.closed(*stream, code_of(code));
    return 0;
  }

  static nghttp2_ssize read_body(nghttp2_session* session, int32_t id, uint8_t*, size_t most, uint32_t* flags,
                                 nghttp2_data_source* source, void* user) noexcept {
    Session& s = self(user);
    SessionStream& stream = *static_cast<SessionStream*>(source->ptr);
    if (s.out_.bytes() >= s.most_) return NGHTTP2_ERR_PAUSE;
    const size_t count = std::min(most, stream.queue.bytes());
    if (count == 0 && !stream.end_queued) {
      stream.deferred = true;
      return NGHTTP2_ERR_DEFERRED;
    }
    *flags |= NGHTTP2_DATA_FLAG_NO_COPY;
    if (!stream.end_queued || count != stream.queue.bytes()) return static_cast<nghttp2_ssize>(count);
    *flags |= NGHTTP2_DATA_FLAG_EOF;
    if (stream.trailers == nullptr) return static_cast<nghttp2_ssize>(count);
    *flags |= NGHTTP2_DATA_FLAG_NO_END_STREAM;
    std::array<nghttp2_nv, kFieldsSentMax> fields;
    size_t used = 0;
    for (const char* at = stream.trailers.get(); at != stream.trailers.get() + stream.trailer_bytes && used < fields.size();) {
      TrailerSize size;
      std::memcpy(&size, at, sizeof size);
      at += sizeof size;
      fields[used++] = nv_of({at, size.name}, {at + size.name, size.value});
      at += size.name + size.value;
    }
    if (nghttp2_submit_trailer(session, id, fields.data(), used) != 0) return NGHTTP2_ERR_CALLBACK_FAILURE;
    stream.trailers.reset();
    return static_cast<nghttp2_ssize>(count);
  }

  static int send_data(nghttp2_session*, nghttp2_frame*, const uint8_t* head, size_t length, nghttp2_data_source* source,
                       void* user) noexcept {
    Session& s = self(user);
    SessionStream& stream = *static_cast<SessionStream*>(source->ptr);
    Slice slice = s.small_.take(kFrameHeaderBytes + (length <= kJoinBytes ? length : 0));
    if (!slice) return NGHTTP2_ERR_CALLBACK_FAILURE;
    std::memcpy(slice.data(), head, kFrameHeaderBytes);
    if (length <= kJoinBytes) {
      stream.queue.copy_out(slice.data() + kFrameHeaderBytes, 0, length);
      stream.queue.consume(length);
      s.out_.append(std::move(slice));
    } else {
      s.out_.append(std::move(slice));
      s.out_.append(stream.queue.take(length));
    }
    if (length == 0) return 0;
    if (stream.queue.empty()) --s.queued_;
    s.budget_.data_sent(s.limits_.budget, length);
    if (!s.owner_.framed(stream, length)) return 0;
    s.stopped_ = true;
    return NGHTTP2_ERR_PAUSE;
  }

  static int frame_sent(nghttp2_session* session, const nghttp2_frame* frame, void* user) noexcept {
    Session& s = self(user);
    const int32_t id = frame->hd.stream_id;
    s.goaway_stands_last_ = frame->hd.type == NGHTTP2_GOAWAY;
    switch (frame->hd.type) {
      case NGHTTP2_HEADERS:
      case NGHTTP2_DATA: {
        SessionStream* stream = s.stream(id);
        if (stream == nullptr || (frame->hd.flags & NGHTTP2_FLAG_END_STREAM) == 0) return 0;
        stream->end_sent = true;
        // A whole answer to half a request: the rest is of no use (RFC 9113 section 8.1).
        if (!stream->remote_ended) nghttp2_submit_rst_stream(session, NGHTTP2_FLAG_NONE, id, NGHTTP2_NO_ERROR);
        return 0;
      }
      case NGHTTP2_RST_STREAM: {
        const int32_t window = nghttp2_session_get_stream_local_window_size(session, id);
        s.remember_reset(id, window > 0 ? static_cast<uint32_t>(window) : 0);
        if (peers_fault(frame->rst_stream.error_code) && !s.count_reset()) return NGHTTP2_ERR_CALLBACK_FAILURE;
        return 0;
      }
      case NGHTTP2_GOAWAY: {
        s.goaway_last_ = std::min(s.goaway_last_, frame->goaway.last_stream_id);
        const ErrorCode code = code_of(frame->goaway.error_code);
        s.owner_.goaway_made(code, code == ErrorCode::no_error ? EndCause::drained : EndCause::protocol);
        return 0;
      }
      default: return 0;
    }
  }

  static const nghttp2_session_callbacks* all() noexcept {
    static const nghttp2_session_callbacks* const kCallbacks = [] {
      nghttp2_session_callbacks* c = nullptr;
      WEIR_ASSERT(nghttp2_session_callbacks_new(&c) == 0);
      nghttp2_session_callbacks_set_on_begin_headers_callback(c, begin_headers);
      nghttp2_session_callbacks_set_on_header_callback(c, header);
      nghttp2_session_callbacks_set_on_invalid_header_callback(c, invalid_header);
      nghttp2_session_callbacks_set_on_frame_recv_callback(c, frame_received);
      nghttp2_session_callbacks_set_on_data_chunk_recv_callback(c, data_chunk);
      nghttp2_session_callbacks_set_on_stream_close_callback(c, stream_closed);
      nghttp2_session_callbacks_set_send_data_callback(c, send_data);
      nghttp2_session_callbacks_set_on_frame_send_callback(c, frame_sent);
      return c;
    }();
    return kCallbacks;
  }
};

Session::Session(SessionOwner& owner, const SessionLimits& limits, SmallBytes& small, Chain& out, TimePoint now) noexcept
    : owner_(owner), limits_(limits), small_(small), out_(out), budget_(now), now_(now) {}

Session::~Session() { nghttp2_session_del(session_); }

bool Session::start() noexcept {
  over_ = true;   // until it stands
  if (nghttp2_session_server_new2(&session_, Callbacks::all(), this, library_options()) != 0) return false;
  // The library answers a stream too many with the end of the connection, once the peer has acknowledged its number: it is told one
  // that is never reached, and what goes out carries ours.
  streams_told_ = limits_.streams;
  const nghttp2_settings_entry settings[] = {{NGHTTP2_SETTINGS_MAX_CONCURRENT_STREAMS, INT32_MAX},
                                             {NGHTTP2_SETTINGS_MAX_HEADER_LIST_SIZE, limits_.header_list_bytes},
                                             {NGHTTP2_SETTINGS_NO_RFC7540_PRIORITIES, 1}};
  if (nghttp2_submit_settings(session_, NGHTTP2_FLAG_NONE, settings, std::size(settings)) != 0) return false;
  if (nghttp2_session_set_local_window_size(session_, NGHTTP2_FLAG_NONE, 0, static_cast<int32_t>(limits_.connection_window)) != 0)
    return false;
  over_ = false;
  make_frames(0);
  return !over_;
}

SessionStream* Session::stream(int32_t id) const noexcept {
  return static_cast<SessionStream*>(nghttp2_session_get_stream_user_data(session_, id));
}

// ---- input

void Session::receive(const Slice& bytes, TimePoint now) noexcept {
  now_ = now;
  input_ = &bytes;
  const auto* at = reinterpret_cast<const uint8_t*>(bytes.data());
  const uint8_t* const end = at + bytes.size();
  if (preface_taken_ < kPreface.size()) at = take_preface(at, end);
  while (at != end && !over_) {
    if (payload_left_ > 0) {
      const auto part = static_cast<size_t>(std::min<uint64_t>(payload_left_, static_cast<uint64_t>(end - at)));
      payload_left_ -= static_cast<uint32_t>(part);
      feed(at, part);
      at += part;
      if (payload_left_ == 0 && block_ends_) block_open_ = false;
    } else if (held_size_ == 0 && end - at >= static_cast<ptrdiff_t>(held_.size())) {
      const FrameHeader frame = FrameHeader::parse(at);
      const size_t part = kFrameHeaderBytes + std::min<size_t>(frame.length, static_cast<size_t>(end - at) - kFrameHeaderBytes);
      take_frame(frame, at, part);
      at += part;
    } else {
      held_[held_size_++] = *at++;
      if (held_size_ < kFrameHeaderBytes) continue;
      const FrameHeader frame = FrameHeader::parse(held_.data());
      const bool whole = frame.is(FrameType::window_update) && frame.length == 4;   // its payload says whether it is good
      if (whole && held_size_ < held_.size()) continue;
      take_frame(frame, held_.data(), std::exchange(held_size_, uint8_t{0}));
    }
  }
  input_ = nullptr;
}

// A frame's header and, in so many bytes, the beginning of its payload.
void Session::take_frame(const FrameHeader& frame, const uint8_t* bytes, size_t count) noexcept {
  if (!frame_begins(frame)) return;
  payload_left_ = frame.length - static_cast<uint32_t>(count - kFrameHeaderBytes);
  if (frame.is(FrameType::window_update) && payload_left_ == 0 && bad_window_update(bytes)) return;
  feed(bytes, count);
  if (payload_left_ == 0 && block_ends_) block_open_ = false;
}

// One that would be an error of the stream; the library would end the connection for it.
bool Session::bad_window_update(const uint8_t* bytes) noexcept {
  const FrameHeader frame = FrameHeader::parse(bytes);
  if (frame.length != 4 || frame.stream == 0 || stream(frame.stream) == nullptr || block_open_) return false;
  const auto increment = static_cast<uint32_t>(FrameHeader::parse(bytes + 4).stream);   // 31 bits, in the place of a stream's id
  const int32_t window = nghttp2_session_get_stream_remote_window_size(session_, frame.stream);
  if (increment != 0 && int64_t{window} + increment <= INT32_MAX) return false;
  nghttp2_submit_rst_stream(session_, NGHTTP2_FLAG_NONE, frame.stream,
                            increment == 0 ? NGHTTP2_PROTOCOL_ERROR : NGHTTP2_FLOW_CONTROL_ERROR);
  return true;
}

const uint8_t* Session::take_preface(const uint8_t* at, const uint8_t* end) noexcept {
  while (at != end && preface_taken_ < kPreface.size()) {
    if (*at++ == static_cast<uint8_t>(kPreface[preface_taken_++])) continue;
    this->end(ErrorCode::protocol_error, EndCause::protocol);
    break;
  }
  return at;
}

void Session::feed(const uint8_t* data, size_t count) noexcept {
  const nghttp2_ssize taken = nghttp2_session_mem_recv2(session_, data, count);
  if (taken < 0) failed(static_cast<int>(taken));
}

void Session::failed(int error) noexcept {
  if (wanted_code_ != ErrorCode::no_error) end(wanted_code_, wanted_cause_);
  else if (error == NGHTTP2_ERR_FLOODED) end(ErrorCode::enhance_your_calm, EndCause::overhead);
  else end(ErrorCode::internal_error, EndCause::memory);
}

// From within a callback the session cannot end at once: what is wanted then is done when the library has returned.
bool Session::charge(uint32_t frames) noexcept {
  if (budget_.overhead(limits_.budget, frames, now_)) return true;
  wanted_code_ = ErrorCode::enhance_your_calm;
  wanted_cause_ = EndCause::overhead;
  return false;
}

bool Session::count_reset() noexcept {
  if (budget_.reset(limits_.budget, now_)) return true;
  wanted_code_ = ErrorCode::enhance_your_calm;
  wanted_cause_ = EndCause::resets;
  return false;
}

bool Session::unblocks(int32_t id) const noexcept {
  if (id == 0) return connection_window_shut() && queued_ > 0;
  const SessionStream* of = stream(id);
  return of != nullptr && !of->queue.empty() && stream_window_shut(*of);
}

// A frame's header is there; the library has not seen it. false: the session is over.
bool Session::frame_begins(const FrameHeader& frame) noexcept {
  bool good = true;
  data_in_frame_ = 0;
  switch (static_cast<FrameType>(frame.type)) {
    case FrameType::data:
    case FrameType::headers:
      good = on_closed_stream(frame);
      if (good && frame.is(FrameType::headers)) good = block_grows(frame);
      break;
    case FrameType::continuation: good = charge(1) && block_grows(frame); break;
    case FrameType::rst_stream: good = count_reset(); break;
    case FrameType::settings: good = charge(frame.has(kAck) || frame.length < 12 ? 1 : frame.length / 6); break;
    case FrameType::ping:
      good = (frame.has(kAck) && pings_ > 0) || budget_.ping(limits_.budget, now_) || charge(0);
      break;
    case FrameType::window_update:
      good = budget_.window_update(limits_.budget, unblocks(frame.stream), now_) || charge(0);
      break;
    default: good = charge(1); break;
  }
  if (!good) end(wanted_code_, wanted_cause_);
  return good;
}

// DATA and HEADERS of a stream that can take none. What was under way when we reset it is no offence. One that the peer itself had
// ended is reset for good, and this is no reason to end the connection, as the library would (RFC 9113 section 5.1).
bool Session::on_closed_stream(const FrameHeader& frame) noexcept {
  if (frame.stream == 0 || frame.stream % 2 == 0 || frame.stream > last_seen_) return true;
  if (SessionStream* of = stream(frame.stream); of != nullptr) {
    if (of->remote_ended) forget_now(*of);
    return !over_;
  }
  for (Recent& recent : recent_) {
    if (recent.id != frame.stream) continue;
    if (frame.is(FrameType::headers)) return charge(1);
    const uint32_t takes = std::max(frame.length, kRacingFrameMin);
    if (recent.credit < takes) return charge(1);
    recent.credit -= takes;
    return true;
  }
  nghttp2_submit_rst_stream(session_, NGHTTP2_FLAG_NONE, frame.stream, NGHTTP2_STREAM_CLOSED);
  return charge(1);
}

// The library drops its stream now, so that the frame that comes next meets none.
void Session::forget_now(SessionStream& of) noexcept {
  nghttp2_submit_rst_stream(session_, NGHTTP2_FLAG_NONE, of.id, NGHTTP2_STREAM_CLOSED);
  make_frames(0);
}

bool Session::block_grows(const FrameHeader& frame) noexcept {
  if (frame.is(FrameType::headers)) block_bytes_ = 0;
  block_bytes_ += std::min(frame.length, 1u << 24);
  block_open_ = true;   // until the frame has been read that ends it
  block_ends_ = frame.has(kEndHeaders);
  if (block_bytes_ <= uint64_t{limits_.header_list_bytes} * 4 + (64u << 10)) return true;
  wanted_code_ = ErrorCode::enhance_your_calm;
  wanted_cause_ = EndCause::header_list;
  return false;
}

// ---- output

bool Session::fill(size_t most) noexcept {
  if (over_) return false;
  stopped_ = false;
  make_frames(most);
  return stopped_ && !over_;
}

void Session::make_frames(size_t most) noexcept {
  most_ = most;
  for (;;) {
    const uint8_t* data = nullptr;
    const size_t before = out_.bytes();
    const nghttp2_ssize count = nghttp2_session_mem_send2(session_, &data);
    if (count < 0) {
      failed(static_cast<int>(count));
      return;
    }
    if (count > 0) {
      const bool first = !settings_sent_;
      settings_sent_ = true;
      if (first) {
        Slice settings = small_.take(static_cast<size_t>(count));
        if (!settings) return failed(NGHTTP2_ERR_NOMEM);
        std::memcpy(settings.data(), data, static_cast<size_t>(count));
        lower_streams_setting(settings);
        out_.append(std::move(settings));
      } else if (is_error_goaway(data, static_cast<size_t>(count))) {
        // The library counts the stream whose frame was wrong as processed, and those that were not dispatched yet.
        const ErrorCode code = code_of(error_in_goaway(data));
        goaway_last_ = std::min(goaway_last_, processed_);
        const GoawayBytes bytes = goaway_bytes(goaway_last_, code);
        if (!small_.append(out_, bytes.data(), bytes.size())) return failed(NGHTTP2_ERR_NOMEM);
      } else if (!small_.append(out_, data, static_cast<size_t>(count))) {
        return failed(NGHTTP2_ERR_NOMEM);
      }
    } else if (out_.bytes() == before || stopped_) {
      break;   // nothing more, or nothing that may go now
    }
  }
  if (nghttp2_session_want_read(session_) != 0 || nghttp2_session_want_write(session_) != 0) return;
  // The library has ended it, by an error or because the last stream of a drain is done. A GOAWAY is the last that is said.
  over_ = true;
  if (goaway_stands_last_) return;
  const GoawayBytes bytes = goaway_bytes(goaway_last_, ErrorCode::no_error);
  (void)small_.append(out_, bytes.data(), bytes.size());
}

void Session::lower_streams_setting(Slice& settings) noexcept {
  auto* at = reinterpret_cast<uint8_t*>(settings.data()) + kFrameHeaderBytes;
  const auto* end = reinterpret_cast<uint8_t*>(settings.data()) + settings.size();
  for (; at + 6 <= end; at += 6) {
    if (at[0] != 0 || at[1] != NGHTTP2_SETTINGS_MAX_CONCURRENT_STREAMS) continue;
    for (int i = 0; i < 4; ++i) at[2 + i] = static_cast<uint8_t>(streams_told_ >> (24 - 8 * i));
  }
}

void Session::remember_reset(int32_t id, uint32_t credit) noexcept {
  for (const Recent& recent : recent_)
    if (recent.id == id) return;
  recent_[recent_at_] = {id, credit};
  recent_at_ = (recent_at_ + 1) % kRecent;
}

void Session::respond(SessionStream& of, std::span<const HeaderView> fields, bool ends) noexcept {
  if (of.closed || over_) return;
  const Nvs nvs(fields);
  nghttp2_data_provider2 body{};
  body.source.ptr = &of;
  body.read_callback = Callbacks::read_body;
  of.responded = true;
  if (nghttp2_submit_response2(session_, of.id, nvs.at.data(), nvs.count, ends ? nullptr : &body) != 0)
    reset(of, ErrorCode::internal_error);
}

void Session::inform(SessionStream& of, std::span<const HeaderView> fields) noexcept {
  if (of.closed || of.responded || over_) return;
  const Nvs nvs(fields);
  if (nghttp2_submit_headers(session_, NGHTTP2_FLAG_NONE, of.id, nullptr, nvs.at.data(), nvs.count, nullptr) < 0)
    reset(of, ErrorCode::internal_error);
}

void Session::send(SessionStream& of, Chain&& body) noexcept {
  if (of.closed || over_ || body.empty()) {
    body.clear();
    return;
  }
  if (of.queue.empty()) ++queued_;
  of.queue.append(std::move(body));
  resume(of);
}

void Session::finish(SessionStream& of, std::unique_ptr<char[]> trailers, uint32_t bytes) noexcept {
  of.end_queued = true;
  of.trailers = std::move(trailers);
  of.trailer_bytes = bytes;
  resume(of);
}

void Session::resume(SessionStream& of) noexcept {
  if (of.closed || over_ || !std::exchange(of.deferred, false)) return;
  nghttp2_session_resume_data(session_, of.id);
}

void Session::reset(SessionStream& of, ErrorCode code) noexcept {
  if (of.closed || over_) return;
  if (!of.queue.empty()) {
    --queued_;
    of.queue.clear();
  }
  nghttp2_submit_rst_stream(session_, NGHTTP2_FLAG_NONE, of.id, static_cast<uint32_t>(code));
}

void Session::prioritise(SessionStream& of, std::string_view field) noexcept {
  nghttp2_extpri priority{};
  if (of.closed || over_ || nghttp2_session_get_extpri_stream_priority(session_, &priority, of.id) != 0) return;
  if (nghttp2_extpri_parse_priority(&priority, reinterpret_cast<const uint8_t*>(field.data()), field.size()) != 0) return;
  nghttp2_session_change_extpri_stream_priority(session_, of.id, &priority, 1);
}

// ---- windows

void Session::credit_stream(SessionStream& of, uint32_t bytes) noexcept {
  if (of.closed || of.remote_ended || over_) return;
  nghttp2_submit_window_update(session_, NGHTTP2_FLAG_NONE, of.id, static_cast<int32_t>(bytes));
}

void Session::credit_connection(uint32_t bytes) noexcept {
  if (!over_) nghttp2_session_consume_connection(session_, bytes);
}

bool Session::stream_window_shut(const SessionStream& of) const noexcept {
  return !of.closed && nghttp2_session_get_stream_remote_window_size(session_, of.id) <= 0;
}

bool Session::connection_window_shut() const noexcept { return nghttp2_session_get_remote_window_size(session_) <= 0; }

// ---- the end

void Session::ping() noexcept {
  if (over_) return;
  if (nghttp2_submit_ping(session_, NGHTTP2_FLAG_NONE, nullptr) == 0) ++pings_;
}

void Session::announce_goaway() noexcept {
  if (!over_) nghttp2_submit_shutdown_notice(session_);
}

void Session::refuse_further() noexcept {
  if (!over_) nghttp2_submit_goaway(session_, NGHTTP2_FLAG_NONE, last_seen_, NGHTTP2_NO_ERROR, nullptr, 0);
}

void Session::end(ErrorCode code, EndCause cause) noexcept {
  if (std::exchange(over_, true)) return;
  goaway_last_ = std::min(goaway_last_, processed_);
  const GoawayBytes bytes = goaway_bytes(goaway_last_, code);
  if (small_.append(out_, bytes.data(), bytes.size())) owner_.goaway_made(code, cause);
}

}  // namespace weir::h2

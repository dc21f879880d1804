#include "tests/unit/protocols/h2_memory.h"

namespace weir::test {
namespace {

nghttp2_nv field(std::string_view name, std::string_view value) {
  return {reinterpret_cast<uint8_t*>(const_cast<char*>(name.data())), reinterpret_cast<uint8_t*>(const_cast<char*>(value.data())),
          name.size(), value.size(), NGHTTP2_NV_FLAG_NONE};
}

}  // namespace

// ---- the stream's two halves

void H2Stream::grant(uint64_t total) noexcept {
  if (total <= told || closed) return;
  WEIR_ASSERT(nghttp2_submit_window_update(conn_.session_, NGHTTP2_FLAG_NONE, id_, static_cast<int32_t>(total - told)) == 0);
  told = total;
}

void H2Stream::send_body(Chain&& bytes) noexcept {
  WEIR_ASSERT(bytes.bytes() <= room() && !end_);
  queue_.append(std::move(bytes));
  if (std::exchange(deferred_, false)) nghttp2_session_resume_data(conn_.session_, id_);
}

void H2Stream::send_end(const Head* trailers_given) noexcept {
  WEIR_ASSERT(!end_);
  end_ = true;
  if (trailers_given != nullptr)
    for (const Field& field : *trailers_given)
      if (field.forwarded()) trailers_out_.emplace_back(field.name_view(), field.value_view());
  if (std::exchange(deferred_, false)) nghttp2_session_resume_data(conn_.session_, id_);
}

void H2Stream::send_head(const Head& head, std::span<const ExtraField>) noexcept {
  nghttp2_data_provider2 body{};
  body.source.ptr = this;
  body.read_callback = H2Conn::read_body;
  const std::string status = std::to_string(head.status);
  const nghttp2_nv fields[] = {field(":status", status)};
  WEIR_ASSERT(nghttp2_submit_response2(conn_.session_, id_, fields, 1, &body) == 0);
}

void H2Stream::abort(const Fault&) noexcept {
  if (!closed) nghttp2_submit_rst_stream(conn_.session_, NGHTTP2_FLAG_NONE, id_, NGHTTP2_CANCEL);
}

// ---- the connection

H2Conn::H2Conn(Loop& loop, bool server) : loop_(loop), server_(server) {
  nghttp2_session_callbacks* callbacks = nullptr;
  WEIR_ASSERT(nghttp2_session_callbacks_new(&callbacks) == 0);
  nghttp2_session_callbacks_set_on_data_chunk_recv_callback(callbacks, on_data);
  nghttp2_session_callbacks_set_on_header_callback(callbacks, on_header);
  nghttp2_session_callbacks_set_on_begin_headers_callback(callbacks, on_begin);
  nghttp2_session_callbacks_set_on_frame_recv_callback(callbacks, on_frame);
  nghttp2_session_callbacks_set_on_frame_send_callback(callbacks, on_sent);
  nghttp2_session_callbacks_set_on_stream_close_callback(callbacks, on_close);
  nghttp2_session_callbacks_set_send_data_callback(callbacks, send_data);
  nghttp2_option* options = nullptr;
  WEIR_ASSERT(nghttp2_option_new(&options) == 0);
  nghttp2_option_set_no_auto_window_update(options, 1);
  nghttp2_option_set_stream_reset_rate_limit(options, 1'000'000, 1'000'000);
  WEIR_ASSERT((server ? nghttp2_session_server_new2 : nghttp2_session_client_new2)(&session_, callbacks, this, options) == 0);
  nghttp2_option_del(options);
  nghttp2_session_callbacks_del(callbacks);
  const nghttp2_settings_entry settings[] = {{NGHTTP2_SETTINGS_INITIAL_WINDOW_SIZE, kStreamWindow},
                                             {NGHTTP2_SETTINGS_MAX_CONCURRENT_STREAMS, 256}};
  WEIR_ASSERT(nghttp2_submit_settings(session_, NGHTTP2_FLAG_NONE, settings, 2) == 0);
  WEIR_ASSERT(nghttp2_session_set_local_window_size(session_, NGHTTP2_FLAG_NONE, 0, kConnWindow) == 0);
}

H2Conn::~H2Conn() {
  on_closed = nullptr;
  nghttp2_session_del(session_);
}

H2Stream& H2Conn::add(int32_t id) { return *streams.emplace_back(std::make_unique<H2Stream>(*this, id)); }

H2Stream& H2Conn::open() {
  H2Stream& made = add(0);
  nghttp2_data_provider2 body{};
  body.source.ptr = &made;
  body.read_callback = read_body;
  const nghttp2_nv fields[] = {field(":method", "POST"), field(":scheme", "http"), field(":authority", "origin"),
                               field(":path", "/")};
  made.id_ = nghttp2_submit_request2(session_, nullptr, fields, 4, &body, &made);
  WEIR_ASSERT(made.id_ > 0);
  return made;
}

std::string H2Conn::output(size_t wire_bytes_max) {
  while (wire_.size() < wire_bytes_max) {
    const uint8_t* data = nullptr;
    const nghttp2_ssize count = nghttp2_session_mem_send2(session_, &data);
    WEIR_ASSERT(count >= 0);
    if (count == 0 && nghttp2_session_want_write(session_) == 0) break;
    const size_t before = wire_.size();
    wire_.append(reinterpret_cast<const char*>(data), static_cast<size_t>(count));
    if (count == 0 && wire_.size() == before) break;   // windows are closed, or all bodies are deferred
  }
  return std::exchange(wire_, {});
}

void H2Conn::input(std::string_view bytes) {
  const nghttp2_ssize count =
      nghttp2_session_mem_recv2(session_, reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size());
  WEIR_ASSERT(count == static_cast<nghttp2_ssize>(bytes.size()));
}

// ---- callbacks: sending

nghttp2_ssize H2Conn::read_body(nghttp2_session* session, int32_t id, uint8_t*, size_t most, uint32_t* flags,
                                nghttp2_data_source* source, void*) {
  H2Stream& stream = *static_cast<H2Stream*>(source->ptr);
  const size_t count = std::min(most, stream.queue_.bytes());
  if (count == 0 && !stream.end_) {
    stream.deferred_ = true;
    return NGHTTP2_ERR_DEFERRED;
  }
  *flags |= NGHTTP2_DATA_FLAG_NO_COPY;
  if (stream.end_ && count == stream.queue_.bytes()) {
    *flags |= NGHTTP2_DATA_FLAG_EOF;
    if (!stream.trailers_out_.empty()) {
      *flags |= NGHTTP2_DATA_FLAG_NO_END_STREAM;
      std::vector<nghttp2_nv> fields;
      for (const auto& [name, value] : stream.trailers_out_) fields.push_back(field(name, value));
      WEIR_ASSERT(nghttp2_submit_trailer(session, id, fields.data(), fields.size()) == 0);
    }
  }
  return static_cast<nghttp2_ssize>(count);
}

int H2Conn::send_data(nghttp2_session*, nghttp2_frame* frame, const uint8_t* head, size_t length, nghttp2_data_source* source,
                      void* user) {
  H2Conn& conn = *static_cast<H2Conn*>(user);
  H2Stream& stream = *static_cast<H2Stream*>(source->ptr);
  WEIR_ASSERT(frame->data.padlen == 0);
  conn.wire_.append(reinterpret_cast<const char*>(head), 9);
  const size_t at = conn.wire_.size();
  conn.wire_.resize(at + length);
  WEIR_ASSERT(stream.queue_.copy_out(conn.wire_.data() + at, 0, length) == length);
  stream.queue_.consume(length);
  if (stream.out != nullptr) stream.out->touch();
  return 0;
}

int H2Conn::on_sent(nghttp2_session*, const nghttp2_frame* frame, void* user) {
  if (frame->hd.type == NGHTTP2_WINDOW_UPDATE && frame->hd.stream_id != 0) ++static_cast<H2Conn*>(user)->window_updates;
  return 0;
}

// ---- callbacks: receiving

int H2Conn::on_begin(nghttp2_session* session, const nghttp2_frame* frame, void* user) {
  H2Conn& conn = *static_cast<H2Conn*>(user);
  if (conn.server_ && conn.stream(frame->hd.stream_id) == nullptr)
    nghttp2_session_set_stream_user_data(session, frame->hd.stream_id, &conn.add(frame->hd.stream_id));
  return 0;
}

int H2Conn::on_header(nghttp2_session*, const nghttp2_frame* frame, const uint8_t* name, size_t name_size, const uint8_t* value,
                      size_t value_size, uint8_t, void* user) {
  H2Stream* stream = static_cast<H2Conn*>(user)->stream(frame->hd.stream_id);
  if (stream == nullptr || !stream->head_seen) return 0;
  stream->trailer_fields.emplace(std::string(reinterpret_cast<const char*>(name), name_size),
                                 std::string(reinterpret_cast<const char*>(value), value_size));
  return 0;
}

int H2Conn::on_data(nghttp2_session* session, uint8_t, int32_t id, const uint8_t* data, size_t length, void* user) {
  H2Conn& conn = *static_cast<H2Conn*>(user);
  nghttp2_session_consume_connection(session, length);
  H2Stream* stream = conn.stream(id);
  if (stream == nullptr || stream->in == nullptr || !stream->in->opened()) return 0;   // an exchange that has ended
  Chain bytes;
  WEIR_ASSERT(bytes.append_copy(conn.loop_.slabs(), data, length));
  stream->received += length;
  stream->in->deliver(std::move(bytes));
  return 0;
}

void H2Conn::end_body(H2Stream& stream) {
  if (stream.in == nullptr || !stream.in->opened()) return;
  if (!stream.trailer_fields.empty()) {
    stream.trailers = std::make_unique<Head>();
    for (const auto& [name, value] : stream.trailer_fields) stream.trailers->add(field_id(name), name, value);
  }
  stream.in->end(stream.trailers.get());
}

int H2Conn::on_frame(nghttp2_session*, const nghttp2_frame* frame, void* user) {
  H2Conn& conn = *static_cast<H2Conn*>(user);
  if (frame->hd.type != NGHTTP2_HEADERS && frame->hd.type != NGHTTP2_DATA) return 0;
  H2Stream* stream = conn.stream(frame->hd.stream_id);
  if (stream == nullptr) return 0;
  if (frame->hd.type == NGHTTP2_HEADERS && !std::exchange(stream->head_seen, true) && conn.on_stream != nullptr)
    conn.on_stream(conn, *stream, conn.context);
  if ((frame->hd.flags & NGHTTP2_FLAG_END_STREAM) != 0) conn.end_body(*stream);
  return 0;
}

int H2Conn::on_close(nghttp2_session*, int32_t id, uint32_t code, void* user) {
  H2Conn& conn = *static_cast<H2Conn*>(user);
  H2Stream* stream = conn.stream(id);
  if (stream == nullptr) return 0;
  stream->closed = true;
  stream->close_code = code;
  if (code != 0) ++conn.resets_seen;
  if (conn.on_closed != nullptr) conn.on_closed(conn, *stream, conn.context);
  return 0;
}

}  // namespace weir::test

#include "tests/sim/h2_client.h"

#include <nghttp2/nghttp2.h>

#include <algorithm>
#include <stdexcept>

namespace weir::simtest {

std::string H2Answer::field(const std::string& name) const {
  for (const auto& [key, value] : fields)
    if (key == name) return value;
  return {};
}

std::string h2_number(uint64_t number, int bytes) {
  std::string out;
  for (int i = bytes - 1; i >= 0; --i) out += static_cast<char>(number >> (8 * i));
  return out;
}

namespace {

// A string literal of RFC 7541 section 5.2, without Huffman.
std::string literal(const std::string& text) {
  std::string out;
  size_t size = text.size();
  if (size < 127) return out + static_cast<char>(size) + text;
  out += 127;
  for (size -= 127; size >= 128; size /= 128) out += static_cast<char>(size % 128 + 128);
  return out + static_cast<char>(size) + text;
}

uint32_t number_at(const std::string& text, size_t at) {
  uint32_t number = 0;
  for (size_t i = at; i < at + 4; ++i) number = number << 8 | static_cast<unsigned char>(text.at(i));
  return number;
}

}  // namespace

std::string h2_block(const H2Fields& fields) {
  std::string out;
  for (const auto& [name, value] : fields) out += std::string(1, '\0') + literal(name) + literal(value);
  return out;
}

H2Fields h2_get(const std::string& path, const std::string& method) {
  return {{":method", method}, {":scheme", "http"}, {":authority", "a"}, {":path", path}};
}

H2Client::H2Client(Proxy& proxy, const Options& options)
    : peer(proxy.network.connect_peer(address_of(kFront))), credit(options.credit), acknowledge_(options.acknowledge) {
  if (nghttp2_hd_inflate_new(&inflater_) != 0) throw std::runtime_error("no inflater");
  peer.on_event = [this](SimPeer&) { feed(); };
  if (!options.preface) return;
  send(h2::kPreface);
  std::string entries;
  for (const auto& [id, value] : options.settings) entries += h2_number(static_cast<uint64_t>(id), 2) + h2_number(value, 4);
  frame(FrameType::settings, 0, 0, entries);
}

H2Client::~H2Client() {
  peer.on_event = nullptr;
  nghttp2_hd_inflate_del(inflater_);
}

std::string H2Client::frame(uint8_t type, uint8_t flags, int32_t stream, std::string_view payload) {
  std::string out = h2_number(payload.size(), 3);
  out += static_cast<char>(type);
  out += static_cast<char>(flags);
  return out + h2_number(static_cast<uint32_t>(stream), 4) + std::string(payload);
}

void H2Client::frame(FrameType type, uint8_t flags, int32_t stream, std::string_view payload) {
  send(frame(static_cast<uint8_t>(type), flags, stream, payload));
}

void H2Client::headers(int32_t stream, const H2Fields& fields, uint8_t flags) {
  frame(FrameType::headers, flags, stream, h2_block(fields));
}

int32_t H2Client::request(const H2Fields& fields, bool ends) {
  const int32_t id = next_stream;
  next_stream += 2;
  headers(id, fields, static_cast<uint8_t>(h2::kEndHeaders | (ends ? h2::kEndStream : 0)));
  return id;
}

int32_t H2Client::get(const std::string& path, const H2Fields& more) {
  H2Fields fields = h2_get(path);
  fields.insert(fields.end(), more.begin(), more.end());
  return request(fields, true);
}

void H2Client::data(int32_t stream, std::string_view bytes, bool ends) {
  frame(FrameType::data, ends ? h2::kEndStream : 0, stream, bytes);
}

void H2Client::upload(int32_t stream, std::string bytes, bool ends) {
  Upload& upload = uploads_[stream];
  upload.left += bytes;
  upload.ends = ends;
  pump(stream, upload);
}

void H2Client::pump(int32_t stream, Upload& upload) {
  if (answers[stream].reset >= 0) return;
  for (;;) {
    const auto most = std::min<int64_t>({upload.window, connection_window, 16384, static_cast<int64_t>(upload.left.size())});
    const bool last = upload.ends && most == static_cast<int64_t>(upload.left.size());
    if (most <= 0 && !last) return;
    data(stream, std::string_view(upload.left).substr(0, static_cast<size_t>(most)), last);
    upload.left.erase(0, static_cast<size_t>(most));
    upload.window -= most;
    connection_window -= most;
    if (!last) continue;
    upload.ends = false;
    return;
  }
}

void H2Client::reset(int32_t stream, uint32_t code) { frame(FrameType::rst_stream, 0, stream, h2_number(code, 4)); }

void H2Client::window(int32_t stream, uint32_t bytes) { frame(FrameType::window_update, 0, stream, h2_number(bytes, 4)); }

size_t H2Client::count(FrameType type) const {
  return static_cast<size_t>(std::count_if(frames.begin(), frames.end(), [&](const H2Frame& f) { return f.is(type); }));
}

int64_t H2Client::goaway() const {
  if (frames.empty() || !frames.back().is(FrameType::goaway)) return -1;
  return goaways.back().second;
}

void H2Client::feed() {
  in_ += std::exchange(peer.received, {});
  size_t at = 0;
  while (in_.size() - at >= h2::kFrameHeaderBytes) {
    const auto head = h2::FrameHeader::parse(reinterpret_cast<const uint8_t*>(in_.data() + at));
    if (in_.size() - at < h2::kFrameHeaderBytes + head.length) break;
    const H2Frame frame{head.type, head.flags, head.stream, in_.substr(at + h2::kFrameHeaderBytes, head.length)};
    at += h2::kFrameHeaderBytes + head.length;
    take(frame);
    frames.push_back(frame);
    if (frame.is(FrameType::data)) frames.back().payload.clear();
    if (on_frame) on_frame(*this, frame);
  }
  in_.erase(0, at);
  for (auto& [id, upload] : uploads_) pump(id, upload);
}

void H2Client::take(const H2Frame& f) {
  if (frames.empty() && !f.is(FrameType::settings)) error += "the first frame is no SETTINGS; ";
  const bool on_stream = f.is(FrameType::data) || f.is(FrameType::headers) || f.is(FrameType::rst_stream);
  if (on_stream != (f.stream != 0) && !f.is(FrameType::window_update) && !f.is(FrameType::continuation)) error += "wrong stream; ";
  switch (static_cast<FrameType>(f.type)) {
    case FrameType::data: {
      H2Answer& to = answers[f.stream];
      if (to.status == 0 || to.done()) error += "DATA out of place; ";
      to.body += f.payload;
      body_bytes += f.payload.size();
      to.ended = (f.flags & h2::kEndStream) != 0;
      if (!credit || f.payload.empty()) break;
      window(0, static_cast<uint32_t>(f.payload.size()));
      if (!to.ended) window(f.stream, static_cast<uint32_t>(f.payload.size()));
      break;
    }
    case FrameType::headers:
    case FrameType::continuation: take_block(f); break;
    case FrameType::rst_stream: answers[f.stream].reset = number_at(f.payload, 0); break;
    case FrameType::settings:
      if ((f.flags & h2::kAck) != 0) break;
      for (size_t i = 0; i + 6 <= f.payload.size(); i += 6)
        settings.emplace_back(static_cast<unsigned char>(f.payload[i + 1]), number_at(f.payload, i + 2));
      if (acknowledge_) frame(FrameType::settings, h2::kAck, 0, "");
      break;
    case FrameType::ping:
      if ((f.flags & h2::kAck) == 0 && acknowledge_) frame(FrameType::ping, h2::kAck, 0, f.payload);
      break;
    case FrameType::goaway: goaways.emplace_back(number_at(f.payload, 0), number_at(f.payload, 4)); break;
    case FrameType::window_update:
      if (f.stream == 0) connection_window += number_at(f.payload, 0);
      else uploads_[f.stream].window += number_at(f.payload, 0);
      break;
    default: error += "a frame that no server sends; ";
  }
}

void H2Client::take_block(const H2Frame& f) {
  if (f.is(FrameType::headers)) {
    block_.clear();
    block_flags_ = f.flags;
    block_stream_ = f.stream;
  }
  block_ += f.payload;
  if ((f.flags & h2::kEndHeaders) == 0) return;
  H2Answer& to = answers[block_stream_];
  if (to.done()) error += "HEADERS of a stream that has ended; ";
  H2Fields fields;
  const auto* at = reinterpret_cast<const uint8_t*>(block_.data());
  size_t left = block_.size();
  for (int state = 0; (state & NGHTTP2_HD_INFLATE_FINAL) == 0;) {
    nghttp2_nv nv;
    const nghttp2_ssize taken = nghttp2_hd_inflate_hd3(inflater_, &nv, &state, at, left, 1);
    if (taken < 0) {
      error += "a header block that cannot be read; ";
      return;
    }
    at += taken;
    left -= static_cast<size_t>(taken);
    if ((state & NGHTTP2_HD_INFLATE_EMIT) != 0)
      fields.emplace_back(std::string(reinterpret_cast<char*>(nv.name), nv.namelen),
                          std::string(reinterpret_cast<char*>(nv.value), nv.valuelen));
  }
  nghttp2_hd_inflate_end_headers(inflater_);
  const bool ends = (block_flags_ & h2::kEndStream) != 0;
  for (const auto& [name, value] : fields) {
    if (std::any_of(name.begin(), name.end(), [](char c) { return c >= 'A' && c <= 'Z'; })) error += "a capital in a name; ";
    if (name == "connection" || name == "transfer-encoding" || name == "keep-alive") error += "a field of HTTP/1; ";
  }
  if (to.status != 0) {
    to.trailers = fields;
    if (!ends) error += "trailers that do not end; ";
  } else {
    const int status = fields.empty() || fields.front().first != ":status" ? 0 : std::stoi(fields.front().second);
    if (status == 0) error += "no :status; ";
    if (status < 200) to.interim.push_back(status);
    else to.status = status;
    if (status >= 200) to.fields = fields;
  }
  to.ended = ends;
}

}  // namespace weir::simtest

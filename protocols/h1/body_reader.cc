#include "protocols/h1/body_reader.h"

#include <algorithm>

#include "protocols/h1/chars.h"

namespace weir::h1 {
namespace {

constexpr unsigned kSizeDigitsMax = 16;
constexpr uint32_t kExtensionMax = 4096;  // of one size line
constexpr uint32_t kLineFree = 20;        // digits, CR LF and the data's CR LF: what an honest size line needs
constexpr uint64_t kOverheadFree = 16384;

int hex_value(char c) noexcept {
  if (is_digit(c)) return c - '0';
  const char low = static_cast<char>(c | 0x20);
  return low >= 'a' && low <= 'f' ? low - 'a' + 10 : -1;
}

}  // namespace

void BodyReader::begin(BodyKind kind, uint64_t length) noexcept {
  WEIR_ASSERT(kind != BodyKind::streamed);
  *this = BodyReader();
  kind_ = kind;
  if (kind == BodyKind::length) left_ = length;
  const bool empty = kind == BodyKind::none || (kind == BodyKind::length && length == 0);
  state_ = empty ? State::done : State::more;
}

BodyReader::State BodyReader::read(Chain& in, Chain& body, uint64_t max) noexcept {
  if (state_ != State::more) return state_;
  if (kind_ == BodyKind::chunked) return read_chunked(in, body, max);
  uint64_t count = std::min<uint64_t>(max, in.bytes());
  if (kind_ == BodyKind::length) {
    count = std::min(count, left_);
    left_ -= count;
    if (left_ == 0) state_ = State::done;
  }
  if (count != 0) body.append(in.take(count));
  return state_;
}

// Reads on through size lines even when max is used up, so that the end is seen with the last body byte.
BodyReader::State BodyReader::read_chunked(Chain& in, Chain& body, uint64_t max) noexcept {
  while (state_ == State::more && !in.empty()) {
    if (chunk_ == Chunk::data) {
      const uint64_t count = std::min({left_, max, static_cast<uint64_t>(in.bytes())});
      if (count == 0) break;
      body.append(in.take(count));
      max -= count;
      left_ -= count;
      body_bytes_ += count;
      if (left_ == 0) chunk_ = Chunk::data_cr;
      continue;
    }
    const std::string_view bytes = in.front().view();
    size_t used = 0;
    while (used < bytes.size() && state_ == State::more && chunk_ != Chunk::data) {
      if (!line_byte(bytes[used])) {
        state_ = State::bad;
        if (what_ == What::none) what_ = What::bad_chunk;
        break;
      }
      ++used;
    }
    in.consume(used);
  }
  return state_;
}

bool BodyReader::line_byte(char c) noexcept {
  switch (chunk_) {
    case Chunk::size_first:
    case Chunk::size: {
      const int digit = hex_value(c);
      if (digit >= 0) {
        if (digits_ == kSizeDigitsMax) return false;
        left_ = left_ << 4 | static_cast<uint64_t>(digit);
        ++digits_;
        chunk_ = Chunk::size;
        return true;
      }
      if (chunk_ == Chunk::size_first) return false;
      if (c == '\r')
        chunk_ = Chunk::size_lf;
      else if (c == ';')
        chunk_ = Chunk::extension;
      else
        return false;
      return true;
    }
    case Chunk::extension:
      if (c == '\r') {
        chunk_ = Chunk::size_lf;
        return true;
      }
      return is_char(c, kTextChar) && ++extension_bytes_ <= kExtensionMax;
    case Chunk::size_lf: return c == '\n' && end_of_line();
    case Chunk::data_cr: chunk_ = Chunk::data_lf; return c == '\r';
    case Chunk::data_lf: chunk_ = Chunk::size_first; return c == '\n';
    case Chunk::data: break;
  }
  return false;
}

// A size line is complete: charge what it had beyond need, then its chunk begins. Before its first byte is looked at it is known
// whether the body fits its limit.
bool BodyReader::end_of_line() noexcept {
  if (left_ > body_max_ - body_bytes_) {
    what_ = What::body_too_large;
    return false;
  }
  const uint32_t line = digits_ + extension_bytes_ + 5;
  if (line > kLineFree) overhead_bytes_ += line - kLineFree;
  if (overhead_bytes_ > kOverheadFree + body_bytes_ / 8) return false;
  digits_ = 0;
  extension_bytes_ = 0;
  chunk_ = left_ == 0 ? Chunk::size_first : Chunk::data;
  if (left_ == 0) state_ = State::trailers;
  return true;
}

BodyReader::State BodyReader::eof() noexcept {
  if (state_ == State::done || state_ == State::bad) return state_;
  if (kind_ == BodyKind::until_close) return state_ = State::done;
  what_ = What::bad_framing;
  return state_ = State::bad;
}

void BodyReader::relayed(uint64_t count) noexcept {
  WEIR_ASSERT(kind_ == BodyKind::length && count <= left_);
  left_ -= count;
  if (left_ == 0) state_ = State::done;
}

}  // namespace weir::h1

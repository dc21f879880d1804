// BodyReader: takes one message body out of a connection's byte stream: by length, by chunks (RFC 9112 section 7.1) or
// until close. Caller: the h1 connections. It eats bytes from the front of `in` and appends body bytes to `body` as
// slices, without copying. It stops at max body bytes, at the end of the body, or when `in` is empty; what follows the
// body stays in `in`. Strict chunk grammar: 1*HEXDIG within 16 digits, extensions without control characters and at
// most 4096 bytes a line, CRLF only. Each chunk may spend 20 bytes on its framing, as honest senders of small chunks
// do; what goes beyond (extensions, zeros in front) is overhead, and more of it than 16 KiB plus an eighth of the body
// bytes is refused as bad_chunk.
#pragma once

#include <cstdint>

#include "engines/chain.h"
#include "protocols/exchange/fault.h"
#include "protocols/exchange/head.h"
#include "protocols/h1/parser.h"

namespace weir::h1 {

class BodyReader {
 public:
  enum class State : uint8_t {
    more,
    trailers,
    done,
    bad
  };  // trailers: the last chunk was read; parse_trailers comes next

  void begin(BodyKind kind, uint64_t length) noexcept;  // none: done at once
  void limit(uint64_t body_bytes) noexcept { body_max_ = body_bytes; }  // chunks that announce more are body_too_large
  State read(Chain& in, Chain& body, uint64_t max) noexcept;
  // The peer closed: done for until_close, else what is missing makes it bad (response_short, client_closed are the
  // caller's words).
  State eof() noexcept;
  void trailers_read() noexcept { state_ = State::done; }  // the connection has parsed the trailer section
  State state() const noexcept { return state_; }
  What what() const noexcept { return what_; }
  BodyKind kind() const noexcept { return kind_; }
  uint64_t left() const noexcept { return left_; }  // kind length: body bytes still to come
  void relayed(uint64_t count) noexcept;            // kind length: so many were moved inside the kernel

 private:
  enum class Chunk : uint8_t { size_first, size, extension, size_lf, data, data_cr, data_lf };
  State read_chunked(Chain& in, Chain& body, uint64_t max) noexcept;
  bool end_of_line() noexcept;
  bool line_byte(char c) noexcept;  // one byte of chunk framing; false: bad

  BodyKind kind_ = BodyKind::none;
  State state_ = State::done;
  Chunk chunk_ = Chunk::size_first;
  What what_ = What::none;
  uint8_t digits_ = 0;
  uint16_t extension_bytes_ = 0;
  uint64_t left_ = 0;  // length: bytes to come; chunked: bytes of the current chunk to come
  uint64_t body_bytes_ = 0;
  uint64_t overhead_bytes_ = 0;
  uint64_t body_max_ = UINT64_MAX;
};

}  // namespace weir::h1

// The strict HTTP/1.x head parser (RFC 9112, RFC 9110 section 5). It looks at contiguous bytes and fills a Head with
// views into them. Caller: the h1 connections, which keep a head's bytes together and pin them (Head::backing). It sees
// no socket, clock or config. Guarantee: the verdict does not depend on how the bytes were cut into reads; every byte
// outside the grammar is an error, nothing is repaired silently except what RFC 9112 tells a recipient to normalise. It
// allocates nothing and never looks beyond `size`.
#pragma once

#include <cstddef>
#include <cstdint>

#include "protocols/exchange/fault.h"
#include "protocols/exchange/head.h"

namespace weir::h1 {

struct HeadLimits {
  uint32_t head_bytes = 32u << 10;  // whole head, request line included
  uint32_t fields = 128;            // at most kFieldsMax
};

enum class Parse : uint8_t { need_more, done, bad };

struct ParseResult {
  Parse state = Parse::need_more;
  What what = What::none;  // bad: why
  uint32_t consumed = 0;   // done: bytes of the head, its blank line included
  uint32_t at = 0;         // bad: offset of the offending byte, for the log
};

// `scanned` is the parser's memory between calls on the same growing bytes: 0 at first, then left alone (it is no
// offset). With it a head arriving byte by byte costs linear time. The bytes may move between calls; the head is only
// meaningful after done. Leading empty lines before a request line: at most one CRLF is skipped. Heads above 16 MiB are
// refused whatever the limits say. Framing is decided here: head.body, content_length, keep_alive, expect_continue,
// te_trailers, hop flags, absolute_form. All views of the head are set anew; scheme only for an absolute-form target:
// for the others the connection knows it. A bad line is reported when its first control byte is there (its CRLF, if
// nothing else), never from half a line.
ParseResult parse_request_head(const char* data, size_t size, size_t& scanned, const HeadLimits& limits,
                               Head& head) noexcept;

// `request` decides the body (HEAD: none; 1xx, 204, 304: none; CONNECT 2xx: none). Faults are bad_response,
// response_framing and response_head_too_large. A 204 that announces a body is taken, but never keeps its connection
// alive.
ParseResult parse_response_head(const char* data, size_t size, size_t& scanned, const HeadLimits& limits,
                                Method request, Head& head) noexcept;

// Trailer section after a last chunk: field lines up to the empty line. Fields that may not be trailers (framing,
// routing, authentication; RFC 9110 section 6.5.1) are marked removed. Faults are the request's; an origin's are its
// connection's to name.
ParseResult parse_trailers(const char* data, size_t size, size_t& scanned, const HeadLimits& limits,
                           Head& trailers) noexcept;

}  // namespace weir::h1

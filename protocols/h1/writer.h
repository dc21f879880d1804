// Writes HTTP/1.1 heads, chunk frames and trailers into a chain (RFC 9112). Caller: the h1 connections.
// It copies runs of neighbouring raw field lines with one memcpy, leaves out what is hop-by-hop or removed, and always
// decides the framing anew from `Framing`. It never looks at the peer's framing fields. false: the pool is at its
// limit, nothing was appended.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "engines/chain.h"
#include "protocols/exchange/head.h"

namespace weir::h1 {

using weir::ExtraField;

struct Framing {
  BodyKind body = BodyKind::none;  // none, length, chunked or until_close
  uint64_t length = 0;
  bool write_length = false;  // none with a content-length nevertheless (HEAD answers, 304, "content-length: 0")
  bool close = false;         // adds "connection: close"
  bool keep_alive = false;    // adds "connection: keep-alive" (to an HTTP/1.0 client)
};

// The fields that are forwarded, then `extra`, then framing, then the blank line. A request is written as HTTP/1.1 with
// the head's authority as Host; a response as HTTP/1.1 with its status and its reason (or the standard phrase).
[[nodiscard]] bool write_request_head(Chain& out, SlabPool& pool, const Head& head, const Framing& framing,
                                      std::span<const ExtraField> extra) noexcept;
[[nodiscard]] bool write_response_head(Chain& out, SlabPool& pool, const Head& head, const Framing& framing,
                                       std::span<const ExtraField> extra) noexcept;
// "1a2b\r\n" before and "\r\n" after so many bytes of data.
[[nodiscard]] bool write_chunk(Chain& out, SlabPool& pool, Chain&& data) noexcept;
// "0\r\n", trailers that may be sent, "\r\n".
[[nodiscard]] bool write_last_chunk(Chain& out, SlabPool& pool, const Head* trailers) noexcept;

std::string_view reason_phrase(uint16_t status) noexcept;

}  // namespace weir::h1

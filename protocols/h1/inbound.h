// Inbound: the receiving half that both h1 connections share: unparsed bytes, the head being put together, the body being
// taken out within the pipe's grant, trailers. It sees bytes and a pipe; sockets, deadlines and meaning are the connection's.
// Owner: a ServerConn or ClientConn embeds it. Thread: the loop's own.
#pragma once

#include "protocols/exchange/exchange.h"
#include "protocols/h1/body_reader.h"
#include "protocols/h1/head_buffer.h"
#include "protocols/h1/parser.h"

namespace weir::h1 {

inline constexpr uint32_t kReadBytesMax = 256u << 10;  // copying relays read in pieces of up to this
inline constexpr size_t kOutBytesMax = 256u << 10;     // unsent output that an exchange may pile up

// A small body joins the head that waits in `out`, so that both leave from one slab with a plain send(2).
inline constexpr size_t kJoinBytes = 2048;
inline void append_body(Chain& out, SlabPool& pool, Chain&& bytes) noexcept {
  if (bytes.bytes() <= kJoinBytes) out.append_compact(pool, std::move(bytes));
  else out.append(std::move(bytes));
}

struct Inbound {
  Chain in;
  HeadBuffer head;
  BodyReader reader;
  uint64_t granted = 0;         // absolute, from the pipe
  bool relaying = false;        // the pipe has the socket's reading side
  bool delivered_now = false;   // bytes went to the pipe in this pass: it decides first whether it wants to relay

  void begin_body(BodyKind kind, uint64_t length) noexcept {
    reader.begin(kind, length);
    granted = 0;
    relaying = delivered_now = false;
  }
  // After the peer's end of file: nothing here can complete the body any more.
  bool body_cut_short() const noexcept {
    return !relaying && !body_done() && (in.empty() || reader.state() == BodyReader::State::trailers);
  }
  bool body_done() const noexcept { return reader.state() == BodyReader::State::done; }

  // Moves what may be moved from `in` to the pipe, and passes the end on. `trailers` is asked for only when a trailer section
  // comes. Returns none, or what is wrong with the body.
  What move_body(Pipe& pipe, Exchange& exchange, bool from_client, const HeadLimits& limits, SlabPool& pool) noexcept;

  // The rest of a body that nobody wants: takes what is here of it, trailers included. Returns how much; `bad` is set where it is
  // no body, or for want of memory.
  uint64_t discard_body(ExchangeContext& context, const HeadLimits& limits, bool& bad) noexcept;

  // How much to receive now for the body: 0 while the grant is used up, something is still unread here, or a relay reads. A trailer
  // section is no body: it is read to its end whatever the grant.
  uint32_t body_want(const Pipe* pipe) const noexcept {
    if (relaying || pipe == nullptr) return 0;
    if (reader.state() == BodyReader::State::trailers) return kSlabBytes;
    if (!in.empty() || granted <= pipe->delivered()) return 0;
    const uint64_t credit = granted - pipe->delivered();
    return credit < kReadBytesMax ? static_cast<uint32_t>(credit) : kReadBytesMax;
  }

 private:
  What read_trailers(Pipe& pipe, Exchange& exchange, bool from_client, const HeadLimits& limits, SlabPool& pool) noexcept;
  What parse_trailers_into(Head& trailers, const HeadLimits& limits, SlabPool& pool) noexcept;
};

}  // namespace weir::h1

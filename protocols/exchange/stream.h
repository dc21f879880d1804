// Stream: one request/response pair on one connection, whatever the protocol: h1 has one at a time, h2 and h3 have many.
// It receives one body (it is the source of pipe `in`) and sends one (it is the sink of pipe `out`).
// Owner: its connection. Callers: Pipe (grant, room, send_body, send_end) and Exchange (heads, abort). Thread: the loop's own.
// None of these calls may call back into the pipe or exchange: what they cause is reported from a later completion or pump.
// The stream calls in->deliver / in->end as bytes come, Loop::mark_dirty(*out) when room grows, and exchange events for heads,
// ends and faults. Deadlines on what it is owed by its peer are the stream's own (protocols layer, one rule for all).
#pragma once

#include <cstdint>
#include <span>

#include "engines/chain.h"
#include "engines/socket.h"
#include "protocols/exchange/fault.h"
#include "protocols/exchange/head.h"

namespace weir {

class Pipe;

class Stream {
 public:
  virtual ~Stream() = default;

  // Source half. `total` is absolute: the peer may have sent that many body bytes since the message began. It only grows.
  virtual void grant(uint64_t total) noexcept = 0;

  // Sink half. room(): bytes that send_body takes now. send_body takes all of `bytes`, at most room().
  virtual size_t room() const noexcept = 0;
  virtual void send_body(Chain&& bytes) noexcept = 0;
  // The body is complete; trailers may be null. Called once, after the last send_body.
  virtual void send_end(const Head* trailers) noexcept = 0;
  // The message's head, before any body: a request (origin side), a response or a 1xx (client side). head.body says what follows
  // (none: the message is complete with this call). Hop-by-hop and removed fields stay behind; `extra` is added.
  virtual void send_head(const Head& head, std::span<const ExtraField> extra) noexcept = 0;

  // Both directions end now and badly; nothing more is delivered. The stream tells its peer as its protocol can.
  virtual void abort(const Fault& fault) noexcept = 0;
  // The exchange is over and well: forget it and both pipes, go on with the next message (or close, as the protocol asks).
  virtual void detach() noexcept = 0;

  // For the audit after each pump: while something is awaited from the peer (body bytes within the grant; room), is an op in
  // flight or something owed by the peer, and a deadline armed (kNever where config switched it off)?
  virtual bool source_live() const noexcept = 0;
  virtual bool sink_live() const noexcept = 0;
  // Bytes that its peer has acknowledged, as far as the kernel tells: a slow reader's progress between two sends. A system call.
  virtual uint64_t acked_bytes() noexcept { return 0; }
  virtual size_t buffered() const noexcept { return 0; }   // memory that the stream itself holds, in bytes

  // Large plain bodies move inside the kernel (RelayOp). relay_source: the socket, when nothing of this body is buffered in user
  // space and `left` body bytes are to come on it, else nullptr. relay_target: the socket, when nothing is queued on it and body
  // bytes may be put to it as they are, else nullptr; relay_target_soon: that will be so once what is queued has been sent.
  // relay_begin: from now on that direction of the socket is the pipe's, until relay_end. A source is begun as soon as the pipe
  // wants to relay and the target is only "soon": it arms no receive meanwhile. The target touches its `out` pipe when its queue
  // has been sent. relay_end always comes, also after Pipe::close, with the bytes this side moved and 0 or an errno.
  virtual Socket* relay_source(uint64_t* left) noexcept { (void)left; return nullptr; }
  virtual Socket* relay_target() noexcept { return nullptr; }
  virtual bool relay_target_soon() const noexcept { return false; }
  virtual void relay_begin(bool as_source) noexcept { (void)as_source; }
  virtual void relay_progress(bool as_source) noexcept { (void)as_source; }   // bytes moved: re-arm that side's deadline
  virtual void relay_end(bool as_source, uint64_t moved, int error) noexcept { (void)as_source; (void)moved; (void)error; }

  virtual const Address* peer_address() const noexcept { return nullptr; }   // of the connection's other end; null: not known

  Pipe* in = nullptr;    // body received from this stream's peer
  Pipe* out = nullptr;   // body sent to this stream's peer
};

}  // namespace weir

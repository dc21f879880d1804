// Transport: one connection's bytes, in slices: plain TCP or unix, or TLS over either.
// Owner: a connection, which implements TransportOwner. Thread: the loop's own. Callbacks come from completions and
// pumps (never from a call the owner is making), so an owner may call anything here from within any callback.
// Reading is asked for, one receive at a time (armed by credit); writing is what stands in out(), sent by flush().
// close() is the only way out: ops are cancelled, the socket is shut down, and on_closed comes once nothing is in flight and
// the descriptor is closed; only then may the owner's memory go.
#pragma once

#include <cstdint>
#include <string_view>

#include "engines/loop.h"
#include "protocols/exchange/fault.h"

namespace weir {

struct TransportOwner {
  virtual void on_bytes(Chain&& bytes) noexcept = 0;      // 1 byte or more
  virtual void on_eof() noexcept = 0;                     // the peer will send no more; it may still read
  virtual void on_sent(size_t count) noexcept = 0;        // so many bytes of out() were accepted: progress
  virtual void on_error(int error, bool sending) noexcept = 0;  // errno; the connection is of no more use, close it
  virtual void on_closed() noexcept = 0;                  // once, the last call
  virtual void on_ready() noexcept {}                     // TLS: the handshake is done; alpn() is known
 protected:
  ~TransportOwner() = default;
};

class Transport {
 public:
  virtual ~Transport() = default;
  // Asks for at most `want` bytes. While one receive is in flight another call does nothing.
  virtual void read(uint32_t want) noexcept = 0;
  virtual bool reading() const noexcept = 0;
  // Nothing more is wanted: the receive in flight is cancelled, what it may carry is dropped. For a connection that will close once
  // out() has been sent: the peer's end of file costs no receive then, and the close finds nothing in flight.
  virtual void stop_reading() noexcept = 0;
  virtual bool at_eof() const noexcept = 0;
  // At the end of file: the peer never said that this was all (TLS without close_notify); somebody else may have cut it off.
  virtual bool truncated() const noexcept { return false; }
  // What is to be sent. Append, then flush().
  virtual Chain& out() noexcept = 0;
  virtual const Chain& out() const noexcept = 0;
  virtual void flush() noexcept = 0;
  virtual bool sending() const noexcept = 0;
  // After all of out() has been sent the write side is shut down. Nothing may be appended any more.
  virtual void finish_writing() noexcept = 0;
  virtual void close(bool reset) noexcept = 0;
  virtual bool closing() const noexcept = 0;
  // The socket, where bytes on it are the application's own (plain); nullptr for TLS.
  virtual Socket* plain_socket() noexcept = 0;
  // Bytes the peer has acknowledged: what a write deadline looks at before anyone is closed.
  virtual uint64_t acked_bytes() noexcept = 0;
  // The protocol that the handshake settled on ("h2", "http/1.1"), after on_ready; empty: none, or no TLS.
  virtual std::string_view alpn() const noexcept { return {}; }
  // The next op goes to that engine; the receive in flight is moved over too.
  virtual void change_engine(EngineKind kind) noexcept = 0;
};

}  // namespace weir

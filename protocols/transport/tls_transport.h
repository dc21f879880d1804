// TlsTransport: TLS 1.2 and 1.3 as a Transport over another one, whose owner it is. Either side of it. What stands in out() is made
// into records when it is flushed: small pieces together into one, 1.3 KiB each at first, so that they arrive whole, then 16 KiB.
// Owner: whoever owns the inner transport; its own owner hears nothing of handshakes but on_ready. Thread: the loop's own.
// Guarantees: handshakes take turns (TlsTurns); nothing is sent before on_ready; a connection that ends without close_notify is
// told as truncated(); a failure sends its alert before the connection goes; records that carry nothing end it after 64 KiB.
// It never renegotiates, and changes its own key every `key_records`. Deadlines are the owner's, but for a second's farewell.
#pragma once

#include <array>
#include <memory>
#include <string>
#include <string_view>

#include "engines/stats.h"
#include "protocols/transport/tls_bio.h"
#include "protocols/transport/tls_context.h"
#include "protocols/transport/transport.h"

namespace weir {

class TlsTransport;

// Handshakes of one worker: so many a tick, so that a crowd of them delays nobody else by much. Owner: the worker.
class TlsTurns {
 public:
  explicit TlsTurns(Loop& loop) noexcept;
  ~TlsTurns();
  uint32_t per_tick = 8;

 private:
  friend class TlsTransport;
  bool take(TlsTransport& who) noexcept;      // false: it is called again in a later tick
  void leave(TlsTransport& who) noexcept;
  void serve() noexcept;
  struct NextTick : Slot { TlsTurns* self = nullptr; } next_tick_;
  struct Serve : Pump { TlsTurns* self = nullptr; } serve_;
  Loop& loop_;
  TlsTransport* first_ = nullptr;
  TlsTransport* last_ = nullptr;
  bool queued_ = false;                       // next_tick_ stands in the loop's list
  uint32_t left_ = 0;
  TimePoint tick_{};
  std::array<char, 16384> gather_;            // a record being put together
};

enum class TlsFailure : uint8_t {
  closed, timeout, not_tls, version, cipher, alpn, server_name, peer_alert, certificate_missing, certificate_expired,
  certificate_unknown_ca, certificate_revoked, certificate_bad, protocol, memory
};
inline constexpr int kTlsFailures = 15;
const char* tls_failure_name(TlsFailure failure) noexcept;

// Written by one worker, read by anyone.
struct TlsStats {
  Counter full, resumed;
  std::array<Counter, kTlsFailures> failed;
};

struct TlsFailed {
  TlsFailure why;
  std::string_view text;         // OpenSSL's words
  std::string_view server_name;  // that was asked for, as far as it came
};

// What the connections of one listener or upstream on one worker share.
struct TlsSetup {
  TlsContext context{};
  TlsTurns* turns = nullptr;
  TlsStats* stats = nullptr;
  void (*failed)(void* arg, const TlsFailed& failed, const TransportOwner& owner) noexcept = nullptr;   // of a handshake
  void* arg = nullptr;
  uint64_t key_records = uint64_t{1} << 23;
};

// Of the certificate that the peer showed.
struct TlsPeerCertificate {
  std::string subject;       // RFC 2253: "CN=shop,O=Example"
  std::string san;           // "DNS:shop.example.com, email:..."; empty: it has none
  std::string fingerprint;   // SHA-256, in lower-case hex
  std::string serial;        // in hex
};

// Good for as long as the transport lives.
struct TlsFacts {
  std::string_view version, cipher, server_name, alpn;   // "TLSv1.3", "TLS_AES_128_GCM_SHA256", as they came
  bool resumed = false;
  std::unique_ptr<const TlsPeerCertificate> peer{};   // null: it showed none
};

class TlsTransport final : public Transport, public TransportOwner {
 public:
  enum class Side : uint8_t { server, client };
  // `inner` is to have this as its owner.
  TlsTransport(Loop& loop, Transport& inner, TransportOwner& owner, const TlsSetup& setup, Side side) noexcept;
  ~TlsTransport();
  // Once, before anything else. server_name: whom a client asks for, and verifies: a name or a numeric address.
  void start(const char* server_name = nullptr) noexcept;

  void read(uint32_t want) noexcept override;
  bool reading() const noexcept override { return want_ != 0; }
  void stop_reading() noexcept override { want_ = 0; }   // the inner one reads on: its end may be waited for when this one closes
  bool at_eof() const noexcept override { return eof_; }
  bool truncated() const noexcept override { return truncated_; }
  Chain& out() noexcept override { return out_; }
  const Chain& out() const noexcept override { return out_; }
  void flush() noexcept override;
  bool sending() const noexcept override { return state_ == State::open && (inner_.sending() || !inner_.out().empty()); }
  void finish_writing() noexcept override;
  void close(bool reset) noexcept override;
  bool closing() const noexcept override { return closing_; }
  Socket* plain_socket() noexcept override { return nullptr; }
  uint64_t acked_bytes() noexcept override { return inner_.acked_bytes(); }
  void change_engine(EngineKind kind) noexcept override { inner_.change_engine(kind); }
  std::string_view alpn() const noexcept override { return facts_.alpn; }

  void set_owner(TransportOwner& owner) noexcept { owner_ = &owner; }   // who is told from now on
  bool ready() const noexcept { return state_ == State::open; }
  const TlsFacts& facts() const noexcept { return facts_; }     // complete when ready

 private:
  friend class TlsTurns;
  enum class State : uint8_t { handshaking, open, failed };
  struct Work : Pump { TlsTransport* self = nullptr; };
  struct Due : Timer { TlsTransport* self = nullptr; };

  // TransportOwner, of the inner one
  void on_bytes(Chain&& bytes) noexcept override;
  void on_eof() noexcept override;
  void on_sent(size_t count) noexcept override;
  void on_error(int error, bool sending) noexcept override;
  void on_closed() noexcept override { owner_->on_closed(); }

  static void work_entry(Pump& pump) noexcept { static_cast<Work&>(pump).self->work(); }
  static void due_entry(Timer& timer) noexcept;
  void work() noexcept;
  bool handshake() noexcept;               // true: open
  void opened() noexcept;
  void deliver() noexcept;
  bool decrypt(Chain& plain) noexcept;
  void encrypt() noexcept;
  size_t record_bytes() noexcept;
  std::string_view next_record(size_t most) noexcept;
  void arm() noexcept;
  void fail(TlsFailure why, std::string_view text, int error) noexcept;
  void fail_by_library() noexcept;
  void say_farewell() noexcept;            // close_notify
  void end_farewell() noexcept;

  Loop& loop_;
  Transport& inner_;
  TransportOwner* owner_;
  const TlsSetup& setup_;
  ssl_st* ssl_ = nullptr;
  TlsWire wire_;
  Chain out_;
  State state_ = State::handshaking;
  const Side side_;
  bool eof_ = false;
  bool truncated_ = false;
  bool finish_ = false;           // close_notify once out_ is empty
  bool notified_ = false;         // close_notify stands in the inner output, or has left it
  bool closing_ = false;
  bool farewell_ = false;         // closing: what is left of the inner output still goes
  bool waiting_turn_ = false;
  bool alert_ = false;            // failed by what the peer said: an alert goes to it
  bool told_ = false;             // the owner has heard of the failure
  int error_ = 0;
  uint32_t want_ = 0;             // of the owner's read
  size_t untold_ = 0;             // bytes of out_ that became records, and whose sending the owner has not heard of
  size_t taken_before_ = 0;       // wire_.taken_bytes when the last byte came out
  uint64_t burst_ = 0;            // bytes sent since the connection was last quiet
  uint64_t records_ = 0;          // under the current key
  TimePoint sent_at_{};
  TlsFacts facts_;
  TlsTransport* next_turn_ = nullptr;
  Work work_;
  Due due_;
};

}  // namespace weir

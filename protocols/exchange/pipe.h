// Pipe: one body direction of an exchange, from a source stream to a sink stream, in bounded memory, without pause or resume.
// Three byte counters that only grow: granted (what the source may have delivered), delivered, consumed (taken by the sink),
// and a cap. pump() is the one function that moves bytes; it is idempotent, and runs once a tick for each pipe that an event
// touched: move what the sink has room for; pass the end; raise the grant to delivered + (cap - charge held), never lower;
// start or watch a relay. A lost or doubled event is repaired by the next pump. Its logic: pipe_state.h.
// Owner: an Exchange. Thread: the loop's own. It never drops a byte, never waits without its streams' deadlines (audited after
// each pump in every build: debug asserts; release counts, and asks its owner to end the exchange), never allocates.
#pragma once

#include <array>
#include <cstdint>

#include "engines/loop.h"
#include "protocols/exchange/pipe_state.h"
#include "protocols/exchange/stream.h"

namespace weir {

inline constexpr uint32_t kPipeCapMin = 64u << 10;
inline constexpr uint32_t kPipeCapMax = 8u << 20;
inline constexpr uint64_t kRelayMin = 32u << 10;   // a relay pays from about this much left

struct PipeLimits {
  uint32_t cap_min = kPipeCapMin;  // where the cap begins; at least one slab
  uint32_t cap_max = kPipeCapMax;  // where self-tuning stops; lowered near the memory budget
  uint32_t queue_max = 256u << 10; // unsent output that a connection may hold for one exchange
  bool relay = true;
};

struct PipeStats {
  Counter audits_failed;   // must stay zero
  Counter relays, relay_bytes, relay_fallbacks, cap_growths;
};

class Pipe : public Pump {
 public:
  // Events to the owner, from pump() or from the relay's completion; never from deliver() or end().
  struct Owner {
    virtual void pipe_finished(Pipe& pipe) noexcept = 0;                    // the end was passed to the sink
    virtual void pipe_failed(Pipe& pipe, const Fault& fault) noexcept = 0;  // audit failed
    virtual void pipe_idle(Pipe& pipe) noexcept = 0;                        // closed while a relay ran, which has now ended
    virtual void pipe_trailers(Pipe& pipe, Head& trailers) noexcept {       // about to be passed on: fields may be removed
      (void)pipe;
      (void)trailers;
    }
   protected:
    ~Owner() = default;
  };

  Pipe() noexcept;
  ~Pipe();
  // source may be null (bytes are put in by deliver + end by the owner: a local answer); sink may be null until attach_sink.
  void open(Loop& loop, Owner& owner, Stream* source, Stream* sink, const PipeLimits& limits, PipeStats& stats) noexcept;
  void attach_sink(Stream& sink) noexcept;
  // The sink goes away; attach_sink may bring another, which gets what is held and what follows. A running relay is cancelled; if
  // it had moved bytes by its end, another sink cannot go on: pipe_failed.
  void detach_sink() noexcept;
  // Gives up both ends and drops what is held. A running relay is cancelled; its end is still told to both streams (relay_end)
  // and then to the owner (pipe_idle). idle() tells when the memory may go.
  void close() noexcept;
  bool idle() const noexcept { return relay_.idle(); }

  // Source side. delivered may not exceed granted (asserted).
  void deliver(Chain&& bytes) noexcept;
  void end(Head* trailers) noexcept;            // trailers, if any, stay the caller's and must live until pipe_finished

  bool opened() const noexcept { return loop_ != nullptr && !closed_; }
  bool ended() const noexcept { return state_.ended; }          // the source said so
  bool finished() const noexcept { return state_.finished; }    // and the sink was told
  bool lost() const noexcept { return lost_; }   // bytes went with a relay whose target failed: nobody can go on with this body
  uint64_t granted() const noexcept { return state_.granted; }
  // While a relay runs these two follow it at every moment: deadlines ask them for progress.
  uint64_t delivered() const noexcept { return state_.delivered + (relay_.moved_in - relay_seen_in_); }
  uint64_t consumed() const noexcept { return state_.consumed + (relay_.moved_out - relay_seen_out_); }
  size_t held() const noexcept { return held_.bytes(); }
  size_t charge() const noexcept {               // memory that it holds, a relay's pipe included
    return held_.charge() + (relay_.idle() ? 0 : relay_.pipe_capacity);
  }
  uint32_t cap() const noexcept { return state_.cap; }
  bool relaying() const noexcept { return relay_state_ != RelayState::none; }   // from relay_begin to relay_end of the source
  // While a relay has the body: it is the source that is waited for. Else the sink has bytes to take first.
  bool relay_awaits_source() const noexcept {
    return relay_state_ == RelayState::running && relay_.moved_in == relay_.moved_out;
  }
  // How long bytes waited for the sink to take them, and the sink for bytes, up to now. What a relay moved waits inside the kernel,
  // where nobody sees for whom: it counts to neither.
  Duration waited_for_sink() const noexcept { return waited(Waits::sink); }
  Duration waited_for_source() const noexcept { return waited(Waits::source); }
  void limit_cap(uint32_t bytes) noexcept;       // near the memory budget: less from now on (what was granted stays granted)
  void restore_cap(const PipeLimits& limits) noexcept;   // and when that is over
  void touch() noexcept { if (opened()) loop_->mark_dirty(*this); }

  void run_pump() noexcept;                      // what mark_dirty leads to; tests may call it

 private:
  enum class RelayState : uint8_t { none, claimed, running };   // claimed: the source is ours, the target still sends its queue
  enum class Waits : uint8_t { none, source, sink };
  Duration waited(Waits whom) const noexcept { return waited_[static_cast<size_t>(whom)]; }
  void waits_for(Waits whom) noexcept;
  struct Ends;                                   // the pipe as pump_state() sees it
  static void pump_entry(Pump& pump) noexcept;
  static void relay_done(Op& op) noexcept;
  bool try_relay() noexcept;
  void start_relay(Socket& target) noexcept;
  void unclaim(int error) noexcept;
  void sync_relay() noexcept;
  void end_relay(int32_t result) noexcept;
  bool relay_live() const noexcept;
  void audit_failed() noexcept;

  Loop* loop_ = nullptr;
  Owner* owner_ = nullptr;
  Stream* source_ = nullptr;
  Stream* sink_ = nullptr;
  PipeStats* stats_ = nullptr;
  Chain held_;
  PipeState state_;
  Head* trailers_ = nullptr;
  RelayState relay_state_ = RelayState::none;
  bool relay_allowed_ = false;
  bool closed_ = false;
  bool lost_ = false;
  Stream* relay_sink_ = nullptr;                 // the target of the running relay; outlives detach_sink
  uint64_t relay_seen_in_ = 0, relay_seen_out_ = 0;
  Waits waits_ = Waits::none;
  TimePoint waits_since_{};
  std::array<Duration, 3> waited_{};             // by whom; looked at when that changes
  struct Relay : RelayOp { Pipe* pipe = nullptr; } relay_;
};

}  // namespace weir

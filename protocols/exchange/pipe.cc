#include "protocols/exchange/pipe.h"

#include <cerrno>
#include <utility>

namespace weir {

struct Pipe::Ends {
  Pipe& pipe;

  size_t held() const noexcept { return pipe.held_.bytes(); }
  size_t charge() const noexcept { return pipe.held_.charge(); }
  bool has_source() const noexcept { return pipe.source_ != nullptr; }
  bool has_sink() const noexcept { return pipe.sink_ != nullptr; }
  size_t room() const noexcept { return pipe.sink_->room(); }
  void send(uint64_t count) noexcept {
    if (count == pipe.held_.bytes()) pipe.sink_->send_body(std::exchange(pipe.held_, Chain()));
    else pipe.sink_->send_body(pipe.held_.take(static_cast<size_t>(count)));
  }
  void send_end() noexcept {
    if (pipe.trailers_ != nullptr) [[unlikely]] pipe.owner_->pipe_trailers(pipe, *pipe.trailers_);
    pipe.sink_->send_end(pipe.trailers_);
  }
  void grant(uint64_t total) noexcept { pipe.source_->grant(total); }
  bool source_live() const noexcept { return pipe.source_->source_live(); }
  bool sink_live() const noexcept { return pipe.sink_->sink_live(); }
  bool again() const noexcept { return pipe.dirty; }
  bool try_relay() noexcept { return pipe.try_relay(); }
};

Pipe::Pipe() noexcept {
  pump = pump_entry;
  hot_bytes = 256;  // up to the relay's op
  relay_.pipe = this;
  relay_.complete = relay_done;
}

Pipe::~Pipe() {
  WEIR_ASSERT(relay_.idle());
  if (dirty) loop_->forget_dirty(*this);
}

void Pipe::open(Loop& loop, Owner& owner, Stream* source, Stream* sink, const PipeLimits& limits, PipeStats& stats) noexcept {
  WEIR_ASSERT(!opened() && relay_.idle());
  loop_ = &loop;
  owner_ = &owner;
  source_ = source;
  sink_ = sink;
  stats_ = &stats;
  held_.clear();
  state_.begin(std::max(limits.cap_min, kSlabBytes), limits.cap_max);
  trailers_ = nullptr;
  relay_state_ = RelayState::none;
  relay_sink_ = nullptr;
  relay_allowed_ = limits.relay;
  closed_ = lost_ = false;
  relay_.moved_in = relay_.moved_out = relay_seen_in_ = relay_seen_out_ = 0;
  waits_ = Waits::none;
  waited_ = {};
  touch();
}

void Pipe::attach_sink(Stream& sink) noexcept {
  WEIR_ASSERT(opened() && sink_ == nullptr);
  sink_ = &sink;
  state_.finished = false;  // the end of an empty body may have been told to one that failed: this one hears it too
  touch();
}

void Pipe::detach_sink() noexcept {
  if (relay_state_ == RelayState::running) loop_->cancel(relay_);
  if (relay_state_ == RelayState::claimed) unclaim(0);
  sink_ = nullptr;
  touch();
}

void Pipe::close() noexcept {
  if (!opened()) return;
  waits_for(Waits::none);
  closed_ = true;
  held_.clear();
  trailers_ = nullptr;
  if (relay_state_ == RelayState::running) {
    loop_->cancel(relay_);  // both streams stay known until relay_done has told them
    return;
  }
  if (relay_state_ == RelayState::claimed) unclaim(ECANCELED);
  source_ = sink_ = nullptr;
}

void Pipe::limit_cap(uint32_t bytes) noexcept {
  state_.cap_max = std::max(bytes, kSlabBytes);
  state_.cap = std::min(state_.cap, state_.cap_max);
  touch();
}

void Pipe::restore_cap(const PipeLimits& limits) noexcept {
  state_.cap_max = std::max({limits.cap_max, limits.cap_min, kSlabBytes});
  state_.cap = std::clamp(state_.cap, std::max(limits.cap_min, kSlabBytes), state_.cap_max);
  touch();
}

void Pipe::deliver(Chain&& bytes) noexcept {
  WEIR_ASSERT(opened() && !state_.ended && relay_state_ == RelayState::none);
  const size_t count = bytes.bytes();
  if (count == 0) return;
  if (source_ == nullptr) state_.granted = std::max(state_.granted, state_.delivered + count);  // the owner's own bytes
  WEIR_ASSERT(count <= state_.granted - state_.delivered);
  if (state_.bytes_came(count, loop_->now())) stats_->cap_growths.add();
  // One slice alone pins its slab either way; compacting it would only move it to another.
  if (held_.empty() && bytes.first()->next == nullptr) held_.append(std::move(bytes));
  else held_.append_compact(loop_->slabs(), std::move(bytes));
  loop_->mark_dirty(*this);
}

void Pipe::end(Head* trailers) noexcept {
  WEIR_ASSERT(opened() && !state_.ended && relay_state_ == RelayState::none);
  state_.ended = true;
  trailers_ = trailers;
  loop_->mark_dirty(*this);
}

void Pipe::pump_entry(Pump& pump) noexcept { static_cast<Pipe&>(pump).run_pump(); }

void Pipe::run_pump() noexcept {
  if (!opened() || state_.finished) return;
  Ends ends{*this};
  switch (pump_state(state_, ends, loop_->now())) {
    case Pumped::waiting:
      waits_for(sink_ == nullptr ? Waits::none : held_.empty() && !state_.ended ? Waits::source : Waits::sink);
      return;
    case Pumped::relaying:
      waits_for(Waits::none);
      if (!relay_live()) audit_failed();
      return;
    case Pumped::finished:
      waits_for(Waits::none);
      owner_->pipe_finished(*this);
      return;
    case Pumped::wedged: audit_failed(); return;
  }
}

void Pipe::waits_for(Waits whom) noexcept {
  if (whom == waits_) return;
  waited_[static_cast<size_t>(waits_)] += loop_->now() - waits_since_;
  waits_ = whom;
  waits_since_ = loop_->now();
}

// Neither end can move and nobody owes us anything: a mistake of ours, and better one exchange lost than one hanging for ever.
void Pipe::audit_failed() noexcept {
  stats_->audits_failed.add();
  WEIR_DEBUG_ASSERT(!"a pipe waits for nothing");
  owner_->pipe_failed(*this, make_fault(What::internal));
}

// True: the body belongs to a relay, that runs or that waits for the target to send what is queued before it.
bool Pipe::try_relay() noexcept {
  if (relay_state_ == RelayState::running) {
    sync_relay();
    return true;
  }
  if (!relay_allowed_ || source_ == nullptr || sink_ == nullptr || !held_.empty()) return false;
  if (relay_state_ == RelayState::none) {
    uint64_t left = 0;
    Socket* from = source_->relay_source(&left);
    if (from == nullptr || left < kRelayMin) return false;
    relay_.socket = from;
    relay_.want = left;
  }
  if (Socket* target = sink_->relay_target()) {
    start_relay(*target);
    return true;
  }
  if (sink_->relay_target_soon()) {
    if (relay_state_ == RelayState::none) {
      relay_state_ = RelayState::claimed;
      source_->relay_begin(true);
    }
    return true;
  }
  if (relay_state_ == RelayState::claimed) unclaim(0);
  return false;
}

void Pipe::start_relay(Socket& target) noexcept {
  if (relay_state_ == RelayState::none) source_->relay_begin(true);
  sink_->relay_begin(false);
  relay_state_ = RelayState::running;
  relay_sink_ = sink_;
  relay_.to = &target;
  relay_.moved_in = relay_.moved_out = relay_seen_in_ = relay_seen_out_ = 0;
  relay_.target_failed = false;
  stats_->relays.add();
  loop_->submit(relay_);
}

void Pipe::unclaim(int error) noexcept {
  relay_state_ = RelayState::none;
  state_.told = 0;  // the source armed no receive meanwhile: it hears its grant again
  source_->relay_end(true, 0, error);
}

// The relay's counters become the pipe's. It may run beyond the grant: its bytes are in the kernel's pipe, not in our memory.
void Pipe::sync_relay() noexcept {
  const uint64_t in = relay_.moved_in - std::exchange(relay_seen_in_, relay_.moved_in);
  const uint64_t out = relay_.moved_out - std::exchange(relay_seen_out_, relay_.moved_out);
  state_.delivered += in;
  state_.consumed += out;
  state_.granted = std::max(state_.granted, state_.delivered);
  stats_->relay_bytes.add(out);
  if (in > 0) source_->relay_progress(true);
  if (out > 0) relay_sink_->relay_progress(false);
}

void Pipe::relay_done(Op& op) noexcept {
  Pipe& pipe = *static_cast<Relay&>(op).pipe;
  pipe.sync_relay();
  pipe.end_relay(op.result);
}

void Pipe::end_relay(int32_t result) noexcept {
  // One relay takes the whole rest of a body. A second attempt makes sense only where another sink took the place of the first.
  relay_allowed_ = result == -ECANCELED && relay_.moved_in == 0;
  if (result == -EOPNOTSUPP && relay_.moved_in == 0) {
    stats_->relay_fallbacks.add();
    result = 0;
  }
  // The callees may close this pipe, or end it; what they are told was fixed before.
  relay_state_ = RelayState::none;
  state_.in_round = state_.stood = false;
  state_.lap_at = kNever;
  state_.told = 0;
  Stream* target = std::exchange(relay_sink_, nullptr);
  Stream* source = source_;
  const bool was_closed = closed_;
  const int error = -result;
  // Bytes that were in the kernel's pipe are gone with it: the target cannot go on, whichever failed. The source's peer did
  // nothing wrong where it was the target: what becomes of the exchange the target says, which may still get an answer.
  lost_ = relay_.moved_in > relay_.moved_out;
  const bool target_changed = target != sink_;
  target->relay_end(false, relay_.moved_out, relay_.target_failed || lost_ ? error : 0);
  source->relay_end(true, relay_.moved_in, relay_.target_failed ? 0 : error);
  if (closed_) {
    source_ = sink_ = nullptr;
    if (was_closed) owner_->pipe_idle(*this);
    return;
  }
  touch();
  if (target_changed && sink_ != nullptr && relay_.moved_in > 0) owner_->pipe_failed(*this, make_fault(What::origin_write_failed));
}

// An op is in flight or the target sends its queue; the deadline is the one of the side that is waited for.
bool Pipe::relay_live() const noexcept {
  if (relay_state_ == RelayState::claimed) return sink_->sink_live();
  return !relay_.idle() && (source_->source_live() || relay_sink_->sink_live());
}

}  // namespace weir

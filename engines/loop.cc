#include "engines/loop.h"

#include <algorithm>
#include <csignal>
#include <utility>

namespace weir {
namespace {

constexpr Duration kStall = std::chrono::milliseconds(10);
constexpr Duration kRelayWatch = std::chrono::milliseconds(50);
constexpr uint32_t kPumpsMax = 65536;  // a tick; whatever is still dirty then runs in the next one, which does not sleep
constexpr uint32_t kGatherEventsMin = 8;
constexpr uint32_t kGatherEventsMax = 32;
constexpr double kTrialWins = 0.97;            // the other way must cost this share or less

// From so many events in a tick on, connections push each other out of the processor's second cache: the next one is fetched
// while this one is served.
constexpr uint32_t kCrowd = 128;
constexpr size_t kLine = 64;
// Around an op: its socket before it; its chain, the transport and the connection's first fields behind it.
constexpr size_t kBeforeOp = 2 * kLine;
constexpr size_t kAroundOp = 8 * kLine;

void fetch(const void* at, size_t before, size_t bytes) noexcept {
  const char* line = static_cast<const char*>(at) - before;
  for (size_t i = 0; i < bytes; i += kLine) __builtin_prefetch(line + i, 1);
}

constexpr size_t index_of(EngineKind kind) noexcept { return static_cast<size_t>(kind); }

// splice(2) has no MSG_NOSIGNAL. A process that chose a handler keeps it.
void ignore_sigpipe() noexcept {
  struct sigaction now = {};
  if (sigaction(SIGPIPE, nullptr, &now) == 0 && now.sa_handler == SIG_DFL) std::signal(SIGPIPE, SIG_IGN);
}

void clear_notes(Socket& socket) noexcept {
  socket.registered = socket.readable = socket.writable = socket.listening = socket.peer_closed = false;
  socket.more_to_read = true;
  socket.reader = socket.writer = nullptr;
}

}  // namespace

// The average follows the last dozen ticks or so. Asking for three quarters of it leaves room for those that stay silent: asking
// for as many as are busy would make every tick wait its full time.
void GatherPolicy::tick_ended(uint32_t events) noexcept {
  last_ = events;
  average_16_ = average_16_ - average_16_ / 8 + std::min(events, 4096u) * 2;
  window_events_ += events;
  busy_ = busy_ || events >= kGatherEventsMin;
}

GatherPolicy::Advice GatherPolicy::advice() const noexcept {
  if (last_ < kGatherEventsMin || !gathering()) return {};
  const uint32_t busy = std::min(average_16_ / 16, last_);
  return {kGather, std::clamp(busy * 3 / 4, 2u, kGatherEventsMax)};
}

void GatherPolicy::window_ended(Duration cpu) noexcept {
  const double ns = static_cast<double>(cpu.count()) / window_events_;
  window_events_ = 0;
  const bool mattered = std::exchange(busy_, false);
  if (trial_) {
    trial_ = false;
    const bool won = mattered && ns < kept_ns_ * kTrialWins;
    if (won && won_once_) gather_ = !gather_;
    won_once_ = won && !won_once_;
    windows_ = won_once_ ? kTrialEvery - 2 : 0;  // a winner is tried again soon
    return;
  }
  kept_ns_ = ns;
  if (++windows_ < kTrialEvery || !mattered) return;
  trial_ = true;
}

Loop::Loop(Clock& clock, const Options& options)
    : clock_(clock), options_(options), slabs_(options.slab_bytes_max, options.memory), wheel_(clock.now()), now_(clock.now()) {
  ignore_sigpipe();
  relay_watch_.loop = this;
  relay_watch_.fire = relay_watch_fired;
  if (options.gather_always) gather_.keep_gathering();
}

// What is still on its way to be freed is freed; ops must have ended, their memory is not ours.
Loop::~Loop() { run_frees(); }

void Loop::add_engine(std::unique_ptr<Engine> engine) {
  WEIR_ASSERT(!wired_);
  auto& place = engines_[index_of(engine->kind())];
  WEIR_ASSERT(place == nullptr);
  place = std::move(engine);
}

// With both engines the ring waits, and watches the epoll descriptor: the other way round stalls (docs/engines.md).
void Loop::wire_engines() noexcept {
  wired_ = true;
  Engine* epoll = engine(EngineKind::epoll);
  Engine* ring = engine(EngineKind::uring);
  Engine* sim = engine(EngineKind::sim);
  WEIR_ASSERT(epoll != nullptr || ring != nullptr || sim != nullptr);
  Engine* waits = ring != nullptr ? ring : epoll != nullptr ? epoll : sim;
  waits->set_wake(mailbox_.wake_fd());
  if (ring != nullptr && epoll != nullptr) ring->watch(epoll->watchable_fd());
}

void Loop::submit(Op& op) noexcept {
  WEIR_ASSERT(op.idle() && op.socket->fd >= 0);
  Socket& socket = *op.socket;
  op.state = OpState::submitted;
  op.cancel_asked = false;
  op.engine = socket.engine;
  ++socket.in_flight;
  ++in_flight_;
  if (op.kind == OpKind::relay) {
    auto& relay = static_cast<RelayOp&>(op);
    ++relay.to->in_flight;
    relay.moved_in = relay.moved_out = 0;
    relay.target_failed = false;
    watch_relay(relay);
    if (relay.to->registered && socket.engine != EngineKind::epoll) leaving_ = true;
  }
  if (socket.registered && socket.engine != EngineKind::epoll) leaving_ = true;
  sides_[index_of(op.engine)].submitted.push(op);
}

void Loop::cancel(Op& op) noexcept {
  if (op.idle() || op.cancel_asked) return;
  op.cancel_asked = true;
  // A submitted op is told by its flag; a completed one is past it, unless it is an accept that goes on (see dispatch).
  if (op.state == OpState::in_engine) sides_[index_of(op.engine)].cancelled.push(op);
}

int Loop::open(Socket& socket, const Address& to, EngineKind kind) noexcept {
  const int fd = engine(kind)->open(to);
  if (fd < 0) return fd;
  adopt(socket, fd, kind);
  socket.readable = false;  // nothing comes before the connection stands
  return 0;
}

void Loop::adopt(Socket& socket, int fd, EngineKind kind) noexcept {
  WEIR_ASSERT(socket.fd < 0 && socket.in_flight == 0);
  clear_notes(socket);
  socket.generation = ++generation_;  // the same memory may have been another socket, whose late events carry its number
  socket.fd = fd;
  socket.engine = kind;
  socket.readable = true;  // clients speak first, and often they already have
  socket.writable = true;
}

void Loop::shutdown(Socket& socket, ShutdownHow how) noexcept { engine(socket.engine)->shutdown(socket, how); }

void Loop::close(Socket& socket, bool linger_reset) noexcept {
  if (socket.fd < 0) return;
  WEIR_ASSERT(socket.in_flight == 0);
  // Its last op was to go elsewhere and never did. Others may hold a duplicate of it, so close(2) alone does not end its events.
  if (socket.registered && socket.engine != EngineKind::epoll) engine(EngineKind::epoll)->leave(socket);
  engine(socket.engine)->close(socket, linger_reset);
  socket.fd = -1;
  ++socket.generation;
  clear_notes(socket);
}

uint64_t Loop::acked_bytes(const Socket& socket) noexcept { return engine(socket.engine)->acked_bytes(socket); }

void Loop::forget_dirty(Pump& pump) noexcept {
  if (!pump.dirty) return;
  pump.dirty = false;
  Pump* before = nullptr;
  for (Pump* at = dirty_head_; at != nullptr; before = at, at = at->next_dirty) {
    if (at != &pump) continue;
    if (before != nullptr) before->next_dirty = pump.next_dirty;
    else dirty_head_ = pump.next_dirty;
    if (dirty_tail_ == &pump) dirty_tail_ = before;
    break;
  }
  pump.next_dirty = nullptr;
}

// Sockets whose next op goes elsewhere leave the epoll set once nothing of theirs is parked there; else their events would wake
// the loop for nothing. Rare: only while a listener changes engine.
void Loop::leave_epoll() noexcept {
  leaving_ = false;
  Engine* epoll = engine(EngineKind::epoll);
  const auto parked = [](const Op* op) { return op != nullptr && op->engine == EngineKind::epoll; };
  const auto leave = [&](Socket& socket) {
    if (socket.registered && !parked(socket.reader) && !parked(socket.writer)) epoll->leave(socket);
  };
  for (int kind = 0; kind < kEngineKinds; ++kind) {
    if (static_cast<EngineKind>(kind) == EngineKind::epoll) continue;
    for (Op* op = sides_[static_cast<size_t>(kind)].submitted.front(); op != nullptr; op = op->next) {
      leave(*op->socket);
      if (op->kind == OpKind::relay) leave(*static_cast<RelayOp*>(op)->to);
    }
  }
}

Turn Loop::engine_turns(TimePoint begin, Duration longest) noexcept {
  if (leaving_) leave_epoll();
  Wait wait{.timeout = longest};
  const TimePoint due = wheel_.next_due();
  if (due != kNever) wait.timeout = std::min(wait.timeout, std::max(due - begin, Duration::zero()));
  const bool idle = dirty_head_ == nullptr && frees_ == nullptr && mailbox_.empty();
  if (!idle || stopping_.load(std::memory_order_relaxed)) wait.timeout = Duration::zero();
  if (options_.gather && wait.timeout > GatherPolicy::kGather) {
    const auto advice = gather_.advice();
    wait.gather = advice.gather;
    wait.gather_events = advice.events;
    if (wait.gather > Duration::zero()) stats_.gathers.add();
  }
  const auto turn = [&](EngineKind kind, const Wait& how) {
    Side& side = sides_[index_of(kind)];
    return engine(kind)->turn(side.submitted, side.cancelled, completed_, how);
  };
  timeout_ = wait.timeout;
  Engine* epoll = engine(EngineKind::epoll);
  Engine* ring = engine(EngineKind::uring);
  if (ring == nullptr) return turn(epoll != nullptr ? EngineKind::epoll : EngineKind::sim, wait);
  if (epoll == nullptr) return turn(EngineKind::uring, wait);
  const Wait poll{.timeout = Duration::zero()};
  Turn first = turn(EngineKind::epoll, poll);
  if (first.runnable || !completed_.empty()) wait.timeout = timeout_ = Duration::zero();
  Turn both = turn(EngineKind::uring, wait);
  both.events += first.events;
  if (both.foreign_ready) {
    first = turn(EngineKind::epoll, poll);
    both.events += first.events;
  }
  both.runnable |= first.runnable;
  return both;
}

uint32_t Loop::dispatch(bool crowded) noexcept {
  uint32_t served = 0;
  while (Op* op = completed_.pop()) {
    ++served;
    if (const Op* next = completed_.front(); crowded && next != nullptr) {
      fetch(next, kBeforeOp, kAroundOp);
      __builtin_prefetch(next->next);
    }
    if (op->kind == OpKind::accept && static_cast<AcceptOp*>(op)->more) {
      op->state = OpState::in_engine;
      if (op->cancel_asked) sides_[index_of(op->engine)].cancelled.push(*op);  // asked while it lay in this list
      op->complete(*op);
      continue;
    }
    op->state = OpState::idle;
    --op->socket->in_flight;
    --in_flight_;
    if (op->kind == OpKind::relay) {
      auto& relay = static_cast<RelayOp&>(*op);
      --relay.to->in_flight;
      unwatch_relay(relay);
    }
    op->complete(*op);
  }
  return served;
}

// Pumps marked by a pump run in the same tick. The bound lets I/O go on even if two of them keep marking each other.
uint32_t Loop::run_pumps(bool crowded) noexcept {
  uint32_t served = 0;
  while (dirty_head_ != nullptr && served < kPumpsMax) {
    Pump& pump = *dirty_head_;
    dirty_head_ = pump.next_dirty;
    if (dirty_head_ == nullptr) dirty_tail_ = nullptr;
    if (dirty_head_ != nullptr && crowded) {
      fetch(dirty_head_, dirty_head_->hot_before, dirty_head_->hot_bytes);
      __builtin_prefetch(dirty_head_->next_dirty);
    }
    pump.next_dirty = nullptr;
    pump.dirty = false;
    pump.pump(pump);
    ++served;
  }
  return served;
}

uint32_t Loop::run_frees() noexcept {
  uint32_t served = 0;
  while (frees_ != nullptr) {
    Slot& slot = *std::exchange(frees_, frees_->next_free);
    slot.next_free = nullptr;
    slot.release(slot);
    ++served;
  }
  return served;
}

void Loop::end_phase(Phase phase, uint32_t served) noexcept {
  if (served == 0) return;
  const TimePoint now = clock_.coarse_now();
  phase_took_[static_cast<size_t>(phase)] = now - phase_began_;
  phase_began_ = now;
}

// The engine's own time is what it took beyond what it was allowed to sleep. A sleep without end hides it; such a loop has no work.
void Loop::count_stall(TimePoint coarse_began) noexcept {
  Duration& engine_took = phase_took_[static_cast<size_t>(Phase::engine)];
  if (phase_began_ == coarse_began && engine_took <= kStall) return;
  const Duration took = phase_began_ == coarse_began ? Duration::zero() : clock_.now() - now_;
  if (engine_took + took <= kStall) return;
  const auto most = std::max_element(phase_took_.begin(), phase_took_.end());
  stats_.stalls[static_cast<size_t>(most - phase_took_.begin())].add();
}

void Loop::end_tick(const Turn& turn, uint32_t served) noexcept {
  stats_.ticks.add();
  stats_.events.add(turn.events);
  if (served == 0 && !turn.woken && turn.events == 0) stats_.idle_wakes.add();
  slabs_.tick_ended();
  stats_.slabs_in_use.set(slabs_.in_use());
  stats_.memory_held.set(slabs_.lease().held());
  stats_.relay_pipe_bytes.set(slabs_.lease().pipe_bytes);
  stats_.pool_growths.set(slabs_.growths());
  gather_.tick_ended(turn.events);
  if (!options_.gather || options_.gather_always || !gather_.window_full()) return;
  const Duration cpu = clock_.cpu_now();
  gather_.window_ended(cpu - window_cpu_);
  window_cpu_ = cpu;
}

uint32_t Loop::tick(Duration longest) noexcept {
  if (!wired_) wire_engines();
  const TimePoint begin = clock_.now();
  const Turn turn = engine_turns(begin, longest);
  now_ = clock_.now();
  if (turn.woken) mailbox_.clear_wake();

  phase_took_.fill(Duration::zero());
  if (timeout_ != kForever) {
    phase_took_[static_cast<size_t>(Phase::engine)] = std::max(now_ - begin - timeout_, Duration::zero());
  }
  const TimePoint coarse_began = phase_began_ = clock_.coarse_now();
  const bool crowded = turn.events >= kCrowd;
  const uint32_t completions = dispatch(crowded);
  end_phase(Phase::completions, completions);
  const uint32_t timers = wheel_.advance(now_);
  end_phase(Phase::timers, timers);
  const uint32_t pumps = run_pumps(crowded);
  end_phase(Phase::pump, pumps);
  const uint32_t messages = mailbox_.drain();
  end_phase(Phase::mailbox, messages);
  const uint32_t frees = run_frees();
  end_phase(Phase::frees, frees);
  count_stall(coarse_began);

  stats_.completions.add(completions);
  stats_.timers_fired.add(timers);
  stats_.pumps.add(pumps);
  const uint32_t served = completions + timers + pumps + messages;
  end_tick(turn, served + frees);
  return served;
}

void Loop::run() noexcept {
  while (!stopping_.load(std::memory_order_relaxed)) tick();
}

void Loop::watch_relay(RelayOp& op) noexcept {
  op.watch_prev = nullptr;
  op.watch_next = relay_watch_.head;
  op.lowat_mark = 0;
  if (relay_watch_.head != nullptr) relay_watch_.head->watch_prev = &op;
  else wheel_.set(relay_watch_, now_ + kRelayWatch);
  relay_watch_.head = &op;
}

void Loop::unwatch_relay(RelayOp& op) noexcept {
  if (op.watch_next != nullptr) op.watch_next->watch_prev = op.watch_prev;
  if (op.watch_prev != nullptr) op.watch_prev->watch_next = op.watch_next;
  else relay_watch_.head = op.watch_next;
  if (relay_watch_.head == nullptr) wheel_.clear(relay_watch_);
}

void Loop::relay_watch_fired(Timer& timer) noexcept {
  auto& watch = static_cast<RelayWatch&>(timer);
  Loop& loop = *watch.loop;
  for (RelayOp* op = watch.head; op != nullptr; op = op->watch_next) {
    if (op->lowat_set && op->moved_in == op->lowat_mark && op->state == OpState::in_engine) {
      loop.engine(op->engine)->relay_quiet(*op);
    }
    op->lowat_mark = op->moved_in;
  }
  loop.wheel_.set(watch, loop.now_ + kRelayWatch);
}

}  // namespace weir

// The world of the simulation: time, events, descriptors, listeners. What happens on a connection is in sim_wire.cc.
#include "engines/sim_network.h"

#include <algorithm>
#include <cstdio>
#include <cstring>

#include "engines/check.h"
#include "engines/loop.h"
#include "engines/sim_engine.h"
#include "engines/sim_peer.h"

namespace weir {

namespace {
constexpr TimePoint kBeginning{std::chrono::seconds(1000)};
constexpr uint64_t kSynTriesMax = 6;
}  // namespace

TimePoint SimClock::now() noexcept { return network_.now(); }

SimNetwork::SimNetwork(const Options& options)
    : clock_(*this), random_(options.seed), faults_(options.faults), link_(options.link), now_(kBeginning),
      descriptors_max_(options.descriptors_max), block_when_idle_(options.block_when_idle) {}

SimNetwork::~SimNetwork() = default;

// ---- the trace

void SimNetwork::note(const std::string& what) const {
  if (!trace_) return;
  char time[32];
  const int64_t us = std::chrono::duration_cast<std::chrono::microseconds>(now_ - kBeginning).count();
  std::snprintf(time, sizeof time, "%4lld.%06d  ", static_cast<long long>(us / 1'000'000), static_cast<int>(us % 1'000'000));
  trace_(time + what);
}

std::string SimNetwork::name_of(SimEnd end) { return "c" + std::to_string(end.connection) + (end.side == 0 ? ">" : "<"); }

// How many, and how they begin, as far as that can be read.
void SimNetwork::note_bytes(SimEnd from, std::string_view bytes) const {
  if (!trace_) return;
  std::string text = name_of(from) + " " + std::to_string(bytes.size()) + " bytes  ";
  for (const char c : bytes.substr(0, 60)) {
    if (c == '\r') continue;
    text += c == '\n' ? '|' : c >= ' ' && c <= '~' ? c : '.';
  }
  note(text);
}

// ---- events

void SimNetwork::schedule(Event&& event) {
  event.order = ++orders_;
  events_.push_back(std::move(event));
  std::push_heap(events_.begin(), events_.end(), Event::later);
}

void SimNetwork::drop_calls() {
  std::erase_if(events_, [](const Event& event) { return event.kind == EventKind::call; });
  std::make_heap(events_.begin(), events_.end(), Event::later);
}

void SimNetwork::at(TimePoint when, std::function<void()> what) {
  schedule(Event{std::max(when, now_), 0, EventKind::call, {}, 0, nullptr, {}, std::move(what)});
}

void SimNetwork::poke(SimEngine& engine, int fd, Duration wait) {
  schedule(Event{now_ + wait, 0, EventKind::poke, {}, static_cast<uint64_t>(fd), &engine, {}, {}});
}

void SimNetwork::peer_event(SimPeer& peer) {
  if (peer.queued_) return;
  peer.queued_ = true;
  schedule(Event{now_, 0, EventKind::peer, {}, peer.id_, nullptr, {}, {}});
}

void SimNetwork::advance_to(TimePoint when) {
  while (!events_.empty() && events_.front().at <= when) {
    std::pop_heap(events_.begin(), events_.end(), Event::later);
    Event event = std::move(events_.back());
    events_.pop_back();
    now_ = std::max(now_, event.at);
    run_event(event);
    if (done_ && done_()) {
      stop_ = true;
      return;
    }
  }
  now_ = std::max(now_, when);
}

void SimNetwork::run_due() { advance_to(now_); }

void SimNetwork::run_event(Event& event) {
  switch (event.kind) {
    case EventKind::call:
      event.call();
      break;
    case EventKind::arrive:
      if (find(event.end) != nullptr) pump_wire(event.end);
      break;
    case EventKind::acked:
      if (find(event.end) != nullptr) {
        Half& h = half(event.end);
        const size_t count = std::min<size_t>(h.unacked, event.value);
        h.unacked -= count;
        h.acked += count;
        notify(h);
      }
      break;
    case EventKind::broken:
      if (find(event.end) != nullptr) break_half(half(event.end), static_cast<int>(event.value));
      break;
    case EventKind::syn:
      if (find(event.end) != nullptr) syn(event.end, event.text, event.value);
      break;
    case EventKind::connected:
      if (Connection* c = find(event.end); c != nullptr && c->connect_result == -EINPROGRESS) {
        c->connect_result = 0;
        c->half[0].up = true;
        notify(c->half[0]);
      }
      break;
    case EventKind::refused:
      if (find(event.end) != nullptr) fail_connect(event.end, static_cast<int>(event.value));
      break;
    case EventKind::poke:
      if (std::find(engines_.begin(), engines_.end(), event.engine) != engines_.end())
        event.engine->mark_ready(static_cast<int>(event.value));
      break;
    case EventKind::peer:
      if (auto it = peers_.find(event.value); it != peers_.end()) {
        it->second->queued_ = false;
        it->second->pump();
      }
      break;
  }
}

// ---- running

bool SimNetwork::step(std::span<Loop* const> loops) {
  stepping_ = true;
  uint32_t served = 0;
  for (Loop* loop : loops) served += loop->tick(kForever);
  stepping_ = false;
  if (served > 0) return true;
  TimePoint next = next_event();
  for (SimEngine* engine : engines_) {
    if (engine->busy()) return true;
    next = std::min(next, engine->wake_at());
  }
  if (next == kNever) return false;
  if (!stop_) advance_to(std::max(next, now_));
  return true;
}

bool SimNetwork::run_until(std::span<Loop* const> loops, const std::function<bool()>& done, uint64_t steps_max) {
  done_ = done;
  stop_ = false;
  bool result = done();
  bool alive = true;
  for (uint64_t i = 0; !result && alive && i < steps_max; ++i) {
    alive = step(loops);
    result = stop_ || done();
  }
  done_ = nullptr;
  stop_ = false;
  return result;
}

void SimNetwork::run_for(std::span<Loop* const> loops, Duration time) {
  bool passed = false;
  after(time, [&passed] { passed = true; });
  const bool done = run_until(loops, [&passed] { return passed; }, UINT64_MAX);
  WEIR_ASSERT(done);
}

void SimNetwork::attach(SimEngine& engine) { engines_.push_back(&engine); }

void SimNetwork::detach(SimEngine& engine) {
  engines_.erase(std::find(engines_.begin(), engines_.end(), &engine));
  for (auto& [id, connection] : connections_) {
    for (Half& h : connection->half) {
      if (h.engine == &engine) h.engine = nullptr;
    }
  }
  for (auto& [id, listener] : listeners_) {
    if (listener.engine == &engine) listener.engine = nullptr;
  }
}

int SimNetwork::scripted(OpKind kind, int fd) {
  for (auto it = scripts_.begin(); it != scripts_.end(); ++it) {
    if (it->kind != kind || (it->fd != -1 && it->fd != fd)) continue;
    const int error = it->error;
    if (--it->count == 0) scripts_.erase(it);
    return error;
  }
  return 0;
}

Duration SimNetwork::some_delay() noexcept {
  const auto most = static_cast<uint64_t>(std::max<int64_t>(faults_.delay_max.count(), 1));
  return Duration(static_cast<int64_t>(1 + random_.below(most)));
}

// ---- descriptors

int SimNetwork::new_descriptor() {
  if (descriptors_used_ >= descriptors_max_) return -EMFILE;
  ++descriptors_used_;
  int index;
  if (free_descriptors_.empty()) {
    index = static_cast<int>(descriptors_.size());
    descriptors_.emplace_back();
  } else {
    index = free_descriptors_.top();
    free_descriptors_.pop();
  }
  descriptors_[static_cast<size_t>(index)].used = true;
  return kSimDescriptorBase + index;
}

int SimNetwork::descriptor_open(SimEnd end) {
  const int fd = new_descriptor();
  if (fd >= 0) descriptors_[static_cast<size_t>(fd - kSimDescriptorBase)].end = end;
  return fd;
}

SimEnd SimNetwork::descriptor_end(int fd) const noexcept {
  WEIR_ASSERT(fd >= kSimDescriptorBase && static_cast<size_t>(fd - kSimDescriptorBase) < descriptors_.size());
  return descriptors_[static_cast<size_t>(fd - kSimDescriptorBase)].end;
}

void SimNetwork::descriptor_free(int fd) {
  Descriptor& d = descriptors_[static_cast<size_t>(fd - kSimDescriptorBase)];
  WEIR_ASSERT(d.used);
  d = Descriptor{};
  --descriptors_used_;
  free_descriptors_.push(fd - kSimDescriptorBase);
}

// ---- listeners

SimNetwork::Listener* SimNetwork::listener_of(int fd) const noexcept {
  WEIR_ASSERT(fd >= kSimDescriptorBase && static_cast<size_t>(fd - kSimDescriptorBase) < descriptors_.size());
  const auto it = listeners_.find(descriptors_[static_cast<size_t>(fd - kSimDescriptorBase)].listener);
  return it == listeners_.end() ? nullptr : &it->second;
}

int SimNetwork::listen(const Address& address, uint32_t backlog, bool shared) {
  const std::string text = address.text();
  for (const auto& [id, other] : listeners_) {
    if (other.address.text() == text && !(shared && other.shared)) return -EADDRINUSE;
  }
  const int fd = new_descriptor();
  if (fd < 0) return fd;
  const uint32_t id = ++listener_ids_;
  Listener& listener = listeners_[id];
  listener.address = address;
  listener.backlog = backlog;
  listener.shared = shared;
  listener.fd = fd;
  descriptors_[static_cast<size_t>(fd - kSimDescriptorBase)].listener = id;
  return fd;
}

void SimNetwork::serve(const Address& address, std::function<void(SimPeer&)> on_accept) {
  Listener& listener = listeners_[++listener_ids_];
  listener.address = address;
  listener.on_accept = std::move(on_accept);
}

void SimNetwork::stop_serving(const Address& address) {
  const std::string text = address.text();
  std::erase_if(listeners_, [&](const auto& entry) {
    return entry.second.fd < 0 && entry.second.address.text() == text;
  });
}

bool SimNetwork::descriptor_listens(int fd) const noexcept { return listener_of(fd) != nullptr; }

bool SimNetwork::listener_ready(int fd) const noexcept {
  const Listener* listener = listener_of(fd);
  return listener != nullptr && !listener->queue.empty();
}

bool SimNetwork::listener_shut(int fd) const noexcept {
  const Listener* listener = listener_of(fd);
  return listener == nullptr || listener->shut;
}

SimEnd SimNetwork::listener_pop(int fd) {
  Listener* listener = listener_of(fd);
  if (listener == nullptr || listener->queue.empty()) return {};
  const SimEnd end = listener->queue.front();
  listener->queue.pop_front();
  return end;
}

void SimNetwork::listener_shutdown(int fd) {
  Listener* listener = listener_of(fd);
  if (listener == nullptr) return;
  listener->shut = true;
  for (const SimEnd end : std::exchange(listener->queue, {})) close(end, true);
  if (listener->engine != nullptr) listener->engine->mark_ready(fd);
}

void SimNetwork::listener_close(int fd) {
  listener_shutdown(fd);
  listeners_.erase(descriptors_[static_cast<size_t>(fd - kSimDescriptorBase)].listener);
}

void SimNetwork::listener_owner(int fd, SimEngine* engine) noexcept {
  if (Listener* listener = listener_of(fd); listener != nullptr) listener->engine = engine;
}

void SimNetwork::blackhole(const Address& address, bool on) {
  const std::string text = address.text();
  std::erase(blackholes_, text);
  if (on) blackholes_.push_back(text);
}

SimNetwork::Listener* SimNetwork::pick_listener(const std::string& address) {
  std::vector<Listener*> found;
  for (auto& [id, listener] : listeners_) {
    if (!listener.shut && listener.address.text() == address) found.push_back(&listener);
  }
  if (found.empty()) return nullptr;
  return found.size() == 1 ? found.front() : found[random_.below(found.size())];
}

// ---- connecting

void SimNetwork::connect(SimEnd end, const Address& to) {
  Connection& c = *find(end);
  c.connect_result = -EINPROGRESS;
  c.half[1].address = to;
  if (trace_) note(name_of(end) + " connects to " + to.text());
  if (random_.chance(faults_.connect_refused)) {
    schedule(Event{now_ + link_.latency * 2, 0, EventKind::refused, end, ECONNREFUSED, nullptr, {}, {}});
  } else if (random_.chance(faults_.connect_timeout)) {
    schedule(Event{now_ + faults_.connect_timeout_after, 0, EventKind::refused, end, ETIMEDOUT, nullptr, {}, {}});
  } else {
    schedule(Event{now_ + link_.latency, 0, EventKind::syn, end, 0, nullptr, to.text(), {}});
  }
}

void SimNetwork::syn(SimEnd end, const std::string& to, uint64_t tries) {
  const bool lost = std::find(blackholes_.begin(), blackholes_.end(), to) != blackholes_.end();
  Listener* listener = lost ? nullptr : pick_listener(to);
  if (!lost && listener == nullptr) {
    schedule(Event{now_ + link_.latency, 0, EventKind::refused, end, ECONNREFUSED, nullptr, {}, {}});
    return;
  }
  if (lost || (listener->fd >= 0 && listener->queue.size() >= listener->backlog)) {  // the SYN goes unanswered
    if (tries == kSynTriesMax) return fail_connect(end, ETIMEDOUT);
    const Duration wait = std::chrono::seconds(1) * (1 << tries);
    schedule(Event{now_ + wait, 0, EventKind::syn, end, tries + 1, nullptr, to, {}});
    return;
  }
  schedule(Event{now_ + link_.latency, 0, EventKind::connected, end, 0, nullptr, {}, {}});
  accept_into(*listener, end);
}

void SimNetwork::accept_into(Listener& listener, SimEnd client) {
  const SimEnd server{client.connection, 1};
  Half& h = half(server);
  h.up = true;
  if (listener.fd >= 0) {
    listener.queue.push_back(server);
    if (listener.engine != nullptr) listener.engine->mark_ready(listener.fd);
    return;
  }
  const uint64_t id = ++peer_ids_;
  SimPeer& peer = *peers_.emplace(id, std::make_unique<SimPeer>(*this, id)).first->second;
  peer.end_ = server;
  h.peer = &peer;
  const auto on_accept = listener.on_accept;  // it may stop serving
  on_accept(peer);
  peer_event(peer);
}

void SimNetwork::fail_connect(SimEnd end, int error) {
  Connection& c = *find(end);
  if (c.connect_result != -EINPROGRESS) return;
  c.connect_result = -error;
  if (trace_) note(name_of(end) + " cannot connect: " + strerror(error));
  notify(c.half[0]);
}

// ---- peers

SimPeer& SimNetwork::connect_peer(const Address& to) {
  const uint64_t id = ++peer_ids_;
  SimPeer& peer = *peers_.emplace(id, std::make_unique<SimPeer>(*this, id)).first->second;
  peer.end_ = open_end(nullptr, &peer);
  connect(peer.end_, to);
  return peer;
}

SimPeer& SimNetwork::pair(int* fd) {
  const uint64_t id = ++peer_ids_;
  SimPeer& peer = *peers_.emplace(id, std::make_unique<SimPeer>(*this, id)).first->second;
  peer.end_ = open_end(nullptr, &peer);
  const SimEnd other{peer.end_.connection, 1};
  Connection& c = *find(other);
  c.connect_result = 0;
  c.half[0].up = c.half[1].up = true;
  *fd = descriptor_open(other);
  return peer;
}

void SimNetwork::forget(SimPeer& peer) {
  peer.close();
  peers_.erase(peer.id_);
}

}  // namespace weir

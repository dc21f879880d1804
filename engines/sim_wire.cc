// What happens on a simulated connection: bytes, windows, acknowledgements, end of file, reset. See sim_network.h.
#include <algorithm>
#include <cstring>

#include "engines/check.h"
#include "engines/sim_engine.h"
#include "engines/sim_network.h"
#include "engines/sim_peer.h"

namespace weir {

namespace {
SimEnd other_end(SimEnd end) noexcept { return {end.connection, static_cast<uint8_t>(1 - end.side)}; }
}  // namespace

SimNetwork::Connection* SimNetwork::find(SimEnd end) const noexcept {
  const auto it = connections_.find(end.connection);
  return it == connections_.end() ? nullptr : it->second.get();
}

SimNetwork::Half& SimNetwork::half(SimEnd end) const noexcept {
  Connection* c = find(end);
  WEIR_ASSERT(c != nullptr);
  return c->half[end.side];
}

SimEnd SimNetwork::open_end(SimEngine* engine, SimPeer* peer) {
  const uint64_t id = ++connection_ids_;
  auto connection = std::make_unique<Connection>();
  for (Half& h : connection->half) h.link = link_;
  Half& h = connection->half[0];
  h.engine = engine;
  h.peer = peer;
  h.address.v4 = {};
  h.address.v4.sin_family = AF_INET;
  h.address.v4.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  h.address.v4.sin_port = htons(ports_);
  h.address.length = sizeof(sockaddr_in);
  ports_ = ports_ == 65535 ? 20000 : static_cast<uint16_t>(ports_ + 1);
  connections_.emplace(id, std::move(connection));
  return {id, 0};
}

void SimNetwork::set_owner(SimEnd end, SimEngine* engine, int fd) noexcept {
  if (find(end) == nullptr) return;
  Half& h = half(end);
  h.engine = engine;
  h.fd = fd;
}

const Address& SimNetwork::address_of(SimEnd end, bool remote) const noexcept {
  return half(remote ? other_end(end) : end).address;
}

int SimNetwork::connect_result(SimEnd end) const noexcept {
  const Connection* c = find(end);
  if (c == nullptr) return -ENOTCONN;
  return end.side == 1 ? 0 : c->connect_result;
}

void SimNetwork::notify(Half& h) {
  if (h.engine != nullptr)  // an op that stands in an engine which the socket has left is told too
    for (SimEngine* engine : engines_) engine->mark_ready(h.fd);
  if (h.peer != nullptr) peer_event(*h.peer);
}

size_t SimNetwork::readable_bytes(SimEnd end) const noexcept {
  const Half& h = half(end);
  return h.in.size() - h.in_taken;
}

bool SimNetwork::read_ended(SimEnd end) const noexcept {
  const Half& h = half(end);
  return h.fin_arrived || h.was_reset || h.read_shut || h.error != 0;
}

size_t SimNetwork::room(SimEnd end) const noexcept {
  const Half& h = half(end);
  return h.link.send_buffer_bytes > h.unacked ? h.link.send_buffer_bytes - h.unacked : 0;
}

uint64_t SimNetwork::acked(SimEnd end) const noexcept { return find(end) == nullptr ? 0 : half(end).acked; }

void SimNetwork::set_lowat(SimEnd end, uint32_t bytes) {
  if (find(end) == nullptr) return;
  Half& h = half(end);
  h.lowat = std::min(bytes, std::max(half(other_end(end)).link.window_bytes / 2, 1u));
  if (h.in.size() - h.in_taken >= h.lowat || read_ended(end)) notify(h);
}

int64_t SimNetwork::write(SimEnd end, const char* data, size_t count) {
  Half& h = half(end);
  if (h.error != 0) return -std::exchange(h.error, 0);
  if (h.was_reset || h.write_shut) return -EPIPE;
  if (!h.up) return find(end)->connect_result == -EINPROGRESS && end.side == 0 ? -EAGAIN : -EPIPE;
  const size_t taken = std::min(count, room(end));
  if (taken == 0) return -EAGAIN;
  note_bytes(end, {data, taken});
  h.unacked += taken;
  for (size_t at = 0; at < taken;) {
    const size_t piece = std::min<size_t>(taken - at, h.link.segment_bytes);
    Segment segment;
    segment.bytes.assign(data + at, piece);
    put_segment(end, std::move(segment));
    at += piece;
  }
  return static_cast<int64_t>(taken);
}

void SimNetwork::schedule_reset(SimEnd end, Duration wait, int error) {
  schedule(Event{now_ + wait, 0, EventKind::broken, end, static_cast<uint64_t>(error), nullptr, {}, {}});
}

void SimNetwork::put_segment(SimEnd from, Segment&& segment) {
  Half& h = half(from);
  h.wire_free = std::max(h.wire_free, now_);
  if (h.link.bytes_per_second > 0) {
    h.wire_free += Duration(static_cast<int64_t>(segment.bytes.size() * 1'000'000'000ull / h.link.bytes_per_second));
  }
  segment.arrival = h.wire_free + h.link.latency;
  const TimePoint arrival = segment.arrival;
  h.wire.push_back(std::move(segment));
  schedule(Event{arrival, 0, EventKind::arrive, from, 0, nullptr, {}, {}});
}

// Moves what has arrived into the other end's receive buffer, as far as its window allows.
void SimNetwork::pump_wire(SimEnd from) {
  Half& a = half(from);
  Half& b = half(other_end(from));
  size_t moved = 0;
  bool told = false;
  while (!a.wire.empty() && a.wire.front().arrival <= now_) {
    Segment& segment = a.wire.front();
    if (b.closed || b.was_reset || (b.read_shut && b.write_shut)) {  // nobody reads: bytes are answered by a reset
      const bool bytes = !segment.fin;
      const int error = a.fin_arrived ? EPIPE : ECONNRESET;
      a.wire.clear();
      if (bytes) schedule_reset(from, a.link.latency, error);
      break;
    }
    if (segment.fin) {
      b.fin_arrived = told = true;
      a.wire.pop_front();
      continue;
    }
    const size_t held = b.in.size() - b.in_taken;
    const size_t window = a.link.window_bytes > held ? a.link.window_bytes - held : 0;
    const size_t count = std::min(window, segment.bytes.size() - segment.taken);
    if (count == 0) break;                                           // read() comes here again
    b.in.append(segment.bytes, segment.taken, count);
    moved += count;
    segment.taken += count;
    if (segment.taken == segment.bytes.size()) a.wire.pop_front();
  }
  if (moved > 0) schedule(Event{now_ + a.link.latency, 0, EventKind::acked, from, moved, nullptr, {}, {}});
  if (told || (moved > 0 && b.in.size() - b.in_taken >= b.lowat)) notify(b);
}

int64_t SimNetwork::read(SimEnd end, char* data, size_t count) {
  Half& h = half(end);
  const size_t held = h.in.size() - h.in_taken;
  if (held == 0) {
    if (h.error != 0) return -std::exchange(h.error, 0);
    if (h.fin_arrived || h.was_reset || h.read_shut) return 0;
    return h.up || find(end)->connect_result == -EINPROGRESS ? -EAGAIN : -ENOTCONN;
  }
  const size_t taken = std::min(held, count);
  std::memcpy(data, h.in.data() + h.in_taken, taken);
  h.in_taken += taken;
  if (h.in_taken == h.in.size()) {
    h.in.clear();
    h.in_taken = 0;
  } else if (h.in_taken > h.in.size() / 2) {
    h.in.erase(0, h.in_taken);
    h.in_taken = 0;
  }
  pump_wire(other_end(end));  // the window has room again
  return static_cast<int64_t>(taken);
}

void SimNetwork::shutdown(SimEnd end, ShutdownHow how) {
  Connection* c = find(end);
  if (c == nullptr) return;
  Half& h = c->half[end.side];
  if (!h.up) {
    if (end.side == 0 && how == ShutdownHow::both) fail_connect(end, ECONNRESET);
    return;
  }
  if (!h.write_shut && !h.was_reset) {
    h.write_shut = true;
    if (trace_) note(name_of(end) + " ends");
    Segment fin;
    fin.fin = true;
    put_segment(end, std::move(fin));
  }
  if (how == ShutdownHow::both) h.read_shut = true;
  notify(h);
}

void SimNetwork::close(SimEnd end, bool reset) {
  Connection* c = find(end);
  if (c == nullptr || c->half[end.side].closed) return;
  Half& h = c->half[end.side];
  Half& o = c->half[1 - end.side];
  h.closed = true;
  if (trace_) note(name_of(end) + (reset ? " closes with a reset" : " closes"));
  h.engine = nullptr;
  h.peer = nullptr;
  if (o.closed || (end.side == 0 && !o.up)) {
    connections_.erase(end.connection);
    return;
  }
  if (reset || !h.up || h.in.size() > h.in_taken) {
    h.wire.clear();
    if (!h.was_reset) {
      schedule_reset(other_end(end), h.link.latency, o.fin_arrived ? EPIPE : ECONNRESET);
    }
  } else if (!h.write_shut && !h.was_reset) {
    Segment fin;
    fin.fin = true;
    put_segment(end, std::move(fin));
  }
  h.in.clear();
  h.in_taken = 0;
  pump_wire(other_end(end));  // what the other had on the wire meets nobody now
}

void SimNetwork::reset(SimEnd end) {
  Connection* c = find(end);
  if (c == nullptr) return;
  if (trace_) note(name_of(end) + " is reset from outside");
  for (Half& h : c->half) {
    if (h.up && !h.closed) break_half(h, ECONNRESET);
  }
}

void SimNetwork::break_half(Half& h, int error) {
  if (h.was_reset || h.closed) return;
  h.was_reset = true;
  h.error = error;
  h.wire.clear();
  h.unacked = 0;
  notify(h);
}

}  // namespace weir

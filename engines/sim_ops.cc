// What the simulated engine does with one op when its descriptor may be ready. See sim_engine.h.
#include <sys/uio.h>

#include <algorithm>
#include <array>
#include <cstring>

#include "engines/check.h"
#include "engines/relay_pipes.h"
#include "engines/sim_engine.h"

namespace weir {

SimEngine::Verdict SimEngine::attempt(Op& op) {
  if (op.kind == OpKind::accept && entry(op.socket->fd).reported) return Verdict::wait;
  if (const int error = network_.scripted(op.kind, op.socket->fd); error != 0) {
    op.result = -error;
    note(op, strerror(error));
    if (op.kind == OpKind::accept) static_cast<AcceptOp&>(op).more = false;
    if (op.kind == OpKind::relay) return end_relay(static_cast<RelayOp&>(op), -error, false);
    return Verdict::done;
  }
  switch (op.kind) {
    case OpKind::accept: return attempt_accept(static_cast<AcceptOp&>(op));
    case OpKind::connect: return attempt_connect(static_cast<ConnectOp&>(op));
    case OpKind::recv: return attempt_recv(static_cast<RecvOp&>(op));
    case OpKind::send: return attempt_send(static_cast<SendOp&>(op));
    case OpKind::relay: return attempt_relay(static_cast<RelayOp&>(op));
  }
  return Verdict::wait;
}

SimEngine::Verdict SimEngine::attempt_accept(AcceptOp& op) {
  const int fd = op.socket->fd;
  const SimFaults& faults = network_.faults();
  SimRandom& random = network_.random();
  uint32_t count = 0;
  int error = 0;
  while (count < op.accepted.size() && network_.listener_ready(fd)) {
    if (random.chance(faults.accept_emfile)) error = EMFILE;
    else if (random.chance(faults.accept_enobufs)) error = ENOBUFS;
    if (error == 0 && network_.descriptors() >= network_.descriptors_max()) error = EMFILE;
    if (error != 0) break;
    const SimEnd end = network_.listener_pop(fd);
    const int accepted = network_.descriptor_open(end);
    network_.set_owner(end, this, accepted);
    op.accepted[count++] = {accepted, network_.address_of(end, true)};
  }
  if (count == 0 && error == 0 && network_.listener_shut(fd)) error = EINVAL;
  op.more = count > 0;
  if (count > 0) {
    op.result = static_cast<int32_t>(count);
    entry(fd).reported = true;
    reported_.push_back(fd);
    return Verdict::done;
  }
  op.result = -error;
  if (error != 0) note(op, strerror(error));
  return error != 0 ? Verdict::done : Verdict::wait;
}

SimEngine::Verdict SimEngine::attempt_connect(ConnectOp& op) {
  const SimEnd end = network_.descriptor_end(op.socket->fd);
  if (network_.connect_result(end) == -ENOTCONN) network_.connect(end, op.to);
  op.result = network_.connect_result(end);
  return op.result == -EINPROGRESS ? Verdict::wait : Verdict::done;
}

SimEngine::Verdict SimEngine::attempt_recv(RecvOp& op) {
  const SimEnd end = network_.descriptor_end(op.socket->fd);
  const SimFaults& faults = network_.faults();
  SimRandom& random = network_.random();
  WEIR_ASSERT(op.want > 0 && op.bytes.empty());
  const size_t held = network_.readable_bytes(end);
  if (held > 0 || network_.read_ended(end)) {
    if (random.chance(faults.recv_enobufs)) {
      op.result = -ENOBUFS;
      note(op, strerror(ENOBUFS));
      return Verdict::done;
    }
    if (random.chance(faults.reset)) network_.reset(end);
  }
  if (held == 0) {
    op.result = static_cast<int32_t>(network_.read(end, nullptr, 0));
    return op.result == -EAGAIN ? Verdict::wait : Verdict::done;
  }
  size_t count = std::min<size_t>(held, op.want);
  if (random.chance(faults.short_recv)) count = 1 + random.below(count);
  while (op.bytes.bytes() < count) {
    Slab* slab = pool_.take_for_input();
    if (slab == nullptr) break;
    const size_t piece = std::min<size_t>(count - op.bytes.bytes(), kSlabBytes);
    const int64_t got = network_.read(end, slab->data, piece);
    WEIR_ASSERT(got == static_cast<int64_t>(piece));
    slab->used = static_cast<uint32_t>(piece);
    op.bytes.append(Slice(slab, 0, slab->used));
  }
  op.result = static_cast<int32_t>(op.bytes.bytes());
  if (op.result > 0) return Verdict::done;
  hungry_.push_back(op.socket->fd);
  return Verdict::wait;
}

SimEngine::Verdict SimEngine::attempt_send(SendOp& op) {
  const SimEnd end = network_.descriptor_end(op.socket->fd);
  const SimFaults& faults = network_.faults();
  SimRandom& random = network_.random();
  if (random.chance(faults.reset)) network_.reset(end);
  if (random.chance(faults.broken_pipe)) {
    network_.reset(end);
    op.result = static_cast<int32_t>(network_.write(end, nullptr, 0));  // takes the reset; from now on EPIPE
  }
  std::array<iovec, kSendSlicesMax> parts;
  const unsigned used = op.bytes->fill(parts.data(), kSendSlicesMax, kSendBytesMax);
  size_t most = kSendBytesMax;
  if (random.chance(faults.short_send)) most = 1 + random.below(std::min<size_t>(op.bytes->bytes(), kSendBytesMax));
  size_t sent = 0;
  int64_t last = 0;
  for (unsigned i = 0; i < used && sent < most; ++i) {
    const size_t piece = std::min(parts[i].iov_len, most - sent);
    last = network_.write(end, static_cast<const char*>(parts[i].iov_base), piece);
    if (last > 0) sent += static_cast<size_t>(last);
    if (last < static_cast<int64_t>(piece)) break;
  }
  op.result = static_cast<int32_t>(sent > 0 ? static_cast<int64_t>(sent) : last);
  return op.result == -EAGAIN ? Verdict::wait : Verdict::done;
}

// ---- relay

bool SimEngine::take_pipe(RelayOp& op) {
  if (op.pipe[0] >= 0) return true;
  if (network_.random().chance(network_.faults().relay_no_pipe)) return false;
  const uint32_t allowed = RelayPipes::bytes_allowed(pool_.lease());
  if (allowed == 0 || !pool_.lease().take(allowed)) return false;
  if (pipes_free_.empty()) {
    pipes_.emplace_back();
    pipes_free_.push_back(static_cast<int>(pipes_.size()) - 1);
    ++pipes_made_;
  }
  op.pipe[0] = pipes_free_.back();
  op.pipe_capacity = allowed;
  pool_.lease().pipe_bytes += allowed;
  op.moved_in = op.moved_out = 0;
  pipes_free_.pop_back();
  return true;
}

// A pipe that still holds bytes is closed, never pooled: its slot stays empty for good.
SimEngine::Verdict SimEngine::end_relay(RelayOp& op, int result, bool target_failed) {
  op.result = result;
  op.target_failed = target_failed;
  if (op.lowat_set) network_.set_lowat(network_.descriptor_end(op.socket->fd), 1);
  op.lowat_set = false;
  if (op.pipe[0] >= 0) {
    pool_.lease().give(op.pipe_capacity);
    pool_.lease().pipe_bytes -= op.pipe_capacity;
    std::string& pipe = pipes_[static_cast<size_t>(op.pipe[0])];
    if (pipe.empty()) pipes_free_.push_back(op.pipe[0]);
    std::string().swap(pipe);
  }
  op.pipe[0] = -1;
  return Verdict::done;
}

SimEngine::Verdict SimEngine::relay_out(RelayOp& op, std::string& pipe) {
  const SimEnd target = network_.descriptor_end(op.to->fd);
  SimRandom& random = network_.random();
  size_t done = 0;
  int64_t n = 0;
  while (done < pipe.size()) {
    size_t count = pipe.size() - done;
    if (random.chance(network_.faults().short_send)) count = 1 + random.below(count);
    n = network_.write(target, pipe.data() + done, count);
    if (n < 0) break;
    done += static_cast<size_t>(n);
  }
  pipe.erase(0, done);
  op.moved_out += done;
  if (n < 0 && n != -EAGAIN) return end_relay(op, static_cast<int>(n), true);
  return pipe.empty() ? Verdict::again : Verdict::wait;
}

SimEngine::Verdict SimEngine::attempt_relay(RelayOp& op) {
  if (!take_pipe(op)) return end_relay(op, -EOPNOTSUPP, false);
  std::string& pipe = pipes_[static_cast<size_t>(op.pipe[0])];
  const SimEnd source = network_.descriptor_end(op.socket->fd);
  SimRandom& random = network_.random();
  uint32_t budget = kRelayBytesPerTurn;
  bool in_blocked = false;
  while (true) {
    const Verdict out = relay_out(op, pipe);
    if (out == Verdict::done) return out;
    if (op.moved_out == op.want) return end_relay(op, 0, false);
    if (in_blocked || (out == Verdict::wait && pipe.size() == op.pipe_capacity)) return Verdict::wait;
    if (budget == 0) return Verdict::again;
    if (op.moved_in == op.want) return Verdict::wait;
    size_t count = std::min<uint64_t>({op.want - op.moved_in, op.pipe_capacity - pipe.size(), budget});
    if (random.chance(network_.faults().short_recv)) count = 1 + random.below(count);
    const size_t before = pipe.size();
    pipe.resize(before + count);
    const int64_t n = network_.read(source, pipe.data() + before, count);
    pipe.resize(before + static_cast<size_t>(std::max<int64_t>(n, 0)));
    if (n == 0 && pipe.empty()) return end_relay(op, 0, false);
    if (n == 0) return Verdict::wait;  // the target takes the rest, then the end of file is seen again
    if (n < 0 && n != -EAGAIN) return end_relay(op, static_cast<int>(n), false);
    if (n == -EAGAIN) {
      in_blocked = true;
      continue;
    }
    op.moved_in += static_cast<uint64_t>(n);
    budget -= static_cast<uint32_t>(n);
    const bool lowat = op.want - op.moved_in > kRelayLowat;
    if (lowat != op.lowat_set) network_.set_lowat(source, lowat ? kRelayLowat : 1);
    op.lowat_set = lowat;
  }
}

void SimEngine::relay_quiet(RelayOp& op) noexcept {
  if (!is_parked(op)) return;
  op.lowat_set = false;
  network_.set_lowat(network_.descriptor_end(op.socket->fd), 1);
  due_.push_back(op.socket->fd);
}

}  // namespace weir

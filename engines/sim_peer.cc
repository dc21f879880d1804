#include "engines/sim_peer.h"

#include <algorithm>
#include <array>

namespace weir {

void SimPeer::send(std::string_view bytes) {
  outbox_.append(bytes);
  network_.peer_event(*this);
}

void SimPeer::finish() {
  finishing_ = true;
  network_.peer_event(*this);
}

void SimPeer::allow(uint64_t total) noexcept {
  allowed_ = total;
  network_.peer_event(*this);
}

void SimPeer::reset() {
  if (!closed_) network_.close(end_, true);
  closed_ = true;
}

void SimPeer::close() {
  if (!closed_) network_.close(end_, false);
  closed_ = true;
}

int64_t SimPeer::write_some(std::string_view bytes) {
  return closed_ ? -EBADF : network_.write(end_, bytes.data(), bytes.size());
}

int64_t SimPeer::read_some(char* to, size_t count) {
  if (closed_) return -EBADF;
  const int64_t got = network_.read(end_, to, count);
  if (got > 0) received_bytes_ += static_cast<uint64_t>(got);
  if (got == 0) ended_ = true;
  return got;
}

bool SimPeer::pump_out() {
  bool progress = false;
  while (outbox_taken_ < outbox_.size()) {
    const int64_t n = network_.write(end_, outbox_.data() + outbox_taken_, outbox_.size() - outbox_taken_);
    if (n == -EAGAIN) break;
    if (n < 0) {
      error_ = static_cast<int>(-n);
      outbox_taken_ = outbox_.size();
      return true;
    }
    outbox_taken_ += static_cast<size_t>(n);
    progress = true;
  }
  if (outbox_taken_ == outbox_.size()) {
    outbox_.clear();
    outbox_taken_ = 0;
    if (finishing_ && !finished_) {
      finished_ = true;
      network_.shutdown(end_, ShutdownHow::write);
    }
  }
  return progress;
}

bool SimPeer::pump_in() {
  bool progress = false;
  std::array<char, 16384> bytes;
  while (!ended_ && error_ == 0 && received_bytes_ < allowed_) {
    const int64_t n = network_.read(end_, bytes.data(), std::min<uint64_t>(bytes.size(), allowed_ - received_bytes_));
    if (n == -EAGAIN) break;
    progress = true;
    if (n == 0) ended_ = true;
    else if (n < 0) error_ = static_cast<int>(-n);
    else received_bytes_ += static_cast<uint64_t>(n);
    if (n > 0 && keep) received.append(bytes.data(), static_cast<size_t>(n));
  }
  return progress;
}

void SimPeer::pump() {
  if (closed_) return;
  const int result = network_.connect_result(end_);
  if (result == -EINPROGRESS) return;
  if (result < 0) {
    error_ = -result;
  } else if (!manual_) {
    pump_out();
    pump_in();
  }
  if (on_event) {
    const auto call = on_event;  // it may replace itself
    call(*this);
  }
}

}  // namespace weir

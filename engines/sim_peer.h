// SimPeer: a scripted client or origin at the far end of a simulated connection. Two ways to drive it:
// by script: send() queues bytes that go out as the connection takes them, allow() says how much it may read in all (a stall is
// an allowance that does not grow), finish() half-closes after what is queued, on_event runs after each change; or by hand,
// like a non-blocking socket: read_some() and write_some() after manual().
// Owner: its SimNetwork, until SimNetwork::forget. on_event is called from the network, never from within the peer's own calls.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

#include "engines/sim_network.h"

namespace weir {

class SimPeer {
 public:
  SimPeer(SimNetwork& network, uint64_t id) noexcept : network_(network), id_(id) {}

  // By script.
  void send(std::string_view bytes);
  void finish();
  void allow(uint64_t total) noexcept;              // absolute; all by default
  void reset();
  void close();
  std::function<void(SimPeer&)> on_event;
  std::string received;                             // all that it read, unless keep is off
  bool keep = true;

  // By hand: bytes, 0 at end of file (read_some), or -errno.
  void manual() noexcept { manual_ = true; }
  int64_t write_some(std::string_view bytes);
  int64_t read_some(char* to, size_t count);

  bool connected() const noexcept { return network_.connect_result(end_) == 0; }
  int connect_result() const noexcept { return network_.connect_result(end_); }
  bool ended() const noexcept { return ended_; }    // end of file was read
  int error() const noexcept { return error_; }     // errno that ended it, 0
  uint64_t received_bytes() const noexcept { return received_bytes_; }
  size_t unsent() const noexcept { return outbox_.size() - outbox_taken_; }
  SimNetwork& network() noexcept { return network_; }
  SimEnd end() const noexcept { return end_; }

 private:
  friend class SimNetwork;
  void pump();                                      // from the network
  bool pump_out();
  bool pump_in();

  SimNetwork& network_;
  uint64_t id_;
  SimEnd end_;
  std::string outbox_;
  size_t outbox_taken_ = 0;
  uint64_t allowed_ = UINT64_MAX;
  uint64_t received_bytes_ = 0;
  int error_ = 0;
  bool ended_ = false, finishing_ = false, finished_ = false, manual_ = false, closed_ = false, queued_ = false;
};

}  // namespace weir

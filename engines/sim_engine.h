// SimEngine: the third engine: the same contract as epoll and io_uring, on a SimNetwork, in virtual time, with its faults.
// Owner: a Loop (several loops may share a network). Thread: the loop's own, which is the network's.
// turn() sleeps by moving the network's time, when this is the only engine and nobody steps the network; else it only tells
// (wake_at) how long it would have slept. With the pool at its limit a recv waits for memory as it does for bytes.
// It may stand in for epoll or io_uring, so that a loop has two of them between which sockets can change.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "engines/engine.h"
#include "engines/sim_network.h"
#include "engines/slab.h"

namespace weir {

class SimEngine final : public Engine {
 public:
  SimEngine(SimNetwork& network, SlabPool& pool, EngineKind kind = EngineKind::sim);
  ~SimEngine() override;

  EngineKind kind() const noexcept override { return kind_; }
  Turn turn(OpList& submitted, OpList& cancelled, OpList& completed, const Wait& wait) noexcept override;
  int open(const Address& to) noexcept override;
  void shutdown(Socket& socket, ShutdownHow how) noexcept override;
  void close(Socket& socket, bool linger_reset) noexcept override;
  void leave(Socket& socket) noexcept override;
  uint64_t acked_bytes(const Socket& socket) noexcept override;
  void relay_quiet(RelayOp& op) noexcept override;
  void set_wake(int eventfd) noexcept override { wake_fd_ = eventfd; }
  std::string tier() const override { return "simulated"; }

  // For SimNetwork.
  void mark_ready(int fd) noexcept;
  bool busy() const noexcept { return !ready_.empty() || !due_.empty(); }
  // In epoll's place it is only polled: the ring's, beside it, waits for both.
  TimePoint wake_at() const noexcept { return kind_ == EngineKind::epoll ? kNever : wake_at_; }
  size_t parked() const noexcept { return parked_; }       // ops that wait in the engine
  uint64_t pipes_made() const noexcept { return pipes_made_; }
  size_t pipes_pooled() const noexcept { return pipes_free_.size(); }

 private:
  enum class Verdict : uint8_t { wait, again, done };       // again: not now, but in the next turn
  struct Entry {
    Op* reader = nullptr;
    Op* writer = nullptr;
    bool queued = false;    // in ready_
    bool reported = false;  // an accept completed in this turn; its entries are still being read
  };
  struct Deferred {
    Op* op;
    TimePoint at;
    bool cancel;                     // a cancel that takes effect then; else a completion that is reported then
  };
  Entry& entry(int fd);
  void take(Op& op, OpList& completed);
  void drop(Op& op, OpList& completed);
  void park(Op& op);
  void unpark(Op& op);
  bool is_parked(const Op& op);
  void try_parked(Op& op, int fd, OpList& completed);
  void release_cancelled(Op& op, OpList& completed);
  bool finish_if_ready(Op& op, OpList& completed);
  void give_up(Op& op, OpList& completed);
  void finish(Op& op, OpList& completed);
  void serve_ready(OpList& completed);
  void release_deferred(OpList& completed);
  void shuffle(OpList& completed);
  void sleep(const Wait& wait, OpList& completed);
  bool wake_fired() noexcept;

  Verdict attempt(Op& op);
  Verdict attempt_accept(AcceptOp& op);
  Verdict attempt_connect(ConnectOp& op);
  Verdict attempt_recv(RecvOp& op);
  Verdict attempt_send(SendOp& op);
  Verdict attempt_relay(RelayOp& op);
  Verdict relay_out(RelayOp& op, std::string& pipe);
  Verdict end_relay(RelayOp& op, int result, bool target_failed);
  bool take_pipe(RelayOp& op);

  void note(const Op& op, const char* what) const;

  SimNetwork& network_;
  SlabPool& pool_;
  EngineKind kind_;
  int wake_fd_ = -1;
  TimePoint wake_at_ = kNever;
  std::vector<Entry> entries_;
  std::vector<int> ready_;
  std::vector<int> due_;           // ready in the next turn
  std::vector<int> reported_;      // accepts that completed in the last turn
  std::vector<int> hungry_;        // wait for the pool
  std::vector<Deferred> deferred_;
  std::vector<std::string> pipes_;
  std::vector<int> pipes_free_;
  uint64_t pipes_made_ = 0;
  size_t parked_ = 0;
  uint32_t events_ = 0;
};

}  // namespace weir

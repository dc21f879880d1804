// TwiceEngine: an engine with a fault that none may have: now and then it reports an op of the turn before once more.
// Owner: a Loop, in place of the engine that it wraps. It is there to show that a double completion is found.
#pragma once

#include <memory>
#include <utility>

#include "engines/engine.h"
#include "engines/sim_random.h"

namespace weir::simtest {

class TwiceEngine final : public Engine {
 public:
  // `share`: of the completions; 0: it is only a wrapper.
  TwiceEngine(std::unique_ptr<Engine> inner, uint64_t seed, double share)
      : inner_(std::move(inner)), random_(seed), share_(share) {}
  EngineKind kind() const noexcept override { return inner_->kind(); }
  Turn turn(OpList& submitted, OpList& cancelled, OpList& completed, const Wait& wait) noexcept override {
    const Turn turn = inner_->turn(submitted, cancelled, completed, wait);
    Op* again = std::exchange(last_, nullptr);
    OpList all;
    while (Op* op = completed.pop()) {
      if (op == again) again = nullptr;          // it is here by right
      if (op->kind != OpKind::accept && op->kind != OpKind::relay && random_.chance(share_)) last_ = op;
      all.push(*op);
    }
    if (again != nullptr && again->idle() && again->socket->fd >= 0) all.push(*again);
    completed.append(all);
    return turn;
  }
  int open(const Address& to) noexcept override { return inner_->open(to); }
  void shutdown(Socket& socket, ShutdownHow how) noexcept override { inner_->shutdown(socket, how); }
  void close(Socket& socket, bool reset) noexcept override { inner_->close(socket, reset); }
  void leave(Socket& socket) noexcept override { inner_->leave(socket); }
  uint64_t acked_bytes(const Socket& socket) noexcept override { return inner_->acked_bytes(socket); }
  void relay_quiet(RelayOp& op) noexcept override { inner_->relay_quiet(op); }
  void set_wake(int fd) noexcept override { inner_->set_wake(fd); }
  std::string tier() const override { return inner_->tier(); }

 private:
  std::unique_ptr<Engine> inner_;
  SimRandom random_;
  double share_;
  Op* last_ = nullptr;
};

}  // namespace weir::simtest

// TwiceEngine: an engine with a fault that none may have: now and then it reports an op of the turn before once more.
// Owner: a Loop, in place of the engine that it wraps. It is there to show that a double completion is found.
#pragma once

#include <memory>
#include <utility>

#include "engines/engine.h"
#include "engines/sim_random.h"
#include "tests/sim/wrapped_engine.h"

namespace weir::simtest {

class TwiceEngine final : public WrappedEngine {
 public:
  // `share`: of the completions; 0: it is only a wrapper.
  TwiceEngine(std::unique_ptr<Engine> inner, uint64_t seed, double share)
      : WrappedEngine(std::move(inner)), random_(seed), share_(share) {}
  Turn turn(OpList& submitted, OpList& cancelled, OpList& completed, const Wait& wait) noexcept override {
    const Turn turn = WrappedEngine::turn(submitted, cancelled, completed, wait);
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

 private:
  SimRandom random_;
  double share_;
  Op* last_ = nullptr;
};

}  // namespace weir::simtest

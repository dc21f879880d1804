// WrappedEngine: an engine that does what another one does. A test derives from it and overrides what it wants to see or to spoil.
// Owner: a loop, like any engine. Thread: the loop's own.
#pragma once

#include <memory>
#include <string>
#include <utility>

#include "engines/engine.h"

namespace weir::simtest {

class WrappedEngine : public Engine {
 public:
  explicit WrappedEngine(std::unique_ptr<Engine> inner) : inner_(std::move(inner)) {}
  EngineKind kind() const noexcept override { return inner_->kind(); }
  Turn turn(OpList& submitted, OpList& cancelled, OpList& completed, const Wait& wait) noexcept override {
    return inner_->turn(submitted, cancelled, completed, wait);
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
};

}  // namespace weir::simtest

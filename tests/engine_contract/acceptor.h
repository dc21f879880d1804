// A listener of ours: takes what comes, keeps count, and closes all of it at the end.
#pragma once

#include <deque>
#include <memory>

#include "tests/engine_contract/world.h"

namespace weir::contract {

struct Acceptor {
  explicit Acceptor(World& w, bool unix_socket = false) : world(w) {
    op.owner = this;
    op.socket = &socket;
    op.complete = accepted_some;
    address = world.listen(socket, unix_socket);
  }
  ~Acceptor() { close(); }
  void start() { world.submit(op); }
  void close() {
    world.close(socket);
    close_accepted();
  }
  void close_accepted() {
    for (auto& one : sockets) world.close(*one);
    sockets.clear();
  }

  struct AcceptWith : AcceptOp { Acceptor* owner = nullptr; } op;
  World& world;
  Socket socket;
  Address address;
  std::deque<std::unique_ptr<Socket>> sockets;
  std::vector<Address> peers;
  uint32_t completions = 0;
  uint32_t finals = 0;
  int final_error = 0;
  int32_t largest = 0;

 private:
  static void accepted_some(Op& base) noexcept {
    auto& op = static_cast<AcceptWith&>(base);
    Acceptor& self = *op.owner;
    self.world.ledger().completed(base);
    ++self.completions;
    if (!op.more) ++self.finals;
    if (op.result < 0) self.final_error = -op.result;
    self.largest = std::max(self.largest, op.result);
    if (op.result > 64) self.world.ledger().wrong("accept: more than 64 at once");
    for (int32_t i = 0; i < op.result; ++i) {
      const Accepted& one = op.accepted[static_cast<size_t>(i)];
      self.peers.push_back(one.peer);
      self.sockets.push_back(std::make_unique<Socket>());
      self.world.loop().adopt(*self.sockets.back(), one.fd, self.world.engine());
    }
  }
};

}  // namespace weir::contract

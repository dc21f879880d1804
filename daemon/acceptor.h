// Acceptor: one listening socket on one loop. It accepts for its owner, waits where that fails, and closes without losing what was
// queued. Owner: a Listener or the AdminServer, through AcceptorOwner (told when the memory may go). Thread: the loop's own.
// Guarantees: whatever stops it (no descriptor, no memory) it tries again every 100 ms, for as long as it is open; at most 64
// accepts a tick, so that no flood starves the other listeners; close() accepts until nothing came for 20 ms, but for 200 ms at
// most, however many still come.
#pragma once

#include <string>

#include "engines/loop.h"

namespace weir {

class Acceptor;

struct AcceptorOwner {
  virtual void on_accepted(const Accepted& accepted) noexcept = 0;    // the descriptor changes hands
  virtual void on_accept_failed(int error) noexcept = 0;              // errno; it is tried again
  virtual void on_acceptor_closed(Acceptor& acceptor) noexcept = 0;   // the last call: free it
 protected:
  ~AcceptorOwner() = default;
};

class Acceptor final : AcceptOp, Slot {
 public:
  Acceptor(Loop& loop, AcceptorOwner& owner, std::string bind, int fd, EngineKind engine);   // takes the descriptor over
  ~Acceptor() { WEIR_ASSERT(socket_.fd < 0); }

  void change_engine(EngineKind kind) noexcept;   // its next accept goes there
  void close() noexcept;                          // serves out its queue first
  void close_now() noexcept;
  void pause(bool pause) noexcept;                // those that come wait in the kernel's queue; close() still serves it out
  bool closing() const noexcept { return closing_; }
  const std::string& bind() const noexcept { return bind_; }

 private:
  struct Due : Timer { Acceptor* self = nullptr; };
  static void completed_entry(Op& op) noexcept;
  static void due_entry(Timer& timer) noexcept;
  static void release_entry(Slot& slot) noexcept;
  void completed() noexcept;
  void look_again(Duration wait) noexcept;
  void end() noexcept;
  void shut() noexcept;

  Loop& loop_;
  AcceptorOwner& owner_;
  Socket socket_;
  std::string bind_;
  bool paused_ = false;
  bool closing_ = false;      // it serves out its queue
  bool ending_ = false;       // and now it ends
  TimePoint close_by_ = kNever;
  Due due_;                   // after a failure, or before closing
};

}  // namespace weir

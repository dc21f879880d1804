// Signals as messages: a thread of its own waits for them (sigwait) and posts each to the supervisor's loop. No handler runs.
// Owner: the supervisor. block() must be called before any other thread is started, so that all inherit the mask.
#pragma once

#include <atomic>
#include <functional>
#include <thread>

namespace weir {

class Signals {
 public:
  static void block();
  explicit Signals(std::function<void(int)> post);   // called on the signal thread
  ~Signals();

 private:
  std::function<void(int)> post_;
  std::atomic<bool> stopping_{false};
  std::thread thread_;
};

}  // namespace weir

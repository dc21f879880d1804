#include "daemon/signals.h"

#include <pthread.h>
#include <signal.h>

namespace weir {

namespace {
sigset_t handled() {
  sigset_t set;
  sigemptyset(&set);
  for (const int number : {SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2, SIGWINCH}) sigaddset(&set, number);
  return set;
}
}  // namespace

void Signals::block() {
  const sigset_t set = handled();
  pthread_sigmask(SIG_BLOCK, &set, nullptr);
}

Signals::Signals(std::function<void(int)> post) : post_(std::move(post)) {
  thread_ = std::thread([this] {
    pthread_setname_np(pthread_self(), "weir-signals");
    const sigset_t set = handled();
    for (;;) {
      int number = 0;
      if (sigwait(&set, &number) != 0) continue;
      if (stopping_.load()) return;
      post_(number);
    }
  });
}

Signals::~Signals() {
  stopping_.store(true);
  pthread_kill(thread_.native_handle(), SIGWINCH);
  thread_.join();
}

}  // namespace weir

// The daemon's log ends while others still write to it, and does not wait for a reader that is not there. Each case runs in a process
// of its own, because a log starts and stops once.
#include <catch2/catch_test_macros.hpp>

#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "daemon/log.h"

namespace weir {
namespace {

using namespace std::chrono_literals;

// How the child ended: its exit code, or minus the signal that killed it.
int in_child(int error_fd, const std::function<int()>& body) {
  const pid_t child = fork();
  if (child == 0) {
    dup2(error_fd, STDERR_FILENO);
    _exit(body());
  }
  int status = 0;
  REQUIRE(waitpid(child, &status, 0) == child);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

}  // namespace

TEST_CASE("the log stops while other threads write to it, and what came before is there") {
  for (int turn = 0; turn < 20; ++turn) {
    char name[] = "/tmp/weir-log-XXXXXX";
    const int file = mkstemp(name);
    REQUIRE(file >= 0);
    const int ended = in_child(file, []() -> int {
      log::start(log::Level::info, log::Format::text);
      log::info("the first line");
      std::vector<std::thread> writers;
      for (int i = 0; i < 4; ++i) {
        writers.emplace_back([] {
          for (;;) {
            log::info("another", {{"field", "value"}});
            std::this_thread::sleep_for(50us);
          }
        });
      }
      std::this_thread::sleep_for(5ms);
      const bool written = log::stop(10s);
      std::this_thread::sleep_for(2ms);   // they go on
      _exit(written ? 0 : 1);
    });
    CHECK(ended == 0);
    std::string text(64, '\0');
    const ssize_t got = pread(file, text.data(), text.size(), 0);
    text.resize(got > 0 ? static_cast<size_t>(got) : 0);
    CHECK(text.find(" INFO the first line\n") != std::string::npos);
    ::close(file);
    unlink(name);
  }
}

TEST_CASE("stopping the log does not wait for a pipe that nobody reads") {
  int fds[2];
  REQUIRE(pipe2(fds, O_CLOEXEC) == 0);
  REQUIRE(fcntl(fds[0], F_SETPIPE_SZ, 4096) == 4096);
  const int ended = in_child(fds[1], [] {
    alarm(20);   // without an end of its own it is killed
    log::start(log::Level::info, log::Format::text);
    for (int i = 0; i < 200; ++i) log::info("a line that fills the pipe");
    return log::stop(50ms) ? 1 : 0;
  });
  CHECK(ended == 0);
  ::close(fds[0]);
  ::close(fds[1]);
}

}  // namespace weir

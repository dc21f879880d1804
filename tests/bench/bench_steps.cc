// bench_steps TID READY_FD [ADDRESS...]: counts the user-space instructions of one thread by single-stepping it, and how often it
// stood at each address (the entry of malloc, say). For programs that callgrind cannot run: it holds its one lock while a thread
// waits in io_uring_enter. Writes a line to READY_FD once it counts; on SIGTERM it lets go and prints "STEPS HITS...".
// Slow (about 2 us an instruction), but a count is a count. A repeated string instruction is one step per repetition.
#include <sys/ptrace.h>
#include <sys/user.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

namespace {

volatile sig_atomic_t over = 0;
void on_term(int) { over = 1; }

int fail(const char* what) {
  std::fprintf(stderr, "bench_steps: %s: %s\n", what, std::strerror(errno));
  return 1;
}

struct Target {
  uintptr_t address;
  uint64_t hits;
};

// Lets go of a thread that may be running. A step's trap can still be on its way, and after a detach it would kill: so the thread
// first runs without stepping until it stops for our interrupt and nothing else. The pause lets that trap come: an interrupt that
// follows at once would be served before it.
void let_go(pid_t tid, bool stopped) {
  for (int clean = 0; clean < 2;) {
    if (stopped) ptrace(PTRACE_CONT, tid, nullptr, nullptr);
    usleep(20'000);
    ptrace(PTRACE_INTERRUPT, tid, nullptr, nullptr);
    int status = 0;
    if (waitpid(tid, &status, __WALL) != tid) {
      if (errno == EINTR) {
        stopped = false;
        continue;
      }
      return;
    }
    stopped = true;
    clean = status >> 16 == PTRACE_EVENT_STOP ? clean + 1 : 0;
  }
  ptrace(PTRACE_DETACH, tid, nullptr, nullptr);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 3) {
    std::fprintf(stderr, "usage: bench_steps TID READY_FD [ADDRESS...]\n");
    return 2;
  }
  const auto tid = static_cast<pid_t>(std::atoi(argv[1]));
  const int ready = std::atoi(argv[2]);
  std::vector<Target> targets;
  for (int i = 3; i < argc; ++i) targets.push_back({static_cast<uintptr_t>(std::strtoull(argv[i], nullptr, 16)), 0});
  struct sigaction action {};
  action.sa_handler = on_term;  // no SA_RESTART: the wait below must end
  sigaction(SIGTERM, &action, nullptr);

  if (ptrace(PTRACE_SEIZE, tid, nullptr, nullptr) != 0) return fail("PTRACE_SEIZE");
  ptrace(PTRACE_INTERRUPT, tid, nullptr, nullptr);
  int status = 0;
  if (waitpid(tid, &status, __WALL) != tid) return fail("waitpid");
  uint64_t steps = 0;
  bool told = false;
  bool stopped = true;
  while (over == 0) {
    if (ptrace(PTRACE_SINGLESTEP, tid, nullptr, nullptr) != 0) return fail("PTRACE_SINGLESTEP");
    stopped = false;
    if (!told) {
      told = true;
      if (write(ready, "counting\n", 9) != 9) return fail("write");
    }
    if (waitpid(tid, &status, __WALL) != tid) {
      if (errno == EINTR) break;
      return fail("waitpid");
    }
    stopped = true;
    if (!WIFSTOPPED(status)) return fail("the thread ended");
    ++steps;
    if (targets.empty()) continue;
    errno = 0;
    const auto at = static_cast<uintptr_t>(ptrace(PTRACE_PEEKUSER, tid, offsetof(user, regs.rip), nullptr));
    for (Target& target : targets) target.hits += at == target.address ? 1 : 0;
  }
  let_go(tid, stopped);
  std::printf("%llu", static_cast<unsigned long long>(steps));
  for (const Target& target : targets) std::printf(" %llu", static_cast<unsigned long long>(target.hits));
  std::printf("\n");
  return 0;
}

// RLIMIT_MEMLOCK as an unprivileged user meets it. The kernel counts per user, so each case has a user id of its own.
#include <sys/resource.h>
#include <sys/wait.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <string>
#include <thread>
#include <vector>

#include <catch2/catch_test_macros.hpp>

#include "engines/uring_engine.h"

using namespace weir;

namespace {

// Runs `body` in a child with that limit and without privileges; what it prints into its text is compared by the
// parent.
int cases = 0;

template <class F>
std::string as_user(rlim_t memlock, F body) {
  const auto user = static_cast<uid_t>(200'000 + (getpid() % 100'000) * 16 + cases++);
  int pipe_fds[2];
  REQUIRE(pipe(pipe_fds) == 0);
  const pid_t child = fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    const rlimit limit{memlock, memlock};
    std::string said = "could not drop privileges";
    if (setrlimit(RLIMIT_MEMLOCK, &limit) == 0 && setgid(user) == 0 && setuid(user) == 0) said = body();
    const ssize_t n = write(pipe_fds[1], said.data(), said.size());
    _exit(n == static_cast<ssize_t>(said.size()) ? 0 : 1);
  }
  close(pipe_fds[1]);
  std::string said;
  char piece[512];
  for (ssize_t n; (n = read(pipe_fds[0], piece, sizeof piece)) > 0;) said.append(piece, static_cast<size_t>(n));
  close(pipe_fds[0]);
  int status = 0;
  REQUIRE(waitpid(child, &status, 0) == child);
  CHECK(status == 0);
  return said;
}

using Steady = std::chrono::steady_clock;

std::string describe(const std::expected<std::unique_ptr<Engine>, UringRefusal>& made, Steady::time_point begin) {
  if (made) return "made";
  return (Steady::now() - begin < std::chrono::seconds(1) ? "soon: " : "late: ") + made.error().text;
}

// Starts so many workers' engines, as the daemon would.
std::string start(unsigned workers) {
  SlabPool pool(16 << 20);
  const UringProbe probe = probe_uring();
  UringOptions options;
  options.rings = workers;
  options.probe = &probe;
  std::vector<std::unique_ptr<Engine>> engines;
  for (unsigned i = 0; i < workers; ++i) {
    const auto begin = Steady::now();
    auto made = make_uring_engine(pool, options);
    if (!made) return describe(made, begin);
    engines.push_back(std::move(*made));
  }
  return "made";
}

bool may_raise_to(rlim_t bytes) {
  rlimit old{};
  getrlimit(RLIMIT_MEMLOCK, &old);
  const rlimit more{bytes, std::max(bytes, old.rlim_max)};
  const bool may = setrlimit(RLIMIT_MEMLOCK, &more) == 0;
  setrlimit(RLIMIT_MEMLOCK, &old);
  return may;
}

#define NEED_ROOT() \
  if (geteuid() != 0) SKIP("needs root, to become users without privileges")

}  // namespace

TEST_CASE("64 KiB cannot carry a ring: refused at once with limit, need and remedy", "[memlock][E3][E4]") {
  NEED_ROOT();
  const std::string said = as_user(64 << 10, [] {
    const auto begin = Steady::now();
    SlabPool pool(16 << 20);
    return describe(make_uring_engine(pool, {}), begin);
  });
  CHECK(said.starts_with("soon: io_uring needs "));
  CHECK(said.find("RLIMIT_MEMLOCK allows 64 KiB: raise it") != std::string::npos);
  CHECK(said.find("errno 12") != std::string::npos);
}

TEST_CASE("8 MiB carries a worker's ring and not those of 200 workers", "[memlock][E3][E4]") {
  NEED_ROOT();
  CHECK(as_user(rlim_t{8} << 20, [] { return start(1); }) == "made");
  const std::string said = as_user(rlim_t{8} << 20, [] { return start(200); });
  CHECK(said.starts_with("soon: io_uring needs "));
  CHECK(said.find("for 200 workers and RLIMIT_MEMLOCK allows 8192 KiB") != std::string::npos);
}

TEST_CASE("128 MiB carries the rings of 200 workers", "[memlock][E3]") {
  NEED_ROOT();
  if (!may_raise_to(rlim_t{128} << 20)) SKIP("RLIMIT_MEMLOCK cannot be raised to 128 MiB here");
  CHECK(as_user(rlim_t{128} << 20, [] { return start(200); }) == "made");
}

TEST_CASE("rings that are still being freed are waited for, for no longer than allowed", "[memlock][E4]") {
  NEED_ROOT();
  const std::string said = as_user(rlim_t{1} << 20, [] {
    SlabPool pool(16 << 20);
    const UringProbe probe = probe_uring();
    UringOptions options;
    options.probe = &probe;
    options.enomem_patience = Duration::zero();
    std::vector<std::unique_ptr<Engine>> engines;
    std::string full;
    for (int i = 0; i < 64 && full.empty(); ++i) {
      auto made = make_uring_engine(pool, options);
      if (made)
        engines.push_back(std::move(*made));
      else
        full = made.error().text;
    }
    if (full.find("too much is in use") == std::string::npos) return "not full: " + full;
    options.enomem_patience = std::chrono::milliseconds(200);
    if (make_uring_engine(pool, options)) return std::string("made while full");
    // Freed while the next one waits.
    options.enomem_patience = std::chrono::seconds(10);
    std::thread freer([&] {
      std::this_thread::sleep_for(std::chrono::milliseconds(300));
      engines.clear();
    });
    SlabPool other(16 << 20);
    const auto made = make_uring_engine(other, options);
    freer.join();
    return made ? std::string("made") : made.error().text;
  });
  CHECK(said == "made");
}

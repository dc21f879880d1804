// Three bugs that the random worlds must find within 1,000 seeds. Two are planted into copies of the product's sources (plant.py),
// one into the engine (twice_engine.h). A world with a bug in it may end in a broken promise, so it is played in another process.
#include <catch2/catch_test_macros.hpp>

#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstring>

#include "tests/world/random_world.h"

namespace weir::simtest {
namespace {

const char* g_bug = nullptr;
SimRandom g_chance{1};

enum Outcome : int { clean = 0, found = 3 };

int play(uint64_t seed, RandomWorld::Sabotage sabotage) {
  g_chance = SimRandom(seed);
  RandomWorld world(seed, {.sabotage = sabotage, .trace = {}});
  return world.run().empty() ? clean : found;
}

// The first seed that shows the bug, or 0. A child plays on until then; if it dies the seed that it played has shown it.
uint64_t first_seed(const char* bug, RandomWorld::Sabotage sabotage, uint64_t seeds) {
  int pipes[2];
  REQUIRE(pipe(pipes) == 0);
  std::fflush(nullptr);
  const pid_t child = fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    g_bug = bug;
    for (const int fd : {1, 2}) (void)!freopen("/dev/null", "w", fd == 1 ? stdout : stderr);
    signal(SIGABRT, SIG_DFL);
    signal(SIGSEGV, SIG_DFL);
    for (uint64_t seed = 1; seed <= seeds; ++seed) {
      if (write(pipes[1], &seed, sizeof seed) != sizeof seed) _exit(1);
      alarm(10);  // a broken list may be a ring
      if (play(seed, sabotage) == found) _exit(found);
    }
    _exit(clean);
  }
  close(pipes[1]);
  uint64_t seed = 0;
  while (read(pipes[0], &seed, sizeof seed) == sizeof seed) {}
  close(pipes[0]);
  int status = 0;
  REQUIRE(waitpid(child, &status, 0) == child);
  const bool well = WIFEXITED(status) && WEXITSTATUS(status) == clean;
  UNSCOPED_INFO("status " << status << " at seed " << seed);
  return well ? 0 : seed;
}

}  // namespace

// Awake, it strikes rarely: the rest of a world should go on as it would.
bool bug_strikes(const char* bug) noexcept {
  return g_bug != nullptr && std::strcmp(g_bug, bug) == 0 && g_chance.chance(0.01);
}

TEST_CASE("a planted bug is found within 1,000 seeds", "[world][planted]") {
  using enum RandomWorld::Sabotage;
  SECTION("a dropped grant") {
    const uint64_t seed = first_seed("dropped_grant", none, 1000);
    std::printf("a dropped grant: seed %llu\n", static_cast<unsigned long long>(seed));
    CHECK(seed != 0);
  }
  SECTION("a double completion") {
    const uint64_t seed = first_seed("", complete_twice, 1000);
    std::printf("a double completion: seed %llu\n", static_cast<unsigned long long>(seed));
    CHECK(seed != 0);
  }
  SECTION("a pool entry used after its connection closed") {
    const uint64_t seed = first_seed("stale_pool_entry", none, 1000);
    std::printf("a stale pool entry: seed %llu\n", static_cast<unsigned long long>(seed));
    CHECK(seed != 0);
  }
}

TEST_CASE("control: without a bug the same worlds are clean", "[world][planted]") {
  CHECK(first_seed("", RandomWorld::Sabotage::none, 100) == 0);
  CHECK(first_seed("", RandomWorld::Sabotage::wrapped, 50) == 0);
}

}  // namespace weir::simtest

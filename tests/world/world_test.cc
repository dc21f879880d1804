// Random worlds by seed. ./dev test --world N plays N of them, ./dev test --seed S one of them with its trace; by hand:
// WEIR_WORLD_SEEDS=5000 world '[seeds]', WEIR_WORLD_FIRST=7 (where they begin), WEIR_WORLD_SEED=17 (one, with its trace).
#include <catch2/catch_test_macros.hpp>

#include <cstdio>
#include <cstdlib>

#include "tests/world/random_world.h"

namespace weir::simtest {
namespace {

uint64_t number(const char* variable, uint64_t otherwise) {
  const char* text = std::getenv(variable);
  return text == nullptr ? otherwise : std::strtoull(text, nullptr, 10);
}

void print(const std::string& line) { std::printf("%s\n", line.c_str()); }

void replay(uint64_t seed) {
  RandomWorld world(seed, {.trace = print});
  const std::string wrong = world.run();
  print(wrong.empty() ? "== all is well" : "== wrong: " + wrong);
  CHECK(wrong == "");
}

}  // namespace

TEST_CASE("a random world: each exchange ends once, bytes are equal, nothing is left behind", "[world][seeds][E9][H4][H7][M3]") {
  if (const uint64_t one = number("WEIR_WORLD_SEED", 0); one != 0) return replay(one);
  const uint64_t first = number("WEIR_WORLD_FIRST", 1), seeds = number("WEIR_WORLD_SEEDS", 2000);
  RandomWorld::Totals totals;
  for (uint64_t seed = first; seed < first + seeds; ++seed) {
    INFO("./dev test --seed " << seed);   // for a broken promise, which ends the program
    RandomWorld world(seed);
    const std::string wrong = world.run();
    world.add_to(totals);
    if (!wrong.empty()) FAIL_CHECK(wrong);
  }
  std::printf("%llu worlds: requests %llu, answered %llu, relays %llu, retries %llu, timeouts %llu, refused %llu, reused %llu, "
              "reloads %llu, engine changes %llu, drains %llu, half-closes %llu, dead origins %llu\n",
              static_cast<unsigned long long>(seeds), static_cast<unsigned long long>(totals.requests),
              static_cast<unsigned long long>(totals.whole), static_cast<unsigned long long>(totals.relays),
              static_cast<unsigned long long>(totals.retries), static_cast<unsigned long long>(totals.timeouts),
              static_cast<unsigned long long>(totals.refused), static_cast<unsigned long long>(totals.reused),
              static_cast<unsigned long long>(totals.reloads), static_cast<unsigned long long>(totals.engine_changes),
              static_cast<unsigned long long>(totals.drains), static_cast<unsigned long long>(totals.half_closes),
              static_cast<unsigned long long>(totals.origins_killed));
  if (seeds < 200) return;
  // It is no world where nothing happens.
  CHECK(totals.requests > 8 * seeds);
  CHECK(totals.whole > 5 * seeds);
  CHECK(totals.relays > seeds / 10);
  CHECK(totals.retries > seeds / 10);
  CHECK(totals.timeouts > seeds / 10);
  CHECK(totals.refused > 0);
  CHECK(totals.reused > seeds);
  CHECK(totals.reloads > seeds / 3);
  CHECK(totals.engine_changes > seeds);
  CHECK(totals.drains > seeds / 20);
  CHECK(totals.half_closes > seeds / 3);
  CHECK(totals.origins_killed > seeds / 20);
}

}  // namespace weir::simtest

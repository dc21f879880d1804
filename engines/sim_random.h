// SimRandom: the one source of chance in the simulated world (splitmix64). Same seed, same run; no global state.
// Owner: a SimNetwork or a test. It is not for cryptography.
#pragma once

#include <cstdint>

namespace weir {

class SimRandom {
 public:
  explicit SimRandom(uint64_t seed) noexcept : state_(seed) {}
  uint64_t next() noexcept {
    uint64_t z = (state_ += 0x9e3779b97f4a7c15ull);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
    return z ^ (z >> 31);
  }
  uint64_t below(uint64_t limit) noexcept { return limit < 2 ? 0 : next() % limit; }
  // A probability of 0 draws nothing, so that a fault that is switched off does not change the rest of a run.
  bool chance(double probability) noexcept {
    return probability > 0 && static_cast<double>(next() >> 11) * 0x1.0p-53 < probability;
  }

 private:
  uint64_t state_;
};

}  // namespace weir

#include "daemon/balance.h"

namespace weir {

void SmoothWheel::add(uint32_t weight) {
  seats.push_back({0, weight});
  total += weight;
}

size_t SmoothWheel::next() noexcept {
  size_t best = 0;
  for (size_t i = 0; i < seats.size(); ++i) {
    seats[i].current += seats[i].weight;
    if (seats[i].current > seats[best].current) best = i;
  }
  seats[best].current -= total;
  return best;
}

void Rotation::add(const Endpoint& endpoint, Pool* pool, uint32_t weight) {
  targets.push_back({&endpoint, pool, weight, 0});
  if (pool != nullptr) ++reachable;
}

Rotation::Target* Rotation::pick(uint64_t tried) noexcept {
  if (targets.size() == 1) return usable(targets[0], tried) ? targets.data() : nullptr;
  switch (balance) {
    case config::Balance::round_robin: return by_turns(tried);
    case config::Balance::least_requests: return by_load(tried);
    case config::Balance::random: return by_chance(tried);
  }
  return nullptr;
}

// As SmoothWheel, among those that may be used: what the others would have got is shared out by weight.
Rotation::Target* Rotation::by_turns(uint64_t tried) noexcept {
  Target* best = nullptr;
  int64_t total = 0;
  for (Target& target : targets) {
    if (!usable(target, tried)) continue;
    target.current += target.weight;
    total += target.weight;
    if (best == nullptr || target.current > best->current) best = &target;
  }
  if (best != nullptr) best->current -= total;
  return best;
}

// The fewest requests in flight for its weight, this one included; equals take turns.
Rotation::Target* Rotation::by_load(uint64_t tried) noexcept {
  Target* best = nullptr;
  const size_t count = targets.size();
  for (size_t i = 0; i < count; ++i) {
    const size_t at = turn + i < count ? turn + i : turn + i - count;
    Target& target = targets[at];
    if (!usable(target, tried)) continue;
    if (best == nullptr ||
        uint64_t{target.pool->active + 1} * best->weight < uint64_t{best->pool->active + 1} * target.weight)
      best = &target;
  }
  if (best != nullptr) turn = (static_cast<size_t>(best - targets.data()) + 1) % count;
  return best;
}

Rotation::Target* Rotation::by_chance(uint64_t tried) noexcept {
  uint64_t total = 0;
  for (const Target& target : targets) total += usable(target, tried) ? target.weight : 0;
  if (total == 0) return nullptr;
  random ^= random << 13;
  random ^= random >> 7;
  random ^= random << 17;
  uint64_t at = (random >> 16) % total;
  for (Target& target : targets) {
    if (!usable(target, tried)) continue;
    if (at < target.weight) return &target;
    at -= target.weight;
  }
  return nullptr;
}

}  // namespace weir

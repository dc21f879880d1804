#include "engines/memory_budget.h"

#include <algorithm>
#include <new>

namespace weir {

const char* memory_level_name(MemoryLevel level) noexcept {
  switch (level) {
    case MemoryLevel::normal: return "normal";
    case MemoryLevel::tight: return "tight";
    case MemoryLevel::critical: return "critical";
  }
  return "normal";
}

void MemoryBudget::resize(uint64_t limit_bytes) noexcept {
  constexpr uint64_t kStep = 64u << 10;
  limit_ = std::max<uint64_t>(limit_bytes, kStep);
  chunk_ = std::clamp<uint64_t>(limit_bytes / 256 / kStep * kStep, kStep, 1u << 20);
  settle();
}

MemoryLevel MemoryBudget::level_at(uint64_t used, MemoryLevel now) const noexcept {
  const uint64_t percent = limit() / 100;
  const uint64_t critical = percent * (now == MemoryLevel::critical ? kTightAgainPercent : kCriticalPercent);
  if (used >= critical) return MemoryLevel::critical;
  const uint64_t tight = percent * (now == MemoryLevel::normal ? kTightPercent : kNormalAgainPercent);
  return used >= tight ? MemoryLevel::tight : MemoryLevel::normal;
}

// Two threads may settle at once. Each looks at the number after its own change, so whoever is last sees it as it is.
void MemoryBudget::settle() noexcept {
  MemoryLevel now = level_.load();
  bool changed = false;
  for (;;) {
    const MemoryLevel next = level_at(used_.load(), now);
    if (next == now) break;
    if (!level_.compare_exchange_weak(now, next)) continue;
    now = next;
    changed = true;
  }
  if (!changed) return;
  const std::lock_guard lock(mutex_);
  for (Watcher* watcher = watchers_; watcher != nullptr; watcher = watcher->next) watcher->changed(*watcher);
}

void MemoryBudget::watch(Watcher& watcher) noexcept {
  const std::lock_guard lock(mutex_);
  watcher.next = watchers_;
  watchers_ = &watcher;
}

void MemoryBudget::unwatch(Watcher& watcher) noexcept {
  const std::lock_guard lock(mutex_);
  for (Watcher** at = &watchers_; *at != nullptr; at = &(*at)->next) {
    if (*at != &watcher) continue;
    *at = watcher.next;
    return;
  }
}

bool MemoryBudget::take(uint64_t bytes, uint64_t most_percent) noexcept {
  const uint64_t most = most_percent == 100 ? limit() : limit() / 100 * most_percent;
  uint64_t used = used_.load();
  do {
    if (used + bytes > most) return false;
  } while (!used_.compare_exchange_weak(used, used + bytes));
  settle();
  return true;
}

void MemoryBudget::force(uint64_t bytes) noexcept {
  used_.fetch_add(bytes);
  settle();
}

void MemoryBudget::give(uint64_t bytes) noexcept {
  const uint64_t before = used_.fetch_sub(bytes);
  WEIR_ASSERT(before >= bytes);
  settle();
}

// ---- MemoryLease

// Near the limit a whole chunk may not be there any more, and what is asked for may.
bool MemoryLease::extend(size_t bytes, uint64_t most_percent) noexcept {
  const uint64_t missing = held_ + bytes - leased_;
  if (budget_ == nullptr) {
    leased_ += missing;
  } else {
    const uint64_t chunk = budget_->chunk_bytes();
    uint64_t ask = (missing + chunk - 1) / chunk * chunk;
    if (!budget_->take(ask, most_percent)) {
      ask = missing;
      if (!budget_->take(ask, most_percent)) return false;
    }
    leased_ += ask;
    spare_max_ = 2 * chunk;
  }
  if (grew != nullptr) grew(grew_context);
  return true;
}

void MemoryLease::force(size_t bytes) noexcept {
  if (take(bytes)) return;
  const uint64_t missing = held_ + bytes - leased_;
  budget_->force(missing);
  leased_ += missing;
  held_ += bytes;
}

// One chunk stays, so that a lease at a chunk's edge does not take and give all the time; under pressure none does.
void MemoryLease::give_spare() noexcept {
  const uint64_t chunk = budget_->chunk_bytes();
  const uint64_t keep = budget_->level() == MemoryLevel::normal ? chunk : 0;
  const uint64_t spare = leased_ - held_;
  if (spare <= keep) return;
  leased_ -= spare - keep;
  budget_->give(spare - keep);
}

LeasedBytes take_bytes(MemoryLease& lease, size_t count) noexcept {
  if (!lease.take(count)) return nullptr;
  char* memory = new (std::nothrow) char[count];
  if (memory == nullptr) {
    lease.give(count);
    return nullptr;
  }
  return LeasedBytes(memory, LeasedDelete{&lease, count});
}

}  // namespace weir

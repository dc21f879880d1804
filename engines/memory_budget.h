// MemoryBudget: what the process may hold for its connections, in bytes: one atomic number that the workers lease from in chunks.
// MemoryLease: one worker's part of it. Buffers, relays' kernel pipes, large heads and segments of objects are taken from the lease
// before they are held, and given back after; only whole chunks touch the shared number.
// Owner: the budget is the supervisor's and outlives all leases; a lease is its SlabPool's. Thread: a lease is its loop's own.
// Guarantees: what take() allowed never exceeds the limit in sum; the level follows what is leased, with some slack on its way
// down, and each change is told to every watcher, on the thread that caused it.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>

#include "engines/check.h"

namespace weir {

// normal; tight from 80 % on (grants shrink); critical from 95 % on (accepting stops, exchanges end).
enum class MemoryLevel : uint8_t { normal, tight, critical };
const char* memory_level_name(MemoryLevel level) noexcept;

class MemoryBudget {
 public:
  static constexpr uint64_t kTightPercent = 80, kCriticalPercent = 95;
  // No request begins beyond the one, nothing is received beyond the other: the rest is for finishing what was begun.
  static constexpr uint64_t kBeginPercent = 90, kInputPercent = 97;
  static constexpr uint64_t kNormalAgainPercent = 75, kTightAgainPercent = 92;   // so that a level does not flicker

  // Called under a lock: it passes the news on and does no more.
  struct Watcher {
    void (*changed)(Watcher&) noexcept = nullptr;
    Watcher* next = nullptr;
  };

  explicit MemoryBudget(uint64_t limit_bytes) noexcept { resize(limit_bytes); }
  MemoryBudget(const MemoryBudget&) = delete;
  MemoryBudget& operator=(const MemoryBudget&) = delete;
  ~MemoryBudget() { WEIR_ASSERT(watchers_ == nullptr); }

  void resize(uint64_t limit_bytes) noexcept;   // may be less than what is leased: then nothing more is
  uint64_t limit() const noexcept { return limit_.load(std::memory_order_relaxed); }
  uint64_t used() const noexcept { return used_.load(std::memory_order_relaxed); }   // leased, held or not
  MemoryLevel level() const noexcept { return level_.load(std::memory_order_relaxed); }
  // What a lease takes at once: a 256th of the limit, 64 KiB to 1 MiB.
  uint64_t chunk_bytes() const noexcept { return chunk_.load(std::memory_order_relaxed); }

  // So many workers have requests that wait for memory: others make room for them too.
  void want(int change) noexcept { wanting_.fetch_add(change, std::memory_order_relaxed); }
  bool wanted() const noexcept { return wanting_.load(std::memory_order_relaxed) > 0; }

  void watch(Watcher& watcher) noexcept;        // any thread
  void unwatch(Watcher& watcher) noexcept;      // once it returns, changed() is not running and will not

  // For MemoryLease.
  bool take(uint64_t bytes, uint64_t most_percent = 100) noexcept;   // false: it would exceed so much of the limit
  void force(uint64_t bytes) noexcept;          // exceeds it if need be
  void give(uint64_t bytes) noexcept;

 private:
  MemoryLevel level_at(uint64_t used, MemoryLevel now) const noexcept;
  void settle() noexcept;

  std::atomic<uint64_t> limit_{0};
  std::atomic<uint64_t> chunk_{0};
  alignas(64) std::atomic<uint64_t> used_{0};
  std::atomic<MemoryLevel> level_{MemoryLevel::normal};
  std::atomic<int> wanting_{0};
  std::mutex mutex_;
  Watcher* watchers_ = nullptr;
};

class MemoryLease {
 public:
  explicit MemoryLease(MemoryBudget* budget) noexcept : budget_(budget) {}   // null: no limit, nothing is shared
  ~MemoryLease() { if (budget_ != nullptr && leased_ > 0) budget_->give(leased_); }
  MemoryLease(const MemoryLease&) = delete;
  MemoryLease& operator=(const MemoryLease&) = delete;

  [[nodiscard]] bool take(size_t bytes) noexcept {
    if (held_ + bytes > leased_ && !extend(bytes)) return false;
    held_ += bytes;
    return true;
  }
  // Likewise, for what is received: not beyond kInputPercent.
  [[nodiscard]] bool take_for_input(size_t bytes) noexcept {
    if (held_ + bytes > leased_ && !extend(bytes, MemoryBudget::kInputPercent)) return false;
    held_ += bytes;
    return true;
  }
  bool may_take_for_input(size_t bytes) const noexcept {   // perhaps; other workers take too
    return budget_ == nullptr ||
           budget_->used() + (held_ + bytes <= leased_ ? 0 : held_ + bytes - leased_) <= most(MemoryBudget::kInputPercent);
  }
  // What a request needs can be taken next, whatever other workers do meanwhile.
  [[nodiscard]] bool ensure_begin(size_t bytes) noexcept {
    if (budget_ != nullptr && budget_->used() > most(MemoryBudget::kBeginPercent)) return false;
    return held_ + bytes <= leased_ || extend(bytes, MemoryBudget::kBeginPercent);
  }
  void force(size_t bytes) noexcept;            // for what cannot be refused; small things only
  void give(size_t bytes) noexcept {
    WEIR_DEBUG_ASSERT(bytes <= held_);
    held_ -= bytes;
    if (leased_ - held_ >= spare_max_) give_spare();
  }
  bool limited() const noexcept { return budget_ != nullptr; }
  uint64_t limit() const noexcept { return budget_ == nullptr ? UINT64_MAX : budget_->limit(); }
  uint64_t held() const noexcept { return held_; }
  size_t chunk_bytes() const noexcept { return budget_ == nullptr ? size_t{1} << 20 : static_cast<size_t>(budget_->chunk_bytes()); }
  MemoryLevel level() const noexcept { return budget_ == nullptr ? MemoryLevel::normal : budget_->level(); }
  // Hundredths of the budget that are leased.
  unsigned percent() const noexcept {
    return budget_ == nullptr ? 0 : static_cast<unsigned>(budget_->used() * 100 / budget_->limit());
  }
  uint64_t pipe_bytes = 0;                          // of what is held: relays' pipes (a tally of theirs)
  void (*grew)(void* context) noexcept = nullptr;   // called when more was leased; it may only note that
  void* grew_context = nullptr;

 private:
  uint64_t most(uint64_t percent) const noexcept { return budget_->limit() / 100 * percent; }
  bool extend(size_t bytes, uint64_t most_percent = 100) noexcept;
  void give_spare() noexcept;

  MemoryBudget* budget_;
  uint64_t leased_ = 0;
  uint64_t held_ = 0;
  uint64_t spare_max_ = UINT64_MAX;             // so much leased and not held is given back; never without a budget
};

// Heap memory that a lease is charged for, such as a head above one slab. Thread: the lease's.
struct LeasedDelete {
  MemoryLease* lease = nullptr;
  size_t bytes = 0;
  void operator()(char* memory) const noexcept {
    delete[] memory;
    lease->give(bytes);
  }
};
using LeasedBytes = std::unique_ptr<char[], LeasedDelete>;
LeasedBytes take_bytes(MemoryLease& lease, size_t count) noexcept;   // null: there is no memory

}  // namespace weir

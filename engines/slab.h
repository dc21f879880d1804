// SlabPool: one worker's byte memory. Fixed slabs of 16 KiB inside one reserved address range, committed by segments that
// never move; every growth is counted. A slab is reference counted without atomics: it never leaves its thread.
// Owner: a Loop. Callers: engines (recv), protocols (heads, small copies), through Slice and Chain.
// take() gives nullptr only at the configured limit or when the process's memory budget is used up; callers turn that into holding
// back, never into losing bytes. Slabs are warm (leased from the budget: in use, or free) or cold (their pages are the kernel's).
// It never zeroes memory; trim() gives the pages of free slabs back to the kernel, address space stays.
#pragma once

#include <cstddef>
#include <cstdint>

#include "engines/check.h"
#include "engines/memory_budget.h"

// A read or write of a slab that nobody holds any more is found under AddressSanitizer.
#if defined(__SANITIZE_ADDRESS__)
#define WEIR_SLAB_POISON 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define WEIR_SLAB_POISON 1
#endif
#endif
#ifdef WEIR_SLAB_POISON
extern "C" {
void __asan_poison_memory_region(const volatile void* from, size_t count);
void __asan_unpoison_memory_region(const volatile void* from, size_t count);
}
#endif

namespace weir {

inline constexpr uint32_t kSlabBytes = 16384;
inline constexpr uint32_t kSlabsPerSegment = 64;  // 1 MiB

class SlabPool;
struct ChainNode;

inline void forbid_bytes([[maybe_unused]] char* from, [[maybe_unused]] size_t count) noexcept {
#ifdef WEIR_SLAB_POISON
  __asan_poison_memory_region(from, count);
#endif
}
inline void allow_bytes([[maybe_unused]] char* from, [[maybe_unused]] size_t count) noexcept {
#ifdef WEIR_SLAB_POISON
  __asan_unpoison_memory_region(from, count);
#endif
}

struct Slab {
  SlabPool* pool;
  char* data;         // kSlabBytes, 4096-aligned
  Slab* next_free;
  uint32_t refs;
  uint32_t used;      // high-water mark: whoever's slice ends here may extend it into the free rest
  uint32_t index;     // its number in the pool (the io_uring engine's buffer id maps to it)
  uint32_t reserved;
};

class SlabPool {
 public:
  // limit_bytes: address space to reserve, rounded up to whole segments. budget: the process's, null for none.
  explicit SlabPool(size_t limit_bytes, MemoryBudget* budget = nullptr);
  ~SlabPool();
  SlabPool(const SlabPool&) = delete;
  SlabPool& operator=(const SlabPool&) = delete;

  Slab* take() noexcept {  // refs = 1, used = 0
    Slab* slab = free_;
    if (__builtin_expect(slab == nullptr, 0)) {
      if (!refill()) return nullptr;
      slab = free_;
    }
    free_ = slab->next_free;
    slab->refs = 1;
    slab->used = 0;
    ++in_use_;
    allow_bytes(slab->data, kSlabBytes);
    return slab;
  }
  // For what is received. What comes in has to go out again, which may take another slab for framing: each one is given only when
  // in this tick there is a second one for it, so that near the budget's end bytes wait outside and not half way through.
  Slab* take_for_input() noexcept {
    if (__builtin_expect(free() < inputs_ + 2, 0) && !room_for_input()) return nullptr;
    ++inputs_;
    return take();
  }
  static void ref(Slab& slab) noexcept { ++slab.refs; }
  static void unref(Slab& slab) noexcept {
    WEIR_DEBUG_ASSERT(slab.refs > 0);
    if (--slab.refs == 0) slab.pool->put(slab);
  }
  Slab& at(uint32_t index) noexcept { return slabs_[index]; }

  // Chain nodes come from here too, so that a chain allocates nothing in steady state. Defined in chain.h. A node has an empty
  // slice when it is taken and when it is put back. Nodes never run out before memory does (asserted).
  inline ChainNode* take_node() noexcept;
  inline void put_node(ChainNode* node) noexcept;

  // Whether take_for_input() may give something: looked at before what found nothing is tried again.
  bool may_take_for_input() const noexcept {
    const size_t needed = (inputs_ >= kClosed ? 0 : inputs_) + 2;
    if (free() >= needed) return lease_.may_take_for_input(0);
    return in_use_ < limit_ && lease_.may_take_for_input((needed - free()) * kSlabBytes);
  }
  // Free slabs beyond `keep` become cold, at most `most` of them, those first that were not needed for longest. Returns how many.
  // It costs a system call each: for a timer, never for a request.
  size_t trim(size_t keep, size_t most) noexcept;
  MemoryLease& lease() noexcept { return lease_; }  // of this thread, for whatever else is held here

  void tick_ended() noexcept {
    inputs_ = lease_.may_take_for_input(0) ? 0 : kClosed;   // what is free then goes back to the budget, not to new input
    if (in_use_ > peak_) peak_ = in_use_;
  }
  size_t take_peak() noexcept { const size_t peak = peak_; peak_ = in_use_; return peak; }  // since the last call
  size_t in_use() const noexcept { return in_use_; }            // slabs
  size_t warm() const noexcept { return warm_; }                // slabs that hold memory: in use, or free and not trimmed
  size_t free() const noexcept { return warm_ - in_use_; }
  size_t committed() const noexcept { return committed_; }      // slabs
  size_t limit() const noexcept { return limit_; }              // slabs
  uint64_t growths() const noexcept { return growths_; }        // segments added, of slabs and of nodes

 private:
  void put(Slab& slab) noexcept {
    forbid_bytes(slab.data, kSlabBytes);
    slab.next_free = free_;
    free_ = &slab;
    --in_use_;
  }
  bool refill() noexcept;
  bool room_for_input() noexcept;
  bool warm_up(size_t count, bool for_input) noexcept;
  bool grow() noexcept;
  bool grow_nodes() noexcept;
  void release() noexcept;

  Slab* free_ = nullptr;    // warm
  Slab* cold_ = nullptr;
  ChainNode* free_nodes_ = nullptr;
  Slab* slabs_ = nullptr;   // reserved, committed with the segments
  char* bytes_ = nullptr;
  size_t in_use_ = 0, warm_ = 0;
  static constexpr size_t kClosed = SIZE_MAX / 2;
  size_t inputs_ = 0;       // taken for input in this tick; kClosed: the budget has nothing for input
  size_t committed_ = 0, limit_ = 0, peak_ = 0;
  MemoryLease lease_;
  ChainNode* nodes_ = nullptr;
  size_t nodes_committed_ = 0, nodes_limit_ = 0;
  uint64_t growths_ = 0;
};

}  // namespace weir

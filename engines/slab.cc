#include "engines/slab.h"

#include <sys/mman.h>

#include <algorithm>
#include <new>
#include <utility>

#include "engines/chain.h"

namespace weir {
namespace {

constexpr size_t kPage = 4096;
constexpr size_t kSegmentBytes = size_t{kSlabBytes} * kSlabsPerSegment;
// Slices of one slab can be shared without bound, so nodes have no natural limit; this many per slab, averaged over the
// whole pool, is far more than any cap lets through, and costs address space only.
constexpr size_t kNodesPerSlab = 256;
constexpr size_t kNodesPerSegment = 4096;
constexpr size_t kGrowthMax = size_t{16} * kSlabsPerSegment;

constexpr size_t page_up(size_t bytes) noexcept { return (bytes + kPage - 1) / kPage * kPage; }

void* reserve(size_t bytes) {
  void* at = mmap(nullptr, page_up(bytes), PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (at == MAP_FAILED) throw std::bad_alloc();
  return at;
}

// Makes [from, to) of a reservation usable. Pages that an earlier call opened may be opened again.
bool commit(void* base, size_t from, size_t to) noexcept {
  char* start = static_cast<char*>(base) + from / kPage * kPage;
  char* end = static_cast<char*>(base) + page_up(to);
  return mprotect(start, static_cast<size_t>(end - start), PROT_READ | PROT_WRITE) == 0;
}

}  // namespace

SlabPool::SlabPool(size_t limit_bytes, MemoryBudget* budget) : lease_(budget) {
  const size_t segments = limit_bytes == 0 ? 1 : (limit_bytes + kSegmentBytes - 1) / kSegmentBytes;
  limit_ = segments * kSlabsPerSegment;
  nodes_limit_ = limit_ * kNodesPerSlab;
  try {
    bytes_ = static_cast<char*>(reserve(limit_ * kSlabBytes));
    slabs_ = static_cast<Slab*>(reserve(limit_ * sizeof(Slab)));
    nodes_ = static_cast<ChainNode*>(reserve(nodes_limit_ * sizeof(ChainNode)));
  } catch (...) {
    release();
    throw;
  }
}

SlabPool::~SlabPool() { release(); }

void SlabPool::release() noexcept {
  if (bytes_ != nullptr) {
    allow_bytes(bytes_, committed_ * kSlabBytes);  // whoever is given these addresses next
    munmap(bytes_, page_up(limit_ * kSlabBytes));
  }
  if (slabs_ != nullptr) munmap(slabs_, page_up(limit_ * sizeof(Slab)));
  if (nodes_ != nullptr) munmap(nodes_, page_up(nodes_limit_ * sizeof(ChainNode)));
}

// So many cold slabs become warm, to be taken after those that are: their pages are not touched before they are needed.
bool SlabPool::warm_up(size_t count, bool for_input) noexcept {
  while (committed_ - warm_ < count)
    if (!grow()) return false;
  if (for_input ? !lease_.take_for_input(count * kSlabBytes) : !lease_.take(count * kSlabBytes)) return false;
  Slab** end = &free_;
  while (*end != nullptr) end = &(*end)->next_free;   // few: else nobody would have asked
  *end = cold_;
  for (size_t i = 0; i < count; ++i) end = &(*end)->next_free;
  cold_ = std::exchange(*end, nullptr);
  warm_ += count;
  return true;
}

// A chunk's worth at once, so that the budget is asked once a chunk and not once a slab; what is needed when memory is short.
bool SlabPool::refill() noexcept {
  const size_t chunk = std::clamp<size_t>(lease_.chunk_bytes() / kSlabBytes, 1, kSlabsPerSegment);
  return (lease_.level() == MemoryLevel::normal && warm_up(chunk, false)) || warm_up(1, false);
}

bool SlabPool::room_for_input() noexcept {
  if (inputs_ >= kClosed) {
    if (!lease_.may_take_for_input(0)) return false;
    inputs_ = 0;
    if (free() >= 2) return true;
  }
  const size_t wanted = inputs_ + 2 - free();
  const size_t chunk = std::clamp<size_t>(lease_.chunk_bytes() / kSlabBytes, wanted, std::max<size_t>(wanted, kSlabsPerSegment));
  if (lease_.level() == MemoryLevel::normal && warm_up(chunk, true)) return true;
  return warm_up(wanted, true) || !lease_.limited();   // without a budget the pool's own limit is told by take()
}

size_t SlabPool::trim(size_t keep, size_t most) noexcept {
  if (warm_ - in_use_ <= keep) return 0;
  Slab** at = &free_;
  for (size_t i = 0; i < keep; ++i) at = &(*at)->next_free;
  size_t count = 0;
  while (count < most && *at != nullptr) {
    Slab* slab = *at;
    *at = slab->next_free;
    madvise(slab->data, kSlabBytes, MADV_DONTNEED);
    slab->next_free = cold_;
    cold_ = slab;
    ++count;
  }
  warm_ -= count;
  lease_.give(count * kSlabBytes);
  return count;
}

// Twice as much each time: pages cost nothing before they are touched, and a load that comes again, a little differently, is not to
// meet the edge of what its first pass needed.
bool SlabPool::grow() noexcept {
  if (committed_ == limit_) return false;
  const size_t from = committed_;
  const size_t to = std::min(limit_, from + std::clamp<size_t>(from, kSlabsPerSegment, kGrowthMax));
  if (!commit(slabs_, from * sizeof(Slab), to * sizeof(Slab))) return false;
  if (!commit(bytes_, from * kSlabBytes, to * kSlabBytes)) return false;
  for (size_t i = to; i-- > from;) {
    cold_ = new (&slabs_[i]) Slab{.pool = this, .data = bytes_ + i * kSlabBytes, .next_free = cold_, .refs = 0, .used = 0,
                                  .index = static_cast<uint32_t>(i), .reserved = 0};
  }
  forbid_bytes(bytes_ + from * kSlabBytes, (to - from) * kSlabBytes);
  committed_ = to;
  ++growths_;
  return true;
}

bool SlabPool::grow_nodes() noexcept {
  if (nodes_committed_ + kNodesPerSegment > nodes_limit_) return false;
  const size_t from = nodes_committed_;
  const size_t to = from + kNodesPerSegment;
  if (!commit(nodes_, from * sizeof(ChainNode), to * sizeof(ChainNode))) return false;
  lease_.force((to - from) * sizeof(ChainNode));
  for (size_t i = to; i-- > from;) free_nodes_ = new (&nodes_[i]) ChainNode{free_nodes_, Slice()};
  nodes_committed_ = to;
  ++growths_;
  return true;
}

}  // namespace weir

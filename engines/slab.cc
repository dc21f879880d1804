#include "engines/slab.h"

#include <sys/mman.h>

#include <new>

#include "engines/chain.h"

namespace weir {
namespace {

constexpr size_t kPage = 4096;
constexpr size_t kSegmentBytes = size_t{kSlabBytes} * kSlabsPerSegment;
// Slices of one slab can be shared without bound, so nodes have no natural limit; this many per slab, averaged over the
// whole pool, is far more than any cap lets through, and costs address space only.
constexpr size_t kNodesPerSlab = 256;
constexpr size_t kNodesPerSegment = 4096;

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

SlabPool::SlabPool(size_t limit_bytes) {
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

bool SlabPool::grow() noexcept {
  if (committed_ == limit_) return false;
  const size_t from = committed_;
  const size_t to = from + kSlabsPerSegment;
  if (!commit(slabs_, from * sizeof(Slab), to * sizeof(Slab))) return false;
  if (!commit(bytes_, from * kSlabBytes, to * kSlabBytes)) return false;
  for (size_t i = to; i-- > from;) {
    free_ = new (&slabs_[i]) Slab{.pool = this, .data = bytes_ + i * kSlabBytes, .next_free = free_, .refs = 0, .used = 0,
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
  for (size_t i = to; i-- > from;) free_nodes_ = new (&nodes_[i]) ChainNode{free_nodes_, Slice()};
  nodes_committed_ = to;
  ++growths_;
  return true;
}

}  // namespace weir

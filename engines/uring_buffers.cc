#include "engines/uring_buffers.h"

#include <sys/mman.h>

#include <algorithm>
#include <cerrno>

namespace weir {

int UringBuffers::attach(io_uring& ring, unsigned entries, unsigned rings) {
  WEIR_ASSERT(ring_ == nullptr && entries > 0 && (entries & (entries - 1)) == 0 && entries <= 32768);
  const size_t bytes = (entries * sizeof(io_uring_buf) + 4095) / 4096 * 4096;
  void* memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) return -errno;
  io_uring_buf_reg reg{};
  reg.ring_addr = reinterpret_cast<uint64_t>(memory);
  reg.ring_entries = entries;
  reg.bgid = kGroup;
  if (const int rc = io_uring_register_buf_ring(&ring, &reg, 0); rc < 0) {
    munmap(memory, bytes);
    return rc;
  }
  madvise(memory, bytes, MADV_DONTFORK);
  ring_ = static_cast<io_uring_buf_ring*>(memory);
  io_uring_buf_ring_init(ring_);
  ring_bytes_ = bytes;
  slabs_ = std::make_unique<Slab*[]>(entries);
  entries_ = entries;
  rings_ = rings;
  return 0;
}

// Few enough that all of them at once are no burden to a budget: they are not asked for again when their bytes have come.
unsigned UringBuffers::target() const noexcept {
  const uint64_t pool = pool_.limit() / 4 / rings_;
  const uint64_t budget = pool_.lease().limit() / kSlabBytes / 32 / rings_;
  return static_cast<unsigned>(std::clamp<uint64_t>(std::min(pool, budget), 1, entries_));
}

void UringBuffers::detach() noexcept {
  if (ring_ == nullptr) return;
  for (unsigned i = 0; i < entries_; ++i) {
    if (slabs_[i] != nullptr) SlabPool::unref(*slabs_[i]);
  }
  held_ = 0;
  slabs_.reset();
  munmap(ring_, ring_bytes_);
  ring_ = nullptr;
}

void UringBuffers::top_up() noexcept {
  const unsigned mask = entries_ - 1;
  unsigned added = 0;
  const unsigned most = target();
  while (held_ < most) {
    const unsigned id = (tail_ + added) & mask;
    // Buffers may come back in another order than they went in: this place may still be the kernel's.
    if (slabs_[id] != nullptr) break;
    Slab* slab = pool_.take_for_input();
    if (slab == nullptr) break;
    slabs_[id] = slab;
    ++held_;
    io_uring_buf_ring_add(ring_, slab->data, kSlabBytes, static_cast<uint16_t>(id), static_cast<int>(mask),
                          static_cast<int>(added));
    ++added;
  }
  if (added == 0) return;
  tail_ = static_cast<uint16_t>(tail_ + added);
  io_uring_buf_ring_advance(ring_, static_cast<int>(added));
}

Slab& UringBuffers::take(uint16_t id) noexcept {
  WEIR_ASSERT(id < entries_ && slabs_[id] != nullptr);
  Slab* slab = slabs_[id];
  slabs_[id] = nullptr;
  --held_;
  return *slab;
}

}  // namespace weir

// UringBuffers: the provided-buffer ring as a window onto the SlabPool, not an owner. The kernel picks a buffer when
// bytes have come; take() makes it an ordinary slab of the caller's; top_up() puts fresh slabs in their place. Owner: a
// UringEngine. Thread: the loop's own, after attach(). A buffer's id is its place in the ring. All rings of a process together
// never hold more than a quarter of a pool's limit and a 32nd of the memory budget (but at least one slab each), so that a
// small one serves others too; when the pool gives nothing the ring stays short.
#pragma once

#include <liburing.h>

#include <cstdint>
#include <memory>

#include "engines/slab.h"

namespace weir {

class UringBuffers {
 public:
  explicit UringBuffers(SlabPool& pool) noexcept : pool_(pool) {}
  ~UringBuffers() { detach(); }
  UringBuffers(const UringBuffers&) = delete;
  UringBuffers& operator=(const UringBuffers&) = delete;

  // entries: a power of two. Registers with a ring that is not restricted yet. 0 or -errno; on failure nothing is left
  // behind.
  int attach(io_uring& ring, unsigned entries, unsigned rings = 1);
  // Gives all slabs back. The ring must be closed, or gone, before.
  void detach() noexcept;

  void top_up() noexcept;
  Slab& take(uint16_t id) noexcept;  // the caller has the ring's reference now
  unsigned held() const noexcept { return held_; }
  unsigned entries() const noexcept { return entries_; }
  static constexpr uint16_t kGroup = 0;

 private:
  unsigned target() const noexcept;

  SlabPool& pool_;
  io_uring_buf_ring* ring_ = nullptr;  // page-aligned, ours
  size_t ring_bytes_ = 0;
  std::unique_ptr<Slab*[]> slabs_;  // by id; nullptr: nothing there
  unsigned entries_ = 0;
  unsigned rings_ = 1;
  unsigned held_ = 0;
  uint16_t tail_ = 0;
};

}  // namespace weir

// Chain: a first-in first-out list of slices: the one form in which bytes travel. Move-only, holds no bytes itself.
// Owner: a pipe, an op or a connection's output. Thread: its pool's own.
// bytes() is what it carries; charge() is the memory it pins, in whole slabs (two neighbouring slices of one slab count once):
// caps look at charge. Nodes come from the pool, so nothing here allocates in steady state.
// append_copy and append_small are the only calls that copy, and can fail (false, nothing appended) at the pool's limit.
#pragma once

#include <sys/uio.h>

#include <cstddef>

#include "engines/slice.h"

namespace weir {

struct ChainNode {
  ChainNode* next;
  Slice slice;
};

inline ChainNode* SlabPool::take_node() noexcept {
  if (__builtin_expect(free_nodes_ == nullptr, 0)) WEIR_ASSERT(grow_nodes());
  ChainNode* node = free_nodes_;
  free_nodes_ = node->next;
  return node;
}

inline void SlabPool::put_node(ChainNode* node) noexcept {
  node->next = free_nodes_;
  free_nodes_ = node;
}

class Chain {
 public:
  Chain() noexcept = default;
  Chain(Chain&& other) noexcept
      : head_(std::exchange(other.head_, nullptr)), tail_(std::exchange(other.tail_, nullptr)),
        bytes_(std::exchange(other.bytes_, 0)), charge_(std::exchange(other.charge_, 0)) {}
  Chain& operator=(Chain&& other) noexcept {
    if (this != &other) {
      clear();
      head_ = std::exchange(other.head_, nullptr);
      tail_ = std::exchange(other.tail_, nullptr);
      bytes_ = std::exchange(other.bytes_, 0);
      charge_ = std::exchange(other.charge_, 0);
    }
    return *this;
  }
  ~Chain() { if (head_ != nullptr) clear(); }

  bool empty() const noexcept { return bytes_ == 0; }
  size_t bytes() const noexcept { return bytes_; }
  size_t charge() const noexcept { return charge_; }  // bytes, a multiple of kSlabBytes

  void append(Slice&& slice) noexcept;         // empty slices vanish; one that continues the last slice joins it
  void append(Chain&& other) noexcept;         // O(1)
  void prepend(Slice&& slice) noexcept;
  // Copies into the free rest of the tail slab (if this chain's last slice ends at its high-water mark), then into new slabs.
  [[nodiscard]] bool append_copy(SlabPool& pool, const void* data, size_t count) noexcept;
  // Moves the other's slices here, but copies those under a quarter slab into the tail slab, so that small pieces do not pin
  // whole slabs (one that is its slab's only holder, or whose slab is the tail's, moves: that costs nothing). Falls back to
  // moving when the pool is at its limit. The form in which pipes take bytes.
  void append_compact(SlabPool& pool, Chain&& other) noexcept;

  Slice& front() noexcept { return head_->slice; }              // not empty
  const Slice& front() const noexcept { return head_->slice; }
  const Slice& back() const noexcept { return tail_->slice; }   // not empty
  ChainNode* first() const noexcept { return head_; }           // to walk: node->next
  uint32_t tail_room() const noexcept;                          // bytes that may be written behind back(): Slab::used
  [[nodiscard]] Chain take(size_t count) noexcept;              // splits off the first count bytes (count <= bytes())
  void consume(size_t count) noexcept;                          // drops the first count bytes (count <= bytes())
  void clear() noexcept;
  size_t copy_out(void* to, size_t from, size_t count) const noexcept;  // copies [from, from+count); returns what there was
  // Fills up to max entries with at most bytes_max bytes from the front; returns the number of entries.
  unsigned fill(iovec* out, unsigned max, size_t bytes_max) const noexcept;

 private:
  void push_node(Slice&& slice) noexcept;
  void drop_head() noexcept;

  ChainNode* head_ = nullptr;
  ChainNode* tail_ = nullptr;
  size_t bytes_ = 0;
  size_t charge_ = 0;
};

}  // namespace weir

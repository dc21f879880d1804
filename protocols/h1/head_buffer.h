// HeadBuffer: keeps the bytes of one head together, whatever pieces they arrived in, for the parser that wants them contiguous.
// Owner: an h1 connection. Thread: the loop's own. A head inside one slab (nearly all) is not copied; one that straddles two slabs
// is copied once; one above a slab goes to a heap buffer of its own. Byte-by-byte arrival costs linear work.
#pragma once

#include <memory>
#include <string_view>

#include "engines/chain.h"
#include "protocols/exchange/head.h"

namespace weir::h1 {

class HeadBuffer {
 public:
  // Appends what arrived; small pieces join the tail slab.
  void append(Chain& in, SlabPool& pool, Chain&& bytes) noexcept;
  // All bytes of `in` (at most `limit` + one slab of them), contiguous. Empty view: no memory.
  std::string_view view(Chain& in, SlabPool& pool, uint32_t limit) noexcept;
  // The first `count` bytes of the last view were a head: pin them in `head`, leave the rest in `in`.
  void take(Chain& in, SlabPool& pool, uint32_t count, Head& head) noexcept;
  void reset() noexcept { big_.reset(); big_size_ = 0; scanned = 0; }

  size_t scanned = 0;  // the parser's memory between calls

 private:
  std::unique_ptr<char[]> big_;
  size_t big_size_ = 0;
  size_t big_capacity_ = 0;
};

}  // namespace weir::h1

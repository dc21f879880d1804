// SmallBytes: where frame headers, control frames, small bodies and request heads of all HTTP/2 connections of a worker are
// put, side by side in one slab after the other: a slab for each of them would pin sixteen KiB for nine bytes.
// Owner: the worker's ServerContext. Thread: the loop's own. It holds one slab while there are connections; drop() gives it back.
#pragma once

#include <cstring>

#include "engines/chain.h"

namespace weir::h2 {

class SmallBytes {
 public:
  explicit SmallBytes(SlabPool& pool) noexcept : pool_(pool) {}
  ~SmallBytes() { drop(); }
  SmallBytes(const SmallBytes&) = delete;
  SmallBytes& operator=(const SmallBytes&) = delete;

  // `count` bytes (at most a slab) to be written by the caller. Empty: the pool is at its limit.
  Slice take(size_t count) noexcept {
    if (slab_ == nullptr || kSlabBytes - slab_->used < count) {
      Slab* fresh = pool_.take();
      if (fresh == nullptr) return Slice();
      drop();
      slab_ = fresh;
    }
    const uint32_t from = slab_->used;
    slab_->used += static_cast<uint32_t>(count);
    SlabPool::ref(*slab_);
    return Slice(slab_, from, static_cast<uint32_t>(count));
  }
  [[nodiscard]] bool append(Chain& to, const void* data, size_t count) noexcept {
    const char* from = static_cast<const char*>(data);
    while (count > 0) {
      const size_t part = count < kSlabBytes ? count : kSlabBytes;
      Slice slice = take(part);
      if (!slice) return false;
      std::memcpy(slice.data(), from, part);
      to.append(std::move(slice));
      from += part;
      count -= part;
    }
    return true;
  }
  void drop() noexcept {
    if (slab_ != nullptr) SlabPool::unref(*slab_);
    slab_ = nullptr;
  }
  SlabPool& pool() noexcept { return pool_; }

 private:
  SlabPool& pool_;
  Slab* slab_ = nullptr;
};

}  // namespace weir::h2

// Slice: a counted reference to bytes [offset, offset + length) of one slab. Move-only; share() makes a second reference.
// Owner: whoever holds it. Thread: the slab's own. It never copies bytes.
#pragma once

#include <string_view>
#include <utility>

#include "engines/slab.h"

namespace weir {

class Slice {
 public:
  Slice() noexcept = default;
  // Takes over one reference that the caller has.
  Slice(Slab* slab, uint32_t offset, uint32_t length) noexcept : slab_(slab), offset_(offset), length_(length) {}
  Slice(Slice&& other) noexcept
      : slab_(std::exchange(other.slab_, nullptr)), offset_(other.offset_), length_(std::exchange(other.length_, 0)) {}
  Slice& operator=(Slice&& other) noexcept {
    if (this != &other) {
      reset();
      slab_ = std::exchange(other.slab_, nullptr);
      offset_ = other.offset_;
      length_ = std::exchange(other.length_, 0);
    }
    return *this;
  }
  ~Slice() { reset(); }

  Slice share() const noexcept { return share(0, length_); }
  Slice share(uint32_t from, uint32_t count) const noexcept {
    WEIR_DEBUG_ASSERT(from + count <= length_);
    if (slab_ != nullptr) SlabPool::ref(*slab_);
    return Slice(slab_, offset_ + from, count);
  }
  void reset() noexcept {
    if (slab_ != nullptr) SlabPool::unref(*std::exchange(slab_, nullptr));
    length_ = 0;
  }
  void drop_front(uint32_t count) noexcept { offset_ += count; length_ -= count; }
  void truncate(uint32_t count) noexcept { length_ = count; }
  void extend(uint32_t count) noexcept { length_ += count; }  // the bytes behind it are the holder's (see Slab::used)
  Slab* release() noexcept { length_ = 0; return std::exchange(slab_, nullptr); }  // the caller owns the reference now

  char* data() const noexcept { return slab_->data + offset_; }
  uint32_t size() const noexcept { return length_; }
  uint32_t offset() const noexcept { return offset_; }
  bool empty() const noexcept { return length_ == 0; }
  explicit operator bool() const noexcept { return slab_ != nullptr; }
  std::string_view view() const noexcept { return length_ == 0 ? std::string_view() : std::string_view(data(), length_); }
  Slab* slab() const noexcept { return slab_; }

 private:
  Slab* slab_ = nullptr;
  uint32_t offset_ = 0;
  uint32_t length_ = 0;
};

}  // namespace weir

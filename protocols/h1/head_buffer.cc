#include "protocols/h1/head_buffer.h"

#include <new>

namespace weir::h1 {

void HeadBuffer::append(Chain& in, SlabPool& pool, Chain&& bytes) noexcept {
  if (in.empty()) in = std::move(bytes);
  else in.append_compact(pool, std::move(bytes));
}

std::string_view HeadBuffer::view(Chain& in, SlabPool& pool, uint32_t limit) noexcept {
  if (big_ == nullptr) {
    if (in.empty()) return {};
    if (in.first()->next == nullptr) return in.front().view();
    if (in.bytes() <= kSlabBytes) {
      Slab* slab = pool.take();
      if (slab == nullptr) return {};
      const auto count = static_cast<uint32_t>(in.copy_out(slab->data, 0, in.bytes()));
      slab->used = count;
      Chain whole;
      whole.append(Slice(slab, 0, count));
      in = std::move(whole);
      return in.front().view();
    }
    big_capacity_ = size_t{limit} + kSlabBytes;
    big_.reset(new (std::nothrow) char[big_capacity_]);
    if (big_ == nullptr) return {};
    big_size_ = 0;
  }
  const size_t room = big_capacity_ - big_size_;
  const size_t count = in.bytes() < room ? in.bytes() : room;
  in.copy_out(big_.get() + big_size_, 0, count);
  in.consume(count);
  big_size_ += count;
  return {big_.get(), big_size_};
}

void HeadBuffer::take(Chain& in, SlabPool& pool, uint32_t count, Head& head) noexcept {
  scanned = 0;
  if (big_ == nullptr) {
    head.backing = in.front().share(0, count);
    in.consume(count);
    return;
  }
  Chain rest;
  const bool copied = rest.append_copy(pool, big_.get() + count, big_size_ - count);
  WEIR_ASSERT(copied || big_size_ == count);  // the heap buffer outlives a full pool only where nothing follows the head
  rest.append(std::move(in));
  in = std::move(rest);
  head.big = std::move(big_);
  big_size_ = 0;
}

}  // namespace weir::h1

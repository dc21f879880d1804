#include "protocols/h1/head_buffer.h"

namespace weir::h1 {

void HeadBuffer::append(Chain& in, SlabPool& pool, Chain&& bytes) noexcept {
  if (in.empty()) in = std::move(bytes);
  else in.append_compact(pool, std::move(bytes));
}

// More contiguous bytes than the last view had: a slab full of them first, then a heap buffer.
std::string_view HeadBuffer::join(Chain& in, SlabPool& pool, uint32_t limit) noexcept {
  if (big_ == nullptr && in.front().size() < kSlabBytes) {
    Slab* slab = pool.take();
    if (slab == nullptr) return {};
    const auto count = static_cast<uint32_t>(in.copy_out(slab->data, 0, kSlabBytes));
    slab->used = count;
    in.consume(count);
    in.prepend(Slice(slab, 0, count));
    return in.front().view();
  }
  if (big_ == nullptr || big_capacity_ < limit) {
    LeasedBytes larger = take_bytes(pool.lease(), limit);
    if (larger == nullptr) return {};
    big_ = std::move(larger);
    big_capacity_ = limit;
    big_size_ = 0;
  }
  big_size_ += in.copy_out(big_.get() + big_size_, big_size_, std::min<size_t>(in.bytes(), limit) - big_size_);
  return {big_.get(), big_size_};
}

void HeadBuffer::take(Chain& in, uint32_t count, Head& head) noexcept {
  scanned_ = 0;
  if (big_ == nullptr) head.backing = in.front().share(0, count);
  else head.big = std::move(big_);
  in.consume(count);
}

}  // namespace weir::h1

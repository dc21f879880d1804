#include "engines/chain.h"

#include <algorithm>
#include <cstring>

namespace weir {
namespace {

constexpr uint32_t kSmallBytes = kSlabBytes / 4;

bool continues(const Slice& last, const Slice& next) noexcept {
  return last.slab() == next.slab() && last.offset() + last.size() == next.offset();
}

}  // namespace

void Chain::push_node(Slice&& slice) noexcept {
  Slab* slab = slice.slab();
  ChainNode* node = slab->pool->take_node();
  node->next = nullptr;
  node->slice = std::move(slice);
  if (tail_ == nullptr || tail_->slice.slab() != slab) charge_ += kSlabBytes;
  bytes_ += node->slice.size();
  if (tail_ != nullptr) tail_->next = node;
  else head_ = node;
  tail_ = node;
}

void Chain::append(Slice&& slice) noexcept {
  if (slice.empty()) {
    slice.reset();
    return;
  }
  if (tail_ != nullptr && continues(tail_->slice, slice)) {
    tail_->slice.extend(slice.size());
    bytes_ += slice.size();
    slice.reset();
    return;
  }
  push_node(std::move(slice));
}

void Chain::append(Chain&& other) noexcept {
  if (other.head_ == nullptr) return;
  if (head_ == nullptr) {
    *this = std::move(other);
    return;
  }
  if (tail_->slice.slab() == other.head_->slice.slab()) charge_ -= kSlabBytes;
  charge_ += std::exchange(other.charge_, 0);
  bytes_ += std::exchange(other.bytes_, 0);
  tail_->next = std::exchange(other.head_, nullptr);
  tail_ = std::exchange(other.tail_, nullptr);
}

void Chain::prepend(Slice&& slice) noexcept {
  if (slice.empty()) {
    slice.reset();
    return;
  }
  Slab* slab = slice.slab();
  ChainNode* node = slab->pool->take_node();
  node->slice = std::move(slice);
  node->next = head_;
  if (head_ == nullptr || head_->slice.slab() != slab) charge_ += kSlabBytes;
  bytes_ += node->slice.size();
  head_ = node;
  if (tail_ == nullptr) tail_ = node;
}

// Bytes that may be written behind the last slice.
uint32_t Chain::tail_room() const noexcept {
  if (tail_ == nullptr) return 0;
  const Slice& last = tail_->slice;
  return last.offset() + last.size() == last.slab()->used ? kSlabBytes - last.slab()->used : 0;
}

bool Chain::append_copy(SlabPool& pool, const void* data, size_t count) noexcept {
  const char* from = static_cast<const char*>(data);
  const size_t here = std::min<size_t>(count, tail_room());
  // New slabs first: when there are not enough of them nothing has been touched.
  Chain fresh;
  for (size_t done = here; done < count;) {
    Slab* slab = pool.take();
    if (slab == nullptr) return false;
    const auto part = static_cast<uint32_t>(std::min<size_t>(count - done, kSlabBytes));
    std::memcpy(slab->data, from + done, part);
    slab->used = part;
    fresh.push_node(Slice(slab, 0, part));
    done += part;
  }
  if (here > 0) {
    Slice& last = tail_->slice;
    std::memcpy(last.data() + last.size(), from, here);
    last.extend(static_cast<uint32_t>(here));
    last.slab()->used += static_cast<uint32_t>(here);
    bytes_ += here;
  }
  append(std::move(fresh));
  return true;
}

void Chain::append_compact(SlabPool& pool, Chain&& other) noexcept {
  while (other.head_ != nullptr) {
    ChainNode* node = other.head_;
    Slice slice = std::move(node->slice);
    other.head_ = node->next;
    slice.slab()->pool->put_node(node);
    const bool same_slab = tail_ != nullptr && tail_->slice.slab() == slice.slab();
    const bool only_holder = slice.slab()->refs == 1;
    const bool copy = slice.size() < kSmallBytes && !same_slab && !(only_holder && tail_room() < slice.size());
    if (copy && append_copy(pool, slice.data(), slice.size())) continue;
    append(std::move(slice));
  }
  other.tail_ = nullptr;
  other.bytes_ = other.charge_ = 0;
}

void Chain::drop_head() noexcept {
  ChainNode* node = head_;
  Slab* slab = node->slice.slab();
  head_ = node->next;
  if (head_ == nullptr) tail_ = nullptr;
  if (head_ == nullptr || head_->slice.slab() != slab) charge_ -= kSlabBytes;
  bytes_ -= node->slice.size();
  SlabPool* pool = slab->pool;
  node->slice.reset();
  pool->put_node(node);
}

Chain Chain::take(size_t count) noexcept {
  WEIR_ASSERT(count <= bytes_);
  if (count == bytes_) return std::move(*this);
  Chain out;
  while (count > 0) {
    Slice& first = head_->slice;
    if (count < first.size()) {
      const auto part = static_cast<uint32_t>(count);
      out.push_node(first.share(0, part));
      first.drop_front(part);
      bytes_ -= part;
      break;
    }
    // The node itself moves over; its share of the charge goes with it unless the next slice has the same slab.
    ChainNode* node = head_;
    Slab* slab = node->slice.slab();
    count -= node->slice.size();
    bytes_ -= node->slice.size();
    head_ = node->next;
    if (head_->slice.slab() != slab) charge_ -= kSlabBytes;  // count < bytes_, so there is a next one
    if (out.tail_ == nullptr || out.tail_->slice.slab() != slab) out.charge_ += kSlabBytes;
    out.bytes_ += node->slice.size();
    node->next = nullptr;
    if (out.tail_ != nullptr) out.tail_->next = node;
    else out.head_ = node;
    out.tail_ = node;
  }
  return out;
}

void Chain::consume(size_t count) noexcept {
  WEIR_ASSERT(count <= bytes_);
  while (count > 0) {
    Slice& first = head_->slice;
    if (count < first.size()) {
      first.drop_front(static_cast<uint32_t>(count));
      bytes_ -= count;
      return;
    }
    count -= first.size();
    drop_head();
  }
}

void Chain::clear() noexcept {
  while (head_ != nullptr) drop_head();
}

size_t Chain::copy_out(void* to, size_t from, size_t count) const noexcept {
  char* out = static_cast<char*>(to);
  size_t done = 0;
  for (const ChainNode* node = head_; node != nullptr && done < count; node = node->next) {
    const size_t size = node->slice.size();
    if (from >= size) {
      from -= size;
      continue;
    }
    const size_t part = std::min(size - from, count - done);
    std::memcpy(out + done, node->slice.data() + from, part);
    done += part;
    from = 0;
  }
  return done;
}

unsigned Chain::fill(iovec* out, unsigned max, size_t bytes_max) const noexcept {
  unsigned entries = 0;
  for (const ChainNode* node = head_; node != nullptr && entries < max && bytes_max > 0; node = node->next) {
    const size_t part = std::min<size_t>(node->slice.size(), bytes_max);
    out[entries++] = {node->slice.data(), part};
    bytes_max -= part;
  }
  return entries;
}

}  // namespace weir

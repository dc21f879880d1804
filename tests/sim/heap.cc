#include "tests/sim/heap.h"

#include <cstddef>
#include <cstdlib>
#include <new>

namespace weir::simtest {

namespace {
thread_local bool counting = false;
thread_local uint64_t counted = 0;
}  // namespace

uint64_t heap_allocations() noexcept { return counted; }
HeapCount::HeapCount() noexcept { counting = true; }
HeapCount::~HeapCount() { counting = false; }
HeapPause::HeapPause() noexcept : was_(counting) { counting = false; }
HeapPause::~HeapPause() { counting = was_; }

void* counted_new(size_t size, size_t align) noexcept {
  if (counting) ++counted;
  if (align <= alignof(std::max_align_t)) return std::malloc(size == 0 ? 1 : size);
  return std::aligned_alloc(align, (size + align - 1) / align * align);
}

}  // namespace weir::simtest

using weir::simtest::counted_new;

void* operator new(size_t size) {
  void* p = counted_new(size, 1);
  if (p == nullptr) throw std::bad_alloc();
  return p;
}
void* operator new(size_t size, std::align_val_t align) {
  void* p = counted_new(size, static_cast<size_t>(align));
  if (p == nullptr) throw std::bad_alloc();
  return p;
}
void* operator new(size_t size, const std::nothrow_t&) noexcept { return counted_new(size, 1); }
void* operator new[](size_t size) { return operator new(size); }
void* operator new[](size_t size, std::align_val_t align) { return operator new(size, align); }
void* operator new[](size_t size, const std::nothrow_t&) noexcept { return counted_new(size, 1); }
void operator delete(void* p) noexcept { std::free(p); }
void operator delete(void* p, size_t) noexcept { std::free(p); }
void operator delete(void* p, std::align_val_t) noexcept { std::free(p); }
void operator delete(void* p, size_t, std::align_val_t) noexcept { std::free(p); }
void operator delete(void* p, const std::nothrow_t&) noexcept { std::free(p); }
void operator delete[](void* p) noexcept { std::free(p); }
void operator delete[](void* p, size_t) noexcept { std::free(p); }
void operator delete[](void* p, std::align_val_t) noexcept { std::free(p); }
void operator delete[](void* p, size_t, std::align_val_t) noexcept { std::free(p); }
void operator delete[](void* p, const std::nothrow_t&) noexcept { std::free(p); }

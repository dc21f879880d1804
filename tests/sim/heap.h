// Heap: counts calls of operator new while a HeapCount lives and no HeapPause does. Owner: the test program, which replaces the
// global operators (heap.cc). Thread: one.
#pragma once

#include <cstdint>

namespace weir::simtest {

uint64_t heap_allocations() noexcept;   // counted so far

struct HeapCount {
  HeapCount() noexcept;
  ~HeapCount();
  HeapCount(const HeapCount&) = delete;
};
struct HeapPause {
  HeapPause() noexcept;
  ~HeapPause();
  HeapPause(const HeapPause&) = delete;

 private:
  bool was_;
};

}  // namespace weir::simtest

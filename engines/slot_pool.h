// SlotPool<T>: type-stable memory for objects of one kind (connections, streams, exchanges). Slots never move; memory is
// committed by segment and never given back, so a late kernel event may look at a freed slot's Socket::generation.
// Owner: a worker. Thread: the loop's own. take() gives raw storage (construct in place), put() takes it back after the
// destructor ran; both are a pointer move. nullptr only when mmap fails or the memory budget (charge_to) is used up. Each growth is
// counted.
#pragma once

#include <sys/mman.h>

#include <cstddef>
#include <cstdint>
#include <new>
#include <utility>

#include "engines/check.h"
#include "engines/memory_budget.h"

namespace weir {

template <class T>
class SlotPool {
 public:
  SlotPool() noexcept = default;
  SlotPool(const SlotPool&) = delete;
  SlotPool& operator=(const SlotPool&) = delete;
  ~SlotPool() {
    while (segments_ != nullptr) {
      Segment* segment = std::exchange(segments_, segments_->next);
      munmap(segment, kSegmentBytes);
    }
  }

  template <class... Args>
  T* make(Args&&... args) noexcept {
    if (free_ == nullptr && !grow()) return nullptr;
    Free* slot = std::exchange(free_, free_->next);
    ++in_use_;
    return new (slot) T(std::forward<Args>(args)...);
  }
  void destroy(T* object) noexcept {
    object->~T();
    Free* slot = new (static_cast<void*>(object)) Free{free_};
    free_ = slot;
    --in_use_;
  }
  void charge_to(MemoryLease& lease) noexcept { lease_ = &lease; }   // before the first make(); outlives this
  bool has_free() const noexcept { return free_ != nullptr; }        // the next make() needs no memory
  size_t in_use() const noexcept { return in_use_; }
  size_t committed() const noexcept { return committed_; }
  uint64_t growths() const noexcept { return growths_; }

  static constexpr size_t kAlign = alignof(T) > 64 ? alignof(T) : 64;
  static constexpr size_t kStride = (sizeof(T) + kAlign - 1) / kAlign * kAlign;
  static constexpr size_t kSegmentBytes = (kStride * 16 + kAlign + 4095) / 4096 * 4096;

 private:
  struct Free { Free* next; };
  struct Segment { Segment* next; };

  bool grow() noexcept {
    if (lease_ != nullptr && !lease_->take(kSegmentBytes)) return false;
    void* raw = mmap(nullptr, kSegmentBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (raw == MAP_FAILED) {
      if (lease_ != nullptr) lease_->give(kSegmentBytes);
      return false;
    }
    segments_ = new (raw) Segment{segments_};
    char* at = static_cast<char*>(raw) + kAlign;
    const size_t count = (kSegmentBytes - kAlign) / kStride;
    for (size_t i = count; i-- > 0;) free_ = new (static_cast<void*>(at + i * kStride)) Free{free_};
    committed_ += count;
    ++growths_;
    return true;
  }

  Free* free_ = nullptr;
  Segment* segments_ = nullptr;
  MemoryLease* lease_ = nullptr;
  size_t in_use_ = 0, committed_ = 0;
  uint64_t growths_ = 0;
};

}  // namespace weir

// Mailbox: the one door through which another thread reaches a Loop. Many producers, one consumer (the loop), intrusive.
// push() may be called from any thread; it writes to the eventfd only when the box went from empty to non-empty.
// The message belongs to the box until run() is called on the loop's thread, in push order per producer; after that the
// callee owns it (run may delete it or push it elsewhere). Nothing is dropped; bounding is the producers' business.
#pragma once

#include <atomic>
#include <cstdint>

namespace weir {

struct Message {
  Message* next = nullptr;
  void (*run)(Message&) noexcept = nullptr;
};

class Mailbox {
 public:
  Mailbox();                                 // opens the eventfd; throws std::system_error
  ~Mailbox();
  Mailbox(const Mailbox&) = delete;
  Mailbox& operator=(const Mailbox&) = delete;

  void push(Message& message) noexcept;      // any thread
  void wake() noexcept;                      // any thread: makes the loop's wait return, without a message
  uint32_t drain() noexcept;                 // the loop's thread: runs what was there when it began; returns how many
  bool empty() const noexcept { return head_.load(std::memory_order_acquire) == nullptr; }
  int wake_fd() const noexcept { return wake_fd_; }
  void clear_wake() noexcept;                // reads the eventfd; called by the loop when the engine said woken
  uint64_t wakes() const noexcept { return wakes_.load(std::memory_order_relaxed); }

 private:
  std::atomic<Message*> head_{nullptr};
  std::atomic<uint64_t> wakes_{0};
  int wake_fd_ = -1;
};

}  // namespace weir

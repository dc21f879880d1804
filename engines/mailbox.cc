#include "engines/mailbox.h"

#include <sys/eventfd.h>
#include <unistd.h>

#include <cerrno>
#include <system_error>

namespace weir {

Mailbox::Mailbox() : wake_fd_(::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)) {
  if (wake_fd_ < 0) throw std::system_error(errno, std::generic_category(), "eventfd");
}

Mailbox::~Mailbox() { ::close(wake_fd_); }

void Mailbox::push(Message& message) noexcept {
  Message* head = head_.load(std::memory_order_relaxed);
  do {
    message.next = head;
  } while (!head_.compare_exchange_weak(head, &message, std::memory_order_release, std::memory_order_relaxed));
  // From here on the message may already have run and be gone.
  if (head == nullptr) wake();
}

void Mailbox::wake() noexcept {
  wakes_.fetch_add(1, std::memory_order_relaxed);
  const uint64_t one = 1;
  // The only failure is a counter at its end, and then the descriptor is readable anyway.
  [[maybe_unused]] const ssize_t written = ::write(wake_fd_, &one, sizeof one);
}

uint32_t Mailbox::drain() noexcept {
  if (head_.load(std::memory_order_relaxed) == nullptr) return 0;
  Message* newest = head_.exchange(nullptr, std::memory_order_acquire);
  Message* oldest = nullptr;
  while (newest != nullptr) {
    Message* const next = newest->next;
    newest->next = oldest;
    oldest = newest;
    newest = next;
  }
  uint32_t count = 0;
  while (oldest != nullptr) {
    Message* const message = oldest;
    oldest = message->next;
    message->next = nullptr;
    message->run(*message);
    ++count;
  }
  return count;
}

void Mailbox::clear_wake() noexcept {
  uint64_t count = 0;
  [[maybe_unused]] const ssize_t got = ::read(wake_fd_, &count, sizeof count);
}

}  // namespace weir

// RequestIds: 32 hexadecimal digits a request: 64 bits that this worker drew at its start, and 64 that no other of its requests
// has.
// Owner: a Forwarder. Thread: the worker's. They name requests; they are no secrets.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace weir {

class RequestIds {
 public:
  static constexpr size_t kSize = 32;
  RequestIds() noexcept;                          // drawn
  explicit RequestIds(uint64_t start) noexcept;   // the same at each run: for a simulated clock
  void write(char* to) noexcept;         // kSize bytes
  // An id that someone else gave may go into logs and to origins: 1 to 128 visible characters.
  static bool acceptable(std::string_view id) noexcept;

 private:
  char start_[16];
  uint64_t next_;
};

}  // namespace weir

#include "daemon/request_id.h"

#include <sys/random.h>

#include <array>
#include <chrono>
#include <cstring>

namespace weir {

namespace {

struct HexPairs {
  std::array<char, 512> text{};
  constexpr HexPairs() {
    for (size_t i = 0; i < 256; ++i) {
      text[2 * i] = "0123456789abcdef"[i >> 4];
      text[2 * i + 1] = "0123456789abcdef"[i & 15];
    }
  }
};
constexpr HexPairs kHex;

void put_hex(char* to, uint64_t number) noexcept {
  for (int i = 0; i < 8; ++i) memcpy(to + 2 * i, &kHex.text[2 * (number >> (56 - 8 * i) & 0xff)], 2);
}

}  // namespace

RequestIds::RequestIds() noexcept {
  uint64_t drawn[2];
  if (getrandom(drawn, sizeof drawn, 0) != static_cast<ssize_t>(sizeof drawn)) {  // cannot fail on kernels that we run on
    drawn[0] = static_cast<uint64_t>(std::chrono::system_clock::now().time_since_epoch().count());
    drawn[1] = reinterpret_cast<uintptr_t>(this);
  }
  put_hex(start_, drawn[0]);
  next_ = drawn[1];
}

RequestIds::RequestIds(uint64_t start) noexcept : next_(start) { put_hex(start_, start); }

// An odd step goes through all 64-bit numbers before one comes again; neighbours differ in most digits.
void RequestIds::write(char* to) noexcept {
  next_ += 0x9e3779b97f4a7c15u;
  memcpy(to, start_, sizeof start_);
  put_hex(to + sizeof start_, next_);
}

bool RequestIds::acceptable(std::string_view id) noexcept {
  if (id.empty() || id.size() > 128) return false;
  for (const char c : id)
    if (c <= ' ' || c > '~') return false;
  return true;
}

}  // namespace weir

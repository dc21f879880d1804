#include "protocols/h1/chars.h"

namespace weir::h1 {
namespace {

inline unsigned char lower(char c) noexcept {
  const auto byte = static_cast<unsigned char>(c);
  return static_cast<unsigned char>(byte - 'A') < 26 ? byte | 0x20 : byte;
}

// The bytes between the brackets of an IPv6 literal. Zone ids and future address forms are not part of http URIs here.
bool is_ipv6_text(std::string_view text) noexcept {
  size_t colons = 0;
  for (const char c : text) {
    if (c == ':')
      ++colons;
    else if (!is_char(c, kHexDigit) && c != '.')
      return false;
  }
  return colons >= 2 && text.size() <= 45;
}

// reg-name: unreserved, sub-delims and percent escapes.
inline const char* reg_name_end(const char* base, const char* at, const char* end) noexcept {
  at = detail::scan<detail::HostStop>(base, at, end);
  if (at == end || *at == ':') return at;
  for (;;) {
    while (at != end && is_char(*at, kHostChar)) ++at;
    const bool escape = end - at >= 3 && *at == '%' && is_char(at[1], kHexDigit) && is_char(at[2], kHexDigit);
    if (!escape) return at;
    at += 3;
  }
}

// 1 to 5 digits, at most 65535.
bool is_port(const char* at, const char* end) noexcept {
  if (at == end || end - at > 5) return false;
  uint32_t number = 0;
  for (; at != end; ++at) {
    if (!is_digit(*at)) return false;
    number = number * 10 + static_cast<uint32_t>(*at - '0');
  }
  return number <= 65535;
}

}  // namespace

bool equal_ignoring_case(std::string_view a, std::string_view b) noexcept {
  if (a.size() != b.size()) return false;
  for (size_t i = 0; i < a.size(); ++i)
    if (a[i] != b[i] && lower(a[i]) != lower(b[i])) return false;
  return true;
}

bool is_token(std::string_view text) noexcept {
  for (const char c : text)
    if (!is_char(c, kTokenChar)) return false;
  return !text.empty();
}

bool is_host(std::string_view text, bool port_needed, const char* base) noexcept {
  const char* at = text.data();
  const char* const end = at + text.size();
  if (!text.empty() && *at == '[') {
    const size_t close = text.find(']');
    if (close == std::string_view::npos || !is_ipv6_text(text.substr(1, close - 1))) return false;
    at += close + 1;
  } else {
    at = reg_name_end(base, at, end);
    if (at == text.data()) return false;
  }
  if (at == end) return !port_needed;
  return *at == ':' && is_port(at + 1, end);
}

bool parse_decimal(std::string_view digits, uint64_t& out) noexcept {
  uint64_t value = 0;
  for (const char c : digits) {
    if (!is_digit(c)) return false;
    if (__builtin_mul_overflow(value, uint64_t{10}, &value)) return false;
    if (__builtin_add_overflow(value, static_cast<uint64_t>(c - '0'), &value)) return false;
  }
  out = value;
  return !digits.empty();
}

}  // namespace weir::h1

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
    if (c == ':') ++colons;
    else if (!is_char(c, kHexDigit) && c != '.') return false;
  }
  return colons >= 2 && text.size() <= 45;
}

// reg-name: unreserved, sub-delims and percent escapes.
size_t reg_name_size(std::string_view text) noexcept {
  size_t at = 0;
  while (at < text.size()) {
    if (is_char(text[at], kHostChar)) {
      ++at;
    } else if (text[at] == '%' && text.size() - at >= 3 && is_char(text[at + 1], kHexDigit) && is_char(text[at + 2], kHexDigit)) {
      at += 3;
    } else {
      break;
    }
  }
  return at;
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

bool is_host(std::string_view text, bool port_needed) noexcept {
  if (text.empty()) return false;
  size_t at = 0;
  if (text.front() == '[') {
    at = text.find(']');
    if (at == std::string_view::npos || !is_ipv6_text(text.substr(1, at - 1))) return false;
    ++at;
  } else {
    at = reg_name_size(text);
    if (at == 0) return false;
  }
  if (at == text.size()) return !port_needed;
  if (text[at] != ':') return false;
  const std::string_view port = text.substr(at + 1);
  uint64_t number = 0;
  return port.size() <= 5 && parse_decimal(port, number) && number <= 65535;
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

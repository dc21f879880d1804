// Cidr: a network of IPv4 or IPv6 addresses ("10.0.0.0/8", "::1"), as plain data.
// A value; contains() is for the data path: pure, allocates nothing, any thread.
#pragma once

#include <array>
#include <cstdint>
#include <expected>
#include <span>
#include <string>
#include <string_view>

namespace weir::config {

struct Cidr {
  std::array<uint8_t, 16> address{};  // network order; IPv4 in the first four; what lies behind `bits` is zero
  uint8_t bits = 0;                   // 0 to 32, or to 128
  bool ipv6 = false;

  // `bytes` is an address of 4 or 16 bytes in network order; an IPv4 address mapped into IPv6 counts as IPv4.
  bool contains(std::span<const uint8_t> bytes) const noexcept;
  bool covers(const Cidr& other) const noexcept;   // every address of `other` is one of this
  std::string text() const;                        // "10.0.0.0/8"; a single address has no "/"
  bool operator==(const Cidr&) const = default;
};

// A network, or a single address. The error is in words that follow "`VALUE` ".
std::expected<Cidr, std::string> parse_cidr(std::string_view text);

}  // namespace weir::config

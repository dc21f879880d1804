#include "config/cidr.h"

#include <arpa/inet.h>

#include <algorithm>
#include <charconv>
#include <cstring>

namespace weir::config {
namespace {

constexpr std::array<uint8_t, 12> kMapped{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};

bool same_bits(const uint8_t* a, const uint8_t* b, unsigned bits) noexcept {
  const unsigned whole = bits / 8;
  if (std::memcmp(a, b, whole) != 0) return false;
  return bits % 8 == 0 || ((a[whole] ^ b[whole]) >> (8 - bits % 8)) == 0;
}

// Returns whether a bit was set behind the mask.
bool clear_host_bits(Cidr& cidr) {
  bool cleared = false;
  for (size_t i = 0; i < cidr.address.size(); ++i) {
    const unsigned before = static_cast<unsigned>(i) * 8;
    const unsigned kept = cidr.bits <= before ? 0 : std::min(8u, cidr.bits - before);
    const auto mask = static_cast<uint8_t>(0xff00u >> kept);
    cleared = cleared || (cidr.address[i] & ~mask) != 0;
    cidr.address[i] &= mask;
  }
  return cleared;
}

}  // namespace

bool Cidr::contains(std::span<const uint8_t> bytes) const noexcept {
  if (bytes.size() == 16 && std::equal(kMapped.begin(), kMapped.end(), bytes.begin())) bytes = bytes.subspan(12);
  return bytes.size() == (ipv6 ? 16u : 4u) && same_bits(address.data(), bytes.data(), bits);
}

bool Cidr::covers(const Cidr& other) const noexcept {
  return ipv6 == other.ipv6 && bits <= other.bits && same_bits(address.data(), other.address.data(), bits);
}

std::string Cidr::text() const {
  char out[INET6_ADDRSTRLEN];
  inet_ntop(ipv6 ? AF_INET6 : AF_INET, address.data(), out, sizeof out);
  return bits == (ipv6 ? 128 : 32) ? out : std::string(out) + "/" + std::to_string(bits);
}

std::expected<Cidr, std::string> parse_cidr(std::string_view text) {
  const size_t slash = std::min(text.find('/'), text.size());
  std::string host(text.substr(0, slash));
  if (host.starts_with('[') && host.ends_with(']')) host = host.substr(1, host.size() - 2);
  Cidr cidr;
  cidr.ipv6 = host.find(':') != host.npos;
  if (inet_pton(cidr.ipv6 ? AF_INET6 : AF_INET, host.c_str(), cidr.address.data()) != 1) {
    return std::unexpected("is no address and no network such as `10.0.0.0/8` or `fd00::/8`");
  }
  const unsigned most = cidr.ipv6 ? 128 : 32;
  unsigned bits = most;
  if (slash < text.size()) {
    const std::string_view number = text.substr(slash + 1);
    const auto [end, error] = std::from_chars(number.data(), number.data() + number.size(), bits);
    if (error != std::errc() || end != number.data() + number.size() || bits > most) {
      return std::unexpected("has no valid length: a number from 0 to " + std::to_string(most) + " follows the `/`");
    }
  }
  cidr.bits = static_cast<uint8_t>(bits);
  if (clear_host_bits(cidr)) {
    return std::unexpected("has bits set behind its length; did you mean `" + cidr.text() + "`?");
  }
  if (cidr.ipv6 && cidr.bits >= 96 && std::equal(kMapped.begin(), kMapped.end(), cidr.address.begin())) {
    return std::unexpected("is an IPv4 address inside IPv6; write it as IPv4");
  }
  return cidr;
}

}  // namespace weir::config

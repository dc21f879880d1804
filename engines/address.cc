#include "engines/address.h"

#include <arpa/inet.h>

#include <charconv>
#include <cstddef>
#include <cstring>

namespace weir {
namespace {

constexpr size_t kUnixHeader = offsetof(sockaddr_un, sun_path);

bool read_port(std::string_view text, uint16_t& port) noexcept {
  unsigned value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || text.empty() || value > 65535) return false;
  port = static_cast<uint16_t>(value);
  return true;
}

std::optional<Address> parse_unix(std::string_view path) noexcept {
  Address out;
  const bool abstract = !path.empty() && path.front() == '@';
  // A path ends with a NUL inside the structure; an abstract name ("@name") ends where the length says.
  if (path.empty() || path.size() + (abstract ? 0 : 1) > sizeof out.un.sun_path) return std::nullopt;
  if (path.find('\0') != std::string_view::npos || (abstract && path.size() == 1)) return std::nullopt;
  std::memset(&out.un, 0, sizeof out.un);
  out.un.sun_family = AF_UNIX;
  std::memcpy(out.un.sun_path, path.data(), path.size());
  if (abstract) out.un.sun_path[0] = '\0';
  out.length = static_cast<socklen_t>(kUnixHeader + path.size() + (abstract ? 0 : 1));
  return out;
}

// The path as bytes, abstract names with their leading NUL; empty for an unnamed socket.
std::string_view unix_path(const Address& address) noexcept {
  if (address.length <= kUnixHeader) return {};
  std::string_view path(address.un.sun_path, address.length - kUnixHeader);
  if (path.front() != '\0') path = path.substr(0, path.find('\0'));
  return path;
}

}  // namespace

std::optional<Address> Address::parse(std::string_view text) noexcept {
  if (text.starts_with("unix:")) return parse_unix(text.substr(5));
  const bool v6 = !text.empty() && text.front() == '[';
  const size_t colon = text.rfind(':');
  if (colon == std::string_view::npos) return std::nullopt;
  std::string_view host = text.substr(0, colon);
  uint16_t port = 0;
  if (!read_port(text.substr(colon + 1), port)) return std::nullopt;
  if (v6) {
    if (host.size() < 3 || host.back() != ']') return std::nullopt;
    host = host.substr(1, host.size() - 2);
  }
  char copy[INET6_ADDRSTRLEN];
  if (host.empty() || host.size() >= sizeof copy || host.find('\0') != std::string_view::npos) return std::nullopt;
  std::memcpy(copy, host.data(), host.size());
  copy[host.size()] = '\0';
  Address out;
  if (v6) {
    std::memset(&out.v6, 0, sizeof out.v6);
    out.v6.sin6_family = AF_INET6;
    out.v6.sin6_port = htons(port);
    if (inet_pton(AF_INET6, copy, &out.v6.sin6_addr) != 1) return std::nullopt;
    out.length = sizeof out.v6;
  } else {
    std::memset(&out.v4, 0, sizeof out.v4);
    out.v4.sin_family = AF_INET;
    out.v4.sin_port = htons(port);
    if (inet_pton(AF_INET, copy, &out.v4.sin_addr) != 1) return std::nullopt;
    out.length = sizeof out.v4;
  }
  return out;
}

Address Address::unmapped() const noexcept {
  if (family() != AF_INET6 || !IN6_IS_ADDR_V4MAPPED(&v6.sin6_addr)) return *this;
  Address out;
  std::memset(&out.v4, 0, sizeof out.v4);
  out.v4.sin_family = AF_INET;
  out.v4.sin_port = v6.sin6_port;
  std::memcpy(&out.v4.sin_addr, v6.sin6_addr.s6_addr + 12, 4);
  out.length = sizeof out.v4;
  return out;
}

uint16_t Address::port() const noexcept {
  if (family() == AF_INET) return ntohs(v4.sin_port);
  if (family() == AF_INET6) return ntohs(v6.sin6_port);
  return 0;
}

std::string Address::text() const {
  char host[INET6_ADDRSTRLEN];
  switch (family()) {
    case AF_INET: return std::string(host, host_text(host)) + ":" + std::to_string(port());
    case AF_INET6: return "[" + std::string(host, host_text(host)) + "]:" + std::to_string(port());
    case AF_UNIX: {
      std::string out = "unix:";
      out += unix_path(*this);
      if (out.size() > 5 && out[5] == '\0') out[5] = '@';
      return out;
    }
    default: return {};
  }
}

size_t Address::host_text(char* out) const noexcept {
  switch (family()) {
    case AF_INET: return inet_ntop(AF_INET, &v4.sin_addr, out, INET6_ADDRSTRLEN) != nullptr ? std::strlen(out) : 0;
    case AF_INET6: return inet_ntop(AF_INET6, &v6.sin6_addr, out, INET6_ADDRSTRLEN) != nullptr ? std::strlen(out) : 0;
    case AF_UNIX: std::memcpy(out, "unix", 4); return 4;
    default: return 0;
  }
}

bool Address::operator==(const Address& other) const noexcept {
  if (family() != other.family()) return false;
  switch (family()) {
    case AF_INET: return v4.sin_port == other.v4.sin_port && v4.sin_addr.s_addr == other.v4.sin_addr.s_addr;
    case AF_INET6:
      return v6.sin6_port == other.v6.sin6_port && v6.sin6_scope_id == other.v6.sin6_scope_id &&
             std::memcmp(&v6.sin6_addr, &other.v6.sin6_addr, sizeof v6.sin6_addr) == 0;
    case AF_UNIX: return unix_path(*this) == unix_path(other);
    default: return true;
  }
}

}  // namespace weir

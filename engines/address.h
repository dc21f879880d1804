// A socket address: IPv4, IPv6 or unix path, in the kernel's own layout. A value; no ownership, no lookup, no thread.
// parse() takes "127.0.0.1:80", "[::1]:80", "unix:/path"; it never resolves names. text() gives the same form back.
#pragma once

#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace weir {

struct Address {
  union {
    sockaddr any;
    sockaddr_in v4;
    sockaddr_in6 v6;
    sockaddr_un un;
  };
  socklen_t length = 0;  // 0: no address

  Address() noexcept { any.sa_family = AF_UNSPEC; }
  static std::optional<Address> parse(std::string_view text) noexcept;
  int family() const noexcept { return length == 0 ? AF_UNSPEC : any.sa_family; }
  Address unmapped() const noexcept;   // "::ffff:192.0.2.7", as a dual-stack socket names an IPv4 peer, is 192.0.2.7
  bool is_unix() const noexcept { return family() == AF_UNIX; }
  uint16_t port() const noexcept;      // host order; 0 for unix
  std::string text() const;            // with port
  // Address without port, into `out` (at least 46 bytes); returns its length. "unix" for unix sockets.
  size_t host_text(char* out) const noexcept;
  bool operator==(const Address& other) const noexcept;
};

}  // namespace weir

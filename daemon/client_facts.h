// ClientFacts: who asks, as far as a listener's `trusted_proxies` let it be known: the peer itself, or what proxies in front of us
// say of it: the right-most address that is not one of theirs, and how that one came to them. They say it in X-Forwarded-For and
// -Proto, or in Forwarded (RFC 7239); `trusted_header` has which.
// Pure; any thread; allocates nothing. Views point into the request or into what the caller gave.
#pragma once

#include <array>
#include <span>
#include <string_view>

#include "config/snapshot.h"
#include "engines/address.h"
#include "protocols/exchange/head.h"

namespace weir {

// An address without its port; size 0: none (a unix socket, or something that is no address).
struct HostBytes {
  std::array<uint8_t, 16> bytes{};
  uint8_t size = 0;

  static HostBytes of(const Address& address) noexcept;
  static HostBytes parse(std::string_view text) noexcept;   // "10.0.0.1", "::1", also with a port, as proxies write them
  std::span<const uint8_t> view() const noexcept { return {bytes.data(), size}; }
  bool in(const std::vector<config::Cidr>& networks) const noexcept;
};

struct ClientFacts {
  std::string_view ip;       // as text
  HostBytes host;
  bool https = false;        // the client's own connection was secure
  bool trusted = false;      // the peer is one of trusted_proxies: its forwarding fields are kept
};

ClientFacts find_client(const config::Listener& listener, const Head& request, const Address* peer, std::string_view peer_ip,
                        bool listener_https) noexcept;   // peer may be null: not known

// On a listener with `redirect_https`: is this client sent to https? Not one who is there, and no ACME challenge (RFC 8555
// section 8.3).
bool goes_to_https(const Head& request, const ClientFacts& client) noexcept;

}  // namespace weir

#include "daemon/client_facts.h"

#include <arpa/inet.h>
#include <strings.h>

#include <cstring>

namespace weir {

namespace {

std::string_view trimmed(std::string_view text) noexcept {
  while (!text.empty() && (text.front() == ' ' || text.front() == '\t')) text.remove_prefix(1);
  while (!text.empty() && (text.back() == ' ' || text.back() == '\t')) text.remove_suffix(1);
  return text;
}

// "[::1]:80", "[::1]", "10.0.0.1:80" and the bare forms, to the address alone.
std::string_view without_port(std::string_view text) noexcept {
  if (text.starts_with('[')) {
    const size_t end = text.find(']');
    return end == std::string_view::npos ? std::string_view() : text.substr(1, end - 1);
  }
  const size_t colon = text.find(':');
  return colon != std::string_view::npos && text.find(':', colon + 1) == std::string_view::npos ? text.substr(0, colon) : text;
}

// One element of Forwarded: `for="[::1]:80";proto=https` to [::1]:80; empty where it does not say.
std::string_view forwarded_for(std::string_view element) noexcept {
  while (!element.empty()) {
    const size_t end = element.find(';');
    std::string_view pair = trimmed(element.substr(0, end));
    element = end == std::string_view::npos ? std::string_view() : element.substr(end + 1);
    if (pair.size() < 4 || strncasecmp(pair.data(), "for=", 4) != 0) continue;
    pair.remove_prefix(4);
    if (pair.size() >= 2 && pair.front() == '"' && pair.back() == '"') pair = pair.substr(1, pair.size() - 2);
    return pair;
  }
  return {};
}

// From the last element of the last field to the first of the first. take() says whether to go on.
template <class Take>
void each_backward(const Head& request, FieldId id, const Take& take) noexcept {
  for (const Field* field = request.end(); field-- != request.begin();) {
    if (field->id != id) continue;
    std::string_view list = field->value_view();
    for (;;) {
      const size_t comma = list.rfind(',');
      const std::string_view element = trimmed(comma == std::string_view::npos ? list : list.substr(comma + 1));
      if (!element.empty() && !take(element)) return;
      if (comma == std::string_view::npos) break;
      list = list.substr(0, comma);
    }
  }
}

// The last word is the trusted proxy's own; what stands before it may be the client's.
bool says_https(const Head& request, bool otherwise) noexcept {
  bool https = otherwise;
  each_backward(request, FieldId::x_forwarded_proto, [&](std::string_view proto) noexcept {
    https = proto.size() == 5 && strncasecmp(proto.data(), "https", 5) == 0;
    return false;
  });
  return https;
}

}  // namespace

HostBytes HostBytes::of(const Address& address) noexcept {
  HostBytes host;
  if (address.family() == AF_INET) {
    host.size = 4;
    memcpy(host.bytes.data(), &address.v4.sin_addr, 4);
  } else if (address.family() == AF_INET6) {
    host.size = 16;
    memcpy(host.bytes.data(), &address.v6.sin6_addr, 16);
  }
  return host;
}

HostBytes HostBytes::parse(std::string_view text) noexcept {
  HostBytes host;
  char copy[INET6_ADDRSTRLEN];
  text = without_port(text);
  if (text.empty() || text.size() >= sizeof copy) return host;
  memcpy(copy, text.data(), text.size());
  copy[text.size()] = '\0';
  if (inet_pton(AF_INET, copy, host.bytes.data()) == 1) host.size = 4;
  else if (inet_pton(AF_INET6, copy, host.bytes.data()) == 1) host.size = 16;
  return host;
}

bool HostBytes::in(const std::vector<config::Cidr>& networks) const noexcept {
  if (size == 0) return false;
  for (const config::Cidr& network : networks)
    if (network.contains(view())) return true;
  return false;
}

bool goes_to_https(const Head& request, const ClientFacts& client) noexcept {
  return !client.https && !request.path.starts_with("/.well-known/acme-challenge/");
}

ClientFacts find_client(const config::Listener& listener, const Head& request, const Address* peer, std::string_view peer_ip,
                        bool listener_https) noexcept {
  ClientFacts facts{peer_ip, peer == nullptr ? HostBytes() : HostBytes::of(*peer), listener_https, false};
  facts.trusted = peer != nullptr && peer->is_unix() ? listener.trust_unix : facts.host.in(listener.trusted_proxies);
  if (!facts.trusted) return facts;
  facts.https = says_https(request, listener_https);
  // What is no address stands for nobody that could be trusted to have told the truth about those before it.
  const auto take = [&](std::string_view text) noexcept {
    const HostBytes host = HostBytes::parse(text);
    if (host.size == 0) return false;
    facts.ip = without_port(text);
    facts.host = host;
    return host.in(listener.trusted_proxies);
  };
  if (request.find(FieldId::x_forwarded_for) != nullptr) each_backward(request, FieldId::x_forwarded_for, take);
  else each_backward(request, FieldId::forwarded, [&](std::string_view element) noexcept { return take(forwarded_for(element)); });
  return facts;
}

}  // namespace weir

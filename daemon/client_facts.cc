#include "daemon/client_facts.h"

#include <arpa/inet.h>
#include <strings.h>

#include <algorithm>
#include <array>
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

// What one proxy says in Forwarded (RFC 7239 section 4), values without their quotes.
struct Element {
  std::string_view whom, proto;
  bool empty = true;
};

// Takes the next element off the front of a Forwarded field. Quotes count: a proxy may put what the client wrote into `host`, and
// that holds commas and semicolons as it likes. false: it is malformed.
bool next_element(std::string_view& list, Element& out) noexcept {
  out = {};
  for (;;) {
    const size_t name_end = list.find_first_of("=;,\"");
    const std::string_view name = trimmed(list.substr(0, name_end));
    std::string_view value;
    if (name_end != std::string_view::npos && list[name_end] == '=') {
      out.empty = false;
      list.remove_prefix(name_end + 1);
      if (list.starts_with('"')) {
        size_t at = 1;
        while (at < list.size() && list[at] != '"') at += list[at] == '\\' ? 2 : 1;
        if (at >= list.size()) return false;
        value = list.substr(1, at - 1);
        list.remove_prefix(at + 1);
        list = list.substr(std::min(list.find_first_not_of(" \t"), list.size()));
        if (!list.empty() && list.front() != ';' && list.front() != ',') return false;
      } else {
        const size_t end = std::min(list.find_first_of(";,\""), list.size());
        value = trimmed(list.substr(0, end));
        list.remove_prefix(end);
      }
    } else {
      if (!name.empty()) return false;
      list.remove_prefix(std::min(name_end, list.size()));
    }
    if (name.size() == 3 && strncasecmp(name.data(), "for", 3) == 0) out.whom = value;
    else if (name.size() == 5 && strncasecmp(name.data(), "proto", 5) == 0) out.proto = value;
    if (list.empty() || list.front() == ',') {
      if (!list.empty()) list.remove_prefix(1);
      return true;
    }
    if (list.front() == '"') return false;
    list.remove_prefix(1);
  }
}

// From the last element of the last Forwarded field on backwards; take() says whether to go on. What is malformed ends it, and so
// does a list that no chain of proxies is long enough for: those before were written by somebody else.
template <class Take>
void each_forwarded(const Head& request, const Take& take) noexcept {
  constexpr size_t kElementsMax = 32;
  for (const Field* field = request.end(); field-- != request.begin();) {
    if (field->id != FieldId::forwarded || field->removed) continue;
    std::array<Element, kElementsMax> last;
    size_t count = 0;
    std::string_view list = field->value_view();
    while (!list.empty()) {
      Element& next = last[count % kElementsMax];
      if (!next_element(list, next)) return;
      if (!next.empty) ++count;
    }
    for (size_t back = 1; back <= count; ++back) {
      if (back > kElementsMax) return;
      if (!take(last[(count - back) % kElementsMax])) return;
    }
  }
}

bool is_https(std::string_view proto) noexcept { return proto.size() == 5 && strncasecmp(proto.data(), "https", 5) == 0; }

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
    https = is_https(proto);
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
  // What is no address stands for nobody that could be trusted to have told the truth about those before it.
  const auto take = [&](std::string_view text) noexcept {
    const HostBytes host = HostBytes::parse(text);
    if (host.size == 0) return false;
    facts.ip = without_port(text);
    facts.host = host;
    return host.in(listener.trusted_proxies);
  };
  if (listener.trusted_header == config::TrustedHeader::x_forwarded) {
    facts.https = says_https(request, listener_https);
    if (request.find(FieldId::x_forwarded_for) != nullptr) {
      each_backward(request, FieldId::x_forwarded_for, take);
      return facts;
    }
  }
  each_forwarded(request, [&](const Element& element) noexcept {
    const bool more = take(element.whom);
    if (!element.proto.empty()) facts.https = is_https(element.proto);
    return more;
  });
  return facts;
}

}  // namespace weir

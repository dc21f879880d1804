// Addresses and host patterns as users write them: the address half of values.h, and SocketName's own methods.
#include <arpa/inet.h>
#include <sys/un.h>

#include <algorithm>

#include "config/values.h"

namespace weir::config {
namespace {

bool is_ipv4(const std::string& host) {
  in_addr address;
  return inet_pton(AF_INET, host.c_str(), &address) == 1;
}

// The shortest form, so that one address has one text.
std::string canonical_ipv6(const std::string& host) {
  in6_addr address;
  char text[INET6_ADDRSTRLEN];
  if (inet_pton(AF_INET6, host.c_str(), &address) != 1) return "";
  return inet_ntop(AF_INET6, &address, text, sizeof text);
}

bool is_digits(std::string_view text) {
  return !text.empty() && text.find_first_not_of("0123456789") == text.npos;
}

// A DNS name in ASCII; the underscore is in use for service names.
bool is_dns_name(std::string_view name) {
  if (name.empty() || name.size() > 253) return false;
  size_t label = 0;
  for (size_t i = 0; i <= name.size(); ++i) {
    if (i < name.size() && name[i] != '.') {
      const char c = name[i];
      const bool letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
      if (!letter && !(c >= '0' && c <= '9') && c != '_' && !(c == '-' && label > 0)) return false;
      ++label;
      continue;
    }
    if (label == 0 || label > 63 || name[i - 1] == '-') return false;
    label = 0;
  }
  return true;
}

Parsed<SocketName> parse_unix(std::string_view path) {
  if (path.empty() || path.front() != '/') return std::unexpected("needs an absolute path: `unix:/run/x.sock`");
  if (path.size() >= sizeof(sockaddr_un::sun_path)) {
    const std::string most = std::to_string(sizeof(sockaddr_un::sun_path) - 1);
    return std::unexpected("is too long for a unix socket: at most " + most + " bytes of path");
  }
  SocketName name;
  name.unix_path = path;
  return name;
}

Parsed<SocketName> parse_host_port(std::string_view text) {
  const std::string all(text);
  if (text.find("://") != text.npos) {
    return std::unexpected("is a URL; write host and port only: `" + all.substr(all.find("://") + 3) + "`");
  }
  if (is_digits(text)) return std::unexpected("is a port without an address; did you mean `:" + all + "`?");
  std::string host;
  std::string_view rest;
  if (text.starts_with("[")) {
    const size_t end = text.find(']');
    if (end == text.npos) return std::unexpected("has no closing `]`");
    host = canonical_ipv6(std::string(text.substr(1, end - 1)));
    if (host.empty()) return std::unexpected("has no valid IPv6 address between the brackets");
    rest = text.substr(end + 1);
  } else {
    if (std::count(text.begin(), text.end(), ':') > 1) {
      return std::unexpected("has more than one `:`; IPv6 addresses stand in brackets: `[::1]:8080`");
    }
    const size_t colon = std::min(text.find(':'), text.size());
    host = text.substr(0, colon);
    rest = text.substr(colon);
  }
  if (rest.size() < 2 || rest.front() != ':') {
    return std::unexpected("has no port; write `" + all.substr(0, all.size() - (rest == ":" ? 1 : 0)) + ":8080`");
  }
  auto port = parse_count(rest.substr(1));
  if (!port || *port == 0 || *port > 65535) {
    return std::unexpected("has no valid port: `" + std::string(rest.substr(1)) + "` is not between 1 and 65535");
  }
  return SocketName{.host = std::move(host), .port = static_cast<uint16_t>(*port), .unix_path = {}};
}

}  // namespace

Parsed<SocketName> parse_bind(std::string_view text) {
  if (text.starts_with("unix:")) return parse_unix(text.substr(5));
  auto name = parse_host_port(text);
  if (!name) return name;
  if (name->host == "*") return std::unexpected("is written `:" + std::to_string(name->port) + "` here");
  if (!name->is_literal()) {
    return std::unexpected("needs a numeric address: `" + name->host + "` would have to be looked up");
  }
  return name;
}

Parsed<SocketName> parse_server(std::string_view text) {
  if (text.starts_with("unix:")) return parse_unix(text.substr(5));
  auto name = parse_host_port(text);
  if (!name || (name->is_literal() && !name->is_any())) return name;
  if (name->host.empty()) return std::unexpected("has no host in front of the port");
  if (name->host.find_first_not_of("0123456789.") == std::string::npos) {
    return std::unexpected("is no valid IPv4 address and no host name");
  }
  if (!is_dns_name(name->host)) return std::unexpected("has no valid host name: `" + name->host + "`");
  name->host = lower(name->host);
  return name;
}

Parsed<HostPattern> parse_host_pattern(std::string_view text) {
  HostPattern host{.name = lower(text), .wildcard = text.starts_with("*.")};
  if (text == "*") return std::unexpected("would be any host; leave `host` out for that");
  if (host.wildcard) host.name.erase(0, 2);
  if (host.name.starts_with("[") && host.name.ends_with("]")) {
    const std::string address = canonical_ipv6(host.name.substr(1, host.name.size() - 2));
    if (address.empty() || host.wildcard) return std::unexpected("is no valid IPv6 address");
    host.name = "[" + address + "]";
    return host;
  }
  if (host.name.ends_with(".")) host.name.pop_back();
  if (host.name.find("://") != std::string::npos) return std::unexpected("is a URL; write the host name only");
  const size_t colon = host.name.find(':');
  if (colon != std::string::npos) {
    return std::unexpected("has a port; hosts are compared without it: `" + host.name.substr(0, colon) + "`");
  }
  if (host.name.find('*') != std::string::npos) {
    return std::unexpected("has a `*` inside; it may only stand first: `*.example.com`");
  }
  if (std::any_of(host.name.begin(), host.name.end(), [](char c) { return static_cast<unsigned char>(c) >= 0x80; })) {
    return std::unexpected("has letters outside ASCII; write it as browsers send it (`xn--...`)");
  }
  if (!is_dns_name(host.name)) return std::unexpected("is no valid host name");
  return host;
}

bool SocketName::is_literal() const {
  return is_unix() || host.empty() || is_ipv4(host) || !canonical_ipv6(host).empty();
}

std::string SocketName::text() const {
  if (is_unix()) return "unix:" + unix_path;
  const bool brackets = host.find(':') != std::string::npos;
  return (brackets ? "[" + host + "]" : host) + ":" + std::to_string(port);
}

std::string HostPattern::text() const { return (wildcard ? "*." : "") + name; }

}  // namespace weir::config

#include "daemon/router.h"

#include <strings.h>

namespace weir {

namespace {

bool same_host(std::string_view a, std::string_view b) noexcept {
  return a.size() == b.size() && strncasecmp(a.data(), b.data(), a.size()) == 0;
}

bool host_matches(const config::HostPattern& pattern, std::string_view host) noexcept {
  if (!pattern.wildcard) return same_host(pattern.name, host);
  if (host.size() < pattern.name.size() + 2) return false;
  const size_t dot = host.size() - pattern.name.size() - 1;
  return host[dot] == '.' && same_host(host.substr(dot + 1), pattern.name);
}

// "/api" holds for /api and /api/x, not for /apiary.
bool prefix_matches(std::string_view prefix, std::string_view path) noexcept {
  return path.starts_with(prefix) && (path.size() == prefix.size() || path[prefix.size()] == '/');
}

bool header_matches(const config::NameValue& wanted, const Head& request) noexcept {
  for (const Field& field : request)
    if (!field.removed && same_host(field.name_view(), wanted.name) && field.value_view() == wanted.value) return true;
  return false;
}

bool query_matches(const config::NameValue& wanted, std::string_view query) noexcept {
  while (!query.empty()) {
    const size_t end = query.find('&');
    const std::string_view pair = query.substr(0, end);
    const size_t equals = pair.find('=');
    const std::string_view value = equals == std::string_view::npos ? std::string_view() : pair.substr(equals + 1);
    if (pair.substr(0, equals) == wanted.name && value == wanted.value) return true;
    if (end == std::string_view::npos) break;
    query.remove_prefix(end + 1);
  }
  return false;
}

bool matches(const config::Match& match, const Head& request, std::string_view host, std::string_view path,
             std::string_view query) noexcept {
  if (match.path && *match.path != path) return false;
  if (!match.path_prefix.empty() && !prefix_matches(match.path_prefix, path)) return false;
  if (!match.hosts.empty()) {
    bool one = false;
    for (const auto& pattern : match.hosts) one = one || host_matches(pattern, host);
    if (!one) return false;
  }
  if (!match.methods.empty()) {
    bool one = false;
    for (const auto& method : match.methods) one = one || method == request.method_text;
    if (!one) return false;
  }
  for (const auto& header : match.headers)
    if (!header_matches(header, request)) return false;
  for (const auto& pair : match.query)
    if (!query_matches(pair, query)) return false;
  return true;
}

}  // namespace

std::string_view host_of(std::string_view authority) noexcept {
  if (!authority.empty() && authority.front() == '[') {
    const size_t end = authority.find(']');
    return end == std::string_view::npos ? authority : authority.substr(0, end + 1);
  }
  authority = authority.substr(0, authority.find(':'));
  if (authority.ends_with('.')) authority.remove_suffix(1);
  return authority;
}

std::optional<size_t> find_route(const Runtime& runtime, size_t listener, const Head& request) noexcept {
  const size_t mark = request.path.find('?');
  const std::string_view path = request.path.substr(0, mark);
  const std::string_view query = mark == std::string_view::npos ? std::string_view() : request.path.substr(mark + 1);
  const std::string_view host = host_of(request.authority);
  for (const uint32_t index : runtime.by_listener[listener]) {
    const config::Route& route = *runtime.routes[index].route;
    if (!route.match || matches(*route.match, request, host, path, query)) return index;
  }
  return std::nullopt;
}

}  // namespace weir

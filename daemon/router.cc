#include "daemon/router.h"

#include <strings.h>

namespace weir {

namespace {

bool same_name(std::string_view a, std::string_view b) noexcept {
  return a.size() == b.size() && strncasecmp(a.data(), b.data(), a.size()) == 0;
}

// What Connection takes away reaches no origin, so it chooses none either. Upgrade and its like are hop by hop by nature: they are
// about this request all the same.
bool counts(const Field& field) noexcept {
  return field.forwarded() || (!field.removed && (field.id == FieldId::upgrade || field.id == FieldId::connection ||
                                                  field.id == FieldId::te));
}

bool header_matches(const config::NameValue& wanted, const Head& request) noexcept {
  for (const Field& field : request)
    if (counts(field) && same_name(field.name_view(), wanted.name) && field.value_view() == wanted.value) return true;
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

// All but host, path and listener, which the index has looked at.
bool rest_matches(const config::Match& match, const Head& request, std::string_view path, std::string_view query,
                  const ClientFacts& client) noexcept {
  if (match.scheme && (*match.scheme == config::Scheme::https) != client.https) return false;
  if (!match.methods.empty()) {
    bool one = false;
    for (const auto& method : match.methods) one = one || method == request.method_text;
    if (!one) return false;
  }
  for (const auto& header : match.headers)
    if (!header_matches(header, request)) return false;
  for (const auto& pair : match.query)
    if (!query_matches(pair, query)) return false;
  if (!match.clients.empty() && !client.host.in(match.clients)) return false;
  return !match.path_regex || match.path_regex->matches(path);
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

std::optional<size_t> find_route(const Runtime& runtime, size_t listener, const Head& request, const ClientFacts& client,
                                 uint32_t* steps) noexcept {
  const size_t mark = request.path.find('?');
  const std::string_view path = request.path.substr(0, mark);
  const std::string_view query = mark == std::string_view::npos ? std::string_view() : request.path.substr(mark + 1);
  uint32_t taken = 0;
  const uint32_t found = runtime.listeners[listener].routes.first(
      host_of(request.authority), path, taken,
      [&](uint32_t route) noexcept { return rest_matches(*runtime.routes[route].route->match, request, path, query, client); });
  if (steps != nullptr) *steps += taken;
  if (found == RouteIndex::kNone) return std::nullopt;
  return found;
}

}  // namespace weir

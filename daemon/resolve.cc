#include "daemon/resolve.h"

#include <netdb.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <string>

namespace weir {

std::vector<Address> resolve(const config::SocketName& name) {
  std::vector<Address> found;
  if (name.is_literal()) {
    if (auto address = Address::parse(name.text())) found.push_back(*address);
    return found;
  }
  addrinfo hints{};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_ADDRCONFIG | AI_NUMERICSERV;
  addrinfo* list = nullptr;
  if (getaddrinfo(name.host.c_str(), std::to_string(name.port).c_str(), &hints, &list) != 0) return found;
  const std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> owner(list, freeaddrinfo);
  for (const addrinfo* entry = list; entry != nullptr; entry = entry->ai_next) {
    if (entry->ai_family != AF_INET && entry->ai_family != AF_INET6) continue;
    Address address;
    memcpy(&address.any, entry->ai_addr, entry->ai_addrlen);
    address.length = entry->ai_addrlen;
    found.push_back(address);
  }
  std::sort(found.begin(), found.end(), [](const Address& a, const Address& b) { return a.text() < b.text(); });
  return found;
}

Addresses resolve_all(const config::Snapshot& config, const Addresses& before, std::vector<std::string>* kept) {
  Addresses all;
  for (const config::Upstream& upstream : config.upstreams)
    for (const config::Server& server : upstream.servers)
      if (!all.contains(server.address.text())) all.emplace(server.address.text(), resolve(server.address));
  for (auto& [name, found] : all) {
    const auto known = before.find(name);
    if (!found.empty() || known == before.end() || known->second.empty()) continue;
    found = known->second;
    if (kept != nullptr) kept->push_back(name);
  }
  return all;
}

bool has_names(const config::Snapshot& config) {
  for (const config::Upstream& upstream : config.upstreams)
    for (const config::Server& server : upstream.servers)
      if (!server.address.is_literal()) return true;
  return false;
}

}  // namespace weir

#include "daemon/route_index.h"

#include <strings.h>

#include <bit>
#include <cstring>
#include <map>

namespace weir {

namespace {

char folded(char c) noexcept { return c >= 'A' && c <= 'Z' ? static_cast<char>(c | 0x20) : c; }

uint64_t hash_forward(std::string_view text) {
  uint64_t hash = NameTable::kSeed;
  for (const char c : text) hash = NameTable::step(hash, c);
  return hash;
}

// Hosts are hashed from their end: each of a name's parent domains is met on the way.
uint64_t hash_backward(std::string_view text) {
  uint64_t hash = NameTable::kSeed;
  for (size_t i = text.size(); i-- > 0;) hash = NameTable::step(hash, text[i]);
  return hash;
}

bool only_host_and_path(const config::Route& route) {
  if (!route.match) return true;
  const config::Match& m = *route.match;
  return m.methods.empty() && m.headers.empty() && m.query.empty() && !m.path_regex && !m.scheme && m.clients.empty();
}

}  // namespace

void NameTable::fill(std::vector<Entry> entries) {
  if (entries.empty()) return;
  const size_t size = std::bit_ceil(entries.size() * 2 + 1);
  shift_ = static_cast<unsigned>(64 - std::countr_zero(size));
  slots_.resize(size);
  for (Entry& entry : entries) {
    size_t at = slot(entry.hash, entry.group);
    while (slots_[at].value != kNone) at = (at + 1) & (size - 1);
    slots_[at] = std::move(entry);
  }
}

uint32_t NameTable::find(uint64_t hash, uint32_t group, std::string_view name, bool fold, uint32_t& steps) const noexcept {
  if (slots_.empty()) return kNone;
  for (size_t at = slot(hash, group);; at = (at + 1) & (slots_.size() - 1)) {
    ++steps;
    const Entry& entry = slots_[at];
    if (entry.value == kNone) return kNone;
    if (entry.hash != hash || entry.group != group || entry.name.size() != name.size()) continue;
    const bool same = fold ? strncasecmp(entry.name.data(), name.data(), name.size()) == 0
                           : memcmp(entry.name.data(), name.data(), name.size()) == 0;
    if (same) return entry.value;
  }
}

// Collects by name first; the tables and lists are laid out once everything is known.
struct RouteIndex::Builder {
  struct Pending {
    std::vector<uint32_t> any_path;
    std::map<std::string, std::vector<uint32_t>> paths, prefixes;
  };
  RouteIndex index;
  std::map<std::string, uint32_t> hosts, wildcards;   // to groups
  std::vector<Pending> groups{1};

  uint32_t group_of(std::map<std::string, uint32_t>& names, const std::string& name) {
    const auto [it, made] = names.try_emplace(name, static_cast<uint32_t>(groups.size()));
    if (made) groups.emplace_back();
    return it->second;
  }

  static void put(std::vector<uint32_t>& list, uint32_t place) {
    if (list.empty() || list.back() != place) list.push_back(place);   // a host that is written twice
  }

  void add(const config::Route& route, uint32_t place) {
    static const std::vector<config::HostPattern> kAny;
    const config::Match* match = route.match ? &*route.match : nullptr;
    const auto add_to = [&](Pending& group) {
      if (match != nullptr && match->path) put(group.paths[*match->path], place);
      else if (match != nullptr && !match->path_prefix.empty()) put(group.prefixes[match->path_prefix], place);
      else put(group.any_path, place);
    };
    const auto& patterns = match == nullptr ? kAny : match->hosts;
    if (patterns.empty()) add_to(groups[0]);
    for (const config::HostPattern& host : patterns) add_to(groups[group_of(host.wildcard ? wildcards : hosts, host.name)]);
  }

  List lay(const std::vector<uint32_t>& places) {
    const auto begin = static_cast<uint32_t>(index.places_.size());
    index.places_.insert(index.places_.end(), places.begin(), places.end());
    return {begin, static_cast<uint32_t>(index.places_.size())};
  }

  void name(const std::map<std::string, uint32_t>& from, NameTable& to, uint32_t& longest) {
    std::vector<NameTable::Entry> entries;
    for (const auto& [text, group] : from) {
      entries.push_back({hash_backward(text), 0, group, text});
      longest = std::max(longest, static_cast<uint32_t>(text.size()));
    }
    to.fill(std::move(entries));
  }

  void finish() {
    name(hosts, index.hosts_, index.longest_host_);
    name(wildcards, index.wildcards_, index.longest_wildcard_);
    std::vector<NameTable::Entry> paths, prefixes;
    for (uint32_t i = 0; i < groups.size(); ++i) {
      Group group;
      group.any_path = lay(groups[i].any_path);
      const auto file = [&](const auto& from, std::vector<NameTable::Entry>& to, uint32_t& longest) {
        for (const auto& [text, places] : from) {
          to.push_back({hash_forward(text), i, static_cast<uint32_t>(index.lists_.size()), text});
          index.lists_.push_back(lay(places));
          longest = std::max(longest, static_cast<uint32_t>(text.size()));
        }
      };
      file(groups[i].paths, paths, group.longest_path);
      file(groups[i].prefixes, prefixes, group.longest_prefix);
      index.groups_.push_back(group);
    }
    index.paths_.fill(std::move(paths));
    index.prefixes_.fill(std::move(prefixes));
  }
};

RouteIndex RouteIndex::build(const std::vector<config::Route>& routes, const std::vector<uint32_t>& order) {
  Builder builder;
  for (const uint32_t route : order) {
    builder.add(routes[route], static_cast<uint32_t>(builder.index.routes_.size()));
    builder.index.routes_.push_back({route, only_host_and_path(routes[route])});
  }
  builder.finish();
  if (order.size() == 1 && !routes[order[0]].match) builder.index.sole_ = order[0];
  return std::move(builder.index);
}

// Wildcards stand for one label or more: "a.example.com" is under "example.com", ".example.com" is not.
size_t RouteIndex::groups_for(std::string_view host, uint32_t* groups, uint32_t& steps) const noexcept {
  size_t count = 0;
  groups[count++] = 0;
  if (longest_host_ == 0 && longest_wildcard_ == 0) return count;
  const size_t walk = host.size() <= longest_host_ ? host.size() : std::min<size_t>(host.size(), longest_wildcard_ + 1);
  uint64_t hash = NameTable::kSeed;
  for (size_t left = host.size(); left > host.size() - walk; --left) {
    const char c = host[left - 1];
    if (c == '.' && left > 1 && count + 1 < kGroupsMax) {
      const uint32_t group = wildcards_.find(hash, 0, host.substr(left), true, steps);
      if (group != NameTable::kNone) groups[count++] = group;
    }
    hash = NameTable::step(hash, folded(c));
  }
  if (walk == host.size()) {
    const uint32_t group = hosts_.find(hash, 0, host, true, steps);
    if (group != NameTable::kNone) groups[count++] = group;
  }
  return count;
}

}  // namespace weir

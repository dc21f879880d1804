// RouteIndex: the routes of one listener by host and path, so that a look-up costs what the request is long, not what the table is:
// an exact host and each wildcard above it is one probe of a hash table, and so is the path and each of its prefixes.
// A place is a route's turn in the listener's order; the smallest place that holds wins, as if all were tried one by one.
// Owner: the Runtime; made once by build(), then read by any thread. first() allocates nothing.
// Routes with the same host and path (told apart by method, header or path_regex) are tried one after another.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "config/snapshot.h"

namespace weir {

// Texts to numbers, under a number each belongs to. Filled once; at most half full.
class NameTable {
 public:
  static constexpr uint32_t kNone = UINT32_MAX;
  // One step of the hash of a text; texts are hashed while they are walked.
  static constexpr uint64_t kSeed = 0xcbf29ce484222325u;
  static uint64_t step(uint64_t hash, char c) noexcept {
    return (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3u;
  }
  struct Entry {
    uint64_t hash = 0;
    uint32_t group = 0;
    uint32_t value = kNone;     // kNone: free
    std::string name;
  };
  void fill(std::vector<Entry> entries);
  bool empty() const noexcept { return slots_.empty(); }
  // `fold`: `name` is compared without case (those in the table are lower case).
  uint32_t find(uint64_t hash, uint32_t group, std::string_view name, bool fold, uint32_t& steps) const noexcept;

 private:
  size_t slot(uint64_t hash, uint32_t group) const noexcept {
    return ((hash ^ (group + 1) * 0x9e3779b97f4a7c15u) * 0xd6e8feb86659fd93u) >> shift_;
  }
  std::vector<Entry> slots_;
  unsigned shift_ = 63;
};

class RouteIndex {
 public:
  static constexpr uint32_t kNone = UINT32_MAX;

  // `order`: indices into `routes` in the order in which they are tried, the fallback last.
  static RouteIndex build(const std::vector<config::Route>& routes, const std::vector<uint32_t>& order);

  // The first place whose host and path hold and for which `holds(route)` says that the rest of its match does; as a route's index.
  // `steps` grows by the table probes and candidates that this took.
  template <class Holds>
  uint32_t first(std::string_view host, std::string_view path, uint32_t& steps, const Holds& holds) const noexcept {
    if (sole_ != kNone) return sole_;
    uint32_t best = kNone;
    const auto look = [&](const List& list) {
      for (uint32_t i = list.begin; i < list.end && places_[i] < best; ++i) {
        ++steps;
        const Place& place = routes_[places_[i]];
        if (place.host_and_path_only || holds(place.route)) best = places_[i];
      }
    };
    uint32_t groups[kGroupsMax];
    const size_t count = groups_for(host, groups, steps);
    uint32_t walk = 0;
    for (size_t i = 0; i < count; ++i) {
      const Group& group = groups_[groups[i]];
      look(group.any_path);
      if (group.longest_prefix > walk) walk = group.longest_prefix;
      if (path.size() <= group.longest_path) walk = static_cast<uint32_t>(path.size());
    }
    if (walk > path.size()) walk = static_cast<uint32_t>(path.size());
    uint64_t hash = NameTable::kSeed;
    for (uint32_t at = 0; at < walk;) {
      hash = NameTable::step(hash, path[at++]);
      if (at != path.size() && path[at] != '/') continue;
      for (size_t i = 0; i < count; ++i) {
        if (at > groups_[groups[i]].longest_prefix) continue;
        const uint32_t list = prefixes_.find(hash, groups[i], path.substr(0, at), false, steps);
        if (list != NameTable::kNone) look(lists_[list]);
      }
    }
    for (size_t i = 0; walk == path.size() && i < count; ++i) {
      if (walk > groups_[groups[i]].longest_path) continue;
      const uint32_t list = paths_.find(hash, groups[i], path, false, steps);
      if (list != NameTable::kNone) look(lists_[list]);
    }
    return best == kNone ? kNone : routes_[best].route;
  }

 private:
  // The host itself, any host, and the wildcards above it: more labels than this no host name has (RFC 1035 section 2.3.4).
  static constexpr size_t kGroupsMax = 130;
  struct List {
    uint32_t begin = 0, end = 0;    // of places_
  };
  struct Group {                    // the routes of one host pattern
    List any_path;                  // those whose path holds always, or is a pattern
    uint32_t longest_path = 0;      // of the exact paths; 0: there are none
    uint32_t longest_prefix = 0;
  };
  struct Place {
    uint32_t route;
    bool host_and_path_only;        // nothing else is to be looked at
  };
  struct Builder;
  size_t groups_for(std::string_view host, uint32_t* groups, uint32_t& steps) const noexcept;

  uint32_t sole_ = kNone;           // the only route there is, and it takes everything
  std::vector<Place> routes_;       // by place
  std::vector<uint32_t> places_;
  std::vector<List> lists_;
  std::vector<Group> groups_;       // [0]: any host
  NameTable hosts_, wildcards_, paths_, prefixes_;
  uint32_t longest_host_ = 0, longest_wildcard_ = 0;
};

}  // namespace weir

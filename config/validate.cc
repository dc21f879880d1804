// What only the whole configuration shows.
#include <algorithm>

#include "config/build.h"
#include "config/footprint.h"

namespace weir::config {
namespace {

std::string place(const Draft& draft, size_t route) {
  return "the route " + quote(draft.snapshot.routes[route].name) + " at " + draft.report.text(draft.route_marks[route]);
}

// Which earlier routes could shadow one: by the widest host pattern and path that both could share, so that ten thousand
// routes do not mean fifty million comparisons. A candidate is then held against the route itself.
class Candidates {
 public:
  void add(const Match& match, size_t route) {
    for (const std::string& host : own_hosts(match)) {
      std::vector<size_t>& list = by_key_[host + own_path(match)];
      if (list.empty() || list.back() != route) list.push_back(route);
    }
  }

  // The first one that `covered` says takes all of `match`.
  template <class Covered>
  std::optional<size_t> first(const Match& match, Covered covered) const {
    std::optional<size_t> found;
    for (const std::string& host : hosts_around(match)) {
      for (const std::string& path : paths_around(match)) {
        auto at = by_key_.find(host + path);
        if (at == by_key_.end()) continue;
        for (size_t route : at->second) {
          if (found && route >= *found) break;
          if (covered(route)) found = route;
        }
      }
    }
    return found;
  }

 private:
  static std::vector<std::string> own_hosts(const Match& match) {
    std::vector<std::string> out;
    for (const HostPattern& host : match.hosts) out.push_back(host.text());
    if (out.empty()) out.emplace_back();
    return out;
  }
  // "=" an exact path, "^" a prefix, "~" any pattern
  static std::string own_path(const Match& match) {
    if (match.path) return "=" + *match.path;
    return match.path_regex ? "~" : "^" + match.path_prefix;
  }
  // What covers a match covers each of its hosts: looking around the first one is enough.
  static std::vector<std::string> hosts_around(const Match& match) {
    std::vector<std::string> out{""};
    if (match.hosts.empty()) return out;
    const HostPattern& host = match.hosts.front();
    out.push_back(host.text());
    for (size_t dot = 0; (dot = host.name.find('.', dot)) != std::string::npos; ++dot) {
      out.push_back("*" + host.name.substr(dot));
    }
    return out;
  }
  static std::vector<std::string> paths_around(const Match& match) {
    std::vector<std::string> out{"~"};
    if (match.path) out.push_back("=" + *match.path);
    const std::string& path = match.path ? *match.path : match.path_prefix;
    for (size_t slash = 0; (slash = path.find('/', slash)) != std::string::npos; ++slash) {
      out.push_back("^" + path.substr(0, slash));
    }
    out.push_back("^" + path);
    return out;
  }

  std::map<std::string, std::vector<size_t>> by_key_;
};

// A bind that takes what the other one asks for: the same, or ":443" beside "0.0.0.0:443" or "[::]:443".
bool clash(const SocketName& a, const SocketName& b) {
  if (a == b) return true;
  if (a.is_unix() || b.is_unix() || a.port != b.port) return false;
  const auto wildcard = [](const SocketName& name) { return name.host == "0.0.0.0" || name.host == "::"; };
  return (a.is_any() && wildcard(b)) || (b.is_any() && wildcard(a));
}

}  // namespace

void check_routes(Draft& draft) {
  const std::vector<Route>& routes = draft.snapshot.routes;
  const size_t listeners = draft.snapshot.listeners.size();
  Candidates earlier;
  const auto check = [&](size_t i) {
    const Match match = routes[i].match.value_or(Match{});
    const auto by = earlier.first(match, [&](size_t j) { return covers(*routes[j].match, match, listeners); });
    if (!by) return;
    draft.report.error(draft.route_marks[i], "this route is never reached: " + place(draft, *by) +
                                                 " takes every request that it matches");
  };
  for (size_t i = 0; i < routes.size(); ++i) {
    // Half a match would shadow what the whole one does not.
    if (!routes[i].match || !draft.route_sound[i]) continue;
    check(i);
    earlier.add(*routes[i].match, i);
  }
  for (size_t i = 0; i < routes.size(); ++i) {
    if (routes[i].match) continue;
    if (!draft.snapshot.fallback || i == draft.snapshot.fallback) {
      if (draft.route_sound[i]) check(i);   // tried last, wherever it stands
      continue;
    }
    draft.report.error(draft.route_marks[i], "a second route without `match`: the fallback is already " +
                                                 place(draft, *draft.snapshot.fallback));
  }
}

// A request comes with https over TLS, or when a trusted proxy says so.
void check_schemes(Draft& draft) {
  const auto& listeners = draft.snapshot.listeners;
  const bool told = std::any_of(listeners.begin(), listeners.end(), [](const Listener& listener) {
    return listener.tls || listener.trust_unix || !listener.trusted_proxies.empty();
  });
  for (size_t i = 0; i < draft.snapshot.routes.size(); ++i) {
    const auto& match = draft.snapshot.routes[i].match;
    if (told || !match || match->scheme != Scheme::https) continue;
    draft.report.warning(draft.route_marks[i],
                         "no request has the scheme https: no listener has TLS or `trusted_proxies` that could say so");
  }
}

void check_binds(Draft& draft) {
  for (size_t i = 0; i < draft.binds.size(); ++i) {
    for (size_t j = 0; j < i; ++j) {
      const auto& [first, first_mark] = draft.binds[j];
      const auto& [second, mark] = draft.binds[i];
      if (!clash(first, second)) continue;
      if (mark.line == 0) {   // not written: blame what was
        draft.report.error(first_mark, "bind: " + quote(first.text()) + " is taken by the default of `admin`");
      } else {
        const std::string at = draft.report.text(first_mark);
        draft.report.error(mark, "bind: " + quote(second.text()) + " is taken by " + quote(first.text()) + " at " + at);
      }
      break;
    }
  }
}

// Pipes begin at `min` without asking; from there on the budget itself holds them back.
void check_memory(Draft& draft, const Fields& fields) {
  const Limits& limits = draft.snapshot.limits;
  if (!limits.memory_bytes) return;
  const uint64_t room = *limits.memory_bytes / 100 * kGrantsPercent;
  if (const uint64_t one = connection_bytes(limits, limits.pipe_min_bytes); one > room) {
    draft.report.error(fields.mark("memory"),
                       "memory: one connection may need " + std::to_string(one) +
                           " bytes (`pipe`, `request_head`, `response_head`); " + std::to_string(kGrantsPercent) + " % of " +
                           size_text(*limits.memory_bytes) + " is less");
  }
  // `auto` is as many as fit.
  const uint64_t workers = std::max<uint32_t>(draft.snapshot.workers, 1);
  if (const uint64_t all = workers * worker_minimum_bytes(limits); all > room) {
    draft.report.error(fields.mark("memory"), "memory: " + std::to_string(workers) + " worker(s) need " + std::to_string(all) +
                                                  " bytes at least; " + std::to_string(kGrantsPercent) + " % of " +
                                                  size_text(*limits.memory_bytes) + " is less");
  }
  if (limits.connections_set && limits.connections > connections_carried(*limits.memory_bytes)) {
    draft.report.error(fields.mark("connections"),
                       "connections: " + std::to_string(limits.connections) + " idle connections of " +
                           std::to_string(kIdleConnectionBytes) + " bytes do not fit 80 % of `memory` (" +
                           size_text(*limits.memory_bytes) + "): at most " +
                           std::to_string(connections_carried(*limits.memory_bytes)));
  }
}

void check_unused(Draft& draft) {
  for (size_t i = 0; i < draft.upstream_used.size(); ++i) {
    if (draft.upstream_used[i]) continue;
    const std::string& name = draft.snapshot.upstreams[i].name;
    draft.report.warning(draft.upstream_marks[i], "no route goes to upstream " + quote(name));
  }
}

}  // namespace weir::config

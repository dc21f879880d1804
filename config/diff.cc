#include "config/diff.h"

#include <algorithm>

namespace weir::config {
namespace {

// Pairs each new item with the old one of its name, else with an unpaired old one of the same structure.
template <class Item>
std::vector<ItemChange> pair_up(const std::vector<Item>& before, const std::vector<Item>& after) {
  std::vector<ItemChange> out(after.size(), {Change::added, {}, {}, false});
  std::vector<bool> taken(before.size());
  const auto take = [&](size_t new_index, auto fits) {
    for (size_t i = 0; i < before.size(); ++i) {
      if (taken[i] || !fits(before[i])) continue;
      taken[i] = true;
      const Item& item = after[new_index];
      const bool same = same_structure(before[i], item);
      out[new_index] = {same ? Change::unchanged : Change::changed, i, new_index, before[i].name != item.name};
      return;
    }
  };
  for (size_t i = 0; i < after.size(); ++i) {
    out[i].after = i;
    take(i, [&](const Item& old) { return old.name == after[i].name; });
  }
  for (size_t i = 0; i < after.size(); ++i) {
    if (!out[i].before) take(i, [&](const Item& old) { return same_structure(old, after[i]); });
  }
  for (size_t i = 0; i < before.size(); ++i) {
    if (!taken[i]) out.push_back({Change::removed, i, {}, false});
  }
  return out;
}

std::optional<size_t> holder(const Snapshot& snapshot, const SocketName& bind) {
  for (size_t i = 0; i < snapshot.listeners.size(); ++i) {
    const auto& binds = snapshot.listeners[i].binds;
    if (std::find(binds.begin(), binds.end(), bind) != binds.end()) return i;
  }
  return std::nullopt;
}

std::vector<BindChange> compare_binds(const Snapshot& before, const Snapshot& after) {
  std::vector<BindChange> out;
  for (size_t i = 0; i < before.listeners.size(); ++i) {
    for (const SocketName& bind : before.listeners[i].binds) out.push_back({bind, i, holder(after, bind)});
  }
  for (size_t i = 0; i < after.listeners.size(); ++i) {
    for (const SocketName& bind : after.listeners[i].binds) {
      if (!holder(before, bind)) out.push_back({bind, std::nullopt, i});
    }
  }
  return out;
}

// Routes refer to upstreams and listeners by index: compared by what the index stands for.
bool same_names(const auto& a, const auto& b, const auto& name_in_a, const auto& name_in_b) {
  return a.size() == b.size() && std::equal(a.begin(), a.end(), b.begin(), [&](const auto& x, const auto& y) {
           return name_in_a(x) == name_in_b(y);
         });
}

bool same_match(const Snapshot& before, const Route& a, const Snapshot& after, const Route& b) {
  if (!a.match || !b.match) return !a.match && !b.match;
  Match x = *a.match;
  Match y = *b.match;
  const bool listeners = same_names(x.listeners, y.listeners, [&](size_t i) { return before.listeners.at(i).name; },
                                    [&](size_t i) { return after.listeners.at(i).name; });
  x.listeners.clear();
  y.listeners.clear();
  return listeners && x == y;
}

bool same_action(const Snapshot& before, const Route& a, const Snapshot& after, const Route& b) {
  const auto* x = std::get_if<Forward>(&a.action);
  const auto* y = std::get_if<Forward>(&b.action);
  if (x == nullptr || y == nullptr) return x == y && a.action == b.action;
  const auto name_in = [](const Snapshot& snapshot) {
    return [&snapshot](const Target& target) {
      return std::pair(snapshot.upstreams.at(target.upstream).name, target.weight);
    };
  };
  return same_names(x->targets, y->targets, name_in(before), name_in(after));
}

bool same_routes(const Snapshot& before, const Snapshot& after) {
  if (before.routes.size() != after.routes.size()) return false;
  for (size_t i = 0; i < before.routes.size(); ++i) {
    const Route& a = before.routes[i];
    const Route& b = after.routes[i];
    if (a.name != b.name || a.timeouts != b.timeouts || a.own_timeouts != b.own_timeouts) return false;
    if (a.own_limits != b.own_limits || a.rewrite != b.rewrite || a.request_headers != b.request_headers) return false;
    if (a.response_headers != b.response_headers || a.via != b.via || a.forwarded != b.forwarded) return false;
    if (!same_match(before, a, after, b) || !same_action(before, a, after, b)) return false;
  }
  return true;
}

bool same_test(const Snapshot& before, const ConfigTest& a, const Snapshot& after, const ConfigTest& b) {
  const auto listener = [](const Snapshot& snapshot, const ConfigTest& test) {
    return test.listener ? snapshot.listeners.at(*test.listener).name : std::string();
  };
  return a.url == b.url && a.expect == b.expect && a.method == b.method && a.headers == b.headers &&
         a.client == b.client && listener(before, a) == listener(after, b);
}

}  // namespace

bool same_structure(const Listener& a, const Listener& b) {
  return a.binds == b.binds && a.engine == b.engine && a.protocols == b.protocols && a.own_timeouts == b.own_timeouts &&
         a.timeouts == b.timeouts && a.own_limits == b.own_limits &&
         a.unix_access == b.unix_access && a.redirect_https == b.redirect_https &&
         a.trusted_proxies == b.trusted_proxies && a.trust_unix == b.trust_unix &&
         a.trusted_header == b.trusted_header && a.tls == b.tls;
}

bool same_structure(const Upstream& a, const Upstream& b) {
  return a.servers == b.servers && a.balance == b.balance && a.own_timeouts == b.own_timeouts &&
         a.timeouts == b.timeouts && a.own_limits == b.own_limits && a.max_connections == b.max_connections;
}

bool Diff::empty() const {
  const auto same = [](const ItemChange& item) { return item.change == Change::unchanged && !item.renamed; };
  return std::all_of(listeners.begin(), listeners.end(), same) &&
         std::all_of(upstreams.begin(), upstreams.end(), same) && !routes && settings.empty();
}

Diff diff(const Snapshot& before, const Snapshot& after) {
  Diff out;
  out.binds = compare_binds(before, after);
  out.listeners = pair_up(before.listeners, after.listeners);
  out.upstreams = pair_up(before.upstreams, after.upstreams);
  out.routes = !same_routes(before, after);
  const auto setting = [&](const char* name, bool same) {
    if (!same) out.settings.emplace_back(name);
  };
  setting("workers", before.workers == after.workers);
  setting("timeouts", before.timeouts == after.timeouts);
  setting("limits", before.limits == after.limits);
  setting("admin", before.admin == after.admin);
  setting("metrics", before.metrics == after.metrics);
  setting("user", before.user == after.user);
  setting("log", before.log == after.log);
  setting("shutdown", before.shutdown == after.shutdown);
  const auto& tests = after.tests;
  setting("tests", std::equal(before.tests.begin(), before.tests.end(), tests.begin(), tests.end(),
                              [&](const ConfigTest& a, const ConfigTest& b) { return same_test(before, a, after, b); }));
  return out;
}

}  // namespace weir::config

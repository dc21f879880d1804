// What only the whole configuration shows.
#include "config/build.h"

namespace weir::config {
namespace {

std::string place(const Draft& draft, size_t route) {
  return "the route " + quote(draft.snapshot.routes[route].name) + " at " + draft.report.text(draft.route_marks[route]);
}

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
  for (size_t i = 0; i < routes.size(); ++i) {
    const bool fallback = !routes[i].match;
    if (fallback && draft.snapshot.fallback && i != draft.snapshot.fallback) {
      draft.report.error(draft.route_marks[i], "a second route without `match`: the fallback is already " +
                                                   place(draft, *draft.snapshot.fallback));
      continue;
    }
    for (size_t j = 0; j < (fallback ? routes.size() : i); ++j) {
      // Half a match would shadow what the whole one does not.
      if (!routes[j].match || !draft.route_sound[j] || !draft.route_sound[i]) continue;
      if (!covers(*routes[j].match, routes[i].match.value_or(Match{}), listeners)) continue;
      draft.report.error(draft.route_marks[i], "this route is never reached: " + place(draft, j) +
                                                   " takes every request that it matches");
      break;
    }
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

void check_unused(Draft& draft) {
  for (size_t i = 0; i < draft.upstream_used.size(); ++i) {
    if (draft.upstream_used[i]) continue;
    const std::string& name = draft.snapshot.upstreams[i].name;
    draft.report.warning(draft.upstream_marks[i], "no route goes to upstream " + quote(name));
  }
}

}  // namespace weir::config

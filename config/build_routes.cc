#include "config/build.h"

#include <algorithm>
#include <array>

namespace weir::config {
namespace {

constexpr size_t kDefaultNameBytesMax = 100;   // it is a label in logs and metrics

std::string default_name(const Draft& draft, const Route& route) {
  if (!route.match) return "fallback";
  std::string name = route.match->hosts.empty() ? "" : route.match->hosts.front().text();
  if (route.match->path) name += *route.match->path;
  else if (!route.match->path_prefix.empty()) name += route.match->path_prefix + "/*";
  else if (route.match->path_regex) name += "~" + route.match->path_regex->pattern();
  if (name.size() > kDefaultNameBytesMax) name = name.substr(0, kDefaultNameBytesMax) + "...";
  return name.empty() ? "route-" + std::to_string(draft.snapshot.routes.size() + 1) : name;
}

// Counted on from the last one of its kind: thousands of routes may differ in their header fields alone.
std::string unused_name(Draft& draft, const std::string& name) {
  size_t& count = draft.routes_named[name];
  std::string free = name;
  while (draft.route_index.contains(free)) free = name + " #" + std::to_string(++count + 1);
  return free;
}

void add_target(Draft& draft, Forward& forward, const Placed<std::string>& name, uint32_t weight) {
  auto index = resolve(draft, name, draft.upstream_index, "upstream");
  if (!index) return;
  draft.upstream_used[*index] = true;
  for (const Target& other : forward.targets) {
    if (other.upstream == *index) draft.report.error(name.mark, "upstream " + quote(name.value) + " is listed twice");
  }
  forward.targets.push_back({*index, weight});
}

Forward read_targets(Draft& draft, const Fields& fields) {
  Forward forward;
  const Node& to = *fields.node("to");
  if (to.kind == Node::Kind::scalar) {
    if (auto name = text_of(to, "`to`", draft.report)) add_target(draft, forward, {*name, to.mark}, 1);
    return forward;
  }
  const auto items = fields.items("to");
  if (to.kind == Node::Kind::sequence && items.empty()) draft.report.error(to.mark, "`to` is an empty list");
  for (const Node* item : items) {
    const Fields target(item, Level::target, draft.report);
    const auto weight = static_cast<uint32_t>(target.number("weight").value());
    if (auto name = target.text("upstream")) add_target(draft, forward, {*name, target.mark("upstream")}, weight);
  }
  const bool all_read = !items.empty() && forward.targets.size() == items.size();
  const auto idle = [](const Target& target) { return target.weight == 0; };
  if (all_read && std::all_of(forward.targets.begin(), forward.targets.end(), idle)) {
    draft.report.error(to.mark, "every target has weight 0: none would be used");
  }
  return forward;
}

Respond read_respond(Draft& draft, const Fields& fields) {
  Respond respond;
  respond.status = static_cast<uint16_t>(fields.number("status").value());
  if (const Node* body = fields.node("body")) {
    if (body->kind == Node::Kind::scalar) respond.body = body->text;   // any text: line ends, tabs, nothing
    else text_of(*body, "`body`", draft.report);
  }
  const bool bodiless = respond.status == 204 || respond.status == 304;
  if (bodiless && !respond.body.empty()) {
    draft.report.error(fields.mark("body"), "an answer with status " + std::to_string(respond.status) + " has no body");
  }
  return respond;
}

Redirect read_redirect(Draft& draft, const Fields& fields) {
  constexpr std::array<uint16_t, 5> kStatus{301, 302, 303, 307, 308};   // as the table's words
  Redirect redirect;
  redirect.status = kStatus.at(fields.word("status"));
  redirect.location = fields.text("location").value_or("");
  if (redirect.location.find_first_of(" \"<>\\^`{|}") != std::string::npos) {
    draft.report.error(fields.mark("location"), "location: " + quote(redirect.location) +
                                                    " has characters that no URL has; write them percent-encoded");
  }
  return redirect;
}

void read_action(Draft& draft, const Fields& fields, Route& route) {
  std::vector<std::string_view> given;
  for (std::string_view key : split_words(actions())) {
    if (fields.written(key)) given.push_back(key);
  }
  if (given.empty() && fields.valid()) {
    draft.report.error(fields.mark(), "a route needs one of `to`, `respond` and `redirect`");
  }
  if (given.size() > 1) {
    draft.report.error(fields.mark(given[1]), "a route has one action: it cannot have both " + quote(given[0]) +
                                                  " and " + quote(given[1]));
  }
  if (fields.node("to") != nullptr) route.action = read_targets(draft, fields);
  const Fields respond = fields.map("respond");
  if (fields.node("respond") != nullptr) route.action = read_respond(draft, respond);
  const Fields redirect = fields.map("redirect");
  if (fields.node("redirect") != nullptr) route.action = read_redirect(draft, redirect);
}

}  // namespace

void read_routes(Draft& draft, const Fields& top) {
  std::vector<Route>& routes = draft.snapshot.routes;
  for (const Node* item : top.items("routes")) {
    const Fields fields(item, Level::route, draft.report);
    Route route;
    route.where = draft.report.where(item->mark);
    const Fields match = fields.map("match");
    const size_t errors = draft.report.error_count();
    if (fields.written("match")) route.match = build_match(draft, match);
    draft.route_sound.push_back(fields.valid() && draft.report.error_count() == errors &&
                                match.valid() == fields.written("match"));
    read_action(draft, fields, route);
    route.own_timeouts = read_timeouts(fields);
    route.timeouts = route.own_timeouts.over(draft.snapshot.timeouts);
    route.own_limits = read_limit_overrides(fields);
    route.via = fields.written("via") ? fields.boolean("via") : draft.via;
    route.forwarded = fields.written("forwarded") ? fields.boolean("forwarded") : draft.forwarded;
    read_edits(draft, fields, route);
    const std::string fallback = fields.written("name") ? "" : unused_name(draft, default_name(draft, route));
    route.name = read_name(draft, fields, "route", fallback, draft.route_index, routes.size());
    if (!route.match && fields.valid() && !draft.snapshot.fallback) draft.snapshot.fallback = routes.size();
    draft.route_marks.push_back(item->mark);
    routes.push_back(std::move(route));
  }
}

}  // namespace weir::config

// The whole state space of one body direction, and the wedges that small mistakes put into it.
#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <deque>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "tests/model/edge_world.h"
#include "tests/model/world.h"

using namespace weir::model;

namespace {

struct Report {
  size_t states = 0;
  size_t wedged = 0;           // no path of owed events leads to the end
  size_t unaudited = 0;        // at rest (nothing owed can happen), not done, and no audit said so
  std::string violation;       // the first broken promise
  std::string trace;           // the shortest way to the first wedge
  size_t audits_failed = 0;
};

// Breadth first over all states; then backwards from the ends, along the events that will happen by themselves.
template <class W, class EdgesOf, class Done, class Check>
Report explore(const W& first, EdgesOf edges_of, Done is_done, Check check) {
  struct Seen { W from; const char* event; };
  std::map<W, Seen> seen;
  std::map<W, std::vector<W>> before;   // along owed events
  std::map<W, bool> at_rest;
  std::deque<W> queue{first};
  std::vector<W> order;
  seen[first] = {first, nullptr};
  Report report;
  while (!queue.empty()) {
    const W world = queue.front();
    queue.pop_front();
    order.push_back(world);
    if (report.violation.empty()) report.violation = check(world);
    bool owed = false;
    for (const auto& edge : edges_of(world)) {
      if (edge.owed) {
        before[edge.to].push_back(world);
        owed = owed || !(edge.to == world);
      }
      if (seen.emplace(edge.to, Seen{world, edge.event}).second) queue.push_back(edge.to);
    }
    at_rest[world] = !owed;
  }
  std::map<W, bool> live;
  for (const W& world : order)
    if (is_done(world)) {
      live[world] = true;
      queue.push_back(world);
    }
  while (!queue.empty()) {
    const W world = queue.front();
    queue.pop_front();
    for (const W& earlier : before[world])
      if (!std::exchange(live[earlier], true)) queue.push_back(earlier);
  }
  report.states = order.size();
  for (const W& world : order) {
    if constexpr (requires { world.audit_failed; }) report.audits_failed += world.audit_failed;
    if (live[world]) continue;
    if (report.wedged++ == 0)
      for (W at = world; seen[at].event != nullptr; at = seen[at].from)
        report.trace = std::string(seen[at].event) + (report.trace.empty() ? "" : ", ") + report.trace;
    if constexpr (requires { world.audit_failed; })
      if (at_rest[world] && !world.audit_failed) ++report.unaudited;
  }
  return report;
}

Report explore(Mutant mutant) {
  return explore(first_world(), [=](const World& world) { return edges_of(world, mutant); }, done, violation);
}

}  // namespace

TEST_CASE("the pipe has no wedged state: every order of events was tried", "[model][X3][X4]") {
  const Report report = explore(Mutant::none);
  CAPTURE(report.states, report.trace);
  CHECK(report.violation == "");
  CHECK(report.wedged == 0);
  CHECK(report.audits_failed == 0);
  CHECK(report.states > 4'000);   // the space is the whole one, not a corner that a broken event left over
}

TEST_CASE("one lost grant wedges the pipe, and the audit sees it", "[model][X1][X3]") {
  const Report report = explore(Mutant::drop_grant);
  CAPTURE(report.states, report.wedged, report.trace);
  CHECK(report.wedged > 0);
  CHECK(report.audits_failed > 0);
  CHECK(report.unaudited == 0);    // a pump lost it, so the audit of that pump reports it: none stays unseen
}

TEST_CASE("one lost dirty mark wedges the pipe", "[model][X1][X3]") {
  for (Mutant mutant : {Mutant::drop_mark_arrive, Mutant::drop_mark_end, Mutant::drop_mark_window, Mutant::drop_mark_attach}) {
    const Report report = explore(mutant);
    CAPTURE(static_cast<int>(mutant), report.states, report.trace);
    CHECK(report.wedged > 0);
  }
  // With a window of one a completed send frees no room: the peer's window update does, and its own mark repairs this one.
  CHECK(explore(Mutant::drop_mark_sent).wedged == 0);
}

TEST_CASE("edge-style pause and resume wedges after a handful of events (control)", "[model][X1][X3]") {
  const auto none = [](const EdgeWorld&) { return std::string(); };
  const Report careless = explore(arm(EdgeWorld{}), [](const EdgeWorld& w) { return edge_steps(w, false); }, edge_done, none);
  CAPTURE(careless.states, careless.trace);
  CHECK(careless.wedged > 0);
  CHECK(std::count(careless.trace.begin(), careless.trace.end(), ',') + 1 <= 5);
  const Report careful = explore(arm(EdgeWorld{}), [](const EdgeWorld& w) { return edge_steps(w, true); }, edge_done, none);
  CHECK(careful.wedged == 0);   // so the explorer does not cry wolf
}

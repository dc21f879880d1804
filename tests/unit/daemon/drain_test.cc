// The drain table: every cell, and that it leads to its end.
#include <catch2/catch_test_macros.hpp>

#include <set>

#include "daemon/drain.h"

namespace weir {
namespace {

using enum DrainStage;
using enum DrainEvent;
constexpr DrainStage kStages[] = {serving, announcing, refusing, cutting, stopped};
constexpr DrainEvent kEvents[] = {term, delayed, emptied, grace_over, again};

}  // namespace

TEST_CASE("every cell of the drain table", "[T4]") {
  const DrainStage wanted[5][5] = {
      //                term        delayed     emptied     grace_over  again
      /* serving    */ {announcing, serving,    serving,    serving,    serving},
      /* announcing */ {announcing, refusing,   announcing, announcing, cutting},
      /* refusing   */ {refusing,   refusing,   stopped,    cutting,    cutting},
      /* cutting    */ {cutting,    cutting,    stopped,    cutting,    cutting},
      /* stopped    */ {stopped,    stopped,    stopped,    stopped,    stopped},
  };
  for (size_t at = 0; at < 5; ++at)
    for (size_t event = 0; event < 5; ++event) CHECK(next_stage(kStages[at], kEvents[event]) == wanted[at][event]);
}

TEST_CASE("from every stage the end can be reached, and no stage is gone back to", "[T4]") {
  for (const DrainStage from : kStages) {
    std::set<DrainStage> reached{from};
    for (size_t before = 0; before != reached.size();) {
      before = reached.size();
      for (const DrainStage at : std::set<DrainStage>(reached))
        for (const DrainEvent event : kEvents) reached.insert(next_stage(at, event));
    }
    CHECK(reached.contains(stopped));
    CHECK(*reached.begin() == from);   // the smallest: what is reached only moves on
  }
  // Once asked to stop, time alone gets there: the delay ends, the grace ends, and what is cut empties.
  DrainStage at = next_stage(serving, term);
  for (const DrainEvent event : {delayed, grace_over, emptied}) at = next_stage(at, event);
  CHECK(at == stopped);
  // And twice is at once, whatever had been reached.
  for (const DrainStage stage : {announcing, refusing, cutting}) CHECK(next_stage(stage, again) == cutting);
}

TEST_CASE("the stages' names are those of /status") {
  std::set<std::string_view> names;
  for (const DrainStage stage : kStages) names.insert(stage_name(stage));
  CHECK(names == std::set<std::string_view>{"serving", "announcing", "refusing", "cutting", "stopped"});
}

}  // namespace weir

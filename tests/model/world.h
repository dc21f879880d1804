// World: one body direction as a value: the real PipeState and its pump_state(), and around it the smallest source and sink that
// can go wrong. Explored in full by explore(). One unit is one byte, so that every cap, window and grant is a handful.
#pragma once

#include <compare>
#include <cstdint>
#include <string>
#include <vector>

#include "protocols/exchange/pipe_state.h"

namespace weir::model {

enum class Mutant : uint8_t {
  none,
  drop_grant,        // one call of Stream::grant is lost
  drop_mark_arrive,  // one dirty mark is lost: after bytes came,
  drop_mark_end,     //   after the end,
  drop_mark_sent,    //   after the sink's send completed,
  drop_mark_window,  //   after the sink's peer opened its window,
  drop_mark_attach,  //   after another sink was attached
};

inline constexpr uint8_t kUnits = 5, kCap = 3, kWindow = 1;

// Everything by value, in bytes: two worlds that compare equal behave equally.
struct World {
  uint8_t granted = 0, delivered = 0, consumed = 0, cap = 0;
  bool ended = false, finished = false;
  uint8_t held = 0;             // in the pipe, a unit charging a unit
  uint8_t left = kUnits;        // at the source's peer
  uint8_t told = 0;             // the grant as the pipe told it
  uint8_t known = 0;            // and as the source knows it
  bool permitted = false;       // 100-continue: the peer sends no body before
  bool attached = false;        // a sink is there (it comes after the request was routed)
  bool retried = false;
  uint8_t window = kWindow;     // what the sink's peer takes
  uint8_t sending = 0;          // a send in flight
  bool end_sent = false;
  bool squeezed = false, was_squeezed = false;  // the second reason to hold back: the memory budget
  bool engine_changed = false;
  bool reset = false;
  bool dirty = false;
  bool mutated = false;         // the one fault of the mutant has happened
  bool audit_failed = false;

  auto operator<=>(const World&) const = default;
};

struct Edge {
  World to;
  const char* event;
  bool owed;   // will happen by itself; the others may happen or not, and nothing may depend on them
};

std::vector<Edge> edges_of(const World& world, Mutant mutant);
World first_world();
inline bool done(const World& world) { return world.reset || (world.finished && world.end_sent && world.sending == 0); }
// A broken promise in this one state, or "".
std::string violation(const World& world);

}  // namespace weir::model

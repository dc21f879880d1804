// EdgeWorld: the same body direction in the shape that Weir does not use: reading is paused at a high mark and resumed at a low
// one, with reasons counted. Kept as a control: the explorer must find the wedge that this shape has (a sink that dies while it
// holds a pause never gives it back).
#pragma once

#include <compare>
#include <cstdint>
#include <vector>

namespace weir::model {

struct EdgeWorld {
  uint8_t left = 5, held = 0, window = 1;
  bool receiving = false, sending = false;
  uint8_t pauses = 0;
  bool sink_pauses = false, retried = false, second_pause = false;
  auto operator<=>(const EdgeWorld&) const = default;
};

struct EdgeStep {
  EdgeWorld to;
  const char* event;
  bool owed;
};

inline EdgeWorld arm(EdgeWorld world) {
  if (world.left > 0 && world.pauses == 0) world.receiving = true;
  return world;
}

inline EdgeWorld kick(EdgeWorld world) {
  if (world.held > 0 && world.window > 0) world.sending = true;
  return world;
}

inline bool edge_done(const EdgeWorld& world) {
  return world.left == 0 && world.held == 0 && !world.receiving && !world.sending;
}

// `careful`: the author remembered to resume when the sink is replaced.
inline std::vector<EdgeStep> edge_steps(const EdgeWorld& world, bool careful) {
  constexpr uint8_t kHigh = 2, kLow = 1;
  std::vector<EdgeStep> out;
  if (world.receiving) {
    EdgeWorld to = world;
    to.receiving = false;
    --to.left;
    if (++to.held >= kHigh && !to.sink_pauses) {
      to.sink_pauses = true;
      ++to.pauses;
    }
    out.push_back({kick(arm(to)), "arrive", true});
  }
  if (world.sending) {
    EdgeWorld to = world;
    to.sending = false;
    --to.held;
    --to.window;
    if (to.held <= kLow && to.sink_pauses) {
      to.sink_pauses = false;
      --to.pauses;
      to = arm(to);
    }
    out.push_back({kick(to), "sent", true});
  }
  if (world.window == 0) {
    EdgeWorld to = world;
    to.window = 1;
    out.push_back({kick(to), "window", true});
  }
  if (!world.retried && !world.sending) {
    EdgeWorld to = world;
    to.retried = true;
    to.window = 1;
    if (careful && to.sink_pauses) --to.pauses;
    to.sink_pauses = false;
    out.push_back({kick(careful ? arm(to) : to), "retry", false});
  }
  if (!world.second_pause && !world.retried && world.left == 4) {
    EdgeWorld to = world;
    to.second_pause = true;
    ++to.pauses;
    out.push_back({to, "pause", false});
  }
  if (world.second_pause) {
    EdgeWorld to = world;
    to.second_pause = false;
    --to.pauses;
    out.push_back({arm(to), "resume", true});
  }
  return out;
}

}  // namespace weir::model

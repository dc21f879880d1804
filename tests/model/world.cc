#include "tests/model/world.h"

namespace weir::model {
namespace {

// The world as pump_state() sees it.
struct Ends {
  World& world;
  bool lose_grant;
  bool grant_lost = false;

  uint64_t held() const { return world.held; }
  uint64_t charge() const { return world.held; }
  bool has_source() const { return true; }
  bool has_sink() const { return world.attached; }
  uint64_t room() const { return world.window > world.sending ? world.window - world.sending : 0; }
  void send(uint64_t count) {
    world.held = static_cast<uint8_t>(world.held - count);
    world.sending = static_cast<uint8_t>(world.sending + count);
  }
  void send_end() { world.end_sent = true; }
  void grant(uint64_t total) {
    if (lose_grant && total > world.known && !grant_lost) {
      grant_lost = true;
      return;
    }
    world.known = static_cast<uint8_t>(total);
  }
  // The source has a receive in flight where it knows of a grant; the sink has a send in flight or awaits its peer's window.
  bool source_live() const { return world.known > world.delivered; }
  bool sink_live() const { return world.sending > 0 || world.window == 0; }
  bool again() const { return world.dirty; }
  bool try_relay() const { return false; }
};

PipeState unpack(const World& world) {
  PipeState state;
  state.granted = world.granted;
  state.told = world.told;
  state.delivered = world.delivered;
  state.consumed = world.consumed;
  state.cap = state.cap_max = world.cap;
  state.ended = world.ended;
  state.finished = world.finished;
  return state;
}

void pack(World& world, const PipeState& state) {
  world.granted = static_cast<uint8_t>(state.granted);
  world.told = static_cast<uint8_t>(state.told);
  world.delivered = static_cast<uint8_t>(state.delivered);
  world.consumed = static_cast<uint8_t>(state.consumed);
  world.ended = state.ended;
  world.finished = state.finished;
}

// Time stands still in the model, so the cap's tuning has nothing to say; it is left out of the packed state.
World pumped(World world, bool lose_grant, bool* lost) {
  world.dirty = false;
  if (world.reset || world.finished) return world;
  PipeState state = unpack(world);
  Ends ends{world, lose_grant};
  const Pumped result = pump_state(state, ends, TimePoint{});
  pack(world, state);
  if (result == Pumped::wedged) world.audit_failed = true;
  *lost = ends.grant_lost;
  return world;
}

void add(std::vector<Edge>& out, World to, const char* event, bool owed, bool marks, bool may_drop) {
  if (marks && may_drop && !to.mutated) {
    World dropped = to;
    dropped.mutated = true;
    out.push_back({dropped, event, owed});
  }
  if (marks) to.dirty = true;
  out.push_back({to, event, owed});
}

void source_events(std::vector<Edge>& out, const World& world, Mutant mutant) {
  if (world.known > world.delivered && world.left > 0 && world.permitted) {
    World to = world;
    PipeState state = unpack(to);
    state.bytes_came(1, TimePoint{});
    pack(to, state);
    --to.left;
    ++to.held;
    add(out, to, "arrive", true, true, mutant == Mutant::drop_mark_arrive);
  }
  // The peer's half-close needs no grant: it is not a body byte.
  if (world.left == 0 && !world.ended) {
    World to = world;
    to.ended = true;
    add(out, to, "end", true, true, mutant == Mutant::drop_mark_end);
  }
  if (!world.permitted && world.attached) {  // the origin says 100, which goes to the source's peer and not through the pipe
    World to = world;
    to.permitted = true;
    add(out, to, "continue", true, false, false);
  }
  World to = world;
  to.reset = true;
  add(out, to, "reset", false, false, false);
}

void sink_events(std::vector<Edge>& out, const World& world, Mutant mutant) {
  if (!world.attached) {
    World to = world;
    to.attached = true;
    to.window = kWindow;
    to.sending = 0;
    add(out, to, "attach", true, true, mutant == Mutant::drop_mark_attach);
    return;
  }
  if (world.sending > 0) {
    World to = world;
    to.sending = 0;
    to.window = static_cast<uint8_t>(world.window - world.sending);
    add(out, to, "sent", true, true, mutant == Mutant::drop_mark_sent);
  }
  if (world.window < kWindow) {
    World to = world;
    to.window = kWindow;
    add(out, to, "window", true, true, mutant == Mutant::drop_mark_window);
  }
  if (!world.retried && !world.finished) {  // the sink dies; what it had is replayed elsewhere
    World to = world;
    to.retried = true;
    to.attached = false;
    to.sending = 0;
    to.window = 0;
    add(out, to, "retry", false, true, false);
  }
}

}  // namespace

World first_world() {
  World world;
  PipeState state;
  state.begin(kCap, kCap);
  world.cap = kCap;
  pack(world, state);
  world.dirty = true;
  return world;
}

std::vector<Edge> edges_of(const World& world, Mutant mutant) {
  std::vector<Edge> out;
  if (done(world)) return out;
  if (world.dirty) {
    bool lost = false;
    out.push_back({pumped(world, false, &lost), "pump", true});
    if (mutant == Mutant::drop_grant && !world.mutated) {
      World to = pumped(world, true, &lost);
      to.mutated = true;
      if (lost) out.push_back({to, "pump (grant lost)", true});
    }
  }
  source_events(out, world, mutant);
  sink_events(out, world, mutant);
  if (!world.dirty) {  // a doubled event
    World to = world;
    to.dirty = true;
    out.push_back({to, "touch", false});
  }
  if (!world.was_squeezed) {
    World to = world;
    to.squeezed = to.was_squeezed = true;
    to.cap = 1;
    to.dirty = true;
    out.push_back({to, "squeeze", false});
  }
  if (world.squeezed) {
    World to = world;
    to.squeezed = false;
    to.cap = kCap;
    to.dirty = true;
    out.push_back({to, "unsqueeze", false});
  }
  if (!world.engine_changed) {  // ops move to another engine, and nothing else happens
    World to = world;
    to.engine_changed = true;
    out.push_back({to, "engine", false});
  }
  return out;
}

std::string violation(const World& world) {
  if (world.reset) return "";
  if (world.delivered > world.granted) return "delivered beyond the grant";
  if (world.known > world.told || world.told > world.granted) return "told more than was granted";
  if (world.consumed + world.held != world.delivered) return "a byte was lost or doubled";
  if (world.left + world.delivered != kUnits) return "the source lost a byte";
  if (world.held > kCap) return "more held than the cap";
  if (world.granted - world.consumed > kCap) return "more promised than the cap";
  if (world.finished && (!world.ended || world.held > 0 || !world.end_sent)) return "finished too early";
  if (world.end_sent && !world.finished) return "an end without finish";
  return "";
}

}  // namespace weir::model

// PipeState: a pipe's counters and the one step that moves them, free of streams, sockets and memory.
// Pipe runs it over its two streams; tests/model runs the same code over a copyable world and explores every order of events.
// Owner: a Pipe (or a test). Thread: its owner's. pump_state() is idempotent: run twice, the second run changes nothing.
// Ends is what it works on: held(), charge(), has_source(), has_sink(), room(), send(n), send_end(), grant(total),
// source_live(), sink_live(), again() (another pump is already due) and try_relay() (true: a relay has the body now).
// Guarantees: granted, delivered and consumed only grow, consumed <= delivered <= granted; a grant is told once, when it grew.
#pragma once

#include <algorithm>
#include <cstdint>

#include "engines/clock.h"

namespace weir {

enum class Pumped : uint8_t { waiting, relaying, finished, wedged };

struct PipeState {
  uint64_t granted = 0;     // the source may have delivered so much
  uint64_t told = 0;        // the grant that it was told last
  uint64_t delivered = 0;   // by the source
  uint64_t consumed = 0;    // by the sink
  uint32_t cap = 0;         // memory that may be held
  uint32_t cap_max = 0;     // where self-tuning stops
  bool ended = false;       // the source said so
  bool finished = false;    // and the sink was told

  // Self-tuning. A round begins when the grant is raised and ends when bytes beyond the earlier grant (`round_mark`) come: one
  // round trip to the source, if it waited for them. A source that a cap holds back stops exactly at an earlier grant.
  bool in_round = false;
  bool stood = false;       // the source stands at an earlier grant, and the sink has room and nothing to send
  uint64_t round_mark = 0;
  uint64_t lap_from = 0;    // delivered and the time when the last round ended: what a round trip brings is counted from there
  uint64_t mark_min = 0;    // rounds with an earlier mark ran under a smaller cap, and say nothing of this one
  uint64_t rate_grown = 0;  // bytes a second at the last growth: the next one has to have brought more
  TimePoint lap_at = kNever;
  TimePoint stood_at{};

  static constexpr Duration kStarvedMin = std::chrono::milliseconds(1);  // shorter: not a distance but our own turn-around

  // Free memory is granted in halves of the cap, so that a window update is worth its packet. The half that is not yet granted is
  // never what both sides wait for: when nothing is held and nothing is granted, the whole cap is free.
  uint32_t grant_step() const noexcept { return cap / 2 + cap % 2; }

  void begin(uint32_t cap_bytes, uint32_t cap_bytes_max) noexcept {
    *this = PipeState();
    cap = cap_bytes;
    cap_max = std::max(cap_bytes, cap_bytes_max);
    granted = cap;
  }
  // Bytes came. True: the cap has grown.
  bool bytes_came(uint64_t count, TimePoint now) noexcept;
  bool raise_grant(uint64_t charge) noexcept;   // true when it grew
  void watch_source(bool sink_dry, TimePoint now) noexcept;
  void round_begins(uint64_t earlier_grant, TimePoint now) noexcept;
};

inline bool PipeState::bytes_came(uint64_t count, TimePoint now) noexcept {
  delivered += count;
  const Duration stood_for = stood ? now - stood_at : Duration::zero();
  stood = false;
  if (!in_round || delivered <= round_mark) return false;
  in_round = false;
  const Duration lap = std::max(now - lap_at, Duration(1));
  const uint64_t rate = (delivered - lap_from) * 1'000'000'000u / static_cast<uint64_t>(lap.count());
  lap_from = delivered;
  lap_at = now;
  // Standing for a small part of a round is no loss that memory should be spent on.
  if (stood_for < kStarvedMin || stood_for * 16 < lap || round_mark < mark_min || cap >= cap_max) return false;
  // The source stood still for want of a grant while the sink had nothing to send. If it is the cap that binds, each doubling
  // brings more bytes a second; a source that merely pauses at that place brings no more, and the cap stays.
  if (rate < rate_grown + rate_grown / 4) return false;
  rate_grown = rate;
  cap = static_cast<uint32_t>(std::min<uint64_t>(uint64_t{cap} * 2, cap_max));
  mark_min = delivered + cap - cap / 4;
  return true;
}

inline bool PipeState::raise_grant(uint64_t charge) noexcept {
  const uint64_t wanted = delivered + (charge < cap ? cap - charge : 0);
  if (wanted <= granted || wanted - granted < grant_step()) return false;
  granted = wanted;
  return true;
}

inline void PipeState::watch_source(bool sink_dry, TimePoint now) noexcept {
  if (stood || !sink_dry) return;
  if (delivered != granted && !(in_round && delivered == round_mark)) return;
  stood = true;
  stood_at = now;
}

inline void PipeState::round_begins(uint64_t earlier_grant, TimePoint now) noexcept {
  if (in_round) return;  // the round that runs tells more: its mark is nearer
  in_round = true;
  round_mark = earlier_grant;
  if (lap_at != kNever) return;
  lap_from = delivered;
  lap_at = now;
}

// What a pipe that waits must be able to show: somebody owes it something. The other half of the rule, that a deadline is armed
// wherever something is owed, the two streams answer for.
template <class Ends>
bool somebody_is_owed(const PipeState& state, Ends& ends) noexcept {
  if (ends.has_source() && !state.ended) {
    if (state.granted == state.delivered && ends.held() == 0) return false;  // nobody may move
    if (state.granted > state.delivered && !ends.source_live()) return false;
  }
  return !(ends.has_sink() && ends.held() > 0 && !ends.sink_live());
}

template <class Ends>
Pumped pump_state(PipeState& state, Ends& ends, TimePoint now) noexcept {
  if (ends.has_sink()) {
    while (ends.held() > 0) {
      const uint64_t count = std::min<uint64_t>(ends.held(), ends.room());
      if (count == 0) break;
      ends.send(count);
      state.consumed += count;
    }
    if (state.ended && ends.held() == 0 && !state.finished) {
      state.finished = true;
      ends.send_end();
      return Pumped::finished;
    }
  }
  if (state.ended) return somebody_is_owed(state, ends) ? Pumped::waiting : Pumped::wedged;
  if (ends.try_relay()) return Pumped::relaying;
  if (ends.has_source()) {
    state.watch_source(ends.has_sink() && ends.held() == 0 && ends.room() > 0, now);
    const uint64_t earlier = state.granted;
    if (state.raise_grant(ends.charge())) state.round_begins(earlier, now);
    if (state.told != state.granted) {
      state.told = state.granted;
      ends.grant(state.granted);
    }
    if (ends.again()) return Pumped::waiting;
  }
  return somebody_is_owed(state, ends) ? Pumped::waiting : Pumped::wedged;
}

}  // namespace weir

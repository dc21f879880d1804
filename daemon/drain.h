// The drain table: how a process (later: a listener, a route's connections, one connection) stops without losing anything.
// Pure: a stage and an event in, the next stage out; the supervisor acts on the stage. No thread, no time of its own.
//
//              term        delayed     emptied     grace_over   again
//  serving     announcing  -           -           -            -          accepts and answers
//  announcing  announcing  refusing    -           -            cutting    /readyz says 503, still accepts (shutdown.delay)
//  refusing    refusing    -           stopped     cutting      cutting    no new connections; those there are served out
//  cutting     cutting     -           stopped     cutting      cutting    what is left is closed
//  stopped     stopped     stopped     stopped     stopped      stopped
#pragma once

#include <array>
#include <cstdint>

namespace weir {

enum class DrainStage : uint8_t { serving, announcing, refusing, cutting, stopped };
enum class DrainEvent : uint8_t { term, delayed, emptied, grace_over, again };

constexpr DrainStage next_stage(DrainStage at, DrainEvent event) noexcept {
  using enum DrainStage;
  constexpr std::array<std::array<DrainStage, 5>, 5> kTable = {{
      {announcing, serving, serving, serving, serving},
      {announcing, refusing, announcing, announcing, cutting},
      {refusing, refusing, stopped, cutting, cutting},
      {cutting, cutting, stopped, cutting, cutting},
      {stopped, stopped, stopped, stopped, stopped},
  }};
  return kTable[static_cast<size_t>(at)][static_cast<size_t>(event)];
}

constexpr const char* stage_name(DrainStage stage) noexcept {
  constexpr std::array<const char*, 5> kNames = {"serving", "announcing", "refusing", "cutting", "stopped"};
  return kNames[static_cast<size_t>(stage)];
}

}  // namespace weir

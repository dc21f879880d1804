#include "engines/stats.h"

namespace weir {

const char* phase_name(Phase phase) noexcept {
  switch (phase) {
    case Phase::engine: return "engine";
    case Phase::completions: return "completions";
    case Phase::timers: return "timers";
    case Phase::pump: return "pump";
    case Phase::mailbox: return "mailbox";
    case Phase::frees: return "frees";
  }
  return "unknown";
}

}  // namespace weir

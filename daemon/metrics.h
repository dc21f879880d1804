// metrics: what the workers have counted, as Prometheus text (docs/metrics.md). Thread: the supervisor's, which reads each
// counter whole but all of them not at one instant. Labels are names from the configuration and words of ours, never a client's.
#pragma once

#include <array>
#include <string>

#include "daemon/worker.h"

namespace weir {

class Supervisor;

// Counters that must stay zero: a bug of ours when they do not.
struct ZeroCounter {
  const char* name;
  const char* help;
  uint64_t (*read)(Worker&);
};
inline constexpr std::array<ZeroCounter, 3> kZeroCounters = {{
    {"weir_pipe_audit_failures_total", "Pipes found with nothing to wait for; must stay zero.",
     [](Worker& w) { return w.pipe_stats().audits_failed.get(); }},
    {"weir_uring_stale_completions_total", "Completions that met no operation of theirs; must stay zero.",
     [](Worker& w) { return w.uring_stats().stale.get(); }},
    {"weir_uring_lost_completions_total", "Completions that the kernel could not keep; must stay zero.",
     [](Worker& w) { return w.uring_stats().cq_lost.get(); }},
}};

std::string metrics_text(Supervisor& supervisor);

}  // namespace weir

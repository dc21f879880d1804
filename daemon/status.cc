// /status: what runs, and how it is, as JSON.
#include <unistd.h>

#include <algorithm>

#include "config/footprint.h"
#include "daemon/json.h"
#include "daemon/metrics.h"
#include "daemon/supervisor.h"
#include "daemon/version.h"

namespace weir {

namespace {

constexpr uint64_t kStopMarginSeconds = 5;   // beyond shutdown.delay and shutdown.grace

uint64_t most_generations(Supervisor& supervisor) {
  uint64_t most = 0;
  for (auto& worker : supervisor.workers()) most = std::max(most, worker->generations().get());
  return most;
}

}  // namespace

std::string status_json(Supervisor& supervisor) {
  const Runtime& runtime = supervisor.runtime();
  json::Writer out;
  out.object();
  out.member("version", kVersion).member("commit", commit_text()).member("pid", static_cast<uint64_t>(getpid()));
  out.member("stage", stage_name(supervisor.stage())).member("ready", supervisor.not_ready().empty());
  out.member("started", supervisor.started_unix()).member("config_file", supervisor.config_path());
  const config::Shutdown& shutdown = runtime.config.shutdown;
  const auto bounded = std::chrono::ceil<std::chrono::seconds>(shutdown.delay + shutdown.grace);
  out.member("stops_within_s", static_cast<uint64_t>(bounded.count()) + kStopMarginSeconds);
  out.member("workers", static_cast<uint64_t>(supervisor.workers().size()));
  out.key("config").object().member("hash", runtime.config.hash).member("generation", supervisor.generation_served());
  out.member("last_reload_success", supervisor.last_reload_ok());
  out.member("live_generations", most_generations(supervisor));
  out.end_object();
  out.key("listeners").array();
  for (const config::Listener& listener : runtime.config.listeners) {
    const EngineKind kind = supervisor.engine_of(listener);
    out.object().member("name", listener.name).member("engine", engine_name(kind));
    out.member("tier", supervisor.workers().front()->engine_tier(kind)).member("reason", supervisor.engine_reason(listener));
    out.member("connections", supervisor.registry().listeners.sum(
                                  listener.name, [](const ListenerStats& s) { return s.server.open.get() + s.h2.open.get(); }));
    out.key("binds").array();
    for (const config::SocketName& bind : listener.binds) {
      out.object().member("bind", bind.text()).key("inodes").array();
      for (const uint64_t inode : supervisor.sockets().inodes(bind.text())) out.value(inode);
      out.end_array().end_object();
    }
    out.end_array().end_object();
  }
  out.end_array();
  const MemoryBudget& memory = supervisor.memory();
  out.key("memory").object().member("budget_bytes", memory.limit()).member("leased_bytes", memory.used());
  out.member("level", memory_level_name(memory.level()));
  out.member("idle_connection_bytes", config::kIdleConnectionBytes);
  out.member("worst_connection_bytes", config::worst_connection_bytes(runtime.config.limits)).end_object();
  out.key("must_stay_zero").object();
  for (const ZeroCounter& zero : kZeroCounters) {
    uint64_t total = 0;
    for (auto& worker : supervisor.workers()) total += zero.read(*worker);
    out.member(zero.name, total);
  }
  out.end_object().end_object();
  return out.text() + "\n";
}

}  // namespace weir

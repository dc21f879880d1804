// commands: what the command line does with a running daemon, over its admin socket: status, reload, drain, stop.
// Caller: main(), in a process of its own. Each prints to stdout (what is wrong: stderr) and returns the exit code: 0 done, 1 it
// was refused, 69 the daemon cannot be reached, 78 the configuration is bad.
#pragma once

#include <optional>

#include "daemon/admin_client.h"

namespace weir {

struct CommandOptions {
  AdminEndpoint admin;
  bool json = false;    // print what the daemon said, as it is
  bool quiet = false;
  std::optional<std::chrono::milliseconds> timeout{};   // how long stop and reload wait
};

int command_status(const CommandOptions& options);
int command_reload(const CommandOptions& options);               // waits for the verdict
int command_drain(const CommandOptions& options, bool undo);
int command_stop(const CommandOptions& options);                 // waits until it is gone, or another has its place
std::string status_text(const std::string& status_json, const std::string& upstreams_json, int64_t now_unix);  // "": no JSON

}  // namespace weir

// The configuration's own `tests:`: each request is routed as a worker would, and what comes of it is compared with what the file
// expects. Callers: check, start and reload. Needs no socket, no DNS, no running daemon.
// A test goes through the listener that is bound to its URL's port (80 or 443 where none is written), else the first one.
#pragma once

#include <vector>

#include "config/snapshot.h"

namespace weir {

// What failed, each with its place: "expected upstream api, got upstream web (route fallback)".
std::vector<config::Problem> run_config_tests(const config::Snapshot& config);

}  // namespace weir

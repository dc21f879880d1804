// admin_api: what can be asked of the running daemon and what it can be told (docs/admin.md): the paths of the admin server.
// Caller: the supervisor, when it starts; the handlers run on its thread and answer at once, but for a reload (its verdict) and the
// list of connections (collected from the workers).
#pragma once

#include <expected>

#include "daemon/admin.h"

namespace weir {

class Supervisor;

void add_probe_routes(AdminServer& server, Supervisor& supervisor);   // /metrics, /healthz, /readyz: read-only
void add_admin_routes(AdminServer& server, Supervisor& supervisor);   // all others
// The token in a file: its one line. Unexpected: why there is none.
std::expected<std::string, std::string> read_token(const std::string& path);

}  // namespace weir

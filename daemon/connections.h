// connections: the live list of client connections behind GET /connections. Each worker makes its part on its own thread, asked by
// mailbox and bounded by the filter's limit; the rows are JSON objects already. What a client sent is cut to 256 bytes.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "daemon/listener.h"

namespace weir {

struct ConnectionFilter {
  std::string listener, client;        // client: an address without its port; empty: any
  std::optional<bool> active;          // with a request in progress, or without
  size_t limit = 100;
};

struct ConnectionList {
  std::vector<std::string> rows;
  size_t matching = 0;                 // of which at most `limit` are in `rows`
};

void list_connections(const Listener& listener, size_t worker, TimePoint now, const ConnectionFilter& filter, ConnectionList& out);

}  // namespace weir

// diff: what a reload changes, by structure and not by name: what is equal can be carried over as it runs.
// Pure; indices are into the two snapshots given. Caller: the daemon's reload, and `weir plan`.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "config/snapshot.h"

namespace weir::config {

// One listening socket. It depends on its address alone: a listener that changes in all else keeps its sockets.
struct BindChange {
  SocketName bind;
  std::optional<size_t> before;   // the listener that has it in the old snapshot
  std::optional<size_t> after;    // and in the new one; neither is empty in both
};

enum class Change : uint8_t { unchanged, changed, added, removed };

struct ItemChange {
  Change change;
  std::optional<size_t> before;
  std::optional<size_t> after;
  bool renamed = false;           // unchanged but for its name
};

struct Diff {
  std::vector<BindChange> binds;        // old ones in their order, then the added ones
  std::vector<ItemChange> listeners;    // new ones in their order, then the removed ones
  std::vector<ItemChange> upstreams;    // likewise
  bool routes = false;                  // the table of routes is another one
  std::vector<std::string> settings;    // top-level keys whose value differs: "timeouts", "limits", "workers", ...
  bool empty() const;                   // both snapshots mean the same
};

Diff diff(const Snapshot& before, const Snapshot& after);

// Equal in all but the name.
bool same_structure(const Listener& a, const Listener& b);
bool same_structure(const Upstream& a, const Upstream& b);

}  // namespace weir::config

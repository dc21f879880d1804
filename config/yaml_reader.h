// read_yaml: one YAML text into a tree of Nodes. The one place that knows yaml-cpp.
// What it takes: one document; anchors and aliases (copied, so that nothing is shared); `<<` merge keys, where the keys
// written beside them win. What it refuses: tags, keys that are not plain text, a second document, a key given twice.
// Guarantees: bounded (kNodesMax values after aliases are copied, kDepthMax deep), whatever the text is; problems go to
// the report with their place; no exception leaves it.
#pragma once

#include <optional>
#include <string_view>

#include "config/document.h"

namespace weir::config {

inline constexpr size_t kNodesMax = 200'000;
inline constexpr size_t kDepthMax = 64;

// Nothing when the text is no YAML at all or has no content; the report says why. `file` is the report's index.
std::optional<Node> read_yaml(std::string_view text, uint32_t file, Report& report);

}  // namespace weir::config

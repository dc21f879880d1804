// read_source: the main file and what it includes, as one tree with the environment's values filled in.
// Maps at the top (upstreams, timeouts, ...) are merged by key, the lists listeners, routes and tests are appended in
// the order of the files; anything else that two files give is a problem. Only the main file includes.
// Guarantee: bounded (kFilesMax files of at most kFileBytesMax); every node keeps the mark of its own file.
#pragma once

#include <optional>
#include <string_view>

#include "config/document.h"
#include "config/load.h"

namespace weir::config {

inline constexpr size_t kFilesMax = 1000;
inline constexpr size_t kFileBytesMax = 8 * 1024 * 1024;

// Nothing when a file could not be read as a mapping: what would be missing would only cause more problems.
std::optional<Node> read_source(std::string_view text, uint32_t file, const Environment& environment, Report& report);

std::string directory_of(const std::string& path);   // with its "/"; empty for a bare name

}  // namespace weir::config

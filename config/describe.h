// describe: a snapshot as JSON that is at the same time a configuration which loads to an equal snapshot.
// For GET /config, `weir plan`, and the hash that says whether two configurations mean the same. Pure.
#pragma once

#include <string>
#include <string_view>

#include "config/snapshot.h"

namespace weir::config {

std::string describe(const Snapshot& snapshot);          // indented, keys in a fixed order, every default spelt out
std::string hash_text(std::string_view text);            // 16 hex digits (FNV-1a, 64 bits): identity, no protection

}  // namespace weir::config

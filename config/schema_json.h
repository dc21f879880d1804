// schema_json: the table of keys as a JSON Schema (draft 2020-12), for editors and for `weir schema`. Pure.
// Guarantee: what load() takes as a main file the schema takes; it refuses unknown keys, wrong forms, wrong words and
// missing units, but knows nothing of names, addresses and what only the whole shows. Keys that are not supported yet
// are in it, and nothing satisfies them.
#pragma once

#include <string>

namespace weir::config {

std::string schema_json();

}  // namespace weir::config

// Where the source tree and the build tree stand, for tests that read files of the one or run programs of the other.
// In an object of its own: no other depends on the place, so a compiler cache serves all clones.
#pragma once

#include <string>

namespace weir {

std::string source_dir();
std::string build_dir();

}  // namespace weir

#include "tests/source_dir.h"

namespace weir {

std::string source_dir() { return WEIR_SOURCE_DIR; }
std::string build_dir() { return WEIR_BUILD_DIR; }

}  // namespace weir

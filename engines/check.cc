#include "engines/check.h"

#include <cstdio>
#include <cstdlib>

namespace weir {

void assert_failed(const char* what, const char* file, int line) noexcept {
  std::fprintf(stderr, "weir: broken promise at %s:%d: %s\n", file, line, what);
  std::abort();
}

}  // namespace weir

#include "daemon/version.h"

#include "daemon/commit.h"   // written by the build

namespace weir {

const char* commit_text() noexcept { return WEIR_COMMIT; }

}  // namespace weir

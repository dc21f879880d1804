// version: what this program is: its number and the commit it was built from ("unknown" outside a checkout).
#pragma once

namespace weir {

inline constexpr const char* kVersion = WEIR_VERSION;
const char* commit_text() noexcept;

}  // namespace weir

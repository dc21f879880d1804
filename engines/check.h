// WEIR_ASSERT: what we promise ourselves. It stays on in release builds: a broken promise stops the process at the
// line that broke it. Peers cause faults (see protocols/exchange/fault.h), only our own mistakes come here.
// WEIR_DEBUG_ASSERT: the same, for checks that cost more than a comparison; compiled out of release builds.
#pragma once

namespace weir {
[[noreturn]] void assert_failed(const char* what, const char* file, int line) noexcept;
}

#define WEIR_ASSERT(x) (__builtin_expect(!!(x), 1) ? void(0) : ::weir::assert_failed(#x, __FILE__, __LINE__))
#ifdef NDEBUG
#define WEIR_DEBUG_ASSERT(x) void(0)
#else
#define WEIR_DEBUG_ASSERT(x) WEIR_ASSERT(x)
#endif

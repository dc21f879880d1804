// What a request asks for, in the one form that routing, forwarding and logs all see (RFC 3986 section 6.2.2, RFC 9110
// section 4.2.3): dot segments removed, escapes of unreserved characters decoded, the others in capitals; the host in
// lower case, without its final dot and without the port that its scheme implies. An escape that could mean another
// path behind us (%2F, %5C, %00), a backslash and a malformed escape are bad_path. The query stays as it is.
// Caller: Exchange::start, for every protocol. It changes the head's own bytes in place (they only get fewer) and
// allocates nothing. A segment `..;x` is bad_path too: some servers read it as `..`.
#pragma once

#include "protocols/exchange/fault.h"
#include "protocols/exchange/head.h"

namespace weir {

// What a path (without its query) is once its escapes are read. refused: no request may have it.
enum class PathKind : uint8_t { plain, has_dot_segments, refused };
PathKind path_kind(std::string_view path) noexcept;

// none or bad_path, which leaves the path as it was sent. The views of head.path and head.authority must lie in memory that may be
// written, unless they are in that form already.
What normalise_target(Head& head) noexcept;

}  // namespace weir

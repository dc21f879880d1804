// The connection preface of HTTP/2 (RFC 9113 section 3.4) at the start of a connection whose protocol nobody has named:
// its 24 bytes tell h2 from h1. Pure: bytes in, a verdict out. Caller: ServerConn, before its first head. PRI is no
// method of HTTP/1: what begins like the preface and goes on otherwise is a fault.
#pragma once

#include <cstring>
#include <string_view>

#include "engines/chain.h"

namespace weir::h1 {

inline constexpr std::string_view kPreface = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

enum class Preface : uint8_t { none, partial, whole, broken };

// "PRI " decides that it is meant; with fewer bytes the h1 parser waits too.
inline Preface find_preface(const Chain& in) noexcept {
  if (in.front().data()[0] != 'P') [[likely]] return Preface::none;
  char first[kPreface.size()];
  const size_t count = in.copy_out(first, 0, sizeof first);
  if (count < 4) return Preface::none;
  if (std::memcmp(first, kPreface.data(), 4) != 0) return Preface::none;
  if (std::memcmp(first, kPreface.data(), count) != 0) return Preface::broken;
  return count == kPreface.size() ? Preface::whole : Preface::partial;
}

}  // namespace weir::h1

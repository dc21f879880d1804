// What a syntactically clean head means: host, framing, connection options, expectations (RFC 9112 sections 3.2, 6 and
// 9, RFC 9110 sections 7.6.1 and 10.1). Internal to the h1 codec: the parser calls it once, when a head is complete. It
// fills the decided members of Head and marks fields (hop, removed); it looks at field values, never at raw lines.
#pragma once

#include <cstdint>

#include "protocols/exchange/fault.h"
#include "protocols/exchange/head.h"

namespace weir::h1 {

constexpr uint64_t field_bit(FieldId id) noexcept { return uint64_t{1} << static_cast<unsigned>(id); }
static_assert(static_cast<unsigned>(FieldId::kCount) <= 64, "a set of field ids is one word");

// Which of the known fields a head has. Filled while its lines are read.
struct Seen {
  uint64_t ids = 0;
  uint64_t repeated = 0;
  uint16_t
      last[static_cast<unsigned>(FieldId::kCount)];  // index of the last field of that id; only where its bit is set

  bool has(FieldId id) const noexcept { return (ids & field_bit(id)) != 0; }
  bool twice(FieldId id) const noexcept { return (repeated & field_bit(id)) != 0; }
  uint16_t where(FieldId id) const noexcept { return last[static_cast<unsigned>(id)]; }
};

struct Verdict {
  What what = What::none;
  const char* at = nullptr;  // the offending byte; nullptr: something is missing
  bool good() const noexcept { return what == What::none; }
};

// Fields that are never forwarded whatever Connection says. TE, Upgrade and the like are written anew by who wants
// them.
inline constexpr uint64_t kHopFields = field_bit(FieldId::connection) | field_bit(FieldId::keep_alive) |
                                       field_bit(FieldId::proxy_connection) | field_bit(FieldId::te) |
                                       field_bit(FieldId::upgrade) | field_bit(FieldId::transfer_encoding) |
                                       field_bit(FieldId::http2_settings) | field_bit(FieldId::proxy_authenticate) |
                                       field_bit(FieldId::proxy_authorization);

Verdict finish_request(Head& head, const Seen& seen) noexcept;
Verdict finish_response(Head& head, const Seen& seen, Method request) noexcept;
void finish_trailers(Head& trailers) noexcept;

}  // namespace weir::h1

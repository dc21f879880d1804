// field_id for a name that was just read out of an HTTP/1 head: the perfect hash of exchange/field_names.h, then one or
// two comparisons of sixteen bytes. Internal to the h1 parser. `name` is a token, so or-ing 0x20 into its bytes folds
// letters to lower case and makes no other token character look like a letter, a digit or '-' (which all known names
// consist of).
#pragma once

#include <algorithm>

#include "protocols/exchange/field_names.h"
#include "protocols/h1/chars.h"

namespace weir::h1 {

#if defined(__SSE2__)
struct KnownField {
  alignas(16) char first[16] = {};  // the first sixteen bytes, and the last sixteen where there are more
  alignas(16) char last[16] = {};
  uint32_t size = 0;
  uint32_t first_mask = 0;  // which of `first` count
};

constexpr std::array<KnownField, field_names::kNameCount> build_known_fields() {
  std::array<KnownField, field_names::kNameCount> table{};
  for (size_t i = 1; i < table.size(); ++i) {
    const std::string_view name = field_names::kNames[i];
    const size_t part = std::min<size_t>(name.size(), 16);
    for (size_t c = 0; c < part; ++c) table[i].first[c] = name[c];
    for (size_t c = 0; name.size() > 16 && c < 16; ++c) table[i].last[c] = name[name.size() - 16 + c];
    table[i].size = static_cast<uint32_t>(name.size());
    table[i].first_mask = (1u << part) - 1;
  }
  return table;
}
inline constexpr std::array<KnownField, field_names::kNameCount> kKnownFields = build_known_fields();
static_assert(field_names::kTable.longest <= 32);

[[gnu::always_inline]] inline unsigned equal16(const char* name, const char* known) noexcept {
  const __m128i folded = _mm_or_si128(detail::load16(name), detail::splat(0x20));
  return static_cast<unsigned>(_mm_movemask_epi8(_mm_cmpeq_epi8(folded, detail::load16(known))));
}

// `end`: up to where memory may be read.
[[gnu::always_inline]] inline FieldId known_field(const char* name, size_t size, const char* end) noexcept {
  if (end - name < 16) [[unlikely]]
    return field_id({name, size});
  const uint8_t id = field_names::kTable.ids[field_names::hash_of(name, size)];
  const KnownField& known = kKnownFields[id];
  if (known.size != size || (~equal16(name, known.first) & known.first_mask) != 0) return FieldId::other;
  if (size > 16 && equal16(name + size - 16, known.last) != 0xffff) return FieldId::other;
  return static_cast<FieldId>(id);
}
#else
inline FieldId known_field(const char* name, size_t size, const char*) noexcept { return field_id({name, size}); }
#endif

}  // namespace weir::h1

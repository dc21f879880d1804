// Character classes of RFC 9110 and RFC 9112 and the scans over them that every head goes through.
// Callers: the h1 codec. A scan returns the first byte that ends it, or `end`; it reads [base, end) only, sixteen bytes
// at a time where at least sixteen lie in that range (the last block overlaps bytes that were seen already), on x86-64
// with SSE2, which is part of that architecture; elsewhere byte by byte through the table.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

#if defined(__SSE2__)
#include <emmintrin.h>
#endif

namespace weir::h1 {

enum CharBit : uint8_t {
  kTokenChar = 1,   // tchar
  kTargetChar = 2,  // visible ASCII without '#': a request target
  kTextChar = 4,    // HTAB, SP, VCHAR, obs-text: values, reason phrases, chunk extensions
  kHostChar = 8,    // unreserved and sub-delims: a registered name
  kHexDigit = 16,
  kPlainName = 32,  // letters, digits, '-' and '_': what nearly all field names are made of
  kPlainHost = 64,  // letters, digits, '-' and '.'
};

constexpr std::array<uint8_t, 256> build_chars() {
  std::array<uint8_t, 256> table{};
  for (unsigned c = 0; c < 256; ++c) {
    const bool alpha = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
    const bool digit = c >= '0' && c <= '9';
    const auto in = [c](std::string_view set) {
      return c != 0 && set.find(static_cast<char>(c)) != std::string_view::npos;
    };
    unsigned bits = 0;
    if (alpha || digit || in("!#$%&'*+-.^_`|~")) bits |= kTokenChar;
    if (c > 0x20 && c < 0x7f && c != '#') bits |= kTargetChar;
    if (c == '\t' || (c >= 0x20 && c != 0x7f)) bits |= kTextChar;
    if (alpha || digit || in("-._~!$&'()*+,;=")) bits |= kHostChar;
    if (digit || (c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F')) bits |= kHexDigit;
    if (alpha || digit || c == '-' || c == '_') bits |= kPlainName;
    if (alpha || digit || c == '-' || c == '.') bits |= kPlainHost;
    table[c] = static_cast<uint8_t>(bits);
  }
  return table;
}
inline constexpr std::array<uint8_t, 256> kChars = build_chars();

inline bool is_char(char c, CharBit bit) noexcept { return (kChars[static_cast<unsigned char>(c)] & bit) != 0; }
inline bool is_digit(char c) noexcept { return static_cast<unsigned char>(c - '0') <= 9; }
inline bool is_blank(char c) noexcept { return c == ' ' || c == '\t'; }

bool equal_ignoring_case(std::string_view a, std::string_view b) noexcept;  // ASCII letters
bool is_token(std::string_view text) noexcept;                              // not empty
// uri-host [":" port] of RFC 9110: a registered name, an IPv4 address or an IPv6 literal in brackets; not empty, no
// user information, a port that is there has 1 to 5 digits and is at most 65535. `base`: from where memory before
// `text` may be read (a field's name), which spares a byte-wise loop.
bool is_host(std::string_view text, bool port_needed, const char* base) noexcept;
inline bool is_host(std::string_view text) noexcept { return is_host(text, false, text.data()); }
bool parse_decimal(std::string_view digits, uint64_t& out) noexcept;  // 1*DIGIT within 64 bits

namespace detail {

#if defined(__SSE2__)
inline __m128i load16(const char* from) noexcept { return _mm_loadu_si128(reinterpret_cast<const __m128i*>(from)); }
inline __m128i splat(int c) noexcept { return _mm_set1_epi8(static_cast<char>(c)); }
#endif

struct ControlStop {  // stops at control bytes, HTAB excepted
  static constexpr CharBit kPass = kTextChar;
#if defined(__SSE2__)
  static unsigned stops(__m128i x) noexcept {
    const __m128i low = _mm_cmpeq_epi8(_mm_min_epu8(x, splat(0x1f)), x);
    const __m128i control = _mm_andnot_si128(_mm_cmpeq_epi8(x, splat('\t')), low);
    return static_cast<unsigned>(_mm_movemask_epi8(_mm_or_si128(control, _mm_cmpeq_epi8(x, splat(0x7f)))));
  }
#endif
};

struct TargetStop {  // stops at everything that cannot stand in a request target
  static constexpr CharBit kPass = kTargetChar;
#if defined(__SSE2__)
  static unsigned stops(__m128i x) noexcept {
    const __m128i low_or_high = _mm_cmplt_epi8(x, splat(0x21));  // signed: bytes from 0x80 are negative
    const __m128i other = _mm_or_si128(_mm_cmpeq_epi8(x, splat(0x7f)), _mm_cmpeq_epi8(x, splat('#')));
    return static_cast<unsigned>(_mm_movemask_epi8(_mm_or_si128(low_or_high, other)));
  }
#endif
};

struct NameStop {  // stops at everything but letters, digits, '-' and '_'
  static constexpr CharBit kPass = kPlainName;
#if defined(__SSE2__)
  static unsigned stops(__m128i x) noexcept {
    // Moves the wanted range to the bottom of the signed range, so that one signed comparison decides.
    const __m128i letter =
        _mm_cmplt_epi8(_mm_add_epi8(_mm_or_si128(x, splat(0x20)), splat(0x80 - 'a')), splat(-128 + 26));
    const __m128i digit = _mm_cmplt_epi8(_mm_add_epi8(x, splat(0x80 - '0')), splat(-128 + 10));
    const __m128i dash = _mm_or_si128(_mm_cmpeq_epi8(x, splat('-')), _mm_cmpeq_epi8(x, splat('_')));
    return static_cast<unsigned>(_mm_movemask_epi8(_mm_or_si128(_mm_or_si128(letter, digit), dash))) ^ 0xffffu;
  }
#endif
};

struct HostStop {  // stops at everything but letters, digits, '-' and '.': what nearly all host names are made of
  static constexpr CharBit kPass = kPlainHost;
#if defined(__SSE2__)
  static unsigned stops(__m128i x) noexcept {
    const __m128i letter =
        _mm_cmplt_epi8(_mm_add_epi8(_mm_or_si128(x, splat(0x20)), splat(0x80 - 'a')), splat(-128 + 26));
    const __m128i digit = _mm_cmplt_epi8(_mm_add_epi8(x, splat(0x80 - '0')), splat(-128 + 10));
    const __m128i other = _mm_or_si128(_mm_cmpeq_epi8(x, splat('-')), _mm_cmpeq_epi8(x, splat('.')));
    return static_cast<unsigned>(_mm_movemask_epi8(_mm_or_si128(_mm_or_si128(letter, digit), other))) ^ 0xffffu;
  }
#endif
};

template <class Stop>
[[gnu::always_inline]] inline const char* scan(const char* base, const char* at, const char* end) noexcept {
#if defined(__SSE2__)
  while (end - at >= 16) {
    const unsigned found = Stop::stops(load16(at));
    if (found != 0) return at + __builtin_ctz(found);
    at += 16;
  }
  if (end - base >= 16) {
    const unsigned found = Stop::stops(load16(end - 16)) >> (16 - (end - at));  // at == end: shifts everything out
    return found != 0 ? at + __builtin_ctz(found) : end;
  }
#else
  (void)base;
#endif
  while (at != end && is_char(*at, Stop::kPass)) ++at;
  return at;
}

}  // namespace detail

inline const char* find_control(const char* base, const char* at, const char* end) noexcept {
  return detail::scan<detail::ControlStop>(base, at, end);
}
inline const char* find_target_end(const char* base, const char* at, const char* end) noexcept {
  return detail::scan<detail::TargetStop>(base, at, end);
}
// The same, noting on the way what normalise_target would look for. `plain`: no '%', no backslash and no '.' behind a '/' up to
// the end of the target (false where that was not looked at). One byte before `at` may be read.
inline const char* find_target_end(const char* base, const char* at, const char* end, bool& plain) noexcept {
#if defined(__SSE2__)
  using detail::load16, detail::splat;
  __m128i odd = _mm_setzero_si128();
  while (end - at >= 16) {
    const __m128i x = load16(at);
    const __m128i dot = _mm_and_si128(_mm_cmpeq_epi8(x, splat('.')), _mm_cmpeq_epi8(load16(at - 1), splat('/')));
    const __m128i other = _mm_or_si128(_mm_cmpeq_epi8(x, splat('%')), _mm_cmpeq_epi8(x, splat('\\')));
    odd = _mm_or_si128(odd, _mm_or_si128(dot, other));
    if (const unsigned found = detail::TargetStop::stops(x); found != 0) {
      plain = _mm_movemask_epi8(odd) == 0;
      return at + __builtin_ctz(found);
    }
    at += 16;
  }
#endif
  plain = false;
  return find_target_end(base, at, end);
}
// Whether a host (not empty) is in normalise_target's form: no capitals, no final dot, no port that a scheme implies. false where
// that was not looked at. Memory from `base` on may be read.
inline bool host_is_plain(const char* base, std::string_view host) noexcept {
#if defined(__SSE2__)
  using detail::load16, detail::splat;
  if (host.data() - base < 17) return false;
  const char* at = host.data() + host.size();
  if (at[-1] == '.' || host.ends_with(":80") || host.ends_with(":443")) return false;
  unsigned odd = 0;
  for (size_t left = host.size();; left -= 16, at -= 16) {
    const __m128i x = load16(at - 16);
    const __m128i upper = _mm_cmplt_epi8(_mm_add_epi8(x, splat(0x80 - 'A')), splat(-128 + 26));
    const __m128i dot = _mm_and_si128(_mm_cmpeq_epi8(x, splat(':')), _mm_cmpeq_epi8(load16(at - 17), splat('.')));
    const auto found = static_cast<unsigned>(_mm_movemask_epi8(_mm_or_si128(upper, dot)));
    if (left <= 16) return (odd | found >> (16 - left)) == 0;
    odd |= found;
  }
#else
  (void)base, (void)host;
  return false;
#endif
}
// Letters, digits, '-' and '_' only, sixteen at a time; find_token_end goes on from there through the rarer token
// characters.
inline const char* find_plain_end(const char* base, const char* at, const char* end) noexcept {
  return detail::scan<detail::NameStop>(base, at, end);
}
inline const char* find_token_end(const char* at, const char* end) noexcept {
  while (at != end && is_char(*at, kTokenChar)) ++at;
  return at;
}

}  // namespace weir::h1

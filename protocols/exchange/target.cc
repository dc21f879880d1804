#include "protocols/exchange/target.h"

#include <cstring>

#if defined(__SSE2__)
#include <emmintrin.h>
#endif

namespace weir {
namespace {

bool unreserved(char c) noexcept {
  const char low = static_cast<char>(c | 0x20);
  return (low >= 'a' && low <= 'z') || (c >= '0' && c <= '9') || c == '-' || c == '.' || c == '_' || c == '~';
}

int hex_digit(char c) noexcept {
  if (c >= '0' && c <= '9') return c - '0';
  const char low = static_cast<char>(c | 0x20);
  return low >= 'a' && low <= 'f' ? low - 'a' + 10 : -1;
}

bool is_upper(char c) noexcept { return c >= 'A' && c <= 'Z'; }

// Up to where the head's memory may be read: blocks of sixteen bytes may reach beyond a path or host.
const char* readable_end(const Head& head, std::string_view text) noexcept {
  if (head.backing) {
    const char* from = head.backing.data();
    const char* to = from + head.backing.size();
    if (text.data() >= from && text.data() <= to) return to;
  }
  return text.data() + text.size();
}

// Whether the path (up to its query) may need work: it has '%', a backslash, or a segment that begins with a dot.
bool path_is_odd(std::string_view path, const char* readable) noexcept {
  const char* at = path.data();
  const char* const end = at + path.size();
  unsigned after_slash = 0;
#if defined(__SSE2__)
  const auto splat = [](char c) { return _mm_set1_epi8(c); };
  const auto bits = [](__m128i x) { return static_cast<unsigned>(_mm_movemask_epi8(x)); };
  while (at < end && readable - at >= 16) {
    const __m128i x = _mm_loadu_si128(reinterpret_cast<const __m128i*>(at));
    const unsigned slashes = bits(_mm_cmpeq_epi8(x, splat('/')));
    const unsigned dots = bits(_mm_cmpeq_epi8(x, splat('.'))) & (slashes << 1 | after_slash);
    unsigned odd = dots | bits(_mm_or_si128(_mm_cmpeq_epi8(x, splat('%')), _mm_cmpeq_epi8(x, splat('\\'))));
    const unsigned query = bits(_mm_cmpeq_epi8(x, splat('?')));
    if (query != 0) odd &= (query & -query) - 1;
    if (end - at < 16) odd &= (1u << (end - at)) - 1;
    if (odd != 0) return true;
    if (query != 0) return false;  // behind the path's end it is of no matter
    after_slash = slashes >> 15;
    at += 16;
  }
#else
  (void)readable;
#endif
  for (; at < end && *at != '?'; ++at) {
    if (*at == '%' || *at == '\\' || (*at == '.' && after_slash != 0)) return true;
    after_slash = *at == '/';
  }
  return false;
}

// Where the segment before the one at `segment` begins; the root's own stays.
size_t parent_of(const char* path, size_t segment) noexcept {
  if (segment <= 1) return segment;
  size_t at = segment - 1;
  while (path[at - 1] != '/') --at;
  return at;
}

// Rewrites path[0, size), which is not refused, in place. `size` is what is left of it.
void rewrite_path(char* path, size_t& size) noexcept {
  size_t to = 0;
  size_t segment = 0;  // where the current one begins in what was written
  for (size_t from = 0; from <= size; ++from) {
    if (from == size || path[from] == '/') {
      const size_t length = to - segment;
      if (length == 1 && path[segment] == '.') to = segment;
      else if (length == 2 && path[segment] == '.' && path[segment + 1] == '.') to = parent_of(path, segment);
      else if (from < size) path[to++] = '/';
      segment = to;
      continue;
    }
    if (path[from] != '%') {
      path[to++] = path[from];
      continue;
    }
    const int high = hex_digit(path[from + 1]);
    const int low = hex_digit(path[from + 2]);
    const char meant = static_cast<char>(high << 4 | low);
    from += 2;
    if (unreserved(meant)) {
      path[to++] = meant;
    } else {
      path[to++] = '%';
      path[to++] = "0123456789ABCDEF"[high];
      path[to++] = "0123456789ABCDEF"[low];
    }
  }
  size = to;
}

[[gnu::cold, gnu::noinline]] What normalise_path(Head& head) noexcept {
  char* const path = const_cast<char*>(head.path.data());
  const size_t whole = head.path.size();
  const size_t mark = head.path.find('?');
  const size_t before = mark == std::string_view::npos ? whole : mark;
  size_t size = before;
  if (path_kind({path, before}) == PathKind::refused) return What::bad_path;  // and stays as it was sent
  rewrite_path(path, size);
  if (size != before) std::memmove(path + size, path + before, whole - before);
  head.path = {path, size + (whole - before)};
  return What::none;
}

// Final dots, or a port: the two things about a host that are not a matter of its letters.
void trim_host(Head& head) noexcept {
  char* const host = const_cast<char*>(head.authority.data());
  size_t size = head.authority.size();
  size_t colon = head.authority.rfind(':');
  if (host[size - 1] == ']') colon = std::string_view::npos;  // an IPv6 address without a port
  std::string_view port = colon == std::string_view::npos ? std::string_view() : head.authority.substr(colon);
  size -= port.size();
  if (port == (head.scheme == "https" ? ":443" : ":80")) port = {};
  while (size > 1 && host[size - 1] == '.') --size;
  if (!port.empty() && host + size != port.data()) std::memmove(host + size, port.data(), port.size());
  head.authority = {host, size + port.size()};
}

// Whether the host has capitals; `trim`: whether it ends with a dot or has a colon.
bool host_has_capitals(std::string_view host, const char* readable, bool& trim) noexcept {
  const char* at = host.data();
  const char* const end = at + host.size();
  unsigned capitals = 0;
  unsigned colons = 0;
#if defined(__SSE2__)
  const auto splat = [](char c) { return _mm_set1_epi8(c); };
  while (at < end && readable - at >= 16) {
    const __m128i x = _mm_loadu_si128(reinterpret_cast<const __m128i*>(at));
    const unsigned mask = end - at < 16 ? (1u << (end - at)) - 1 : 0xffffu;
    // Moves the wanted range to the bottom of the signed range, so that one signed comparison decides.
    const __m128i upper = _mm_cmplt_epi8(_mm_add_epi8(x, splat(static_cast<char>(0x80 - 'A'))), splat(-128 + 26));
    capitals |= static_cast<unsigned>(_mm_movemask_epi8(upper)) & mask;
    colons |= static_cast<unsigned>(_mm_movemask_epi8(_mm_cmpeq_epi8(x, splat(':')))) & mask;
    at += 16;
  }
#else
  (void)readable;
#endif
  for (; at < end; ++at) {
    capitals |= is_upper(*at);
    colons |= *at == ':';
  }
  trim = colons != 0 || end[-1] == '.';
  return capitals != 0;
}

void normalise_host(Head& head) noexcept {
  const std::string_view host = head.authority;
  bool trim = false;
  if (host_has_capitals(host, readable_end(head, host), trim)) [[unlikely]] {
    char* const bytes = const_cast<char*>(host.data());
    for (size_t i = 0; i < host.size(); ++i)
      if (is_upper(bytes[i])) bytes[i] = static_cast<char>(bytes[i] | 0x20);
  }
  if (trim) trim_host(head);
}

// What a path's byte stands for, escapes read: '%' for one that stays an escape, 0 for one that no path may have. Moves to its end.
char meant_at(std::string_view path, size_t& at) noexcept {
  if (path[at] == '\\') return '\0';
  if (path[at] != '%') return path[at];
  if (path.size() - at < 3) return '\0';
  const int high = hex_digit(path[at + 1]);
  const int low = hex_digit(path[at + 2]);
  at += 2;
  if (high < 0 || low < 0) return '\0';
  const char meant = static_cast<char>(high << 4 | low);
  if (meant == '/' || meant == '\\') return '\0';
  return meant == '\0' || unreserved(meant) ? meant : '%';
}

}  // namespace

PathKind path_kind(std::string_view path) noexcept {
  PathKind kind = PathKind::plain;
  size_t length = 0;   // of the segment so far
  bool dots = true;    // and nothing else in it
  for (size_t at = 0; at <= path.size(); ++at) {
    const bool slash = at == path.size() || path[at] == '/';
    const bool dot_segment = dots && (length == 1 || length == 2);
    if (slash) {
      if (dot_segment) kind = PathKind::has_dot_segments;
      length = 0;
      dots = true;
      continue;
    }
    const char meant = meant_at(path, at);
    if (meant == '\0') return PathKind::refused;
    if (meant == ';' && dot_segment) return PathKind::refused;  // `..;x`: some cut at the semicolon first, then see `..`
    ++length;
    dots = dots && meant == '.';
  }
  return kind;
}

What normalise_target(Head& head) noexcept {
  if (!head.authority.empty()) normalise_host(head);
  if (path_is_odd(head.path, readable_end(head, head.path))) return normalise_path(head);
  return What::none;
}

}  // namespace weir

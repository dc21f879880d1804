#include "protocols/h1/parser.h"

#include <algorithm>
#include <cstring>

#include "protocols/h1/chars.h"
#include "protocols/h1/known_fields.h"
#include "protocols/h1/semantics.h"

// How a verdict stays independent of the cuts: a line is judged when its first control byte is there (its CR LF, if it
// is a good line), never before; lines are judged in order; what concerns several lines is judged at the empty line. So
// the verdict is a function of the bytes up to the byte that completes it. A call that finds no new control byte does
// nothing else; one that does goes on with the first line not yet judged; only when the empty line is there are all
// lines read again, from the start.
namespace weir::h1 {
namespace {

enum class Kind : uint8_t { request, response, trailers };
enum class Line : uint8_t { read, blank, starved, bad };

constexpr uint32_t kHeadBytesMax = (1u << 24) - 1;  // what a Cursor can hold
constexpr uint32_t kLinePadMax = 31;                // what Field::line_pad can hold

// The caller's `scanned`, taken apart: the first line not yet judged, how many fields stand before it, and where the
// search for its end goes on.
struct Cursor {
  uint32_t line = 0;
  uint32_t search = 0;
  uint16_t fields = 0;

  static Cursor unpack(size_t scanned) noexcept {
    const auto bits = static_cast<uint64_t>(scanned);
    return {static_cast<uint32_t>(bits & kHeadBytesMax), static_cast<uint32_t>(bits >> 24 & kHeadBytesMax),
            static_cast<uint16_t>(bits >> 48)};
  }
  size_t pack() const noexcept { return uint64_t{line} | uint64_t{search} << 24 | uint64_t{fields} << 48; }
};
static_assert(sizeof(size_t) == 8, "Cursor needs 64 bits");

struct Input {
  const char* base;
  const char* end;  // of what may be looked at: the head limit cuts it
};

// The offending byte and why, where a line was bad.
struct Bad {
  What what = What::none;
  const char* at = nullptr;
};

bool ends_line(const char* at, const char* end) noexcept { return end - at >= 2 && std::memcmp(at, "\r\n", 2) == 0; }
// A control byte stopped the scan at `at`: is it known yet what it is? (CR needs the byte behind it.)
bool starved_at(const char* at, const char* end) noexcept { return at == end || (*at == '\r' && at + 1 == end); }

// A line that broke the grammar at `at`: it is bad as soon as its first control byte has come.
[[gnu::cold, gnu::noinline]] Line bad_line(const Input& in, const char* at, What what, Bad& bad) noexcept {
  if (starved_at(find_control(in.base, at, in.end), in.end)) return Line::starved;
  bad = {what, at};
  return Line::bad;
}

// absolute-form: scheme "://" authority [path]. CONNECT's authority-form and "*" too. The line is complete.
[[gnu::noinline]] bool read_other_target(std::string_view target, Head& head) noexcept {
  if (head.method == Method::connect) {
    head.authority = target;
    head.path = {};
    return is_host(target, true, target.data());
  }
  if (target == "*") {
    head.path = target;
    return head.method == Method::options;
  }
  size_t skip = 0;
  if (target.size() > 7 && equal_ignoring_case(target.substr(0, 7), "http://"))
    skip = 7, head.scheme = "http";
  else if (target.size() > 8 && equal_ignoring_case(target.substr(0, 8), "https://"))
    skip = 8, head.scheme = "https";
  if (skip == 0) return false;
  target.remove_prefix(skip);
  // A query right behind the authority has no path before it that could be sent on without making one up: refused.
  const size_t slash = target.find_first_of("/?");
  if (slash != std::string_view::npos && target[slash] == '?') return false;
  head.authority = target.substr(0, slash);
  head.absolute_form = true;
  if (slash != std::string_view::npos)
    head.path = target.substr(slash);
  else
    head.path = head.method == Method::options ? "*" : "/";
  return is_host(head.authority);
}

// The request line is complete; behind its target there is something other than " HTTP/1.x".
[[gnu::cold, gnu::noinline]] Line bad_version_line(const Input& in, const char* at, Bad& bad) noexcept {
  const char* stop = find_control(in.base, at, in.end);
  if (starved_at(stop, in.end)) return Line::starved;
  bad = {What::bad_request_line, at};
  if (!ends_line(stop, in.end))
    bad.at = stop;
  else if (*at == ' ' && stop - at > 5 && equal_ignoring_case({at + 1, 5}, "HTTP/"))
    bad = {What::bad_version, at + 1};
  return Line::bad;
}

Line request_line(const Input& in, const char*& at, Head& head, Bad& bad) noexcept {
  const char* p = at;
  if (p != in.end && *p == '\r') {  // one empty line before it is passed over
    if (p + 1 == in.end) return Line::starved;
    if (p[1] != '\n') return bad_line(in, p, What::bad_request_line, bad);
    p += 2;
  }
  const char* method = p;
  if (in.end - p >= 4 && std::memcmp(p, "GET ", 4) == 0) p += 3;
  while (p != in.end && is_char(*p, kTokenChar)) ++p;
  if (p == in.end) return Line::starved;
  if (*p != ' ' || p == method) {
    const bool wrong_token = p != method && is_char(*p, kTextChar);
    return bad_line(in, p, wrong_token ? What::bad_method : What::bad_request_line, bad);
  }
  const char* target = p + 1;
  bool plain = false;
  const char* stop = find_target_end(in.base, target, in.end, plain);
  if (stop == target) return stop == in.end ? Line::starved : bad_line(in, stop, What::bad_request_line, bad);
  if (in.end - stop < 11 || std::memcmp(stop, " HTTP/1.", 8) != 0 || !is_digit(stop[8]) ||
      std::memcmp(stop + 9, "\r\n", 2) != 0)
    return bad_version_line(in, stop, bad);
  head.method_text = {method, static_cast<size_t>(p - method)};
  head.method = method_of(head.method_text);
  head.version = stop[8] == '0' ? Version::http10 : Version::http11;
  if (*target == '/' && head.method != Method::connect) {
    head.path = {target, static_cast<size_t>(stop - target)};
    head.target_plain = plain;
  } else if (!read_other_target({target, static_cast<size_t>(stop - target)}, head)) {
    bad = {What::bad_request_line, target};
    return Line::bad;
  }
  at = stop + 11;
  return Line::read;
}

// "HTTP/1.x" SP 3DIGIT [SP reason]. The SP before an absent reason is not insisted on: many origins leave it out.
Line status_line(const Input& in, const char*& at, Head& head, Bad& bad) noexcept {
  const char* p = at;
  const char* stop = find_control(in.base, p, in.end);
  if (starved_at(stop, in.end)) return Line::starved;
  const bool good = ends_line(stop, in.end) && stop - p >= 12 && std::memcmp(p, "HTTP/1.", 7) == 0 && is_digit(p[7]) &&
                    p[8] == ' ' && p[9] >= '1' && p[9] <= '5' && is_digit(p[10]) && is_digit(p[11]) &&
                    (stop - p == 12 || p[12] == ' ');
  if (!good) {
    bad = {What::bad_response, ends_line(stop, in.end) ? p : stop};
    return Line::bad;
  }
  head.version = p[7] == '0' ? Version::http10 : Version::http11;
  head.status = static_cast<uint16_t>((p[9] - '0') * 100 + (p[10] - '0') * 10 + (p[11] - '0'));
  head.reason = stop - p > 13 ? std::string_view(p + 13, static_cast<size_t>(stop - p - 13)) : std::string_view();
  at = stop + 2;
  return Line::read;
}

// The blanks around a value, where there is more than the usual one before it.
[[gnu::noinline]] const char* skip_blanks(const char* at, const char* end) noexcept {
  while (at != end && is_blank(*at)) ++at;
  return at;
}
[[gnu::noinline]] const char* trim_blanks(const char* from, const char* last) noexcept {
  while (last != from && is_blank(last[-1])) --last;
  return last;
}
inline bool above_blank(char c) noexcept { return static_cast<unsigned char>(c) > ' '; }

[[gnu::always_inline]] inline Line field_line(const Input& in, const char*& at, Field& field, Bad& bad) noexcept {
  const char* const name = at;
  const char* const end = in.end;
  const char* colon = find_plain_end(in.base, name, end);
  if (colon != end && *colon != ':') colon = find_token_end(colon, end);
  if (colon == end) [[unlikely]]
    return Line::starved;
  const auto name_size = static_cast<size_t>(colon - name);
  if (*colon != ':' || name_size - 1 >= UINT16_MAX) [[unlikely]] {
    if (!ends_line(name, end)) return bad_line(in, colon, What::bad_header_field, bad);
    at = name + 2;
    return Line::blank;
  }
  const char* value = colon + 1;
  if (end - value >= 2 && *value == ' ' && above_blank(value[1])) [[likely]]
    ++value;
  else
    value = skip_blanks(value, end);
  const char* const stop = find_control(in.base, value, end);
  if (!ends_line(stop, end)) [[unlikely]]
    return bad_line(in, stop, What::bad_header_field, bad);
  const char* const last = above_blank(stop[-1]) ? stop : trim_blanks(value, stop);
  const FieldId id = known_field(name, name_size, end);
  const bool hop = (field_bit(id) & kHopFields) != 0;
  field.name = name;
  field.value = value;
  field.value_size = static_cast<uint32_t>(last - value);
  field.name_size = static_cast<uint16_t>(name_size);
  field.id = id;
  field.hop = hop;
  field.removed = false;
  field.raw_line = true;
  field.line_pad = 0;
  if (last != stop) [[unlikely]] {
    const auto pad = static_cast<size_t>(stop - last);
    field.raw_line = pad <= kLinePadMax;
    field.line_pad = pad <= kLinePadMax ? pad & kLinePadMax : 0;
  }
  at = stop + 2;
  return Line::read;
}

// One more line than the table holds may come, if it is the empty one.
[[gnu::noinline]] Line line_beyond(const Input& in, const char*& at, Bad& bad) noexcept {
  Field extra;
  const char* const line = at;
  const Line read = field_line(in, at, extra, bad);
  if (read != Line::read) return read;
  bad = {What::too_many_fields, line};
  return Line::bad;
}

template <Kind kind>
Line start_line(const Input& in, const char*& at, Head& head, Bad& bad) noexcept {
  if constexpr (kind == Kind::request)
    return request_line(in, at, head, bad);
  else if constexpr (kind == Kind::response)
    return status_line(in, at, head, bad);
  else
    return Line::read;
}

void clear_decisions(Head& head) noexcept {
  head.body = BodyKind::none;
  head.keep_alive = true;
  head.expect_continue = head.te_trailers = head.absolute_form = head.has_length = head.target_plain = false;
  head.upgrade = Upgrade::none;
  head.content_length = 0;
  head.method_text = head.scheme = head.authority = head.path = head.reason = std::string_view();
}

template <Kind kind>
Verdict finish(Head& head, const Seen& seen, Method request) noexcept {
  if constexpr (kind == Kind::request) return finish_request(head, seen);
  if constexpr (kind == Kind::response) return finish_response(head, seen, request);
  finish_trailers(head);
  return Verdict();
}

// What the origin does wrong has its own names.
template <Kind kind>
What named(What what) noexcept {
  if constexpr (kind != Kind::response) return what;
  if (what == What::head_too_large || what == What::too_many_fields || what == What::uri_too_long)
    return What::response_head_too_large;
  return what == What::response_framing ? what : What::bad_response;
}

template <Kind kind>
ParseResult refuse(const Input& in, What what, const char* at) noexcept {
  return {Parse::bad, named<kind>(what), 0, at == nullptr ? 0 : static_cast<uint32_t>(at - in.base)};
}

// Where reading stands: behind `fields` field lines that were good, at the start of `line`.
struct Reading {
  const char* line;
  uint32_t fields;
  bool start_read;
  Seen seen;
  Bad bad;
};

// Reads lines up to the empty one (blank), to what is not there yet (starved; r.line is that line), or to a bad one.
template <Kind kind>
[[gnu::always_inline]] inline Line read_lines(const Input& in, uint32_t fields_max, Reading& r, Head& head) noexcept {
  const char* at = r.line;
  Line line = Line::read;
  if (!r.start_read) {
    clear_decisions(head);
    line = start_line<kind>(in, at, head, r.bad);
    if (line != Line::read) return line;
    r.start_read = true;
  }
  Field* field = head.fields.data() + r.fields;
  Field* const full = head.fields.data() + fields_max;
  Seen& seen = r.seen;
  uint64_t ids = 0;
  uint64_t repeated = 0;
  for (;;) {
    if (field == full) [[unlikely]] {
      line = line_beyond(in, at, r.bad);
      break;
    }
    line = field_line(in, at, *field, r.bad);
    if (line != Line::read) break;
    const uint64_t bit = field_bit(field->id);
    repeated |= ids & bit;
    ids |= bit;
    seen.last[static_cast<unsigned>(field->id)] = static_cast<uint16_t>(field - head.fields.data());
    ++field;
  }
  r.line = at;  // a line that was not read did not move it
  r.fields = static_cast<uint32_t>(field - head.fields.data());
  seen.ids = ids;
  seen.repeated = repeated;
  return line;
}

template <Kind kind>
ParseResult parse(const char* data, size_t size, size_t& scanned, const HeadLimits& limits, Method request,
                  Head& head) noexcept {
  const size_t head_max = std::min(limits.head_bytes, kHeadBytesMax);
  const uint32_t fields_max = std::min(limits.fields, kFieldsMax);
  const Input in{data, data + std::min(size, head_max)};
  Cursor cursor = Cursor::unpack(scanned);
  // A reload may have lowered the limits under a head that is on its way: read from its beginning it meets them where it should.
  if (cursor.fields > fields_max || data + cursor.line > in.end || data + cursor.search > in.end) [[unlikely]] {
    scanned = 0;
    cursor = Cursor();
  }
  Reading r;
  r.line = data + cursor.line;
  r.fields = cursor.fields;
  r.start_read = kind == Kind::trailers || cursor.line != 0;
  Line last = Line::starved;
  if (scanned == 0 || !starved_at(find_control(data, data + cursor.search, in.end), in.end))
    last = read_lines<kind>(in, fields_max, r, head);
  if (last == Line::blank && cursor.line != 0) {
    // Every line is good; now read them all at once, for this is the place where the bytes stay.
    r.line = data;
    r.fields = 0;
    r.start_read = kind == Kind::trailers;
    r.seen = Seen();
    last = read_lines<kind>(in, fields_max, r, head);
  }
  if (last == Line::bad) return refuse<kind>(in, r.bad.what, r.bad.at);
  if (last == Line::blank) {
    head.field_count = static_cast<uint16_t>(r.fields);
    const Verdict verdict = finish<kind>(head, r.seen, request);
    if (!verdict.good()) return refuse<kind>(in, verdict.what, verdict.at);
    return {Parse::done, What::none, static_cast<uint32_t>(r.line - data), 0};
  }
  if (size >= head_max) return refuse<kind>(in, r.start_read ? What::head_too_large : What::uri_too_long, in.end);
  // A CR at the very end is looked at again together with what follows it.
  const size_t search = size != 0 && data[size - 1] == '\r' ? size - 1 : size;
  scanned = Cursor{static_cast<uint32_t>(r.line - data), static_cast<uint32_t>(search), static_cast<uint16_t>(r.fields)}
                .pack();
  return {};
}

}  // namespace

ParseResult parse_request_head(const char* data, size_t size, size_t& scanned, const HeadLimits& limits,
                               Head& head) noexcept {
  return parse<Kind::request>(data, size, scanned, limits, Method::get, head);
}

ParseResult parse_response_head(const char* data, size_t size, size_t& scanned, const HeadLimits& limits,
                                Method request, Head& head) noexcept {
  return parse<Kind::response>(data, size, scanned, limits, request, head);
}

ParseResult parse_trailers(const char* data, size_t size, size_t& scanned, const HeadLimits& limits,
                           Head& trailers) noexcept {
  return parse<Kind::trailers>(data, size, scanned, limits, Method::get, trailers);
}

}  // namespace weir::h1

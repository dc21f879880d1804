#include "protocols/h1/writer.h"

#include <cstring>

#include "protocols/h1/semantics.h"

namespace weir::h1 {
namespace {

constexpr std::string_view kCrlf = "\r\n";
constexpr std::string_view kVersionOne = " HTTP/1.1\r\n";
constexpr std::string_view kStatusStart = "HTTP/1.1 ";
constexpr std::string_view kHost = "host: ";
constexpr std::string_view kLength = "content-length: ";
constexpr std::string_view kChunked = "transfer-encoding: chunked\r\n";
constexpr std::string_view kClose = "connection: close\r\n";
constexpr std::string_view kKeepAlive = "connection: keep-alive\r\n";
constexpr size_t kDecimalMax = 20;
constexpr size_t kHexMax = 16;
constexpr uint32_t kSmallChunk = kSlabBytes / 4;  // below this a chunk's data is copied next to its framing

constexpr uint32_t kTailMin = 64;  // less room than this behind a chain's end is not tried

// Written anew for each hop; `host` comes first, from the authority.
constexpr uint64_t kRewritten =
    field_bit(FieldId::host) | field_bit(FieldId::content_length) | field_bit(FieldId::transfer_encoding);
constexpr uint64_t kRewrittenInResponse = field_bit(FieldId::content_length) | field_bit(FieldId::transfer_encoding);

size_t put_decimal(char* to, uint64_t number) noexcept {
  char digits[kDecimalMax];
  size_t at = kDecimalMax;
  do {
    digits[--at] = static_cast<char>('0' + number % 10);
    number /= 10;
  } while (number != 0);
  std::memcpy(to, digits + at, kDecimalMax - at);
  return kDecimalMax - at;
}

size_t put_hex(char* to, uint64_t number) noexcept {
  const unsigned digits = number == 0 ? 1 : (64 - static_cast<unsigned>(__builtin_clzll(number)) + 3) / 4;
  for (unsigned i = digits; i-- > 0; number >>= 4) to[i] = "0123456789abcdef"[number & 15];
  return digits;
}

// Where the bytes go: Flat is one piece of memory that may turn out too small, Spill a chain of slabs.
struct Flat {
  char* at;
  char* end;
  bool good = true;
  void put(const char* from, size_t count) noexcept {
    if (static_cast<size_t>(end - at) < count) [[unlikely]] {
      good = false;
      return;
    }
    if (count != 0) std::memcpy(at, from, count);  // an empty view may point nowhere
    at += count;
  }
};
struct Spill {
  SlabPool& pool;
  Chain chain;
  bool good = true;
  void put(const char* from, size_t count) noexcept { good = good && chain.append_copy(pool, from, count); }
};

template <class Sink>
[[gnu::always_inline]] inline void put(Sink& sink, std::string_view text) noexcept {
  sink.put(text.data(), text.size());
}

// Room for `count` bytes: behind the chain's last slice if they fit there, else a new slab. Empty at the pool's limit.
Slice reserve(const Chain& out, SlabPool& pool, size_t count) noexcept {
  if (count > kSlabBytes) return Slice();
  if (!out.empty() && out.tail_room() >= count) {
    const Slice& last = out.back();
    Slab* slab = last.slab();
    SlabPool::ref(*slab);
    slab->used += static_cast<uint32_t>(count);
    return Slice(slab, last.offset() + last.size(), static_cast<uint32_t>(count));
  }
  Slab* slab = pool.take();
  if (slab == nullptr) return Slice();
  slab->used = static_cast<uint32_t>(count);
  return Slice(slab, 0, static_cast<uint32_t>(count));
}

bool forwarded(const Field& field, uint64_t rewritten) noexcept {
  return field.forwarded() && (field_bit(field.id) & rewritten) == 0;
}

template <class Sink>
void put_fields(Sink& sink, const Head& head, uint64_t rewritten) noexcept {
  const char* from = nullptr;  // the run of raw lines not yet copied
  const char* to = nullptr;
  for (const Field& field : head) {
    if (!forwarded(field, rewritten)) continue;
    if (field.raw_line) {
      if (field.name != to) {
        if (from != to) sink.put(from, static_cast<size_t>(to - from));
        from = field.name;
      }
      to = field.value + field.value_size + field.line_pad + 2;
      continue;
    }
    if (from != to) sink.put(from, static_cast<size_t>(to - from));
    from = to = nullptr;
    put(sink, field.name_view());
    put(sink, ": ");
    put(sink, field.value_view());
    put(sink, kCrlf);
  }
  if (from != to) sink.put(from, static_cast<size_t>(to - from));
}

template <class Sink>
void put_extra(Sink& sink, std::span<const ExtraField> extra) noexcept {
  for (const ExtraField& field : extra) {
    put(sink, field.name);
    put(sink, ": ");
    put(sink, field.value);
    put(sink, kCrlf);
  }
}

template <class Sink>
void put_framing(Sink& sink, const Framing& framing) noexcept {
  if (framing.body == BodyKind::chunked) {
    put(sink, kChunked);
  } else if (framing.body == BodyKind::length || framing.write_length) {
    char text[kDecimalMax + 2];
    const size_t digits = put_decimal(text, framing.length);
    text[digits] = '\r';
    text[digits + 1] = '\n';
    put(sink, kLength);
    sink.put(text, digits + 2);
  }
  if (framing.close)
    put(sink, kClose);
  else if (framing.keep_alive)
    put(sink, kKeepAlive);
  put(sink, kCrlf);
}

template <class Sink>
void put_request(Sink& sink, const Head& head, const Framing& framing, std::span<const ExtraField> extra) noexcept {
  put(sink, head.method_text);
  put(sink, " ");
  put(sink, head.method == Method::connect ? head.authority : head.path);
  put(sink, kVersionOne);
  put(sink, kHost);
  put(sink, head.authority);
  put(sink, kCrlf);
  put_fields(sink, head, kRewritten);
  put_extra(sink, extra);
  put_framing(sink, framing);
}

template <class Sink>
void put_response(Sink& sink, const Head& head, const Framing& framing, std::span<const ExtraField> extra) noexcept {
  const unsigned status = head.status;
  const char digits[4] = {static_cast<char>('0' + status / 100), static_cast<char>('0' + status / 10 % 10),
                          static_cast<char>('0' + status % 10), ' '};
  put(sink, kStatusStart);
  sink.put(digits, 4);
  put(sink, head.reason.empty() ? reason_phrase(head.status) : head.reason);
  put(sink, kCrlf);
  put_fields(sink, head, kRewrittenInResponse);
  put_extra(sink, extra);
  put_framing(sink, framing);
}

// Tries `write(sink)` in [slab->used, end of slab). The slice takes over the caller's reference to the slab.
template <class Write>
bool write_into(Chain& out, Slab* slab, Write write) noexcept {
  const uint32_t from = slab->used;
  Flat flat{slab->data + from, slab->data + kSlabBytes};
  write(flat);
  if (!flat.good) return false;
  const auto size = static_cast<uint32_t>(flat.at - slab->data) - from;
  slab->used = from + size;
  out.append(Slice(slab, from, size));
  return true;
}

// Behind what the chain ends with, if it fits there; else into one new slab; else over several.
template <class Write>
bool write_whole(Chain& out, SlabPool& pool, Write write) noexcept {
  if (!out.empty() && out.tail_room() >= kTailMin) {
    Slab* slab = out.back().slab();
    SlabPool::ref(*slab);
    if (write_into(out, slab, write)) return true;
    SlabPool::unref(*slab);
  }
  Slab* slab = pool.take();
  if (slab == nullptr) return false;
  if (write_into(out, slab, write)) return true;
  SlabPool::unref(*slab);
  Spill spill{.pool = pool, .chain = Chain()};
  write(spill);
  if (!spill.good) return false;
  out.append(std::move(spill.chain));
  return true;
}

}  // namespace

bool write_request_head(Chain& out, SlabPool& pool, const Head& head, const Framing& framing,
                        std::span<const ExtraField> extra) noexcept {
  return write_whole(out, pool, [&](auto& sink) { put_request(sink, head, framing, extra); });
}

bool write_response_head(Chain& out, SlabPool& pool, const Head& head, const Framing& framing,
                         std::span<const ExtraField> extra) noexcept {
  return write_whole(out, pool, [&](auto& sink) { put_response(sink, head, framing, extra); });
}

bool write_chunk(Chain& out, SlabPool& pool, Chain&& data) noexcept {
  if (data.empty()) return true;  // a chunk of size 0 would end the body
  char line[kHexMax + 4];
  size_t size = put_hex(line, data.bytes());
  std::memcpy(line + size, "\r\n\r\n", 4);
  size += 2;
  const size_t count = data.bytes();
  if (count < kSmallChunk) {
    Slice slice = reserve(out, pool, size + count + 2);
    if (!slice) return false;
    std::memcpy(slice.data(), line, size);
    data.copy_out(slice.data() + size, 0, count);
    std::memcpy(slice.data() + size + count, "\r\n", 2);
    data.clear();
    out.append(std::move(slice));
    return true;
  }
  // The size line and the CR LF behind the data come out of one slab: the next size line then follows on that CR LF.
  Slice before = reserve(out, pool, size + 2);
  if (!before) return false;
  std::memcpy(before.data(), line, size + 2);
  Slice after = before.share(static_cast<uint32_t>(size), 2);
  before.truncate(static_cast<uint32_t>(size));
  out.append(std::move(before));
  out.append(std::move(data));
  out.append(std::move(after));
  return true;
}

bool write_last_chunk(Chain& out, SlabPool& pool, const Head* trailers) noexcept {
  if (trailers == nullptr || trailers->field_count == 0) return out.append_copy(pool, "0\r\n\r\n", 5);
  return write_whole(out, pool, [&](auto& sink) {
    put(sink, "0\r\n");
    put_fields(sink, *trailers, kRewritten);
    put(sink, kCrlf);
  });
}

std::string_view reason_phrase(uint16_t status) noexcept {
  switch (status) {
    case 100: return "Continue";
    case 101: return "Switching Protocols";
    case 102: return "Processing";
    case 103: return "Early Hints";
    case 200: return "OK";
    case 201: return "Created";
    case 202: return "Accepted";
    case 203: return "Non-Authoritative Information";
    case 204: return "No Content";
    case 205: return "Reset Content";
    case 206: return "Partial Content";
    case 207: return "Multi-Status";
    case 208: return "Already Reported";
    case 226: return "IM Used";
    case 300: return "Multiple Choices";
    case 301: return "Moved Permanently";
    case 302: return "Found";
    case 303: return "See Other";
    case 304: return "Not Modified";
    case 305: return "Use Proxy";
    case 307: return "Temporary Redirect";
    case 308: return "Permanent Redirect";
    case 400: return "Bad Request";
    case 401: return "Unauthorized";
    case 402: return "Payment Required";
    case 403: return "Forbidden";
    case 404: return "Not Found";
    case 405: return "Method Not Allowed";
    case 406: return "Not Acceptable";
    case 407: return "Proxy Authentication Required";
    case 408: return "Request Timeout";
    case 409: return "Conflict";
    case 410: return "Gone";
    case 411: return "Length Required";
    case 412: return "Precondition Failed";
    case 413: return "Content Too Large";
    case 414: return "URI Too Long";
    case 415: return "Unsupported Media Type";
    case 416: return "Range Not Satisfiable";
    case 417: return "Expectation Failed";
    case 421: return "Misdirected Request";
    case 422: return "Unprocessable Content";
    case 423: return "Locked";
    case 424: return "Failed Dependency";
    case 425: return "Too Early";
    case 426: return "Upgrade Required";
    case 428: return "Precondition Required";
    case 429: return "Too Many Requests";
    case 431: return "Request Header Fields Too Large";
    case 451: return "Unavailable For Legal Reasons";
    case 500: return "Internal Server Error";
    case 501: return "Not Implemented";
    case 502: return "Bad Gateway";
    case 503: return "Service Unavailable";
    case 504: return "Gateway Timeout";
    case 505: return "HTTP Version Not Supported";
    case 507: return "Insufficient Storage";
    case 508: return "Loop Detected";
    case 511: return "Network Authentication Required";
    default: return "";
  }
}

}  // namespace weir::h1

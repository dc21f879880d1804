// libFuzzer target for the HTTP/1 codec. Input: two bytes that choose the kind of head, the limits and the cuts, then
// the bytes of a connection: a head and what follows it. It stops the process where the codec breaks a promise: another
// verdict when the bytes come in pieces, a view outside the head, a head that our own parser refuses after our writer
// wrote it, a body that depends on how it was cut, a target that is not in its one form after it was brought there.
// Memory errors are the sanitizers' to find: every buffer has exactly the size that the codec is told.
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <string_view>

#include "protocols/exchange/target.h"
#include "protocols/h1/body_reader.h"
#include "protocols/h1/parser.h"
#include "protocols/h1/writer.h"

namespace {

using namespace weir;
using namespace weir::h1;

enum class Kind : uint8_t { request, response, head_response, connect_response, trailers };

void promise(bool kept) {
  if (!kept) std::abort();
}

struct Buffer {
  explicit Buffer(std::string_view bytes) : data(new char[bytes.size()]), size(bytes.size()) {
    std::memcpy(data.get(), bytes.data(), size);
  }
  std::unique_ptr<char[]> data;
  size_t size;
};

ParseResult parse(Kind kind, const Buffer& bytes, size_t& scanned, const HeadLimits& limits, Head& head) {
  switch (kind) {
    case Kind::request: return parse_request_head(bytes.data.get(), bytes.size, scanned, limits, head);
    case Kind::response: return parse_response_head(bytes.data.get(), bytes.size, scanned, limits, Method::get, head);
    case Kind::head_response:
      return parse_response_head(bytes.data.get(), bytes.size, scanned, limits, Method::head, head);
    case Kind::connect_response:
      return parse_response_head(bytes.data.get(), bytes.size, scanned, limits, Method::connect, head);
    case Kind::trailers: return parse_trailers(bytes.data.get(), bytes.size, scanned, limits, head);
  }
  return {};
}

// The sizes of the pieces: small ones, never the same ones twice in a row.
struct Cuts {
  uint32_t state;
  size_t next(size_t left) {
    state = state * 1664525 + 1013904223;
    const size_t size = 1 + (state >> 24) % 23;
    return size < left ? size : left;
  }
};

void check_views(const Head& head, const Buffer& bytes, const ParseResult& result) {
  const char* const from = bytes.data.get();
  const char* const to = from + result.consumed;
  promise(result.consumed <= bytes.size);
  for (const Field& field : head) {
    promise(field.name >= from && field.name_size > 0 && field.value > field.name + field.name_size);
    promise(field.value + field.value_size + field.line_pad + 2 <= to);
    promise(field.id == field_id(field.name_view()));
    for (const char c : field.value_view()) promise(c != '\r' && c != '\n' && c != '\0');
    if (field.value_size > 0) promise(field.value[0] != ' ' && field.value[field.value_size - 1] != ' ');
    if (field.raw_line) promise(std::memcmp(field.value + field.value_size + field.line_pad, "\r\n", 2) == 0);
  }
}

SlabPool& pool() {
  static SlabPool pool(4u << 20);
  return pool;
}

std::string text(const Chain& chain) {
  std::string out(chain.bytes(), '\0');
  chain.copy_out(out.data(), 0, out.size());
  return out;
}

// What is written is read back as the same message.
void check_round_trip(const Head& head) {
  if (head.authority.empty() || head.body == BodyKind::until_close) return;
  Chain out;
  const Framing framing{.body = head.body, .length = head.content_length};
  promise(write_request_head(out, pool(), head, framing, {}));
  const Buffer written(text(out));
  const auto again = std::make_unique<Head>();
  size_t scanned = 0;
  const ParseResult result =
      parse(Kind::request, written, scanned, {.head_bytes = 1u << 20, .fields = kFieldsMax}, *again);
  if (head.field_count + 2 > static_cast<int>(kFieldsMax)) return;
  promise(result.state == Parse::done && result.consumed == written.size);
  promise(again->method == head.method && again->authority == head.authority && again->path == head.path);
  promise(again->body == head.body && again->content_length == head.content_length);
  for (const Field& field : *again) promise(!field.hop || field.id == FieldId::transfer_encoding);
}

// One form: reached in one step, without what could be read as another path, and no longer than what was sent.
void check_target(Head& head) {
  const size_t path_size = head.path.size();
  const size_t host_size = head.authority.size();
  const bool plain = head.target_plain;
  const std::string sent_path(head.path);
  const std::string sent_host(head.authority);
  if (normalise_target(head) != What::none) {
    promise(!plain);
    return;
  }
  promise(!plain || (head.path == sent_path && head.authority == sent_host));
  promise(head.path.size() <= path_size && head.authority.size() <= host_size && head.authority.empty() == (host_size == 0));
  for (const char c : head.authority) promise(c < 'A' || c > 'Z');
  const std::string path(head.path);
  const std::string host(head.authority);
  promise(normalise_target(head) == What::none && head.path == path && head.authority == host);
  const std::string before = path.substr(0, path.find('?')) + "/";
  if (path.empty() || path == "*") return;
  promise(path[0] == '/');
  for (const char* part : {"/./", "/../", "\\", "%2F", "%2f", "%5C", "%5c", "%00", "%2E", "%41", "%7E", "%7e"})
    promise(before.find(part) == std::string::npos);
}

void push(Chain& chain, std::string_view bytes) {
  Slab* slab = pool().take();
  promise(slab != nullptr && bytes.size() <= kSlabBytes);
  std::memcpy(slab->data, bytes.data(), bytes.size());
  slab->used = kSlabBytes;
  chain.append(Slice(slab, 0, static_cast<uint32_t>(bytes.size())));
}

void check_body(const Head& head, std::string_view bytes, Cuts cuts) {
  if (bytes.size() > kSlabBytes) return;
  Chain in, body, pieces, other;
  BodyReader whole, cut;
  whole.begin(head.body, head.content_length);
  cut.begin(head.body, head.content_length);
  if (!bytes.empty()) push(in, bytes);
  const auto want = whole.read(in, body, UINT64_MAX);
  auto have = cut.state();
  for (size_t at = 0; at < bytes.size();) {
    const size_t size = cuts.next(bytes.size() - at);
    push(pieces, bytes.substr(at, size));
    at += size;
    for (size_t before = 0; before != pieces.bytes();) {
      before = pieces.bytes();
      have = cut.read(pieces, other, cuts.next(SIZE_MAX));
    }
  }
  promise(want == have && text(body) == text(other) && whole.what() == cut.what());
  promise(want == BodyReader::State::bad || text(in) == text(pieces));
}

void run(Kind kind, const HeadLimits& limits, Cuts cuts, std::string_view input) {
  const auto head = std::make_unique<Head>();
  const Buffer all(input);
  size_t scanned = 0;
  const ParseResult whole = parse(kind, all, scanned, limits, *head);
  if (whole.state == Parse::done) {
    check_views(*head, all, whole);
    if (kind == Kind::request) check_round_trip(*head);
    if (kind != Kind::trailers) check_body(*head, input.substr(whole.consumed), cuts);
    if (kind == Kind::request) check_target(*head);  // the last: it changes the bytes
  }
  ParseResult cut;
  scanned = 0;
  for (size_t size = 0; cut.state == Parse::need_more && size < input.size();) {
    size += cuts.next(input.size() - size);
    cut = parse(kind, Buffer(input.substr(0, size)), scanned, limits, *head);
  }
  promise(cut.state == whole.state && cut.what == whole.what && cut.consumed == whole.consumed && cut.at == whole.at);
  promise(pool().in_use() == 0);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const bool control = std::getenv("WEIR_FUZZ_CONTROL") != nullptr;  // tests that a broken promise is seen
  promise(!control);
  if (size < 2) return 0;
  const HeadLimits limits = (data[0] & 0x80) != 0 ? HeadLimits{.head_bytes = 96, .fields = 4} : HeadLimits{};
  run(static_cast<Kind>((data[0] & 0x7f) % 5), limits, Cuts{data[1]},
      {reinterpret_cast<const char*>(data) + 2, size - 2});
  return 0;
}

// What the HTTP/1 writer puts out, to the byte; and that our own strict parser reads it back.
#include <cstring>
#include <memory>
#include <random>
#include <string>
#include <string_view>

#include <catch2/catch_test_macros.hpp>

#include "protocols/h1/body_reader.h"
#include "protocols/h1/parser.h"
#include "protocols/h1/writer.h"

using namespace weir;
using namespace weir::h1;

namespace {

std::string written(const Chain& chain) {
  std::string out(chain.bytes(), '\0');
  chain.copy_out(out.data(), 0, out.size());
  return out;
}

unsigned slices(const Chain& chain) {
  unsigned count = 0;
  for (const ChainNode* node = chain.first(); node != nullptr; node = node->next) ++count;
  return count;
}

// A head together with the bytes that its views point into.
struct OwnedHead {
  std::unique_ptr<const std::string> text;
  std::unique_ptr<Head> head;
  Head& operator*() const { return *head; }
  Head* operator->() const { return head.get(); }
};

OwnedHead parsed(std::string bytes, bool request) {
  OwnedHead p{std::make_unique<const std::string>(std::move(bytes)), std::make_unique<Head>()};
  const std::string& text = *p.text;
  size_t scanned = 0;
  const HeadLimits limits{.head_bytes = 1u << 20, .fields = 256};
  const ParseResult result = request ? parse_request_head(text.data(), text.size(), scanned, limits, *p)
                                     : parse_response_head(text.data(), text.size(), scanned, limits, Method::get, *p);
  INFO(text);
  REQUIRE(result.state == Parse::done);
  REQUIRE(result.consumed == text.size());
  return p;
}

std::string request(SlabPool& pool, const Head& head, const Framing& framing, std::span<const ExtraField> extra = {}) {
  Chain out;
  REQUIRE(write_request_head(out, pool, head, framing, extra));
  return written(out);
}
std::string response(SlabPool& pool, const Head& head, const Framing& framing, std::span<const ExtraField> extra = {}) {
  Chain out;
  REQUIRE(write_response_head(out, pool, head, framing, extra));
  return written(out);
}

}  // namespace

TEST_CASE("h1 request heads are regenerated", "[H5]") {
  SlabPool pool(1u << 20);
  const std::string in =
      "GET http://Shop.example/a?b HTTP/1.0\r\nAccept:*/*\r\nConnection: X-Gone, keep-alive\r\nHost: shop.example\r\n"
      "x-gone: 1\r\nX-Kept:  two \t\r\nTE: trailers\r\nUpgrade: h2c\r\nCookie: c\r\n\r\n";
  const auto head = parsed(in, true);
  const ExtraField extra[] = {{"via", "1.0 weir"}, {"x-empty", ""}};
  CHECK(request(pool, *head, {}, extra) ==
        "GET /a?b HTTP/1.1\r\nhost: Shop.example\r\nAccept:*/*\r\nX-Kept:  two \t\r\nCookie: c\r\n"
        "via: 1.0 weir\r\nx-empty: \r\n\r\n");
  // Fields taken out or put in by us.
  head->fields[7].removed = true;
  REQUIRE(head->add(FieldId::other, "x-added", "yes"));
  CHECK(request(pool, *head, {.close = true}) ==
        "GET /a?b HTTP/1.1\r\nhost: Shop.example\r\nAccept:*/*\r\nX-Kept:  two \t\r\nx-added: yes\r\n"
        "connection: close\r\n\r\n");
}

TEST_CASE("h1 framing is decided anew, never copied", "[H5]") {
  SlabPool pool(1u << 20);
  const auto post = parsed("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 7\r\nA: b\r\n\r\n", true);
  const std::string start = "POST / HTTP/1.1\r\nhost: a\r\nA: b\r\n";
  CHECK(request(pool, *post, {.body = BodyKind::chunked}) == start + "transfer-encoding: chunked\r\n\r\n");
  CHECK(request(pool, *post, {.body = BodyKind::length, .length = UINT64_MAX}) ==
        start + "content-length: 18446744073709551615\r\n\r\n");
  CHECK(request(pool, *post, {.write_length = true}) == start + "content-length: 0\r\n\r\n");
  CHECK(request(pool, *post, {}) == start + "\r\n");
  const auto chunked =
      parsed("HTTP/1.1 200 Fine\r\nTransfer-Encoding: chunked\r\nHost: kept\r\nProxy-Authenticate: x\r\n\r\n", false);
  CHECK(response(pool, *chunked, {.body = BodyKind::length, .length = 1234567890, .keep_alive = true}) ==
        "HTTP/1.1 200 Fine\r\nHost: kept\r\ncontent-length: 1234567890\r\nconnection: keep-alive\r\n\r\n");
  CHECK(response(pool, *chunked, {.body = BodyKind::until_close, .close = true}) ==
        "HTTP/1.1 200 Fine\r\nHost: kept\r\nconnection: close\r\n\r\n");
}

TEST_CASE("h1 responses get a reason") {
  SlabPool pool(1u << 20);
  Head head;
  head.status = 503;
  CHECK(response(pool, head, {}) == "HTTP/1.1 503 Service Unavailable\r\n\r\n");
  head.status = 299;
  CHECK(response(pool, head, {}) == "HTTP/1.1 299 \r\n\r\n");
  head.reason = "Mine";
  CHECK(response(pool, head, {}) == "HTTP/1.1 299 Mine\r\n\r\n");
  for (uint16_t status = 100; status < 600; ++status) CHECK(reason_phrase(status).size() <= 64);
}

TEST_CASE("h1 CONNECT is written in authority-form") {
  SlabPool pool(1u << 20);
  const auto head = parsed("CONNECT a:443 HTTP/1.1\r\nHost: a:443\r\n\r\n", true);
  CHECK(request(pool, *head, {}) == "CONNECT a:443 HTTP/1.1\r\nhost: a:443\r\n\r\n");
}

TEST_CASE("h1 heads stand in one piece where they fit, and behind what is there") {
  SlabPool pool(1u << 20);
  const auto head = parsed("GET / HTTP/1.1\r\nHost: a\r\nA: b\r\n\r\n", true);
  Chain out;
  for (int i = 0; i < 3; ++i) REQUIRE(write_request_head(out, pool, *head, {}, {}));
  CHECK(slices(out) == 1);
  CHECK(pool.in_use() == 1);
  const std::string one = "GET / HTTP/1.1\r\nhost: a\r\nA: b\r\n\r\n";
  CHECK(written(out) == one + one + one);
  // A slab that is nearly full: the head goes whole into the next.
  std::string filler(kSlabBytes - out.bytes() - 10, '.');
  REQUIRE(out.append_copy(pool, filler.data(), filler.size()));
  REQUIRE(write_request_head(out, pool, *head, {}, {}));
  CHECK(slices(out) == 2);
  CHECK(out.back().view() == one);
}

TEST_CASE("h1 heads above one slab are spread over several; at the pool's limit nothing is appended", "[H2]") {
  SlabPool pool(1u << 20);  // 64 slabs
  std::string in = "GET / HTTP/1.1\r\nHost: a\r\n";
  for (int i = 0; i < 40; ++i) in += "X-" + std::to_string(i) + ": " + std::string(1000, 'x') + "\r\n";
  in += "\r\n";
  const auto head = parsed(in, true);
  std::string expected = in;
  expected.replace(16, 4, "host");
  CHECK(request(pool, *head, {}) == expected);
  CHECK(pool.in_use() == 0);

  Chain hog;
  while (pool.in_use() + 1 < pool.limit()) {
    Slab* slab = pool.take();
    slab->used = kSlabBytes;
    hog.append(Slice(slab, 0, kSlabBytes));
  }
  Chain out;
  REQUIRE(out.append_copy(pool, "before", 6));
  CHECK_FALSE(write_request_head(out, pool, *head, {}, {}));
  CHECK(written(out) == "before");
  const auto small = parsed("GET / HTTP/1.1\r\nHost: a\r\n\r\n", true);
  CHECK(write_request_head(out, pool, *small, {}, {}));  // there is room behind "before"
  Chain none;
  CHECK_FALSE(write_request_head(none, pool, *small, {}, {}));
  CHECK_FALSE(write_chunk(none, pool, hog.take(100)));
  CHECK_FALSE(write_last_chunk(none, pool, nullptr));
  CHECK(none.empty());
}

TEST_CASE("h1 chunks: small ones are copied together, large ones travel as they are") {
  SlabPool pool(4u << 20);
  Chain out;
  REQUIRE(write_chunk(out, pool, Chain()));
  CHECK(out.empty());  // an empty chunk would end the body
  for (const char* part : {"hello", "x", "0123456789abcdef0"}) {
    Chain data;
    REQUIRE(data.append_copy(pool, part, std::strlen(part)));
    REQUIRE(write_chunk(out, pool, std::move(data)));
    CHECK(data.empty());
  }
  CHECK(written(out) == "5\r\nhello\r\n1\r\nx\r\n11\r\n0123456789abcdef0\r\n");
  CHECK(slices(out) == 1);
  CHECK(pool.in_use() == 1);
  for (int i = 0; i < 4; ++i) {
    Chain data;
    const std::string large(i == 3 ? 70000 : 16384, 'L');
    REQUIRE(data.append_copy(pool, large.data(), large.size()));
    const char* bytes = data.front().data();
    REQUIRE(write_chunk(out, pool, std::move(data)));
    bool moved = false;
    for (const ChainNode* node = out.first(); node != nullptr; node = node->next)
      moved = moved || node->slice.data() == bytes;
    CHECK(moved);
  }
  // 3 + 5 slabs of data, and one for all that is framing.
  CHECK(pool.in_use() == 9);
  REQUIRE(write_last_chunk(out, pool, nullptr));
  CHECK(pool.in_use() == 9);
  const std::string all = written(out);
  CHECK(all.ends_with("L\r\n0\r\n\r\n"));
  BodyReader reader;
  reader.begin(BodyKind::chunked, 0);
  Chain body;
  CHECK(reader.read(out, body, UINT64_MAX) == BodyReader::State::trailers);
  CHECK(body.bytes() == 5 + 1 + 17 + 3 * 16384 + 70000);
}

TEST_CASE("h1 trailers that may be sent are sent", "[H5][H9]") {
  SlabPool pool(1u << 20);
  const std::string in = "X-Sum: 1\r\nContent-Length: 5\r\nCookie: c\r\nGrpc-Status: 0\r\n\r\n";
  Head trailers;
  size_t scanned = 0;
  REQUIRE(parse_trailers(in.data(), in.size(), scanned, {}, trailers).state == Parse::done);
  Chain out;
  REQUIRE(write_last_chunk(out, pool, &trailers));
  CHECK(written(out) == "0\r\nX-Sum: 1\r\nGrpc-Status: 0\r\n\r\n");
}

TEST_CASE("h1 what we write our own parser reads, and writing it again changes nothing", "[H5]") {
  SlabPool pool(4u << 20);
  std::mt19937 random(7);
  const auto pick = [&](unsigned count) { return static_cast<unsigned>(random() % count); };
  const std::string_view lines[] = {"A: b",
                                    "x-long:"
                                    "   0123456789012345678901234567890123456789  ",
                                    "Connection: x-a",
                                    "x-a: gone",
                                    "Accept-Encoding: gzip, br",
                                    "Empty:",
                                    "Keep-Alive: 5",
                                    "Cookie: a=b; c=d",
                                    "Upgrade: x",
                                    "Via: 1.1 x",
                                    "Padded: v                                         "};
  for (int round = 0; round < 300; ++round) {
    std::string in = "PATCH /p?q=1 HTTP/1.1\r\n";
    const unsigned host_at = pick(3);
    const unsigned count = 3 + pick(8);
    for (unsigned i = 0; i < count; ++i) {
      if (i == host_at) in += "HOST: a.example:81\r\n";
      in.append(lines[pick(std::size(lines))]).append("\r\n");
    }
    in += "\r\n";
    const auto first = parsed(in, true);
    const Framing framing{.body = pick(2) != 0 ? BodyKind::length : BodyKind::chunked, .length = random()};
    const std::string once = request(pool, *first, framing);
    const auto second = parsed(once, true);
    CHECK(second->body == framing.body);
    if (framing.body == BodyKind::length) CHECK(second->content_length == framing.length);
    CHECK(second->authority == "a.example:81");
    if (in.find("Connection") != std::string::npos) CHECK(once.find("gone") == std::string::npos);
    // The forwarded fields of the first, in order, are the fields of the second between host and framing.
    std::string want;
    std::string have;
    for (const Field& field : *first)
      if (field.forwarded() && field.id != FieldId::host)
        want.append(field.name_view()).append("=").append(field.value_view()).append("|");
    for (const Field& field : *second)
      if (field.id != FieldId::host && field.id != FieldId::content_length && field.id != FieldId::transfer_encoding)
        have.append(field.name_view()).append("=").append(field.value_view()).append("|");
    CHECK(have == want);
    CHECK(request(pool, *second, framing) == once);
  }
  CHECK(pool.in_use() == 0);
}

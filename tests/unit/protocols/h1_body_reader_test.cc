// HTTP/1 bodies: every case with the input cut into slices at every point, and delivered whole or byte by byte, under
// every grant.
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

#include <catch2/catch_test_macros.hpp>

#include "protocols/h1/body_reader.h"

using namespace weir;
using namespace weir::h1;
using State = BodyReader::State;

namespace {

SlabPool& pool() {
  static SlabPool pool(8u << 20);
  return pool;
}

void push(Chain& chain, std::string_view bytes) {
  if (bytes.empty()) return;
  Slab* slab = pool().take();
  REQUIRE(slab != nullptr);
  REQUIRE(bytes.size() <= kSlabBytes);
  std::memcpy(slab->data, bytes.data(), bytes.size());
  slab->used = kSlabBytes;  // nobody extends it: each piece stays a slice of its own
  chain.append(Slice(slab, 0, static_cast<uint32_t>(bytes.size())));
}

std::string text(const Chain& chain) {
  std::string out(chain.bytes(), '\0');
  chain.copy_out(out.data(), 0, out.size());
  return out;
}

struct Read {
  State state = State::more;
  std::string body;
  std::string left;
};

// Gives `pieces` one after another; between two of them the reader is called until it moves no more, each call with
// `max`.
Read run(BodyKind kind, uint64_t length, const std::vector<std::string_view>& pieces, uint64_t max, bool at_once) {
  BodyReader reader;
  reader.begin(kind, length);
  Chain in;
  Chain body;
  Read read;
  for (size_t i = 0; i < pieces.size(); ++i) {
    push(in, pieces[i]);
    if (at_once && i + 1 < pieces.size()) continue;
    for (;;) {
      const size_t before = in.bytes();
      const size_t had = body.bytes();
      read.state = reader.read(in, body, max);
      REQUIRE(body.bytes() - had <= max);
      if (in.bytes() == before) break;
    }
  }
  if (pieces.empty()) read.state = reader.read(in, body, max);
  CHECK(reader.state() == read.state);
  CHECK((reader.what() != What::none) == (read.state == State::bad));
  read.body = text(body);
  read.left = text(in);
  return read;
}

// All at once, cut in two at every point (as slices and as deliveries), and byte by byte; with wide and narrow grants.
Read replay(BodyKind kind, uint64_t length, std::string_view bytes) {
  const Read whole = run(kind, length, {bytes}, UINT64_MAX, true);
  const auto same = [&](const Read& read) {
    CHECK(read.state == whole.state);
    CHECK(read.body == whole.body);
    if (whole.state != State::bad) CHECK(read.left == whole.left);
  };
  for (const uint64_t max : {UINT64_MAX, uint64_t{1}, uint64_t{3}}) {
    for (const bool at_once : {true, false}) {
      for (size_t cut = 0; cut <= bytes.size(); ++cut)
        same(run(kind, length, {bytes.substr(0, cut), bytes.substr(cut)}, max, at_once));
      std::vector<std::string_view> singles;
      for (size_t i = 0; i < bytes.size(); ++i) singles.push_back(bytes.substr(i, 1));
      same(run(kind, length, singles, max, at_once));
    }
  }
  return whole;
}

}  // namespace

TEST_CASE("h1 body by length") {
  CHECK(replay(BodyKind::none, 0, "next").state == State::done);
  CHECK(replay(BodyKind::none, 0, "next").left == "next");
  CHECK(replay(BodyKind::length, 0, "next").left == "next");
  const Read read = replay(BodyKind::length, 5, "hello, next");
  CHECK(read.state == State::done);
  CHECK(read.body == "hello");
  CHECK(read.left == ", next");
  CHECK(replay(BodyKind::length, 5, "hell").state == State::more);
}

TEST_CASE("h1 body by length, what the kernel moved counts") {
  BodyReader reader;
  reader.begin(BodyKind::length, 10);
  Chain in;
  Chain body;
  push(in, "abc");
  CHECK(reader.read(in, body, 2) == State::more);
  CHECK(reader.left() == 8);
  CHECK(reader.read(in, body, 2) == State::more);
  reader.relayed(3);
  CHECK(reader.left() == 4);
  reader.relayed(4);
  CHECK(reader.state() == State::done);
}

TEST_CASE("h1 body until close, and an end that comes too early") {
  CHECK(replay(BodyKind::until_close, 0, "all of it").body == "all of it");
  BodyReader reader;
  reader.begin(BodyKind::until_close, 0);
  CHECK(reader.eof() == State::done);
  reader.begin(BodyKind::length, 1);
  CHECK(reader.eof() == State::bad);
  reader.begin(BodyKind::length, 0);
  CHECK(reader.eof() == State::done);
  reader.begin(BodyKind::chunked, 0);
  CHECK(reader.eof() == State::bad);
  // The last chunk was there, the end of its trailer section was not: still short.
  reader.begin(BodyKind::chunked, 0);
  Chain in;
  Chain body;
  push(in, "0\r\n");
  CHECK(reader.read(in, body, 9) == State::trailers);
  CHECK(reader.eof() == State::bad);
  reader.begin(BodyKind::chunked, 0);
  push(in, "0\r\n");
  CHECK(reader.read(in, body, 9) == State::trailers);
  reader.trailers_read();
  CHECK(reader.eof() == State::done);
}

TEST_CASE("h1 chunked bodies", "[H3]") {
  const Read read = replay(BodyKind::chunked, 0, "5\r\nhello\r\n1A\r\n, this is a longer chunk..\r\n0\r\n\r\nnext");
  CHECK(read.state == State::trailers);
  CHECK(read.body == "hello, this is a longer chunk..");
  CHECK(read.left == "\r\nnext");
  CHECK(replay(BodyKind::chunked, 0, "0\r\n").state == State::trailers);
  CHECK(replay(BodyKind::chunked, 0, "0000000000000005\r\nhello\r\n00\r\n").body == "hello");
  CHECK(replay(BodyKind::chunked, 0, "5;a;b=c;d=\"e \t\xe9\"\r\nhello\r\n0;z\r\n").state == State::trailers);
  CHECK(replay(BodyKind::chunked, 0, "5\r\nhello\r\n").state == State::more);
  // The largest size there is: it is a number, what stands behind it is its data.
  const Read huge = replay(BodyKind::chunked, 0, "ffffffffffffffff\r\n0\r\n\r\n");
  CHECK(huge.state == State::more);
  CHECK(huge.body == "0\r\n\r\n");
}

TEST_CASE("h1 chunk framing that is refused", "[H3]") {
  const std::string_view rows[] = {"\r\n",
                                   "\n",
                                   "5\nhello",
                                   "5\r\r\nhello",
                                   "5\rhello",
                                   " 5\r\nhello",
                                   "5 \r\nhello",
                                   "5 ;a\r\nhello",
                                   "5\t\r\nhello",
                                   "+5\r\nhello",
                                   "-5\r\nhello",
                                   "0x5\r\nhello",
                                   "5h\r\nhello",
                                   "g\r\nhello",
                                   ";a\r\nhello",
                                   "5,5\r\nhello",
                                   "00000000000000005\r\nhello",
                                   "10000000000000005\r\nhello",
                                   "5;a\nhello",
                                   "5;a\rb\r\nhello",
                                   "5;a\x01\r\nhello",
                                   "5;a\x7f\r\nhello",
                                   "5\r\nhello0\r\n\r\n",
                                   "5\r\nhello\n0\r\n\r\n",
                                   "5\r\nhello\rX",
                                   "5\r\nhello\r\r\n",
                                   "5\r\nhello!\r\n",
                                   "5\r\nhello\r\n\r\n0\r\n",
                                   "0\n\n",
                                   "0\r\r",
                                   std::string_view("5;\0\r\nhello", 10)};
  for (const std::string_view bytes : rows) {
    INFO(bytes);
    const Read read = replay(BodyKind::chunked, 0, bytes);
    CHECK(read.state == State::bad);
    CHECK(std::string_view("hello").starts_with(read.body));
  }
}

TEST_CASE("h1 chunk framing may not outweigh the body", "[H3]") {
  // One byte a chunk, honestly framed, goes on for ever.
  std::string honest;
  for (int i = 0; i < 3000; ++i) honest += "1\r\nx\r\n";
  CHECK(run(BodyKind::chunked, 0, {honest.substr(0, 16000)}, UINT64_MAX, true).state == State::more);
  Read read = run(BodyKind::chunked, 0,
                  {std::string_view(honest).substr(0, 9000), std::string_view(honest).substr(9000)}, 7, false);
  CHECK(read.body.size() == 3000);
  CHECK(read.state == State::more);
  // 4096 bytes of extension are a line too long by one.
  const std::string extension(4096, 'e');
  CHECK(run(BodyKind::chunked, 0, {"1;" + extension.substr(1) + "\r\nx\r\n"}, 9, true).state == State::more);
  const std::string longest = "1;" + extension + "\r\nx\r\n";
  CHECK(run(BodyKind::chunked, 0, {longest}, 9, true).state == State::more);
  const std::string too_long = "1;" + extension + "e\r\nx\r\n";
  CHECK(run(BodyKind::chunked, 0, {too_long}, 9, true).state == State::bad);
  // A stream of long extensions is refused once it has spent its 16 KiB.
  std::string wasteful;
  for (int i = 0; i < 5; ++i) wasteful += longest;
  read =
      run(BodyKind::chunked, 0, {std::string_view(wasteful).substr(0, 12000), std::string_view(wasteful).substr(12000)},
          UINT64_MAX, false);
  CHECK(read.state == State::bad);
  CHECK(read.body == "xxxx");
}

TEST_CASE("h1 chunks that announce more than the limit are refused before a byte of them is taken", "[H2]") {
  BodyReader reader;
  const auto read = [&](std::string_view bytes, std::string& taken) {
    Chain in, body;
    push(in, bytes);
    const State state = reader.read(in, body, UINT64_MAX);
    taken = text(body);
    return state;
  };
  std::string taken;
  reader.begin(BodyKind::chunked, 0);
  reader.limit(10);
  CHECK(read("6\r\n123456\r\n4\r\n7890\r\n0\r\n", taken) == State::trailers);
  CHECK(taken == "1234567890");
  reader.begin(BodyKind::chunked, 0);
  reader.limit(10);
  CHECK(read("6\r\n123456\r\n5\r\n78901\r\n", taken) == State::bad);
  CHECK(taken == "123456");
  CHECK(reader.what() == What::body_too_large);
  reader.begin(BodyKind::chunked, 0);
  reader.limit(10);
  CHECK(read("ffffffffffffffff\r\nx", taken) == State::bad);
  CHECK(taken.empty());
  CHECK(reader.what() == What::body_too_large);
  reader.begin(BodyKind::chunked, 0);  // a limit is of one body
  CHECK(read("b\r\n", taken) == State::more);
}

TEST_CASE("h1 body reader copies nothing and stops at its grant") {
  Chain in;
  Chain body;
  push(in, "5\r\nhello\r\n0\r\n\r\n");
  const char* bytes = in.front().data();
  BodyReader reader;
  reader.begin(BodyKind::chunked, 0);
  CHECK(reader.read(in, body, 0) == State::more);
  CHECK(body.empty());
  CHECK(reader.read(in, body, 2) == State::more);
  CHECK(body.front().data() == bytes + 3);
  // With the last byte taken the end is seen, though the grant is used up.
  CHECK(reader.read(in, body, 3) == State::trailers);
  CHECK(text(body) == "hello");
  CHECK(in.bytes() == 2);
  in.clear();
  body.clear();
  CHECK(pool().in_use() == 0);
}

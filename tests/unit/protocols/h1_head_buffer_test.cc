// HeadBuffer: heads in pieces. What it hands to the parser, what it copies, and what is left behind.
#include <cstring>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include <catch2/catch_test_macros.hpp>

#include "protocols/h1/head_buffer.h"

using namespace weir;
using namespace weir::h1;

namespace {

constexpr uint32_t kLimit = 40000;

std::string bytes_of(const Chain& chain) {
  std::string out(chain.bytes(), '\0');
  chain.copy_out(out.data(), 0, out.size());
  return out;
}

// A slab of its own for each piece, as a receive leaves it; `full`: nobody may write behind it.
void push(Chain& chain, SlabPool& pool, std::string_view bytes, bool full = true) {
  Slab* slab = pool.take();
  REQUIRE(slab != nullptr);
  REQUIRE(bytes.size() <= kSlabBytes);
  std::memcpy(slab->data, bytes.data(), bytes.size());
  slab->used = full ? kSlabBytes : static_cast<uint32_t>(bytes.size());
  chain.append(Slice(slab, 0, static_cast<uint32_t>(bytes.size())));
}

struct HeadRig {
  bool parse() {
    calls.clear();
    return buffer.parse(in, pool, kLimit, result, [this](const char* data, size_t size, size_t& scanned) noexcept {
      calls.push_back(size);
      last = data;
      return parse_request_head(data, size, scanned, {.head_bytes = kLimit, .fields = 100}, *head);
    });
  }
  SlabPool pool{size_t{1} << 20};
  Chain in;
  HeadBuffer buffer;
  ParseResult result;
  std::unique_ptr<Head> head = std::make_unique<Head>();
  std::vector<size_t> calls;   // the sizes that the parser saw
  const char* last = nullptr;
};

std::string get(size_t size) {
  std::string out = "GET / HTTP/1.1\r\nHost: a\r\nX: ";
  out.append(size - out.size() - 4, 'x').append("\r\n\r\n");
  return out;
}

}  // namespace

TEST_CASE("h1 a head inside the first slab is not copied, whatever is pipelined behind it", "[H4]") {
  HeadRig rig;
  push(rig.in, rig.pool, get(100) + get(200));
  for (int i = 0; i < 3; ++i) push(rig.in, rig.pool, std::string(kSlabBytes, 'y'));
  const char* const bytes = rig.in.front().data();
  REQUIRE(rig.parse());
  CHECK(rig.result.state == Parse::done);
  CHECK(rig.last == bytes);
  CHECK(rig.calls.size() == 1);
  rig.buffer.take(rig.in, rig.result.consumed, *rig.head);
  CHECK(rig.head->backing.data() == bytes);
  CHECK(rig.pool.in_use() == 4);
  CHECK(rig.in.bytes() == 200 + 3 * kSlabBytes);
  REQUIRE(rig.parse());
  CHECK(rig.result.consumed == 200);
}

TEST_CASE("h1 a head that straddles two slabs is copied once, into a slab", "[H4]") {
  HeadRig rig;
  const std::string head = get(300);
  push(rig.in, rig.pool, head.substr(0, 120));
  push(rig.in, rig.pool, head.substr(120) + std::string(kSlabBytes - 180, 'y'));
  push(rig.in, rig.pool, std::string(kSlabBytes, 'z'));
  const std::string all = bytes_of(rig.in);
  REQUIRE(rig.parse());
  CHECK(rig.result.state == Parse::done);
  CHECK(rig.result.consumed == 300);
  CHECK(bytes_of(rig.in) == all);
  rig.buffer.take(rig.in, 300, *rig.head);
  CHECK(rig.head->big == nullptr);
  CHECK(rig.head->backing.view() == head);
  CHECK(bytes_of(rig.in) == all.substr(300));
}

TEST_CASE("h1 a head above one slab goes to the heap and leaves what follows it alone", "[H4]") {
  HeadRig rig;
  const std::string head = get(39000);
  std::string all = head + "next";
  for (size_t at = 0; at < all.size(); at += 9000) push(rig.in, rig.pool, std::string_view(all).substr(at, 9000));
  REQUIRE(rig.parse());
  CHECK(rig.result.state == Parse::done);
  CHECK(bytes_of(rig.in) == all);
  rig.buffer.take(rig.in, rig.result.consumed, *rig.head);
  REQUIRE(rig.head->big != nullptr);
  CHECK(rig.head->fields[1].value_view().size() == 39000 - 32);
  CHECK(bytes_of(rig.in) == "next");
  rig.head->reset();
  rig.in.clear();
  CHECK(rig.pool.in_use() == 0);
}

TEST_CASE("h1 a head that arrives byte by byte is looked at in growing pieces and copied at most twice", "[H4]") {
  for (const size_t size : {size_t{300}, size_t{20000}, size_t{39999}}) {
    HeadRig rig;
    const std::string head = get(size);
    size_t calls = 0;
    for (size_t at = 0; at < size; ++at) {
      Chain one;
      push(one, rig.pool, std::string_view(head).substr(at, 1), false);
      rig.buffer.append(rig.in, rig.pool, std::move(one));
      REQUIRE(rig.parse());
      calls += rig.calls.size();
      REQUIRE(rig.calls.back() == at + 1);
      REQUIRE(rig.pool.in_use() <= 4);
      REQUIRE(rig.result.state == (at + 1 == size ? Parse::done : Parse::need_more));
    }
    CHECK(calls <= 2 * size);
  }
}

TEST_CASE("h1 a head over its limit is refused with at most the limit joined", "[H2][H4]") {
  HeadRig rig;
  for (int i = 0; i < 4; ++i) push(rig.in, rig.pool, i == 0 ? get(kSlabBytes).substr(0, kSlabBytes - 4) : std::string(kSlabBytes, 'x'));
  REQUIRE(rig.parse());
  CHECK(rig.result.state == Parse::bad);
  CHECK(rig.result.what == What::head_too_large);
  CHECK(rig.calls.back() == kLimit);
}

TEST_CASE("h1 without memory to join the pieces parse says so, and nothing is gone", "[H4]") {
  HeadRig rig;
  push(rig.in, rig.pool, "GET / HT");
  push(rig.in, rig.pool, "TP/1.1\r\nHost: a\r\n\r\n");
  Chain hog;
  while (rig.pool.in_use() < rig.pool.limit()) push(hog, rig.pool, "x");
  CHECK_FALSE(rig.parse());
  CHECK(bytes_of(rig.in) == "GET / HTTP/1.1\r\nHost: a\r\n\r\n");
  hog.clear();
  REQUIRE(rig.parse());
  CHECK(rig.result.state == Parse::done);
}

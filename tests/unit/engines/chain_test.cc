// Chains against a string: what they carry, and a list of slabs: what they pin.
#include "engines/chain.h"

#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <random>
#include <string>
#include <vector>

using namespace weir;

namespace {

std::string text(const Chain& chain) {
  std::string out(chain.bytes(), '\0');
  REQUIRE(chain.copy_out(out.data(), 0, out.size()) == out.size());
  return out;
}

// What charge() promises, counted the slow way; and that the other fields agree with the nodes.
void audit(const Chain& chain) {
  size_t bytes = 0;
  size_t charge = 0;
  const Slab* before = nullptr;
  for (const ChainNode* node = chain.first(); node != nullptr; node = node->next) {
    REQUIRE(node->slice.size() > 0);
    REQUIRE(node->slice.offset() + node->slice.size() <= node->slice.slab()->used);
    REQUIRE(node->slice.slab()->refs > 0);
    bytes += node->slice.size();
    if (node->slice.slab() != before) charge += kSlabBytes;
    before = node->slice.slab();
  }
  REQUIRE(chain.bytes() == bytes);
  REQUIRE(chain.charge() == charge);
  REQUIRE(chain.empty() == (chain.first() == nullptr));
}

Slice fresh(SlabPool& pool, const std::string& bytes) {
  Slab* slab = pool.take();
  REQUIRE(slab != nullptr);
  std::copy(bytes.begin(), bytes.end(), slab->data);
  slab->used = static_cast<uint32_t>(bytes.size());
  return Slice(slab, 0, slab->used);
}

}  // namespace

TEST_CASE("random operations on chains equal those on strings") {
  SlabPool pool(64 << 20);
  std::mt19937 random(20261130);
  const auto below = [&random](size_t n) { return n == 0 ? 0 : static_cast<size_t>(random() % n); };
  const auto letters = [&](size_t n) {
    std::string out(n, '\0');
    for (char& c : out) c = static_cast<char>('a' + random() % 26);
    return out;
  };
  {
    struct Pair {
      Chain chain;
      std::string model;
    };
    std::vector<Pair> pairs(6);
    for (int step = 0; step < 60000; ++step) {
      Pair& a = pairs[below(pairs.size())];
      Pair& b = pairs[below(pairs.size())];
      const size_t size = below(4) == 0 ? 1 + below(kSlabBytes) : 1 + below(900);
      switch (random() % 12) {
        case 0: {
          const std::string bytes = letters(size);
          a.chain.append(fresh(pool, bytes));
          a.model += bytes;
          break;
        }
        case 1: {
          const std::string bytes = letters(size);
          a.chain.prepend(fresh(pool, bytes));
          a.model.insert(0, bytes);
          break;
        }
        case 2: {
          const std::string bytes = letters(below(8) == 0 ? 3 * kSlabBytes + size : size);
          REQUIRE(a.chain.append_copy(pool, bytes.data(), bytes.size()));
          a.model += bytes;
          break;
        }
        case 3:
          if (&a == &b) break;
          a.chain.append(std::move(b.chain));
          a.model += b.model;
          b.model.clear();
          break;
        case 4:
        case 5:
          if (&a == &b) break;
          a.chain.append_compact(pool, std::move(b.chain));
          a.model += b.model;
          b.model.clear();
          break;
        case 6:
        case 7: {
          const size_t count = below(a.model.size() + 1);
          a.chain.consume(count);
          a.model.erase(0, count);
          break;
        }
        case 8:
        case 9: {
          if (&a == &b) break;
          const size_t count = below(a.model.size() + 1);
          b.chain = a.chain.take(count);
          b.model = a.model.substr(0, count);
          a.model.erase(0, count);
          break;
        }
        case 10: {
          if (a.chain.empty()) break;
          const auto from = static_cast<uint32_t>(below(a.chain.front().size()));
          const auto count = static_cast<uint32_t>(below(a.chain.front().size() - from + 1));
          b.chain.append(a.chain.front().share(from, count));
          b.model += a.model.substr(from, count);
          break;
        }
        default: {
          const size_t from = below(a.model.size() + 10);
          const size_t count = below(5000);
          std::string out(count, '\0');
          out.resize(a.chain.copy_out(out.data(), from, count));
          REQUIRE(out == (from < a.model.size() ? a.model.substr(from, count) : std::string()));
          iovec pieces[7];
          const unsigned entries = a.chain.fill(pieces, 7, count);
          std::string filled;
          for (unsigned i = 0; i < entries; ++i) filled.append(static_cast<char*>(pieces[i].iov_base), pieces[i].iov_len);
          REQUIRE(filled == a.model.substr(0, filled.size()));
          if (entries < 7) REQUIRE(filled.size() == std::min(count, a.model.size()));
        }
      }
      for (Pair* pair : {&a, &b}) {
        audit(pair->chain);
        REQUIRE(pair->chain.bytes() == pair->model.size());
        if (pair->model.size() > 400000 || pool.in_use() > 3000) {
          pair->chain.clear();
          pair->model.clear();
        }
      }
      if (step % 64 == 0) {
        for (Pair& pair : pairs) REQUIRE(text(pair.chain) == pair.model);
      }
    }
    for (Pair& pair : pairs) REQUIRE(text(pair.chain) == pair.model);
  }
  CHECK(pool.in_use() == 0);
}

TEST_CASE("small pieces of many slabs do not pin those slabs", "[M3]") {
  SlabPool pool(16 << 20);
  Chain chain;
  std::vector<Slice> holders;  // somebody else holds the rest of each slab
  for (int i = 0; i < 100; ++i) {
    Slice whole = fresh(pool, std::string(kSlabBytes, 'x'));
    Chain piece;
    piece.append(whole.share(0, 100));
    chain.append_compact(pool, std::move(piece));
    holders.push_back(std::move(whole));
  }
  CHECK(chain.bytes() == 10000);
  CHECK(chain.charge() == kSlabBytes);
  holders.clear();
  CHECK(pool.in_use() == 1);
}

TEST_CASE("large pieces move without a copy") {
  SlabPool pool(1 << 20);
  Slice large = fresh(pool, std::string(kSlabBytes / 4, 'x'));
  const char* const data = large.data();
  Chain piece;
  Slice holder = large.share();
  piece.append(std::move(large));
  Chain chain;
  REQUIRE(chain.append_copy(pool, "head", 4));
  chain.append_compact(pool, std::move(piece));
  CHECK(chain.first()->next->slice.data() == data);
}

TEST_CASE("at the pool's limit copying fails whole and compacting moves") {
  SlabPool pool(1);
  std::vector<Slice> held;
  while (pool.in_use() < pool.limit()) held.push_back(fresh(pool, std::string(kSlabBytes - 10, 'x')));
  Chain chain;
  chain.append(std::move(held.back()));
  held.pop_back();
  const std::string before = text(chain);
  CHECK_FALSE(chain.append_copy(pool, "0123456789abc", 13));
  CHECK(text(chain) == before);
  CHECK(chain.append_copy(pool, "0123456789", 10));  // the tail slab has exactly that much room
  CHECK(text(chain) == before + "0123456789");
  Chain piece;
  piece.append(held.back().share(0, 5));
  chain.append_compact(pool, std::move(piece));
  CHECK(text(chain) == before + "0123456789" + "xxxxx");
  CHECK(chain.charge() == 2 * kSlabBytes);
}

TEST_CASE("only the holder of the high-water mark writes into a slab's rest") {
  SlabPool pool(1 << 20);
  Chain first;
  REQUIRE(first.append_copy(pool, "abc", 3));
  Chain second;
  second.append(first.front().share());
  REQUIRE(first.append_copy(pool, "def", 3));
  REQUIRE(second.append_copy(pool, "xyz", 3));
  CHECK(text(first) == "abcdef");
  CHECK(text(second) == "abcxyz");
  CHECK(first.charge() == kSlabBytes);
  CHECK(second.charge() == 2 * kSlabBytes);
}

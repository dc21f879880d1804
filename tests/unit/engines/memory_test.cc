// Slabs and slots: growth is by segment, counted, and moves nothing.
#include <catch2/catch_test_macros.hpp>
#include <algorithm>
#include <cstring>
#include <set>
#include <vector>

#include "engines/chain.h"
#include "engines/slab.h"
#include "engines/slot_pool.h"

using namespace weir;

TEST_CASE("slabs come by segments that never move", "[M2]") {
  SlabPool pool(7 * kSlabsPerSegment * kSlabBytes);
  CHECK(pool.committed() == 0);
  CHECK(pool.growths() == 0);
  std::vector<Slab*> taken;
  std::vector<char*> data;
  for (uint32_t i = 0; i < pool.limit(); ++i) {
    Slab* slab = pool.take();
    REQUIRE(slab != nullptr);
    CHECK(slab->used == 0);
    CHECK(reinterpret_cast<uintptr_t>(slab->data) % 4096 == 0);
    CHECK(&pool.at(slab->index) == slab);
    std::memset(slab->data, static_cast<int>(i), kSlabBytes);
    taken.push_back(slab);
    data.push_back(slab->data);
    // one segment, then as much again, up to the limit
    const unsigned steps = i < kSlabsPerSegment ? 1 : i < 2 * kSlabsPerSegment ? 2 : i < 4 * kSlabsPerSegment ? 3 : 4;
    CHECK(pool.growths() == steps);
    CHECK(pool.committed() == std::min<size_t>(size_t{kSlabsPerSegment} << (steps - 1), pool.limit()));
  }
  CHECK(pool.take() == nullptr);
  CHECK(pool.in_use() == pool.limit());
  for (size_t i = 0; i < taken.size(); ++i) {
    CHECK(taken[i]->data == data[i]);
    CHECK(static_cast<unsigned char>(data[i][kSlabBytes - 1]) == static_cast<unsigned char>(i));
  }
  CHECK(std::set<char*>(data.begin(), data.end()).size() == data.size());
  for (Slab* slab : taken) SlabPool::unref(*slab);
  CHECK(pool.in_use() == 0);
}

TEST_CASE("the second pass of the same load grows nothing", "[M1]") {
  SlabPool pool(256 * kSlabsPerSegment * kSlabBytes);
  const auto load = [&pool] {
    std::vector<Chain> chains(100);
    const std::string piece(700, 'x');
    for (int round = 0; round < 200; ++round) {
      for (Chain& chain : chains) REQUIRE(chain.append_copy(pool, piece.data(), piece.size()));
      for (Chain& chain : chains) {
        if (chain.bytes() > 50000) chain.consume(40000);
        if (!chain.empty()) chain.append(chain.front().share());
      }
    }
  };
  load();
  const uint64_t growths = pool.growths();
  CHECK(growths > 0);
  CHECK(pool.in_use() == 0);
  load();
  CHECK(pool.growths() == growths);
  CHECK(pool.in_use() == 0);
}

TEST_CASE("a pool's limit is rounded up to whole segments") {
  CHECK(SlabPool(1).limit() == kSlabsPerSegment);
  CHECK(SlabPool(0).limit() == kSlabsPerSegment);
  CHECK(SlabPool(size_t{kSlabBytes} * kSlabsPerSegment + 1).limit() == 2 * kSlabsPerSegment);
}

TEST_CASE("slots never move and are used again", "[E13]") {
  struct Thing {
    explicit Thing(int v) : value(v) {}
    int value;
    char rest[1000] = {};
  };
  SlotPool<Thing> pool;
  std::vector<Thing*> things;
  for (int i = 0; i < 10000; ++i) {
    Thing* thing = pool.make(i);
    REQUIRE(thing != nullptr);
    CHECK(reinterpret_cast<uintptr_t>(thing) % 64 == 0);
    things.push_back(thing);
  }
  for (int i = 0; i < 10000; ++i) CHECK(things[static_cast<size_t>(i)]->value == i);
  CHECK(pool.in_use() == 10000);
  const uint64_t growths = pool.growths();
  CHECK(growths > 1);
  std::set<Thing*> before(things.begin(), things.end());
  CHECK(before.size() == things.size());
  for (Thing* thing : things) pool.destroy(thing);
  CHECK(pool.in_use() == 0);
  for (int i = 0; i < 10000; ++i) pool.make(i);
  CHECK(pool.growths() == growths);
}

// The memory budget: leased in chunks, never above its limit, told when its level changes; pools and relays live within it.
#include <catch2/catch_test_macros.hpp>

#include <algorithm>
#include <cstring>
#include <thread>
#include <vector>

#include "engines/relay_pipes.h"
#include "engines/slab.h"
#include "engines/slot_pool.h"

using namespace weir;

namespace {

constexpr uint64_t kMiB = 1u << 20;

struct Levels : MemoryBudget::Watcher {
  explicit Levels(MemoryBudget& b) : budget(b) {
    changed = [](MemoryBudget::Watcher& w) noexcept {
      auto& self = static_cast<Levels&>(w);
      self.seen.push_back(self.budget.level());
    };
    budget.watch(*this);
  }
  ~Levels() { budget.unwatch(*this); }
  MemoryBudget& budget;
  std::vector<MemoryLevel> seen;
};

}  // namespace

TEST_CASE("the level rises at 80 and 95 %, falls at 92 and 75 %, and each change is told once", "[M7]") {
  using enum MemoryLevel;
  MemoryBudget budget(100 * kMiB);
  Levels levels(budget);
  const auto to = [&](uint64_t percent) {
    const uint64_t wanted = percent * kMiB;
    if (wanted > budget.used()) CHECK(budget.take(wanted - budget.used()));
    else budget.give(budget.used() - wanted);
    return budget.level();
  };
  CHECK(to(79) == normal);
  CHECK(to(80) == tight);
  CHECK(to(76) == tight);
  CHECK(to(94) == tight);
  CHECK(to(95) == critical);
  CHECK(to(93) == critical);
  CHECK(to(91) == tight);
  CHECK(to(74) == normal);
  CHECK(to(100) == critical);
  CHECK_FALSE(budget.take(1));
  CHECK(to(0) == normal);
  CHECK(levels.seen == std::vector{tight, critical, tight, normal, critical, normal});
  CHECK(to(50) == normal);
  budget.resize(60 * kMiB);   // a reload with less
  CHECK(budget.level() == tight);
  CHECK_FALSE(budget.take(11 * kMiB));
  CHECK(to(0) == normal);
}

TEST_CASE("leases take chunks, never more than there is in sum, and leave nothing behind", "[M7]") {
  MemoryBudget budget(32 * kMiB);
  const uint64_t chunk = budget.chunk_bytes();
  CHECK(chunk == 128u << 10);
  {
    MemoryLease lease(&budget);
    CHECK(lease.take(1));
    CHECK(budget.used() == chunk);
    CHECK(lease.take(chunk - 1));
    CHECK(budget.used() == chunk);
    CHECK(lease.take(1));
    CHECK(budget.used() == 2 * chunk);
    lease.give(chunk + 1);
    CHECK(budget.used() <= chunk);
  }
  CHECK(budget.used() == 0);
  std::vector<std::thread> threads;
  std::atomic<bool> exceeded{false};
  std::atomic<uint64_t> refused{0};
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&, i] {
      MemoryLease lease(&budget);
      uint64_t random = static_cast<uint64_t>(i) + 1;
      std::vector<size_t> held;
      for (int round = 0; round < 20'000; ++round) {
        random = random * 6364136223846793005u + 1442695040888963407u;
        const size_t bytes = (random >> 33) % (2 * kMiB);
        if (((random >> 20) & 1) != 0 && !held.empty()) {
          lease.give(held.back());
          held.pop_back();
        } else if (lease.take(bytes)) {
          held.push_back(bytes);
        } else {
          ++refused;
        }
        if (budget.used() > budget.limit() || lease.held() > budget.limit()) exceeded = true;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  CHECK_FALSE(exceeded);
  CHECK(refused > 0);
  CHECK(budget.used() == 0);
  CHECK(budget.level() == MemoryLevel::normal);
}

TEST_CASE("two pools share one budget: what one holds the other cannot have", "[M7]") {
  MemoryBudget budget(8 * kMiB);
  SlabPool one(64 * kMiB, &budget), two(64 * kMiB, &budget);
  std::vector<Slab*> taken;
  while (Slab* slab = one.take()) taken.push_back(slab);
  CHECK(taken.size() * kSlabBytes == 8 * kMiB);
  CHECK(budget.used() == 8 * kMiB);
  CHECK(two.take() == nullptr);
  for (Slab* slab : taken) SlabPool::unref(*slab);
  CHECK(budget.used() == 8 * kMiB);   // free, and still one's
  CHECK(two.take() == nullptr);
  CHECK(one.trim(0, SIZE_MAX) == taken.size());
  CHECK(budget.used() == 0);
  Slab* slab = two.take();
  REQUIRE(slab != nullptr);
  SlabPool::unref(*slab);
  const uint64_t growths = one.growths();
  slab = one.take();
  REQUIRE(slab != nullptr);
  CHECK(one.growths() == growths);   // the address space was there
  SlabPool::unref(*slab);
}

TEST_CASE("no input is taken beyond 97 %, and none without as much again for what is made of it", "[M7]") {
  MemoryBudget budget(100 * kMiB);
  MemoryLease other(&budget);
  SlabPool pool(256 * kMiB, &budget);
  REQUIRE(other.take(96 * kMiB));
  std::vector<Slab*> in, out;
  while (Slab* slab = pool.take_for_input()) in.push_back(slab);
  CHECK(in.size() == kMiB / kSlabBytes / 2);       // half of the percent that is left
  CHECK(budget.used() <= 97 * kMiB);
  CHECK_FALSE(pool.may_take_for_input());
  for (size_t i = 0; i < in.size(); ++i) out.push_back(pool.take());
  CHECK(budget.used() <= 97 * kMiB);               // all that came in can be answered
  CHECK(std::count(out.begin(), out.end(), nullptr) == 0);
  pool.tick_ended();
  CHECK(pool.may_take_for_input() == (pool.free() >= 2));
  MemoryLease third(&budget);
  CHECK_FALSE(third.take_for_input(2 * kMiB));
  CHECK_FALSE(third.ensure_begin(1));
  CHECK(third.take(2 * kMiB));                     // for what was begun
  while (Slab* slab = pool.take()) out.push_back(slab);
  CHECK(budget.used() <= budget.limit());
  for (int i = 0; i < 8; ++i) {                    // what was for finishing is not for input when it is free again
    SlabPool::unref(*out.back());
    out.pop_back();
  }
  pool.tick_ended();
  CHECK_FALSE(pool.may_take_for_input());
  CHECK(pool.take_for_input() == nullptr);
  third.give(2 * kMiB);
  other.give(kMiB);
  CHECK(pool.may_take_for_input());
  in.push_back(pool.take_for_input());
  CHECK(in.back() != nullptr);
  for (Slab* slab : in) SlabPool::unref(*slab);
  for (Slab* slab : out) SlabPool::unref(*slab);
}

TEST_CASE("what ensure_begin found stays this lease's; it finds nothing beyond 90 %", "[M7]") {
  MemoryBudget budget(100 * kMiB);
  MemoryLease one(&budget), two(&budget);
  REQUIRE(two.take(84 * kMiB));
  REQUIRE(one.ensure_begin(5 * kMiB));
  CHECK(one.held() == 0);
  CHECK(two.take(9 * kMiB));
  CHECK_FALSE(two.take(3 * kMiB));
  CHECK_FALSE(one.ensure_begin(1));   // others need what is left
  CHECK(one.take(5 * kMiB));
}

TEST_CASE("a large head's memory is charged until it goes", "[M7]") {
  MemoryBudget budget(kMiB);
  MemoryLease lease(&budget);
  LeasedBytes head = take_bytes(lease, 600 << 10);
  REQUIRE(head != nullptr);
  CHECK(lease.held() == 600 << 10);
  CHECK(take_bytes(lease, 600 << 10) == nullptr);
  head.reset();
  CHECK(lease.held() == 0);
  CHECK(take_bytes(lease, 600 << 10) != nullptr);
}

TEST_CASE("trimming gives pages back, keeps what is in use, and takes the least used first", "[M3]") {
  SlabPool pool(4 * kMiB);
  std::vector<Slab*> taken;
  for (int i = 0; i < 128; ++i) {
    taken.push_back(pool.take());
    std::memset(taken.back()->data, 'x', kSlabBytes);
  }
  CHECK(pool.take_peak() == 0);
  pool.tick_ended();
  CHECK(pool.take_peak() == 128);
  Slab* kept = taken.back();
  taken.pop_back();
  for (Slab* slab : taken) SlabPool::unref(*slab);
  CHECK(pool.warm() == 128);
  CHECK(pool.trim(27, 40) == 40);
  CHECK(pool.trim(27, SIZE_MAX) == 60);
  CHECK(pool.trim(27, SIZE_MAX) == 0);
  CHECK(pool.warm() == 28);
  CHECK(pool.in_use() == 1);
  CHECK(kept->data[kSlabBytes - 1] == 'x');
  const char* first = taken.front()->data;
  const char* last = taken.back()->data;
  for (Slab*& slab : taken) slab = pool.take();   // a free slab's bytes are nobody's to read
  CHECK(first[0] == 0);    // given back first, needed last
  CHECK(last[0] == 'x');   // the hottest stays
  CHECK(pool.warm() >= 128);
  for (Slab* slab : taken) SlabPool::unref(*slab);
  SlabPool::unref(*kept);
  CHECK(pool.in_use() == 0);
}

TEST_CASE("objects are charged by segment and refused at the limit", "[M7]") {
  struct Large { char bytes[4096]; };
  MemoryBudget budget(kMiB);
  MemoryLease lease(&budget);
  SlotPool<Large> slots;
  slots.charge_to(lease);
  std::vector<Large*> made;
  while (Large* one = slots.make()) made.push_back(one);
  CHECK(made.size() >= 128);
  CHECK(made.size() < 256);
  CHECK(lease.held() >= made.size() * sizeof(Large));
  CHECK(lease.held() <= budget.limit());
  slots.destroy(made.back());
  CHECK(slots.make() != nullptr);
}

TEST_CASE("the fuller the budget the smaller a relay's pipe; from 80 % on there is none", "[M7]") {
  MemoryBudget budget(100 * kMiB);
  MemoryLease other(&budget), lease(&budget);
  const auto size_at = [&](uint64_t percent) -> uint32_t {
    other.give(other.held());
    REQUIRE(other.take(percent * kMiB));
    RelayPipes pipes(lease);
    RelayOp op;
    if (!pipes.take(op)) return 0;
    CHECK(lease.held() == op.pipe_capacity);
    CHECK(lease.pipe_bytes == op.pipe_capacity);
    CHECK(op.pipe_capacity <= op.pipe_bytes);
    const uint32_t got = op.pipe_capacity;
    pipes.give_back(op, true);
    CHECK(lease.held() == 0);
    CHECK(lease.pipe_bytes == 0);
    return got;
  };
  CHECK(size_at(10) >= RelayPipes::kPipeBytesMin);
  CHECK(size_at(10) <= kRelayHeldMax);
  CHECK(size_at(50) <= kRelayHeldMax / 3);
  CHECK(size_at(70) == RelayPipes::kPipeBytesMin);
  CHECK(size_at(81) == 0);
}

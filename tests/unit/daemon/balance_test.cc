// Who gets the next request.
#include <catch2/catch_test_macros.hpp>

#include <algorithm>
#include <memory>

#include "daemon/balance.h"
#include "daemon/runtime.h"

namespace weir {
namespace {

// Endpoints with these weights; weight 0 stands for a name that does not resolve.
class Servers {
 public:
  Servers(config::Balance balance, const std::vector<uint32_t>& weights) : loop_(clock_, {}), context_(loop_), endpoints_(weights.size()) {
    rotation.balance = balance;
    for (size_t i = 0; i < weights.size(); ++i) {
      Pool* pool = nullptr;
      if (weights[i] != 0) {
        pools_.push_back(std::make_unique<Pool>(set_, context_, Address(), allowance_));
        pool = pools_.back().get();
      }
      rotation.add(endpoints_[i], pool, std::max(weights[i], 1u));
    }
  }
  std::string take(size_t count, uint64_t tried = 0, bool hold = false) {
    std::string order;
    for (size_t i = 0; i < count; ++i) {
      Rotation::Target* target = rotation.pick(tried);
      if (target == nullptr) return order + "-";
      order += static_cast<char>('A' + (target - rotation.targets.data()));
      if (hold) ++target->pool->active;
    }
    return order;
  }
  Rotation rotation;

 private:
  SystemClock clock_;
  Loop loop_;
  ExchangeContext context_;
  PoolSet set_{context_, 0};
  Allowance allowance_;
  std::vector<Endpoint> endpoints_;
  std::vector<std::unique_ptr<Pool>> pools_;
};

size_t count_of(const std::string& text, char c) { return static_cast<size_t>(std::count(text.begin(), text.end(), c)); }

}  // namespace

TEST_CASE("round_robin: weights hold, and the heavy one does not go in a row") {
  CHECK(Servers(config::Balance::round_robin, {1, 1, 1}).take(6) == "ABCABC");
  CHECK(Servers(config::Balance::round_robin, {5, 1, 1}).take(7) == "AABACAA");
  CHECK(Servers(config::Balance::round_robin, {1, 0, 1}).take(4) == "ACAC");
  CHECK(Servers(config::Balance::round_robin, {0, 0}).take(1) == "-");
  CHECK(Servers(config::Balance::round_robin, {3}).take(3) == "AAA");
}

TEST_CASE("whoever failed a request does not get it again, and others keep their shares") {
  for (const auto balance : {config::Balance::round_robin, config::Balance::least_requests, config::Balance::random}) {
    Servers servers(balance, {10, 1, 1});
    const std::string others = servers.take(40, 1);
    CHECK(count_of(others, 'A') == 0);
    CHECK(count_of(others, 'B') >= 8);
    CHECK(count_of(others, 'C') >= 8);
    CHECK(servers.take(1, 7) == "-");
    CHECK(Servers(balance, {1}).take(1, 1) == "-");
  }
}

TEST_CASE("least_requests: the fewest in flight for their weight, equals in turn") {
  CHECK(Servers(config::Balance::least_requests, {1, 1, 1}).take(6, 0, false) == "ABCABC");
  Servers servers(config::Balance::least_requests, {1, 1});
  servers.rotation.targets[0].pool->active = 3;
  CHECK(servers.take(3, 0, true) == "BBB");
  CHECK(count_of(servers.take(2, 0, true), 'A') == 1);
  Servers weighted(config::Balance::least_requests, {3, 1});
  const std::string eight = weighted.take(8, 0, true);
  CHECK(count_of(eight, 'A') == 6);
  CHECK(count_of(eight, 'B') == 2);
}

TEST_CASE("random: weights hold over many") {
  const std::string order = Servers(config::Balance::random, {3, 1, 0}).take(8000);
  CHECK(count_of(order, 'C') == 0);
  CHECK(count_of(order, 'A') > 5700);
  CHECK(count_of(order, 'A') < 6300);
  CHECK(order.find("AB") != std::string::npos);
  CHECK(order.find("BB") != std::string::npos);
}

TEST_CASE("a weighted choice of upstreams goes by turns, and one of weight 0 gets nothing") {
  SmoothWheel wheel;
  for (const uint32_t weight : {0u, 9u, 1u}) wheel.add(weight);
  size_t counts[3] = {};
  for (int i = 0; i < 100; ++i) ++counts[wheel.next()];
  CHECK(counts[0] == 0);
  CHECK(counts[1] == 90);
  CHECK(counts[2] == 10);
}

TEST_CASE("an allowance is taken to its limit and given back") {
  Allowance allowance;
  CHECK(allowance.take(2));
  CHECK(allowance.take(2));
  CHECK_FALSE(allowance.take(2));
  CHECK(allowance.open() == 2);
  allowance.give_back();
  CHECK(allowance.take(2));
  CHECK_FALSE(allowance.take(0));
}

TEST_CASE("a wish for a place is heard once, by others, for a second, unless it is taken back") {
  using namespace std::chrono_literals;
  Allowance allowance;
  const TimePoint now = TimePoint() + 1000h;
  CHECK_FALSE(allowance.wanted(0, now));
  allowance.want(1, now);
  CHECK_FALSE(allowance.wanted(1, now));
  CHECK(allowance.wanted(0, now + 900ms));
  CHECK_FALSE(allowance.wanted(0, now + 900ms));
  allowance.want(1, now);
  CHECK_FALSE(allowance.wanted(0, now + 1100ms));
  allowance.want(1023, now + 2s);
  allowance.withdraw(1);
  CHECK(allowance.wanted(1, now + 2s));
  allowance.want(1, now + 2s);
  allowance.withdraw(1);
  CHECK_FALSE(allowance.wanted(0, now + 2s));
}

}  // namespace weir

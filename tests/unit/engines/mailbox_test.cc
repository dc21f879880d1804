#include "engines/mailbox.h"

#include <poll.h>

#include <catch2/catch_test_macros.hpp>
#include <memory>
#include <thread>
#include <vector>

using namespace weir;

namespace {

struct Numbered : Message {
  uint32_t producer = 0;
  uint32_t number = 0;
  std::vector<uint32_t>* next_of = nullptr;
  bool* in_order = nullptr;
};

bool wake_pending(const Mailbox& box) {
  pollfd p{.fd = box.wake_fd(), .events = POLLIN, .revents = 0};
  return poll(&p, 1, 0) == 1;
}

}  // namespace

TEST_CASE("ten million messages from eight threads arrive, each producer's in order", "[U1]") {
  constexpr uint32_t kProducers = 8;
  constexpr uint32_t kEach = 1'250'000;
  Mailbox box;
  std::vector<uint32_t> next_of(kProducers, 0);
  bool in_order = true;
  std::vector<std::unique_ptr<Numbered[]>> messages(kProducers);
  for (auto& list : messages) list = std::make_unique<Numbered[]>(kEach);
  std::vector<std::thread> threads;
  for (uint32_t p = 0; p < kProducers; ++p) {
    threads.emplace_back([&, p] {
      for (uint32_t i = 0; i < kEach; ++i) {
        Numbered& message = messages[p][i];
        message.producer = p;
        message.number = i;
        message.next_of = &next_of;
        message.in_order = &in_order;
        message.run = [](Message& m) noexcept {
          auto& numbered = static_cast<Numbered&>(m);
          *numbered.in_order &= (*numbered.next_of)[numbered.producer]++ == numbered.number;
        };
        box.push(message);
      }
    });
  }
  // Sleeps whenever the box is empty: a lost wake would hang here.
  uint64_t got = 0;
  while (got < uint64_t{kProducers} * kEach) {
    pollfd p{.fd = box.wake_fd(), .events = POLLIN, .revents = 0};
    REQUIRE(poll(&p, 1, 60000) == 1);
    box.clear_wake();
    got += box.drain();
  }
  for (std::thread& thread : threads) thread.join();
  CHECK(got == uint64_t{kProducers} * kEach);
  CHECK(in_order);
  CHECK(box.empty());
}

TEST_CASE("a burst costs one wake", "[U1]") {
  Mailbox box;
  std::vector<Message> messages(100000);
  uint32_t got = 0;
  for (size_t burst = 0; burst < 1000; ++burst) {
    for (size_t i = 0; i < 100; ++i) {
      Message& message = messages[burst * 100 + i];
      message.run = [](Message&) noexcept {};
      box.push(message);
    }
    CHECK(wake_pending(box));
    box.clear_wake();
    CHECK_FALSE(wake_pending(box));
    got += box.drain();
  }
  CHECK(got == 100000);
  CHECK(box.wakes() == 1000);  // the promise is at most 1,100
}

TEST_CASE("a message may push itself again; it runs in the next drain") {
  Mailbox box;
  struct Again : Message {
    Mailbox* box = nullptr;
    int runs = 0;
  } again;
  again.box = &box;
  again.run = [](Message& m) noexcept {
    auto& self = static_cast<Again&>(m);
    if (++self.runs < 3) self.box->push(self);
  };
  box.push(again);
  CHECK(box.drain() == 1);
  CHECK(box.drain() == 1);
  CHECK(box.drain() == 1);
  CHECK(box.drain() == 0);
  CHECK(again.runs == 3);
}

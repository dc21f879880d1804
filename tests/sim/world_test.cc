// A random world by seed, and that its checkers fire.
// Again: WEIR_SIM_SEED=17 sim '[world]' plays one seed; WEIR_SIM_SEEDS=5000 plays so many.
#include <catch2/catch_test_macros.hpp>

#include <cstdlib>

#include "tests/sim/random_world.h"

namespace weir::simtest {
namespace {

uint64_t number(const char* variable, uint64_t otherwise) {
  const char* text = std::getenv(variable);
  return text == nullptr ? otherwise : std::strtoull(text, nullptr, 10);
}

}  // namespace

TEST_CASE("a random world: each exchange ends once, bytes are equal, nothing is left behind", "[world][E9][H4][H7][M3]") {
  const uint64_t one = number("WEIR_SIM_SEED", 0);
  const uint64_t last = one != 0 ? one : number("WEIR_SIM_SEEDS", 200);
  RandomWorld::Totals totals;
  for (uint64_t seed = one != 0 ? one : 1; seed <= last; ++seed) {
    INFO("WEIR_SIM_SEED=" << seed << " sim '[world]'");   // for a broken promise, which ends the program
    RandomWorld world(seed);
    const std::string wrong = world.run();
    world.add_to(totals);
    if (!wrong.empty()) FAIL_CHECK(wrong);
  }
  if (one != 0) return;
  // It is no world where nothing happens.
  CHECK(totals.requests > 10 * last);
  CHECK(totals.whole > 6 * last);
  CHECK(totals.relays > last / 10);
  CHECK(totals.retries > last / 10);
  CHECK(totals.timeouts > last / 10);
  CHECK(totals.refused > 0);
  CHECK(totals.reused > last);
}

TEST_CASE("a seed fixes a world", "[world]") {
  const auto play = [](uint64_t seed) {
    RandomWorld world(seed);
    world.run();
    RandomWorld::Totals t;
    world.add_to(t);
    return std::vector<uint64_t>{t.requests, t.whole, t.relays, t.retries, t.timeouts, t.refused, t.reused};
  };
  CHECK(play(7) == play(7));
  CHECK(play(7) != play(9));
}

TEST_CASE("control: an origin that lies is found out", "[world]") {
  using enum RandomWorld::Sabotage;
  for (const auto sabotage : {flip_byte, swap_answers, shorten}) {
    size_t found = 0;
    for (uint64_t seed = 1; seed <= 20; ++seed) found += !RandomWorld(seed, sabotage).run().empty();
    CAPTURE(static_cast<int>(sabotage));
    CHECK(found >= 10);
  }
}

TEST_CASE("control: what is missing is missed", "[world]") {
  std::vector<Plan> plans(2);
  for (size_t i = 0; i < 2; ++i) {
    plans[i].method = "GET";
    plans[i].target = "/" + std::to_string(i);
    plans[i].down_bytes = 5 + i;
    plans[i].seed = i;
  }
  const auto answer = [&](size_t i) {
    return "HTTP/1.1 200 OK\r\nX-Id: " + plans[i].target + "\r\nContent-Length: " + std::to_string(plans[i].down_bytes) +
           "\r\n\r\n" + plans[i].down();
  };
  const auto verdict = [&](const std::string& bytes, size_t whole) {
    Wire wire(Wire::Side::responses);
    wire.feed(bytes);
    wire.ended();
    return judge(plans, wire, whole);
  };
  CHECK(verdict(answer(0) + answer(1), 2) == "");
  CHECK(verdict(answer(0), 1) == "");
  CHECK(verdict(answer(0), 2) != "");
  CHECK(verdict(answer(1) + answer(0), 0) != "");
  CHECK(verdict(answer(0) + answer(0), 0) != "");
  CHECK(verdict(answer(0) + answer(1) + answer(1), 0) != "");
  CHECK(verdict(answer(0) + "x" + answer(1), 0) != "");
  CHECK(verdict(answer(0).substr(0, 60), 0) == "");
  CHECK(verdict("HTTP/1.1 502 Bad Gateway\r\nContent-Length: 0\r\n\r\n" + answer(1), 0) == "");
  CHECK(verdict("HTTP/1.1 502 Bad Gateway\r\nContent-Length: 0\r\n\r\n" + answer(1), 1) != "");
}

TEST_CASE("control: what a proxy leaves behind is seen", "[world]") {
  SECTION("a slab") {
    Slice kept;
    Proxy proxy;
    kept = Slice(proxy.loop.slabs().take(), 0, 1);
    CHECK(proxy.verdict().find("slabs held (1)") != std::string::npos);
    kept.reset();
  }
  SECTION("an exchange that does not end") {
    Proxy proxy;
    proxy.exchanges.stats.started.add();
    CHECK(proxy.verdict().find("exchanges that did not end once (1)") != std::string::npos);
  }
  SECTION("a failed audit") {
    Proxy proxy;
    proxy.exchanges.pipes.audits_failed.add();
    CHECK(proxy.verdict().find("pipe audits failed (1)") != std::string::npos);
  }
  SECTION("an op and a descriptor") {
    Proxy proxy;
    int fd = -1;
    SimPeer& peer = proxy.network.pair(&fd);
    Socket socket;
    proxy.loop.adopt(socket, fd, EngineKind::sim);
    RecvOp recv;
    recv.socket = &socket;
    recv.want = 1;
    recv.complete = [](Op&) noexcept {};
    proxy.loop.submit(recv);
    const std::string verdict = proxy.verdict();
    CHECK(verdict.find("ops in flight (1)") != std::string::npos);
    CHECK(verdict.find("descriptors open (1)") != std::string::npos);
    peer.send("x");
    CHECK(proxy.run([&] { return recv.idle(); }));
    recv.bytes.clear();
    proxy.loop.close(socket);
  }
}

}  // namespace weir::simtest

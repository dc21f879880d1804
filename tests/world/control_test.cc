// Controls: that the checkers of a random world fire, and that a seed is all there is to it.
#include <catch2/catch_test_macros.hpp>

#include "tests/world/random_world.h"

namespace weir::simtest {

TEST_CASE("a seed fixes a world", "[world]") {
  const auto play = [](uint64_t seed) {
    RandomWorld world(seed);
    world.run();
    RandomWorld::Totals totals;
    world.add_to(totals);
    return totals;
  };
  CHECK((play(7) == play(7)));
  CHECK((play(7) != play(9)));
}

TEST_CASE("a trace tells what happened, in the same words each time", "[world]") {
  const auto trace = [](uint64_t seed) {
    std::string text;
    RandomWorld world(seed, {.trace = [&](const std::string& line) { text += line + '\n'; }});
    world.run();
    return text;
  };
  const std::string text = trace(7);
  CHECK(text.find(" connects to 127.0.0.1:80\n") != std::string::npos);
  CHECK(text.find(" bytes  ") != std::string::npos);
  CHECK(text.find(" closes\n") != std::string::npos);
  CHECK(text == trace(7));
}

TEST_CASE("control: an origin that lies is found out", "[world]") {
  using enum RandomWorld::Sabotage;
  for (const auto sabotage : {flip_byte, swap_answers, shorten}) {
    size_t found = 0;
    for (uint64_t seed = 1; seed <= 20; ++seed) found += !RandomWorld(seed, {.sabotage = sabotage, .trace = {}}).run().empty();
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

// A new configuration, and a new engine, while requests are under way.
#include <catch2/catch_test_macros.hpp>

#include "tests/sim/proxy.h"

namespace weir::simtest {

using namespace std::chrono_literals;

TEST_CASE("a reload that changes the engine moves sockets and live connections, each with its next operation", "[sim][A9]") {
  Proxy proxy({.two_engines = true});
  Origin& origin = proxy.origin();
  Client& idle = proxy.client();
  idle.get("/1");
  REQUIRE(proxy.run([&] { return idle.in.complete() == 1; }));
  Client& half = proxy.client();              // has sent half a head
  half.in.asked("GET");
  half.send("GET /half HTTP/1.1\r\nHo");
  Client& upload = proxy.client();            // and half a body
  upload.in.asked("POST");
  upload.send("POST /up HTTP/1.1\r\nHost: a\r\nContent-Length: 10\r\n\r\n01234");
  proxy.run_for(5ms);
  // The accept, three receives from clients, and one from the origin's connection, which need not move.
  CHECK(proxy.parked(EngineKind::epoll) == 5);
  CHECK(proxy.parked(EngineKind::uring) == 0);

  proxy.reload([](Proxy::Options&) {}, EngineKind::uring);
  proxy.run_for(5ms);
  CHECK(proxy.parked(EngineKind::epoll) == 1);
  CHECK(proxy.parked(EngineKind::uring) == 4);
  idle.get("/2");
  half.send("st: a\r\n\r\n");
  upload.send("56789");
  Client& late = proxy.client();
  late.get("/late");
  CHECK(proxy.run([&] {
    return idle.in.complete() == 2 && half.in.complete() == 1 && upload.in.complete() == 1 && late.in.complete() == 1;
  }));
  CHECK(origin.requests == 5);
  for (const Client* client : {&idle, &half, &upload, &late}) CHECK(client->last().status() == 200);

  proxy.reload([](Proxy::Options&) {}, EngineKind::epoll);   // and back
  proxy.run_for(5ms);
  idle.get("/3");
  CHECK(proxy.run([&] { return idle.in.complete() == 3; }));
  CHECK(proxy.parked(EngineKind::uring) == proxy.open_origins() - 1);   // those to the origin that were made there
  CHECK(proxy.verdict() == "");
}

TEST_CASE("an exchange ends under the configuration that it began with, and then that is let go", "[sim]") {
  Proxy proxy({.timeouts = "response: 5s, origin_idle: 10s", .servers = {kOrigin1}});
  Origin& first = proxy.origin(kOrigin1);
  Origin& second = proxy.origin(kOrigin2);
  Origin::Conn* asked = nullptr;
  first.on_request = [&](Origin::Conn& conn, Message&) { asked = &conn; };
  Client& client = proxy.client();
  client.get();
  REQUIRE(proxy.run([&] { return asked != nullptr; }));
  proxy.reload([](Proxy::Options& o) {
    o.servers = {kOrigin2};
    o.timeouts = "response: 1s";
  });
  proxy.run_for(3s);                                         // the old limit holds for it, not the new one
  CHECK(client.in.complete() == 0);
  CHECK_FALSE(client.closed());
  asked->answer("from the first");
  REQUIRE(proxy.run([&] { return client.in.complete() == 1; }));
  CHECK(client.last().body == "from the first");
  client.get();
  REQUIRE(proxy.run([&] { return client.in.complete() == 2; }));
  CHECK(second.requests == 1);
  CHECK(proxy.run([&] { return first.conns[0].closed(); }));  // nobody names it any more
  CHECK(proxy.verdict() == "");
}

}  // namespace weir::simtest

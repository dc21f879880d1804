// An answer that its origin breaks off, behind whole ones that the client has not read yet.
#include <catch2/catch_test_macros.hpp>

#include "tests/sim/proxy.h"

namespace weir::simtest {

using namespace std::chrono_literals;

TEST_CASE("a broken answer takes no whole one before it along, though its request still comes", "[sim][H6][H7]") {
  SimLink link;
  link.window_bytes = 4096;                    // so that the whole answer waits in the kernel, not with the client
  Proxy proxy({.timeouts = "response: 5s, origin_body: 5s, client_body: 5s", .link = link});
  const std::string whole = pattern(1, 100'000);
  bool broke = false;
  proxy.origin().on_change = [&](Origin::Conn& conn) {
    if (broke || conn.in.messages.empty() || !conn.in.messages.back().head_done) return;
    if (conn.in.messages.back().method() != "POST") return;
    conn.peer.send("HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\nnot all");
    conn.origin.proxy.network.after(5ms, [&conn] { conn.peer.reset(); });
    broke = true;
  };
  proxy.origin().on_request = [&](Origin::Conn& conn, Message&) { conn.answer(whole); };
  Client& client = proxy.client();
  client.peer.allow(1000);                     // then it stops reading
  client.get();
  REQUIRE(proxy.run([&] { return proxy.origin().requests == 1; }));
  client.in.asked("POST");
  client.send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 500000\r\n\r\n");
  for (int i = 1; i <= 50; ++i)
    proxy.network.after(1ms * i, [&] { client.send(std::string(10'000, 'b')); });
  proxy.run_for(100ms);
  client.peer.allow(UINT64_MAX);
  REQUIRE(proxy.run([&] { return client.closed(); }));
  CHECK(client.in.complete() == 1);
  CHECK((client.in.messages[0].body == whole));
  REQUIRE(client.in.messages.size() == 2);     // and this one is seen to be cut
  CHECK_FALSE(client.in.messages[1].complete);
  CHECK(proxy.verdict() == "");
}

}  // namespace weir::simtest

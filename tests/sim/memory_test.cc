// In steady state a proxied request allocates nothing and no pool grows.
#include <catch2/catch_test_macros.hpp>

#include "tests/sim/heap.h"
#include "tests/sim/proxy.h"

namespace weir::simtest {
namespace {

struct Load {
  Proxy& proxy;
  std::vector<Client*> clients;
  size_t answered = 0;

  void pass(size_t requests_each, const std::function<void(Client&)>& ask) {
    answered = 0;
    const size_t wanted = requests_each * clients.size();
    for (Client* client : clients) {
      client->on_change = [this, requests_each, ask, begin = client->in.complete(), seen = size_t{0}](Client& c) mutable {
        const size_t now = c.in.complete() - begin;
        answered += now - seen;
        if (now > seen && now < requests_each) ask(c);
        seen = now;
      };
      ask(*client);
    }
    for (int idle = 0; answered < wanted && idle < 1000;) idle = proxy.tick() ? 0 : idle + 1;
    CHECK(answered == wanted);
    for (Client* client : clients) client->on_change = nullptr;
  }
};

}  // namespace

TEST_CASE("a proxied request makes no heap allocation in steady state, and pools do not grow", "[M1]") {
  Proxy proxy({.heap = true});
  const std::string big = pattern(1, 100'000);
  proxy.origin().on_request = [&](Origin::Conn& conn, Message& request) {
    if (request.target() == "/chunked")
      conn.peer.send("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + chunked(big, 5000));
    else conn.answer(request.target() == "/big" ? big : "hello", "Content-Type: text/plain\r\nX-Other: 1\r\n");
  };
  Load load{proxy, {}};
  for (int i = 0; i < 16; ++i) load.clients.push_back(&proxy.client());
  const std::function<void(Client&)> kinds[] = {
      [](Client& c) { c.get("/", "User-Agent: x\r\nAccept: */*\r\nX-Forwarded-For: 1.2.3.4\r\n"); },
      [](Client& c) { c.get("/big"); },
      [](Client& c) { c.get("/chunked"); },
      [&](Client& c) { c.post(big); },
      [&](Client& c) {
        c.in.asked("PUT");
        c.send("PUT /chunked HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n" + chunked(big, 3000));
      },
  };
  for (const auto& ask : kinds) load.pass(4, ask);
  const uint64_t allocations = heap_allocations();
  const uint64_t growths = proxy.growths();
  for (const auto& ask : kinds) load.pass(20, ask);
  CHECK(heap_allocations() == allocations);
  CHECK(proxy.growths() == growths);
  CHECK(proxy.verdict() == "");
}

TEST_CASE("new connections allocate nothing either, once as many have been open", "[M1]") {
  Proxy proxy({.heap = true});
  proxy.origin();
  Load load{proxy, {}};
  const auto close = [](Client& c) { c.get("/", "Connection: close\r\n"); };
  const auto round = [&] {
    load.clients.clear();
    for (int i = 0; i < 32; ++i) load.clients.push_back(&proxy.client());
    load.pass(1, close);
  };
  round();
  round();
  const uint64_t allocations = heap_allocations();
  const uint64_t growths = proxy.growths();
  for (int i = 0; i < 5; ++i) round();
  CHECK(heap_allocations() == allocations);
  CHECK(proxy.growths() == growths);
  CHECK(proxy.verdict() == "");
}

TEST_CASE("control: the heap's hook sees one allocation of the code under test", "[M1]") {
  const uint64_t before = heap_allocations();
  {
    const HeapCount count;
    ::operator delete(::operator new(1));
    const HeapPause pause;
    ::operator delete(::operator new(2));
  }
  ::operator delete(::operator new(3));
  CHECK(heap_allocations() - before == 1);
}

}  // namespace weir::simtest

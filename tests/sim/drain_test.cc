// Drain: what was begun is finished and told that it is the last; nothing is lost; a cut ends everything.
#include <catch2/catch_test_macros.hpp>

#include <algorithm>

#include "tests/sim/proxy.h"

namespace weir::simtest {
namespace {

using namespace std::chrono_literals;

}  // namespace

TEST_CASE("a draining connection finishes its exchange with connection: close", "[T4]") {
  for (const bool large : {false, true}) {
    CAPTURE(large);
    Proxy proxy;
    const std::string body = pattern(1, large ? 3'000'000 : 10);
    proxy.origin().on_request = [&](Origin::Conn& conn, Message&) { proxy.network.after(2s, [&] { conn.answer(body); }); };
    Client& client = proxy.client();
    client.get();
    proxy.run_for(1s);
    proxy.drain();
    CHECK(proxy.run([&] { return client.closed(); }));
    CHECK(client.peer.error() == 0);
    CHECK(client.in.complete() == 1);
    CHECK((client.last().body == body));
    CHECK(client.last().field("connection") == "close");
    client.peer.close();
    CHECK(proxy.run([&] { return proxy.listener().empty(); }));
    CHECK(proxy.verdict() == "");
  }
}

TEST_CASE("an answer under way when the drain begins is whole, and its connection ends after it") {
  Proxy proxy;
  const std::string body = pattern(1, 3'000'000);
  proxy.origin().on_request = [&](Origin::Conn& conn, Message&) { conn.answer(body); };
  Client& client = proxy.client();
  client.peer.allow(10'000);
  client.get();
  proxy.run_for(1s);
  proxy.drain();
  proxy.run_for(1s);
  client.peer.allow(UINT64_MAX);
  CHECK(proxy.run([&] { return client.closed(); }));
  CHECK(client.peer.error() == 0);
  CHECK((client.last().body == body));
  CHECK(proxy.verdict() == "");
}

TEST_CASE("an idle connection is kept for a second after its last answer, and what crosses is served") {
  Proxy proxy;
  proxy.origin();
  Client& quiet = proxy.client();
  Client& busy = proxy.client();
  quiet.get();
  busy.get();
  CHECK(proxy.run([&] { return quiet.in.complete() == 1 && busy.in.complete() == 1; }));
  const TimePoint answered = proxy.now();
  proxy.drain();
  proxy.run_for(800ms);
  CHECK_FALSE(quiet.closed());
  busy.get("/crossing");
  CHECK(proxy.run([&] { return done(busy, 2); }));
  CHECK(busy.in.complete() == 2);
  CHECK(busy.last().field("connection") == "close");
  CHECK(proxy.run([&] { return quiet.closed(); }));
  CHECK(proxy.now() - answered >= 1s);
  CHECK(proxy.now() - answered <= 1600ms);
  CHECK(quiet.peer.error() == 0);
  CHECK(proxy.timeouts(h1::ServerTimeoutKind::keepalive) == 0);
  busy.peer.close();
  CHECK(proxy.run([&] { return proxy.listener().empty(); }));
  CHECK(proxy.verdict() == "");
}

TEST_CASE("one that has been idle for longer ends at once") {
  Proxy proxy;
  proxy.origin();
  Client& client = proxy.client();
  client.get();
  proxy.run_for(20s);
  CHECK_FALSE(client.closed());
  proxy.drain();
  const TimePoint began = proxy.now();
  CHECK(proxy.run([&] { return client.closed(); }));
  CHECK(proxy.now() - began <= 510ms);
  CHECK(proxy.verdict() == "");
}

TEST_CASE("what was queued on the listening socket is served; later connects are refused") {
  Proxy proxy;
  proxy.origin();
  std::vector<Client*> clients;
  for (int i = 0; i < 200; ++i) {
    clients.push_back(&proxy.client());
    clients.back()->get();
  }
  proxy.network.after(60us, [&] { proxy.drain(); });   // they are queued, and none is accepted yet
  CHECK(proxy.run([&] { return std::all_of(clients.begin(), clients.end(), [](Client* c) { return done(*c, 1); }); }));
  for (Client* client : clients) {
    CHECK(client->in.complete() == 1);
    client->peer.close();
  }
  CHECK(proxy.run([&] { return proxy.listener().empty(); }));
  Client& late = proxy.client();
  CHECK(proxy.run([&] { return late.closed(); }));
  CHECK(late.peer.error() == ECONNREFUSED);
  CHECK(proxy.verdict() == "");
}

TEST_CASE("of a pipeline the request in work is the last; the others are not half answered") {
  Proxy proxy;
  proxy.origin().on_request = [&](Origin::Conn& conn, Message& request) {
    const std::string path = request.target();
    proxy.network.after(1s, [&conn, path] { conn.answer(path); });
  };
  Client& client = proxy.client();
  for (int i = 0; i < 5; ++i) client.get("/" + std::to_string(i));
  proxy.run_for(1500ms);
  proxy.drain();
  CHECK(proxy.run([&] { return client.closed(); }));
  CHECK(client.peer.error() == 0);
  CHECK(client.in.complete() == 2);
  CHECK(client.in.messages.size() == 2);
  CHECK(client.last().body == "/1");
  CHECK(client.last().field("connection") == "close");
  CHECK(proxy.origin().requests == 2);
  CHECK(proxy.verdict() == "");
}

TEST_CASE("a drain in the middle of everything loses no answer that was begun") {
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    Proxy proxy({.seed = seed});
    SimRandom random(seed);
    proxy.origin().on_request = [&](Origin::Conn& conn, Message& request) {
      const std::string body = pattern(1, random.below(50'000)) + request.target();
      proxy.network.after(Duration(static_cast<int64_t>(random.below(30'000'000))), [&conn, body] { conn.answer(body); });
    };
    std::vector<Client*> clients;
    std::vector<size_t> asked(30);
    for (size_t i = 0; i < asked.size(); ++i) {
      Client& client = proxy.client();
      clients.push_back(&client);
      const auto ask = [&asked, i](Client& c) { c.get("/" + std::to_string(++asked[i])); };
      client.on_change = [ask, &asked, i](Client& c) {
        if (!c.closed() && c.in.complete() == asked[i] && c.last().field("connection") != "close") ask(c);
      };
      proxy.network.after(Duration(static_cast<int64_t>(random.below(20'000'000))), [ask, &client] { ask(client); });
    }
    proxy.network.after(100ms, [&] { proxy.drain(); });
    const bool ended = proxy.run([&] { return std::all_of(clients.begin(), clients.end(), [](Client* c) { return c->closed(); }); });
    size_t lost = 0, cut = 0;
    for (size_t i = 0; i < clients.size(); ++i) {
      lost += clients[i]->in.complete() != asked[i];
      cut += clients[i]->in.messages.size() != clients[i]->in.complete() || clients[i]->peer.error() != 0;
    }
    const std::string verdict = proxy.verdict();
    if (!ended || lost != 0 || cut != 0 || !verdict.empty())
      FAIL_CHECK("seed " << seed << ": ended " << ended << ", lost " << lost << ", cut " << cut << "; " << verdict);
  }
}

TEST_CASE("a cut ends everything at once, and cleanly", "[T4]") {
  Proxy proxy;
  Origin& origin = proxy.origin();
  origin.on_request = [&](Origin::Conn& conn, Message& request) {
    if (request.target() == "/stream") conn.peer.send("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nx\r\n");
    if (request.target() == "/big") conn.answer(std::string(5'000'000, 'x'));
    if (request.target() == "/idle") conn.answer("x");
  };
  std::vector<Client*> clients;
  for (const char* path : {"/stream", "/big", "/idle", "/stuck"}) {
    clients.push_back(&proxy.client());
    if (std::string_view(path) == "/big") clients.back()->peer.allow(1000);
    clients.back()->get(path);
  }
  proxy.client().send("GET / HT");
  proxy.client();
  proxy.client().send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 100\r\n\r\nhalf");
  proxy.run_for(1s);
  CHECK(proxy.server().open.get() == 7);
  const TimePoint began = proxy.now();
  proxy.drain();
  proxy.listener().cut(make_fault(What::shutting_down));
  CHECK(proxy.run([&] { return proxy.listener().empty(); }));
  CHECK(proxy.now() - began <= 50ms);
  proxy.run_for(1ms);
  CHECK(clients[0]->closed());
  CHECK(clients[0]->in.complete() == 0);
  CHECK(clients[2]->in.complete() == 1);
  CHECK(proxy.verdict() == "");
}

}  // namespace weir::simtest

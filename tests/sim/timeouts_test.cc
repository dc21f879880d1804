// Every timeout of the table fires at its time, alone, and is counted; 0s switches it off alone.
#include <catch2/catch_test_macros.hpp>

#include "tests/sim/proxy.h"

namespace weir::simtest {
namespace {

using namespace std::chrono_literals;
using Server = h1::ServerTimeoutKind;
using ToOrigin = h1::ClientTimeoutKind;

// What it takes until that timeout's wait begins.
struct Scenario {
  const char* name;
  Duration late;                                   // how much later than its time it may fire
  uint64_t (*count)(const Proxy&);
  void (*begin)(Proxy&);
};

void stall(Proxy& proxy, const std::string& answer) {   // the origin's whole say
  proxy.origin().on_request = [answer](Origin::Conn& conn, Message&) { conn.peer.send(answer); };
  Client& client = proxy.client();
  client.get();
  CHECK(proxy.run([&] { return !client.in.messages.empty() && !client.last().body.empty(); }));
}

const Scenario kScenarios[] = {
    {"client_header", 50ms, [](const Proxy& p) { return p.timeouts(Server::client_header); },
     [](Proxy& p) {
       Client& client = p.client();
       CHECK(p.run([&] { return p.server().accepted.get() == 1; }));
       client.send("GET / HTTP/1.1\r\nHo");
     }},
    {"client_body", 50ms, [](const Proxy& p) { return p.timeouts(Server::client_body); },
     [](Proxy& p) {
       Client& client = p.client();
       client.send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 10\r\n\r\n12345");
       Origin& origin = p.origin();
       CHECK(p.run([&] { return !origin.conns.empty() && !origin.conns[0].in.messages.empty() &&
                                origin.conns[0].in.messages[0].body.size() == 5; }));
     }},
    {"stream_idle", 50ms, [](const Proxy& p) { return p.timeouts(ToOrigin::stream_idle) + p.timeouts(Server::stream_idle); },
     [](Proxy& p) { stall(p, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n"); }},
    {"keepalive", 500ms, [](const Proxy& p) { return p.timeouts(Server::keepalive); },
     [](Proxy& p) {
       Client& client = p.client();
       client.get();
       CHECK(p.run([&] { return client.in.complete() == 1; }));
     }},
    {"write", 1050ms, [](const Proxy& p) { return p.timeouts(Server::write); },
     [](Proxy& p) {
       p.origin().on_request = [](Origin::Conn& conn, Message&) { conn.answer(std::string(4u << 20, 'x')); };
       Client& client = p.client();
       client.peer.allow(0);
       client.get();
       p.run_for(20ms);                            // what buffers take has been taken
     }},
    {"connect", 50ms, [](const Proxy& p) { return p.timeouts(ToOrigin::connect); },
     [](Proxy& p) {
       p.network.blackhole(address_of(kOrigin1), true);
       p.client().get();
       CHECK(p.run([&] { return p.upstream().client.opened.get() == 1; }));
     }},
    {"response", 50ms, [](const Proxy& p) { return p.timeouts(ToOrigin::response); },
     [](Proxy& p) {
       p.origin().on_request = nullptr;
       p.client().get();
       CHECK(p.run([&] { return p.origin().requests == 1; }));
     }},
    {"origin_body", 50ms, [](const Proxy& p) { return p.timeouts(ToOrigin::origin_body); },
     [](Proxy& p) { stall(p, "HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\n12345"); }},
    {"origin_idle", 500ms, [](const Proxy& p) { return p.timeouts(ToOrigin::origin_idle); },
     [](Proxy& p) {
       Client& client = p.client();
       client.get();
       CHECK(p.run([&] { return client.in.complete() == 1 && p.pooled() == 1; }));
     }},
    {"linger", 50ms, [](const Proxy& p) { return p.timeouts(Server::linger); },
     [](Proxy& p) {
       p.origin().on_change = [](Origin::Conn& conn) {
         if (conn.in.messages.size() == 1 && conn.in.messages[0].head_done && conn.note == nullptr) {
           conn.note = &conn;
           conn.answer("no", "", 403);
         }
       };
       Client& client = p.client();
       client.send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 10\r\n\r\n12345");
       CHECK(p.run([&] { return client.peer.ended(); }));
       CHECK(client.in.complete() == 1);
     }},
};

std::string all_but(const char* name, const char* this_one, const char* others) {
  std::string text;
  for (const Scenario& one : kScenarios) {
    text += (text.empty() ? "" : ", ") + std::string(one.name) + ": ";
    text += one.name == std::string_view(name) ? this_one : others;
  }
  return text;
}

}  // namespace

TEST_CASE("each timeout fires at its time and is counted, all others being off", "[T1]") {
  for (const Scenario& scenario : kScenarios) {
    CAPTURE(scenario.name);
    Proxy proxy({.timeouts = all_but(scenario.name, "3s", "0s")});
    proxy.origin();
    scenario.begin(proxy);
    const TimePoint began = proxy.now();
    CHECK(scenario.count(proxy) == 0);
    CHECK(proxy.run([&] { return scenario.count(proxy) > 0; }));
    const auto took = std::chrono::duration_cast<std::chrono::milliseconds>(proxy.now() - began);
    CHECK(took >= 2950ms);
    CHECK(took <= 3000ms + scenario.late);
    CHECK(proxy.all_timeouts() == scenario.count(proxy));
    CHECK(proxy.verdict() == "");
  }
}

TEST_CASE("0s switches off one timeout alone: all others stand", "[T1]") {
  for (const Scenario& scenario : kScenarios) {
    CAPTURE(scenario.name);
    Proxy proxy({.timeouts = all_but(scenario.name, "0s", "2h")});
    proxy.origin();
    scenario.begin(proxy);
    proxy.run_for(100min);
    CHECK(scenario.count(proxy) == 0);
    CHECK(proxy.all_timeouts() == 0);
    CHECK(proxy.verdict() == "");
  }
}

TEST_CASE("a client that sends its head byte by byte meets client_header and gets 408", "[T1]") {
  Proxy proxy({.timeouts = "client_header: 2s"});
  Client& client = proxy.client();
  const TimePoint began = proxy.now();
  std::function<void()> drip = [&] {
    client.send("G");
    if (!client.closed()) proxy.network.after(100ms, drip);
  };
  drip();
  CHECK(proxy.run([&] { return client.in.complete() == 1; }));
  CHECK(client.last().status() == 408);
  CHECK(client.last().field("connection") == "close");
  CHECK(proxy.now() - began < 2060ms);
  CHECK(proxy.run([&] { return client.closed(); }));
  CHECK(proxy.timeouts(Server::client_header) == 1);
  CHECK(proxy.verdict() == "");
}

TEST_CASE("a client that says nothing is closed without an answer", "[T1]") {
  Proxy proxy({.timeouts = "client_header: 2s"});
  Client& client = proxy.client();
  CHECK(proxy.run([&] { return client.closed(); }));
  CHECK(client.peer.received_bytes() == 0);
  CHECK(proxy.timeouts(Server::client_header) == 1);
  CHECK(proxy.verdict() == "");
}

TEST_CASE("an origin that stopped reading owes its answer alone: its deadline runs though the request is not at its end", "[T1]") {
  Proxy proxy({.timeouts = "client_body: 0s, stream_idle: 0s, response: 0s, origin_body: 3s"});
  Origin& origin = proxy.origin();
  origin.on_change = [](Origin::Conn& conn) {
    if (conn.in.messages.empty() || !conn.in.messages[0].head_done || conn.note != nullptr) return;
    conn.note = &conn;
    conn.peer.send("HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhalf");
  };
  Client& client = proxy.client();
  client.in.asked("POST");
  client.send("POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n");
  CHECK(proxy.run([&] { return !client.in.messages.empty() && client.last().body == "half"; }));
  proxy.network.fail({.kind = OpKind::send, .error = EPIPE});  // the next one is to the origin
  client.send("200000\r\n" + std::string(1u << 20, 'x'));
  const TimePoint began = proxy.now();
  CHECK(proxy.run([&] { return client.closed(); }));
  CHECK(proxy.timeouts(h1::ClientTimeoutKind::origin_body) == 1);
  CHECK(proxy.now() - began < 4s);
  CHECK(client.in.complete() == 0);
  CHECK(proxy.verdict() == "");
}

TEST_CASE("a route's write and client_body hold for what is left of its exchange when that is over", "[T1]") {
  const auto routes = [](const char* timeouts, const char* action) {
    return std::string("routes: [{timeouts: {") + timeouts + "}, " + action + "}]\n";
  };
  SECTION("write: an answer that stands whole in our output") {
    for (const auto& [text, longer] : {std::pair("write: 20s", 20s), std::pair("write: 1s", 1s)}) {
      Proxy proxy({.timeouts = "write: 5s", .routes = routes(text, "to: app"),
                   .link = {.send_buffer_bytes = 16u << 10, .window_bytes = 16u << 10}});
      proxy.origin().on_request = [](Origin::Conn& conn, Message&) {
        conn.peer.send("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + chunked(std::string(200'000, 'x'), 60'000));
      };
      Client& client = proxy.client();
      client.peer.allow(0);
      client.get();
      proxy.run_for(500ms);
      CHECK(proxy.exchanges.stats.ended.get() == 1);
      const TimePoint began = proxy.now();
      CHECK(proxy.run([&] { return client.closed() || proxy.timeouts(Server::write) == 1; }));
      CHECK(proxy.now() - began >= longer - 200ms);
      CHECK(proxy.now() - began <= longer + 1100ms);
      CHECK(proxy.verdict() == "");
    }
  }
  SECTION("client_body: the rest of a request that was answered early") {
    Proxy proxy({.timeouts = "client_body: 5s", .routes = routes("client_body: 1s", "respond: {status: 200}")});
    Client& client = proxy.client();
    client.in.asked("POST");
    client.send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 10\r\n\r\n12345");
    CHECK(proxy.run([&] { return client.in.complete() == 1; }));
    const TimePoint began = proxy.now();
    CHECK(proxy.run([&] { return proxy.timeouts(Server::client_body) == 1; }));
    CHECK(proxy.now() - began <= 1100ms);
    CHECK(proxy.verdict() == "");
  }
}

TEST_CASE("what clients see of timeouts on the origin's side", "[T1]") {
  SECTION("response: 504, and the origin's connection is closed") {
    Proxy proxy({.timeouts = "response: 2s"});
    Origin& origin = proxy.origin();
    origin.on_request = nullptr;
    Client& client = proxy.client();
    client.get();
    CHECK(proxy.run([&] { return client.in.complete() == 1; }));
    CHECK(client.last().status() == 504);
    CHECK(client.last().field("proxy-status").find("http_response_timeout") != std::string::npos);
    CHECK_FALSE(client.closed());
    CHECK(proxy.run([&] { return origin.conns[0].closed(); }));
    CHECK(proxy.verdict() == "");
  }
  SECTION("connect: 504") {
    Proxy proxy({.timeouts = "connect: 1s"});
    proxy.network.blackhole(address_of(kOrigin1), true);
    Client& client = proxy.client();
    client.get();
    CHECK(proxy.run([&] { return client.in.complete() == 1; }));
    CHECK(client.last().status() == 504);
    CHECK(proxy.verdict() == "");
  }
  SECTION("origin_body: the connection ends and the answer looks short") {
    Proxy proxy({.timeouts = "origin_body: 1s"});
    proxy.origin().on_request = [](Origin::Conn& conn, Message&) {
      conn.peer.send("HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\n12345");
    };
    Client& client = proxy.client();
    client.get();
    CHECK(proxy.run([&] { return client.closed(); }));
    REQUIRE(client.in.messages.size() == 1);
    CHECK(client.in.complete() == 0);
    CHECK(client.last().body == "12345");
    CHECK(proxy.verdict() == "");
  }
  SECTION("stream_idle: bytes in either direction keep a stream alive") {
    Proxy proxy({.timeouts = "stream_idle: 2s, client_body: 0s, origin_body: 0s"});
    proxy.origin().on_change = [](Origin::Conn& conn) {
      if (conn.note == nullptr) conn.peer.send("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n");
      conn.note = &conn;
    };
    Client& client = proxy.client();
    client.send("POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n");
    for (int i = 0; i < 10; ++i) {
      client.send("1\r\nx\r\n");
      proxy.run_for(1s);
      CHECK_FALSE(client.closed());
    }
    const TimePoint quiet = proxy.now();
    CHECK(proxy.run([&] { return client.closed(); }));
    CHECK(proxy.now() - quiet > 900ms);
    CHECK(proxy.now() - quiet < 2100ms);
    CHECK(proxy.verdict() == "");
  }
}

}  // namespace weir::simtest

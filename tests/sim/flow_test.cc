// Bodies under way: who does not read is closed, who reads slowly is not; a held-back source loses nothing and holds little.
#include <catch2/catch_test_macros.hpp>

#include "tests/sim/proxy.h"

namespace weir::simtest {
namespace {

using namespace std::chrono_literals;
using Server = h1::ServerTimeoutKind;

constexpr size_t kMiB = 1u << 20;

// Reads `step` bytes every `every`.
void read_slowly(Proxy& proxy, SimPeer& peer, uint64_t step, Duration every, uint64_t total = 0) {
  total += step;
  peer.allow(total);
  if (peer.ended() || peer.error() != 0 || total >= 256 * kMiB) return;
  proxy.network.after(every, [&proxy, &peer, step, every, total] { read_slowly(proxy, peer, step, every, total); });
}

}  // namespace

TEST_CASE("a non-reader of 4 MiB is closed at the write timeout and a second", "[T2]") {
  for (const bool relay : {false, true}) {
    CAPTURE(relay);
    Proxy proxy({.timeouts = "write: 5s", .pipes = {.relay = relay}});
    proxy.origin().on_request = [](Origin::Conn& conn, Message&) { conn.answer(pattern(1, 4 * kMiB)); };
    Client& client = proxy.client();
    client.peer.allow(0);
    const TimePoint began = proxy.now();
    client.get();
    CHECK(proxy.run([&] { return proxy.timeouts(Server::write) == 1; }));
    CHECK(proxy.now() - began >= 5s);
    CHECK(proxy.now() - began <= 6s + 100ms);
    CHECK(proxy.run([&] { return proxy.server().open.get() == 0; }));
    CHECK((proxy.exchanges.pipes.relays.get() > 0) == relay);
    client.peer.allow(UINT64_MAX);
    CHECK(proxy.run([&] { return client.closed(); }));
    CHECK(client.in.complete() == 0);
    CHECK(proxy.verdict() == "");
  }
}

TEST_CASE("a reader of 256 KiB per 250 ms gets everything though output is pending for 3 times the timeout", "[T2]") {
  for (const bool relay : {false, true}) {
    CAPTURE(relay);
    Proxy proxy({.timeouts = "write: 1s, origin_body: 1s", .pipes = {.relay = relay}});
    const std::string body = pattern(2, 16 * kMiB);
    proxy.origin().on_request = [&](Origin::Conn& conn, Message&) { conn.answer(body); };
    Client& client = proxy.client();
    read_slowly(proxy, client.peer, 256 << 10, 250ms);
    const TimePoint began = proxy.now();
    client.get();
    CHECK(proxy.run([&] { return client.in.complete() == 1 || client.closed(); }));
    CHECK(proxy.now() - began > 12s);
    CHECK(client.last().complete);
    CHECK((client.last().body == body));
    CHECK(proxy.timeouts(Server::write) == 0);
    CHECK((proxy.exchanges.pipes.relays.get() > 0) == relay);
    CHECK(proxy.verdict() == "");
  }
}

TEST_CASE("a reader so slow that no byte is accepted for long is still seen by what it acknowledges", "[T2]") {
  for (const bool relay : {false, true}) {
    CAPTURE(relay);
    // Window and send buffer hold 512 KiB: at 8 KiB a half second our side accepts something only now and then.
    Proxy proxy({.timeouts = "write: 2s, origin_body: 2s", .pipes = {.relay = relay}});
    const std::string body = pattern(2, kMiB);
    proxy.origin().on_request = [&](Origin::Conn& conn, Message&) { conn.answer(body); };
    Client& client = proxy.client();
    read_slowly(proxy, client.peer, 8 << 10, 500ms);
    client.get();
    CHECK(proxy.run([&] { return client.in.complete() == 1 || client.closed(); }));
    CHECK((client.last().body == body));
    CHECK(proxy.timeouts(Server::write) == 0);
    CHECK(proxy.verdict() == "");
  }
}

TEST_CASE("whoever stops sending in the middle of a large body is timed out, relayed or not", "[T1]") {
  for (const bool relay : {false, true}) {
    CAPTURE(relay);
    const std::string half = pattern(9, 500'000);
    {
      Proxy proxy({.timeouts = "client_body: 3s", .pipes = {.relay = relay}});
      proxy.origin();
      Client& client = proxy.client();
      client.in.asked("POST");
      client.send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1000000\r\n\r\n" + half);
      const TimePoint began = proxy.now();
      CHECK(proxy.run([&] { return proxy.timeouts(Server::client_body) == 1; }));
      CHECK((proxy.exchanges.pipes.relays.get() > 0) == relay);
      CHECK(proxy.now() - began >= 3s);
      CHECK(proxy.now() - began <= 6s + 100ms);   // a relay's progress is looked at once in that time
      CHECK(proxy.run([&] { return client.closed(); }));
      CHECK(client.last().status() == 408);
      CHECK(proxy.verdict() == "");
    }
    Proxy proxy({.timeouts = "origin_body: 3s", .pipes = {.relay = relay}});
    proxy.origin().on_request = [&](Origin::Conn& conn, Message&) {
      conn.peer.send("HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n" + half);
    };
    Client& client = proxy.client();
    client.get();
    const TimePoint began = proxy.now();
    CHECK(proxy.run([&] { return proxy.timeouts(h1::ClientTimeoutKind::origin_body) == 1; }));
    CHECK((proxy.exchanges.pipes.relays.get() > 0) == relay);
    CHECK(proxy.now() - began >= 3s);
    CHECK(proxy.now() - began <= 6s + 100ms);
    CHECK(proxy.run([&] { return client.closed(); }));
    CHECK(client.last().body.size() == half.size());
    CHECK(proxy.verdict() == "");
  }
}

TEST_CASE("a pause of the one side is not held against the other, relayed or not", "[T1][T2]") {
  for (const bool relay : {false, true}) {
    CAPTURE(relay);
    const std::string body = pattern(9, 1'000'000);
    {
      Proxy proxy({.timeouts = "client_body: 0s, response: 1s", .pipes = {.relay = relay}});
      proxy.origin();
      Client& client = proxy.client();
      client.in.asked("POST");
      client.send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1000000\r\n\r\n" + body.substr(0, 500'000));
      proxy.run_for(20s);
      CHECK(proxy.all_timeouts() == 0);
      client.send(body.substr(500'000));
      CHECK(proxy.run([&] { return client.in.complete() == 1 || client.closed(); }));
      CHECK(client.last().status() == 200);
      CHECK((proxy.origin().conns[0].in.messages[0].body == body));
      CHECK(proxy.verdict() == "");
    }
    Proxy proxy({.timeouts = "origin_body: 0s, write: 1s", .pipes = {.relay = relay}});
    proxy.origin().on_request = [&](Origin::Conn& conn, Message&) {
      conn.peer.send("HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n" + body.substr(0, 500'000));
      proxy.network.after(20s, [&] { conn.peer.send(body.substr(500'000)); });
    };
    Client& client = proxy.client();
    client.get();
    CHECK(proxy.run([&] { return client.in.complete() == 1 || client.closed(); }));
    CHECK((client.last().body == body));
    CHECK(proxy.all_timeouts() == 0);
    CHECK(proxy.verdict() == "");
  }
}

TEST_CASE("a quiet event stream is not cut, and an event leaves in the tick in which it came", "[T3][T5]") {
  Proxy proxy({.timeouts = "stream_idle: 10m, write: 1s, response: 1s, origin_body: 1s, client_body: 1s, keepalive: 1s"});
  Origin& origin = proxy.origin();
  origin.on_request = [](Origin::Conn& conn, Message&) {
    conn.peer.send("HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n");
  };
  Client& client = proxy.client();
  client.get("/events");
  CHECK(proxy.run([&] { return !client.in.messages.empty() && client.last().head_done; }));
  for (int i = 1; i <= 10; ++i) {
    proxy.run_for(9min);
    REQUIRE_FALSE(client.closed());
    const std::string event = "data: " + std::to_string(i) + "\n\n";
    const size_t before = client.last().body.size();
    origin.conns[0].peer.send(chunked(event, 100).substr(0, event.size() + 5));
    const TimePoint sent = proxy.now();
    CHECK(proxy.run([&] { return client.last().body.size() == before + event.size(); }));
    CHECK(proxy.now() - sent == 2 * proxy.network.link().latency);   // two wires, and no time in between
  }
  const TimePoint quiet = proxy.now();
  CHECK(proxy.run([&] { return client.closed(); }));
  CHECK(proxy.now() - quiet >= 9min + 59s);
  CHECK(proxy.now() - quiet <= 10min + 1s);
  CHECK(client.in.complete() == 0);
  CHECK(proxy.verdict() == "");
}

TEST_CASE("32 MiB up against a stalled origin: little is accepted, and all of it arrives when it resumes", "[H8][M3]") {
  const std::string body = pattern(3, 32 * kMiB);
  for (const bool in_chunks : {false, true}) {
    for (const bool relay : {false, true}) {
      CAPTURE(in_chunks, relay);
      Proxy proxy({.timeouts = "response: 0s", .pipes = {.relay = relay}});
      Origin& origin = proxy.origin();
      origin.on_accept = [](Origin::Conn& conn) { conn.peer.allow(300); };
      Client& client = proxy.client();
      client.in.asked("POST");
      client.send("POST / HTTP/1.1\r\nHost: a\r\n");
      if (in_chunks) client.send("Transfer-Encoding: chunked\r\n\r\n" + chunked(body, 100'000));
      else client.send("Content-Length: " + std::to_string(body.size()) + "\r\n\r\n" + body);
      proxy.run_for(100s);
      const size_t taken = body.size() - client.peer.unsent();
      CHECK(taken <= 8 * kMiB);
      CHECK(proxy.slabs() * kSlabBytes <= 2 * kMiB);
      CHECK(proxy.timeouts(Server::client_body) == 0);   // it is not the client's fault
      CHECK((proxy.exchanges.pipes.relays.get() > 0) == (relay && !in_chunks));
      REQUIRE(origin.conns.size() == 1);
      origin.conns[0].peer.allow(UINT64_MAX);
      CHECK(proxy.run([&] { return client.in.complete() == 1 || client.closed(); }));
      CHECK(client.last().status() == 200);
      REQUIRE(origin.conns[0].in.complete() == 1);
      CHECK((origin.conns[0].in.messages[0].body == body));
      CHECK(proxy.verdict() == "");
    }
  }
}

TEST_CASE("over its cap the source waits: no byte is discarded, and memory is bounded", "[M3]") {
  const std::string body = pattern(4, 8 * kMiB);
  for (const bool in_chunks : {false, true}) {
    CAPTURE(in_chunks);
    Proxy proxy({.timeouts = "write: 0s", .pipes = {.cap_min = 64 << 10, .cap_max = 64 << 10, .relay = false}});
    Origin& origin = proxy.origin();
    origin.on_request = [&](Origin::Conn& conn, Message&) {
      if (in_chunks) conn.peer.send("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + chunked(body, 50'000));
      else conn.answer(body);
    };
    std::vector<Client*> clients;
    for (int i = 0; i < 8; ++i) {
      clients.push_back(&proxy.client());
      clients.back()->peer.allow(1000);
      clients.back()->get();
    }
    proxy.run_for(5s);
    // Each holds its pipe's cap and what its connections keep queued.
    CHECK(proxy.slabs() * kSlabBytes <= 8 * (64 + 256 + 64) * 1024);
    for (Client* client : clients) client->peer.allow(UINT64_MAX);
    CHECK(proxy.run([&] {
      return std::all_of(clients.begin(), clients.end(), [](Client* c) { return c->in.complete() == 1 || c->closed(); });
    }));
    for (Client* client : clients) CHECK((client->last().body == body));
    CHECK(proxy.verdict() == "");
  }
}

TEST_CASE("idle connections hold no memory, on either side", "[M3]") {
  Proxy proxy;
  proxy.origin();
  std::vector<Client*> clients;
  for (int i = 0; i < 50; ++i) {
    clients.push_back(&proxy.client());
    clients.back()->get();
  }
  CHECK(proxy.run([&] { return std::all_of(clients.begin(), clients.end(), [](Client* c) { return c->in.complete() == 1; }); }));
  proxy.run_for(10ms);
  CHECK(proxy.server().open.get() == 50);
  CHECK(proxy.pooled() > 0);
  CHECK(proxy.slabs() == 0);
  for (Client* client : clients) client->send("GET /half HTTP/1.1\r\n");   // a begun head does
  proxy.run_for(10ms);
  CHECK(proxy.slabs() > 0);
  for (Client* client : clients) {
    client->in.asked("GET");
    client->send("Host: a\r\n\r\n");
  }
  CHECK(proxy.run([&] { return std::all_of(clients.begin(), clients.end(), [](Client* c) { return c->in.complete() == 2; }); }));
  proxy.run_for(10ms);
  CHECK(proxy.slabs() == 0);
  CHECK(proxy.verdict() == "");
}

TEST_CASE("a pool at its limit holds back and loses nothing", "[M3]") {
  Proxy proxy({.timeouts = "write: 0s", .pipes = {.relay = false}, .slab_bytes_max = 1u << 20});
  const std::string body = pattern(5, 2 * kMiB);
  proxy.origin().on_request = [&](Origin::Conn& conn, Message&) { conn.answer(body); };
  std::vector<Client*> clients;
  for (int i = 0; i < 12; ++i) {
    clients.push_back(&proxy.client());
    read_slowly(proxy, clients.back()->peer, 100'000, 10ms);
    clients.back()->get();
  }
  CHECK(proxy.run([&] {
    return std::all_of(clients.begin(), clients.end(), [](Client* c) { return c->in.complete() == 1 || c->closed(); });
  }));
  int whole = 0;
  for (Client* client : clients) {
    if (client->in.complete() == 0) continue;           // what is refused for want of memory is refused aloud
    if (client->last().status() == 200) CHECK((client->last().body == body));
    whole += client->last().status() == 200;
  }
  CHECK(whole > 0);
  CHECK(proxy.verdict() == "");
}

}  // namespace weir::simtest

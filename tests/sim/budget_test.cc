// The memory budget, in virtual time: who stands still ends, who reads finishes, and the worker serves on.
#include <catch2/catch_test_macros.hpp>

#include <algorithm>

#include "tests/sim/proxy.h"

namespace weir::simtest {
namespace {

using namespace std::chrono_literals;
using Server = h1::ServerTimeoutKind;

constexpr uint64_t kKiB = 1024;
constexpr SimLink kNarrow{.send_buffer_bytes = 16 * 1024, .window_bytes = 16 * 1024};

uint64_t refused_for_memory(const Proxy& proxy) { return proxy.refused()[static_cast<size_t>(RefusedCause::memory)].get(); }

// Takes `step` more bytes every `every`.
void read_on(Proxy& proxy, SimPeer& peer, uint64_t step, Duration every, uint64_t total = 0) {
  total += step;
  peer.allow(total);
  if (peer.ended() || peer.error() != 0) return;
  proxy.network.after(every, [&proxy, &peer, step, every, total] { read_on(proxy, peer, step, every, total); });
}

}  // namespace

TEST_CASE("readers and uploads that stand still keep the budget; who reads finishes; the worker serves on", "[M7]") {
  for (const bool relay : {false, true}) {
    CAPTURE(relay);
    Proxy proxy({.pipes = {.relay = relay}, .link = kNarrow, .memory = 32 << 20});
    const std::string body = pattern(1, 128 * kKiB);
    proxy.origin().on_request = [&](Origin::Conn& conn, Message&) { conn.answer(body); };
    proxy.origin().on_accept = [&](Origin::Conn& conn) {
      if (proxy.origin().conns.size() % 6 == 0) conn.peer.allow(4 * kKiB);   // some uploads find an origin that reads no more
    };
    std::vector<Client*> readers;
    for (int i = 0; i < 480; ++i) {   // a hundred a second
      proxy.network.after(i * 10ms, [&, i] {
        Client& client = proxy.client();
        if (i % 24 == 5) {
          readers.push_back(&client);
          read_on(proxy, client.peer, 8 * kKiB, 200ms);
          client.get();
        } else if (i % 6 == 1) {
          client.post(body);
        } else {
          client.peer.allow(0);
          client.get();
        }
      });
    }
    uint64_t most = 0;
    const auto done = [](const Client* c) { return c->in.complete() == 1 || c->closed(); };
    CHECK(proxy.run([&] {
      most = std::max(most, proxy.budget.used());
      return readers.size() == 20 && std::all_of(readers.begin(), readers.end(), done);
    }));
    CHECK(refused_for_memory(proxy) == 0);
    CHECK(most <= proxy.budget.limit());
    CHECK(most >= proxy.budget.limit() / 100 * 90);
    size_t whole = 0;
    for (const Client* reader : readers) whole += reader->in.complete() == 1 && reader->last().body == body;
    CHECK(whole == readers.size());
    CHECK(proxy.memory.stats.ended.get() > 0);
    CHECK(proxy.timeouts(Server::write) == 0);   // it was not a deadline that made room
    Client& late = proxy.client();
    late.get();
    CHECK(proxy.run([&] { return done(&late); }));
    CHECK(late.in.complete() == 1);
    CHECK(proxy.verdict() == "");
  }
}

TEST_CASE("from 80 % on grants are 16 KiB, also those of running exchanges, and later as before", "[M7]") {
  Proxy proxy({.pipes = {.relay = false}, .link = kNarrow, .memory = 16 << 20});
  const std::string body = pattern(1, 1024 * kKiB);
  proxy.origin().on_request = [&](Origin::Conn& conn, Message&) { conn.answer(body); };
  Client& client = proxy.client();
  client.peer.allow(0);
  client.get();
  proxy.run_for(500ms);
  CHECK(proxy.slabs() * kSlabBytes >= 256 * kKiB);
  MemoryLease other(&proxy.budget);
  REQUIRE(other.take(13 << 20));
  proxy.run_for(500ms);
  CHECK(proxy.memory.level() == MemoryLevel::tight);
  CHECK(proxy.exchanges.limits.cap_max == MemoryGuard::kTightBytes);
  size_t cap = 0;
  const auto down_cap = [&] {
    proxy.listener().connections().each([&](h1::ServerConn& conn) { cap = conn.exchange()->down().cap(); });
    return cap;
  };
  CHECK(down_cap() == MemoryGuard::kTightBytes);
  client.peer.allow(500 * kKiB);
  proxy.run_for(500ms);
  CHECK(proxy.slabs() * kSlabBytes <= 128 * kKiB);   // what was granted has gone, what follows is small
  other.give(other.held());
  proxy.run_for(500ms);
  CHECK(proxy.memory.level() == MemoryLevel::normal);
  CHECK(down_cap() == kPipeCapMin);
  CHECK(proxy.exchanges.limits.cap_max == kPipeCapMax);
  client.peer.allow(UINT64_MAX);
  CHECK(proxy.run([&] { return client.in.complete() == 1; }));
  CHECK((client.last().body == body));
  CHECK(proxy.memory.stats.ended.get() == 0);
  CHECK(proxy.verdict() == "");
}

TEST_CASE("from 95 % on nobody is accepted; those that came wait and are served when there is room", "[M7]") {
  Proxy proxy({.memory = 16 << 20});
  proxy.origin();
  Client& before = proxy.client();
  before.get();
  CHECK(proxy.run([&] { return before.in.complete() == 1; }));
  const uint64_t accepted = proxy.server().accepted.get();
  MemoryLease other(&proxy.budget);
  REQUIRE(other.take(proxy.budget.limit() / 1000 * 955 - proxy.budget.used()));
  proxy.run_for(200ms);
  CHECK(proxy.memory.refusing());
  std::vector<Client*> waiting;
  for (int i = 0; i < 20; ++i) {
    waiting.push_back(&proxy.client());
    waiting.back()->get();
  }
  before.get();   // nor does a request begin
  proxy.run_for(2s);
  CHECK(before.in.complete() == 1);
  CHECK(proxy.server().accepted.get() == accepted);
  CHECK(refused_for_memory(proxy) == 0);
  other.give(other.held());
  CHECK(proxy.run([&] { return std::all_of(waiting.begin(), waiting.end(), [](Client* c) { return c->in.complete() == 1; }); }));
  CHECK(proxy.run([&] { return before.in.complete() == 2; }));
  CHECK(proxy.verdict() == "");
}

TEST_CASE("an upload that stands still before its answer is told so: 503 with its cause", "[M7]") {
  Proxy proxy({.link = kNarrow, .memory = 16 << 20});
  proxy.origin().on_accept = [](Origin::Conn& conn) { conn.peer.allow(1000); };
  Client& client = proxy.client();
  client.post(pattern(1, 256 * kKiB));
  proxy.run_for(1s);
  MemoryLease other(&proxy.budget);
  REQUIRE(other.take(proxy.budget.limit() - proxy.budget.used() - 64 * kKiB));
  CHECK(proxy.run([&] { return client.in.complete() == 1 || client.closed(); }));
  CHECK(client.last().status() == 503);
  CHECK(client.last().field("proxy-status").find("memory_pressure") != std::string::npos);
  CHECK(proxy.memory.stats.ended.get() == 1);
  other.give(other.held());
  client.peer.close();
  CHECK(proxy.verdict() == "");
}

TEST_CASE("a request for which there is no memory waits, is served when there is some, and in the order of coming", "[M7]") {
  Proxy proxy({.memory = 16 << 20});
  proxy.origin();
  std::vector<Client*> clients;
  for (int i = 0; i < 40; ++i) {
    clients.push_back(&proxy.client());
    clients.back()->get();
  }
  const auto all = [&](size_t answers) {
    return std::all_of(clients.begin(), clients.end(), [&](Client* c) { return c->in.complete() == answers; });
  };
  CHECK(proxy.run([&] { return all(1); }));
  MemoryLease& own = proxy.loop.slabs().lease();
  for (const size_t left : {100u << 10, 4u << 10}) {   // room to receive them and not to begin, or not even that
    CAPTURE(left);
    size_t taken = 0;
    for (int round = 0; round < 2; ++round) {
      for (; own.may_take_for_input(left); taken += 4096) REQUIRE(own.take(4096));
      proxy.run_for(200ms);   // free buffers are given back
    }
    std::vector<Client*> order;
    const size_t answered = clients.front()->in.complete();
    for (Client* client : clients) {
      client->on_change = [&order, answered](Client& c) {
        if (c.in.complete() == answered + 1) order.push_back(&c);
      };
      client->get();
      proxy.run_for(1ms);
    }
    proxy.run_for(5s);
    CHECK(order.empty());
    own.give(taken);
    CHECK(proxy.run([&] { return all(answered + 1); }));
    if (left > 4u << 10) CHECK(order == clients);   // what waits in the kernel comes in whatever order it tells of it
    for (Client* client : clients) client->on_change = {};
  }
  CHECK(proxy.memory.stats.ended.get() == 0);
  CHECK(proxy.exchanges.stats.waited_for_memory.get() > 0);
  CHECK(proxy.verdict() == "");
}

TEST_CASE("a request for which there is no memory for as long as a head may take is answered 503", "[M7]") {
  for (const uint64_t permille : {965u, 980u, 1000u}) {
    CAPTURE(permille);
    Proxy proxy({.timeouts = "client_header: 4s", .memory = 16 << 20});
    proxy.origin();
    Client& before = proxy.client();
    before.get();
    CHECK(proxy.run([&] { return before.in.complete() == 1; }));
    Client& fresh = proxy.client();   // here, and has asked for nothing yet
    proxy.run_for(100ms);
    MemoryLease other(&proxy.budget);
    REQUIRE(other.take(proxy.budget.limit() / 1000 * permille - proxy.budget.used()));
    proxy.run_for(100ms);
    fresh.get();
    CHECK(proxy.run([&] { return fresh.in.complete() == 1 || fresh.closed(); }));
    CHECK(fresh.last().status() == 503);
    CHECK(fresh.last().field("proxy-status").find("memory_pressure") != std::string::npos);
    CHECK(proxy.timeouts(Server::client_header) == 0);
    other.give(other.held());
    before.get();
    CHECK(proxy.run([&] { return before.in.complete() == 2 || before.closed(); }));
    CHECK(before.last().status() == 200);
    CHECK(proxy.verdict() == "");
  }
}

TEST_CASE("a peak's memory goes back to the kernel when it is over", "[M3]") {
  Proxy proxy({.pipes = {.relay = false}, .link = kNarrow});
  const std::string body = pattern(1, 512 * kKiB);
  proxy.origin().on_request = [&](Origin::Conn& conn, Message&) { conn.answer(body); };
  std::vector<Client*> clients;
  for (int i = 0; i < 64; ++i) {
    clients.push_back(&proxy.client());
    clients.back()->peer.allow(0);
    clients.back()->get();
  }
  proxy.run_for(1s);
  const uint64_t peak = proxy.budget.used();
  CHECK(peak >= 16 << 20);
  for (Client* client : clients) client->peer.allow(UINT64_MAX);
  CHECK(proxy.run([&] { return std::all_of(clients.begin(), clients.end(), [](Client* c) { return c->in.complete() == 1; }); }));
  proxy.run_for(120s);
  CHECK(proxy.budget.used() <= 6 << 20);   // some is kept for the next
  CHECK(proxy.memory.stats.trimmed.get() >= 10 << 20);
  CHECK(proxy.verdict() == "");
}

}  // namespace weir::simtest

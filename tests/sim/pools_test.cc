// Connections to origins: how many, how long, and which is taken.
#include <catch2/catch_test_macros.hpp>

#include "tests/sim/proxy.h"

namespace weir::simtest {
namespace {

using namespace std::chrono_literals;
using config::Snapshot;

void answered(Proxy& proxy, Client& client, size_t answers) {
  CHECK(proxy.run([&] { return client.in.complete() >= answers || client.closed(); }));
  CHECK(client.in.complete() == answers);
}

// How long an idle connection stays in the pool when the origin says this of it.
bool pooled_after(const std::string& fields, Duration time) {
  Proxy proxy;
  proxy.origin().on_request = [&](Origin::Conn& conn, Message&) { conn.answer("x", fields); };
  Client& client = proxy.client();
  client.get();
  answered(proxy, client, 1);
  proxy.run_for(time);
  const bool there = proxy.pooled() == 1;
  CHECK(proxy.verdict() == "");
  return there;
}

}  // namespace

TEST_CASE("an origin's Keep-Alive timeout is obeyed, the shorter of it and origin_idle, with a margin") {
  CHECK(pooled_after("", 3s));
  CHECK_FALSE(pooled_after("", 5s));
  CHECK(pooled_after("Keep-Alive: timeout=2, max=100\r\n", 900ms));
  CHECK_FALSE(pooled_after("Keep-Alive: timeout=2, max=100\r\n", 2s));
  CHECK_FALSE(pooled_after("Keep-Alive: max=100, Timeout=2\r\n", 2s));
  CHECK(pooled_after("Keep-Alive: timeout=600\r\n", 3s));
  CHECK_FALSE(pooled_after("Keep-Alive: timeout=600\r\n", 5s));
  CHECK(pooled_after("Keep-Alive: timeout=1\r\n", 400ms));
  CHECK_FALSE(pooled_after("Keep-Alive: timeout=0\r\n", 1ms));
  CHECK(pooled_after("Keep-Alive: timeout=x\r\n", 3s));
  CHECK(pooled_after("Keep-Alive: timeout=99999999999999999999\r\n", 3s));
}

TEST_CASE("a connection whose time is up is not used, though its timer has not come round yet") {
  Proxy proxy;
  Origin& origin = proxy.origin();
  origin.on_request = [](Origin::Conn& conn, Message&) { conn.answer("x", "Keep-Alive: timeout=2\r\n"); };
  Client& client = proxy.client();
  client.get();
  answered(proxy, client, 1);
  proxy.run_for(1001ms);
  client.get();
  answered(proxy, client, 2);
  CHECK(origin.conns.size() == 2);
  CHECK(proxy.verdict() == "");
}

TEST_CASE("max_connections: one more is 503 with its code, and the next finds room again") {
  Proxy proxy({.change = [](Snapshot& c) { c.upstreams[0].max_connections = 2; }});
  Origin& origin = proxy.origin();
  std::vector<Origin::Conn*> waiting;
  origin.on_request = [&](Origin::Conn& conn, Message&) { waiting.push_back(&conn); };
  std::vector<Client*> clients;
  for (int i = 0; i < 3; ++i) clients.push_back(&proxy.client());
  clients[0]->get();
  clients[1]->get();
  CHECK(proxy.run([&] { return waiting.size() == 2; }));
  clients[2]->get();
  answered(proxy, *clients[2], 1);
  CHECK(clients[2]->last().status() == 503);
  CHECK(clients[2]->last().field("proxy-status").find("origin_limit") != std::string::npos);
  CHECK(origin.conns.size() == 2);
  for (Origin::Conn* conn : waiting) conn->answer("x");
  answered(proxy, *clients[0], 1);
  answered(proxy, *clients[1], 1);
  proxy.run_for(2s);
  CHECK(proxy.pooled() == 2);   // nobody but this worker itself wanted a place
  origin.on_request = [](Origin::Conn& conn, Message&) { conn.answer("y"); };
  clients[2]->get();
  answered(proxy, *clients[2], 2);
  CHECK(clients[2]->last().status() == 200);
  CHECK(origin.conns.size() == 2);
  CHECK(proxy.verdict() == "");
}

TEST_CASE("at max_connections an idle connection with another server makes room") {
  Proxy proxy({.servers = {kOrigin1, kOrigin2}, .change = [](Snapshot& c) { c.upstreams[0].max_connections = 1; }});
  proxy.origin(kOrigin1);
  proxy.origin(kOrigin2);
  Client& client = proxy.client();
  for (size_t i = 1; i <= 6; ++i) {
    client.get();
    answered(proxy, client, i);
    CHECK(client.last().status() == 200);
    proxy.run_for(1ms);
    CHECK(proxy.open_origins() == 1);
  }
  CHECK(proxy.origin(kOrigin1).requests == 3);
  CHECK(proxy.origin(kOrigin2).requests == 3);
  CHECK(proxy.verdict() == "");
}

TEST_CASE("an idle connection goes when another worker wants its place, and only then") {
  Proxy proxy({.change = [](Snapshot& c) { c.upstreams[0].max_connections = 1; }});
  proxy.origin();
  Client& client = proxy.client();
  client.get();
  answered(proxy, client, 1);
  proxy.run_for(2s);
  CHECK(proxy.pooled() == 1);
  CHECK(proxy.allowance().open() == 1);
  proxy.allowance().want(1, proxy.now());
  proxy.run_for(1s);
  CHECK(proxy.pooled() == 0);
  CHECK(proxy.allowance().open() == 0);
  proxy.allowance().want(1, proxy.now());
  proxy.run_for(2s);            // in which nobody could meet it
  client.get();
  answered(proxy, client, 2);
  proxy.run_for(2s);
  CHECK(proxy.pooled() == 1);
  CHECK(proxy.verdict() == "");
}

TEST_CASE("a connection that is idle when a reload brings max_connections makes room too") {
  Proxy proxy({.timeouts = "origin_idle: 1h"});
  proxy.origin();
  Client& client = proxy.client();
  client.get();
  answered(proxy, client, 1);
  proxy.reload([](Proxy::Options& o) { o.change = [](Snapshot& c) { c.upstreams[0].max_connections = 1; }; });
  proxy.run_for(100ms);
  CHECK(proxy.pooled() == 1);
  proxy.allowance().want(1, proxy.now());
  proxy.run_for(500ms);
  CHECK(proxy.pooled() == 0);
  CHECK(proxy.verdict() == "");
}

TEST_CASE("a configuration and its pools go when their last exchange ends, though its client stays") {
  Proxy proxy;
  Origin::Conn* asked = nullptr;
  proxy.origin().on_request = [&](Origin::Conn& conn, Message&) { asked = &conn; };
  proxy.origin(kOrigin2);
  Client& client = proxy.client();
  client.get();
  REQUIRE(proxy.run([&] { return asked != nullptr; }));
  proxy.reload([](Proxy::Options& o) { o.servers = {kOrigin2}; });
  proxy.run_for(1s);
  CHECK(proxy.configurations() == 2);
  CHECK(proxy.pools.size() == 2);
  asked->answer("late");
  answered(proxy, client, 1);
  proxy.run_for(10ms);
  CHECK(proxy.configurations() == 1);
  CHECK(proxy.pools.size() == 1);
  CHECK_FALSE(client.closed());
  CHECK(proxy.verdict() == "");
}

TEST_CASE("a connection that failed gives its place back") {
  Proxy proxy({.change = [](Snapshot& c) { c.upstreams[0].max_connections = 1; }});
  Client& client = proxy.client();
  for (size_t i = 1; i <= 3; ++i) {
    client.get();
    answered(proxy, client, i);
    CHECK(client.last().status() == 502);
  }
  proxy.origin();
  client.get();
  answered(proxy, client, 4);
  CHECK(client.last().status() == 200);
  CHECK(proxy.verdict() == "");
}

TEST_CASE("a failed connect is never tried at the same server again while there is another, whatever the weights") {
  for (const auto balance : {config::Balance::round_robin, config::Balance::least_requests, config::Balance::random}) {
    Proxy proxy({.servers = {kOrigin1, kOrigin2}, .change = [&](Snapshot& c) {
                   c.upstreams[0].servers[0].weight = 10;
                   c.upstreams[0].balance = balance;
                 }});
    proxy.origin(kOrigin2);
    Client& client = proxy.client();
    for (size_t i = 1; i <= 20; ++i) {
      client.get();
      answered(proxy, client, i);
      CHECK(client.last().status() == 200);
    }
    CHECK(proxy.upstream().retries_connect.get() >= 10);
    CHECK(proxy.verdict() == "");
  }
}

TEST_CASE("least_requests leaves a server alone that is slow to answer") {
  Proxy proxy({.servers = {kOrigin1, kOrigin2}, .change = [](Snapshot& c) { c.upstreams[0].balance = config::Balance::least_requests; }});
  std::vector<Origin::Conn*> waiting;
  proxy.origin(kOrigin1).on_request = [&](Origin::Conn& conn, Message&) { waiting.push_back(&conn); };
  proxy.origin(kOrigin2);
  std::vector<Client*> clients;
  for (int i = 0; i < 3; ++i) {
    clients.push_back(&proxy.client());
    clients.back()->get();
    CHECK(proxy.run([&] { return waiting.size() == 1 || clients.back()->in.complete() == 1; }));
    proxy.run_for(5ms);
  }
  CHECK(proxy.origin(kOrigin1).requests == 1);
  Client& client = proxy.client();
  for (size_t i = 1; i <= 10; ++i) {
    client.get();
    answered(proxy, client, i);
  }
  CHECK(proxy.origin(kOrigin1).requests == 1);
  for (Origin::Conn* conn : waiting) conn->answer("late");
  proxy.run_for(5ms);
  proxy.origin(kOrigin1).on_request = [](Origin::Conn& conn, Message&) { conn.answer("x"); };
  for (size_t i = 11; i <= 20; ++i) {
    client.get();
    answered(proxy, client, i);
  }
  CHECK(proxy.origin(kOrigin1).requests >= 5);
  CHECK(proxy.verdict() == "");
}

TEST_CASE("a weighted `to` shares requests out") {
  const std::string routes = "routes: [{to: [{upstream: app, weight: 3}, {upstream: other, weight: 1}]}]\n";
  Proxy proxy({.routes = routes, .upstreams = "  other: {servers: [\"10.0.0.2:80\"]}\n"});
  proxy.origin(kOrigin1);
  proxy.origin(kOrigin2);
  Client& client = proxy.client();
  for (size_t i = 1; i <= 40; ++i) {
    client.get();
    answered(proxy, client, i);
  }
  CHECK(proxy.origin(kOrigin1).requests == 30);
  CHECK(proxy.origin(kOrigin2).requests == 10);
  CHECK(proxy.verdict() == "");
}

TEST_CASE("two upstreams with the same server keep to their own connections") {
  const std::string routes = "routes: [{match: {path: /other}, to: other}, {to: app}]\n";
  Proxy proxy({.routes = routes, .upstreams = "  other: {servers: [\"10.0.0.1:80\"]}\n"});
  Origin& origin = proxy.origin();
  Client& client = proxy.client();
  client.get("/");
  answered(proxy, client, 1);
  client.get("/other");
  answered(proxy, client, 2);
  client.get("/");
  answered(proxy, client, 3);
  CHECK(origin.conns.size() == 2);
  CHECK(proxy.upstream().client.opened.get() == 1);
  CHECK(proxy.upstream().client.requests.get() == 2);
  CHECK(proxy.verdict() == "");
}

}  // namespace weir::simtest

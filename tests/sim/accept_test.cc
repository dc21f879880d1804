// Accepting and its end: a drain closes the listening socket whatever still comes, and loses nothing of what had come.
#include <catch2/catch_test_macros.hpp>

#include <algorithm>

#include "tests/sim/proxy.h"

namespace weir::simtest {
namespace {

using namespace std::chrono_literals;

// One client more every `every`, from now on until `until`. Each asks once and leaves.
struct Crowd {
  Proxy& proxy;
  Duration every;
  TimePoint until;
  std::vector<Client*> clients{};

  void begin() {
    clients.push_back(&proxy.client());
    clients.back()->get("/", "Connection: close\r\n");
    clients.back()->on_change = [](Client& client) {
      if (client.peer.ended()) client.peer.close();
    };
    if (proxy.now() + every < until) proxy.network.after(every, [this] { begin(); });
  }
};

// As in a worker, where it comes by mailbox: the loop knows what time it is.
void drain_now(Proxy& proxy) {
  proxy.loop.tick(Duration::zero());
  proxy.drain();
}

}  // namespace

TEST_CASE("a drain stops accepting within its bound, under connects that never pause", "[T4]") {
  Proxy proxy;
  proxy.origin();
  Crowd crowd{proxy, 5ms, proxy.now() + 3s};
  crowd.begin();
  proxy.run_for(1s);
  drain_now(proxy);
  const TimePoint began = proxy.now();
  CHECK(proxy.run([&] { return proxy.listener().empty(); }));
  CHECK(proxy.now() - began <= 300ms);
  proxy.run_for(5ms);
  CHECK(std::any_of(crowd.clients.begin(), crowd.clients.end(), [](Client* c) { return c->peer.error() == ECONNREFUSED; }));
  proxy.run_for(3s);
  // Of those that got in each was served.
  for (Client* client : crowd.clients) CHECK((client->in.complete() == 1 || client->peer.error() == ECONNREFUSED));
  CHECK(proxy.verdict() == "");
}

TEST_CASE("what is accepted after a cut ends at once", "[T4]") {
  Proxy proxy;
  proxy.origin();
  Client& before = proxy.client();
  before.send("GET / HT");
  proxy.run_for(1s);
  drain_now(proxy);
  proxy.listener().cut(make_fault(What::shutting_down));
  Client& after = proxy.client();   // while the socket's queue is served out
  after.send("GET / HT");
  const TimePoint began = proxy.now();
  CHECK(proxy.run([&] { return proxy.listener().empty(); }));
  CHECK(proxy.now() - began <= 300ms);
  proxy.run_for(1ms);
  CHECK((before.closed() && after.closed()));
  CHECK(proxy.server().accepted.get() == 2);
  CHECK(proxy.verdict() == "");
}

TEST_CASE("out of descriptors it tries again, and a drain in that pause still serves the queue", "[E8]") {
  for (const bool draining : {false, true}) {
    CAPTURE(draining);
    Proxy proxy;
    proxy.origin();
    const uint32_t most = proxy.network.descriptors_max();
    proxy.network.set_descriptors_max(proxy.network.descriptors());
    std::vector<Client*> clients;
    for (int i = 0; i < 5; ++i) {
      clients.push_back(&proxy.client());
      clients.back()->get("/", "Connection: close\r\n");
    }
    proxy.run_for(10ms);
    CHECK(proxy.refused()[static_cast<size_t>(RefusedCause::no_descriptor)].get() > 0);
    if (draining) drain_now(proxy);
    proxy.run_for(30ms);
    proxy.network.set_descriptors_max(most);
    CHECK(proxy.run([&] { return std::all_of(clients.begin(), clients.end(), [](Client* c) { return c->closed(); }); }));
    for (Client* client : clients) CHECK(client->in.complete() == 1);
    CHECK(proxy.verdict() == "");
  }
}

TEST_CASE("a drain ends even if no descriptor is ever to be had", "[E8][T4]") {
  Proxy proxy;
  proxy.origin();
  proxy.network.set_descriptors_max(proxy.network.descriptors());
  Client& client = proxy.client();
  client.get();
  proxy.run_for(10ms);
  drain_now(proxy);
  const TimePoint began = proxy.now();
  CHECK(proxy.run([&] { return proxy.listener().empty(); }));
  CHECK(proxy.now() - began <= 300ms);
  CHECK(proxy.run([&] { return client.closed(); }));
  CHECK(proxy.verdict() == "");
}

TEST_CASE("a client that pipelines and never reads is not read on") {
  Proxy proxy({.routes = "routes: [{respond: {status: 204}}]\n"});   // nothing of an answer waits: its request is over at once
  Client& client = proxy.client();
  client.peer.allow(0);
  std::string many;
  for (int i = 0; i < 100'000; ++i) many += "GET / HTTP/1.1\r\nHost: a\r\n\r\n";
  client.peer.keep = false;
  client.send(many);
  proxy.run_for(5s);
  CHECK(proxy.slabs() < 40);                       // 256 KiB of small answers, a slab or two of requests
  CHECK(client.peer.unsent() > many.size() / 2);   // the rest waits where it came from
  CHECK(proxy.verdict() == "");
}

TEST_CASE("single bytes sent ahead of a slow answer share slabs") {
  Proxy proxy;
  proxy.origin().on_request = [&](Origin::Conn&, Message&) {};   // it never answers
  Client& client = proxy.client();
  client.get();
  proxy.run_for(10ms);
  const size_t before = proxy.slabs();
  for (int i = 0; i < 5000; ++i) {
    client.send("G");
    proxy.run_for(200us);                          // each arrives by itself
  }
  CHECK(proxy.slabs() <= before + 4);
  CHECK(client.peer.unsent() == 0);
  CHECK(proxy.verdict() == "");
}

TEST_CASE("linger: 0s closes as soon as the early answer is out; anything else waits for the client") {
  for (const bool off : {true, false}) {
    CAPTURE(off);
    Proxy proxy({.timeouts = off ? "linger: 0s" : "linger: 3s", .more = "limits: {request_body: 1KiB}\n"});
    proxy.origin();
    Client& client = proxy.client();
    client.in.asked("POST");
    client.send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 100000\r\n\r\nhalf");
    const TimePoint began = proxy.now();
    CHECK(proxy.run([&] { return client.in.complete() == 1; }));
    CHECK(client.last().status() == 413);
    CHECK(proxy.run([&] { return proxy.server().open.get() == 0; }));
    CHECK((proxy.now() - began < 1s) == off);
    CHECK(proxy.timeouts(h1::ServerTimeoutKind::linger) == (off ? 0u : 1u));
    CHECK(proxy.verdict() == "");
  }
}

}  // namespace weir::simtest

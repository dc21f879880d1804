// What is tried again, and what never is.
#include <catch2/catch_test_macros.hpp>

#include <cerrno>

#include "tests/sim/proxy.h"

namespace weir::simtest {
namespace {

using namespace std::chrono_literals;

// One request has been answered, and its connection to the origin is in the pool.
Client& with_pooled(Proxy& proxy) {
  proxy.origin();
  Client& client = proxy.client();
  client.get("/first");
  CHECK(proxy.run([&] { return client.in.complete() == 1 && proxy.pooled() == 1; }));
  return client;
}

}  // namespace

TEST_CASE("a refused connect goes to the next endpoint, with the body") {
  for (const bool post : {false, true}) {
    CAPTURE(post);
    Proxy proxy({.servers = {kOrigin1, kOrigin2}});
    Origin& there = proxy.origin(kOrigin2);
    std::string body;
    there.on_request = [&](Origin::Conn& conn, Message& request) {
      body = request.body;
      conn.answer("second");
    };
    Client& client = proxy.client();
    const std::string sent = pattern(1, 500'000);
    for (size_t i = 1; i <= 4; ++i) {
      if (post) client.post(sent);
      else client.get();
      CHECK(proxy.run([&] { return done(client, i); }));
      CHECK(client.in.complete() == i);
      CHECK(client.last().body == "second");
      CHECK(body == (post ? sent : ""));
    }
    CHECK(proxy.upstream().retries_connect.get() >= 1);
    CHECK(proxy.upstream().retries_connect.get() == proxy.upstream().client.connect_failed.get());
    CHECK(proxy.verdict() == "");
  }
}

TEST_CASE("an empty body is ended for the next endpoint too") {
  for (const bool in_chunks : {false, true}) {
    CAPTURE(in_chunks);
    Proxy proxy({.servers = {kOrigin1, kOrigin2}});
    proxy.origin(kOrigin2);
    Client& client = proxy.client();
    for (size_t i = 1; i <= 4; ++i) {
      client.in.asked("POST");
      client.send("POST / HTTP/1.1\r\nHost: a\r\n");
      client.send(in_chunks ? "Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n" : "Content-Length: 0\r\n\r\n");
      CHECK(proxy.run([&] { return done(client, i); }));
      CHECK(client.last().status() == 200);
    }
    CHECK(proxy.upstream().retries_connect.get() >= 1);
    CHECK(proxy.verdict() == "");
  }
}

TEST_CASE("where every endpoint refuses the client gets 502, after a bounded number of attempts") {
  Proxy proxy({.servers = {kOrigin1, kOrigin2}});
  Client& client = proxy.client();
  client.get();
  CHECK(proxy.run([&] { return done(client, 1); }));
  CHECK(client.last().status() == 502);
  CHECK(client.last().field("proxy-status").find("connection_refused") != std::string::npos);
  CHECK(proxy.upstream().client.connect_failed.get() == 2);  // each once
  client.get();                                    // the client's connection lives on
  CHECK(proxy.run([&] { return done(client, 2); }));
  CHECK(client.in.complete() == 2);
  CHECK(proxy.verdict() == "");
}

TEST_CASE("a reused connection that dies before the first byte: one retry for GET, on a fresh connection") {
  for (const bool reset : {false, true}) {
    CAPTURE(reset);
    Proxy proxy;
    Client& client = with_pooled(proxy);
    Origin& origin = proxy.origin();
    origin.on_request = [&](Origin::Conn& conn, Message&) {
      if (&conn == &origin.conns[0]) reset ? conn.peer.reset() : conn.peer.close();
      else conn.answer("again");
    };
    client.get("/second");
    CHECK(proxy.run([&] { return done(client, 2); }));
    CHECK(client.last().status() == 200);
    CHECK(client.last().body == "again");
    CHECK(proxy.upstream().retries_reused.get() == 1);
    CHECK(origin.requests == 3);
    CHECK(proxy.verdict() == "");
  }
}

TEST_CASE("it is tried once more, not for ever") {
  Proxy proxy;
  Client& client = with_pooled(proxy);
  Origin& origin = proxy.origin();
  origin.on_request = [&](Origin::Conn& conn, Message&) { conn.peer.close(); };
  client.get("/second");
  CHECK(proxy.run([&] { return done(client, 2); }));
  CHECK(client.last().status() == 502);
  CHECK(origin.requests == 3);
  CHECK(proxy.verdict() == "");
}

TEST_CASE("a fresh connection that dies is not tried again") {
  Proxy proxy;
  Origin& origin = proxy.origin();
  origin.on_request = [&](Origin::Conn& conn, Message&) { conn.peer.close(); };
  Client& client = proxy.client();
  client.get();
  CHECK(proxy.run([&] { return done(client, 1); }));
  CHECK(client.last().status() == 502);
  CHECK(origin.requests == 1);
  CHECK(proxy.verdict() == "");
}

TEST_CASE("what is not idempotent or has a body is not tried again") {
  const std::string heads[] = {"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\n\r\nbody",
                               "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n",
                               "PATCH / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nx\r\n0\r\n\r\n",
                               "PUT / HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\n\r\nbody"};
  for (const std::string& head : heads) {
    CAPTURE(head);
    Proxy proxy;
    Client& client = with_pooled(proxy);
    Origin& origin = proxy.origin();
    origin.on_request = [&](Origin::Conn& conn, Message&) { conn.peer.close(); };
    client.in.asked("POST");
    client.send(head);
    CHECK(proxy.run([&] { return done(client, 2); }));
    CHECK(client.last().status() == 502);
    CHECK(origin.requests == 2);
    CHECK(proxy.upstream().retries_reused.get() == 0);
    CHECK(proxy.verdict() == "");
  }
}

TEST_CASE("a body that is still held goes with the second try") {
  Proxy proxy;
  Client& client = with_pooled(proxy);
  Origin& origin = proxy.origin();
  bool head_came = false;
  origin.on_change = [&](Origin::Conn& conn) {
    if (&conn != &origin.conns[0] || conn.in.messages.size() < 2 || head_came) return;
    head_came = true;
    conn.peer.close();
  };
  std::string body;
  origin.on_request = [&](Origin::Conn& conn, Message& request) {
    body = request.body;
    conn.answer("again");
  };
  client.in.asked("PUT");
  client.send("PUT / HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\n\r\n");
  CHECK(proxy.run([&] { return proxy.upstream().retries_reused.get() == 1; }));
  CHECK(head_came);
  client.send("body");
  CHECK(proxy.run([&] { return done(client, 2); }));
  CHECK(client.last().body == "again");
  CHECK(body == "body");
  CHECK(proxy.verdict() == "");
}

TEST_CASE("a POST of which no byte was written goes out again; a byte of it, and it does not") {
  for (const bool written : {false, true}) {
    CAPTURE(written);
    Proxy proxy;
    Client& client = with_pooled(proxy);
    Origin& origin = proxy.origin();
    origin.on_request = [](Origin::Conn& conn, Message&) { conn.answer("again"); };
    if (written) origin.on_request = [](Origin::Conn& conn, Message&) { conn.peer.close(); };
    else proxy.network.fail({OpKind::send, EPIPE});
    client.post("");
    if (!written) proxy.network.after(5ms, [&] { origin.conns[0].peer.close(); });
    CHECK(proxy.run([&] { return done(client, 2); }));
    CHECK(client.last().status() == (written ? 502 : 200));
    CHECK(proxy.upstream().retries_reused.get() == (written ? 0 : 1));
    CHECK(origin.requests == 2);
    CHECK(proxy.verdict() == "");
  }
}

TEST_CASE("after a byte of an answer nothing is tried again") {
  const std::string starts[] = {"H", "HTTP/1.1 200 OK\r\nContent-Le", "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhel",
                                "HTTP/1.1 103 Early Hints\r\n\r\n"};
  for (const std::string& start : starts) {
    for (const bool reset : {false, true}) {
      CAPTURE(start, reset);
      Proxy proxy;
      Client& client = with_pooled(proxy);
      Origin& origin = proxy.origin();
      origin.on_request = [&](Origin::Conn& conn, Message&) {
        conn.peer.send(start);
        proxy.network.after(1ms, [&] { reset ? conn.peer.reset() : conn.peer.close(); });
      };
      client.get("/second");
      CHECK(proxy.run([&] { return done(client, 2); }));
      CHECK(origin.requests == 2);
      CHECK(proxy.upstream().retries_reused.get() == 0);
      if (client.in.complete() == 2) CHECK(client.last().status() == 502);
      CHECK(proxy.verdict() == "");
    }
  }
}

TEST_CASE("a pooled connection that its origin closes is not handed out") {
  Proxy proxy;
  Client& client = with_pooled(proxy);
  Origin& origin = proxy.origin();
  origin.conns[0].peer.close();
  proxy.run_for(10ms);
  CHECK(proxy.pooled() == 0);
  client.post("not to be tried again");
  CHECK(proxy.run([&] { return done(client, 2); }));
  CHECK(client.last().status() == 200);
  CHECK(origin.conns.size() == 2);
  CHECK(proxy.upstream().retries_reused.get() == 0);
  CHECK(proxy.verdict() == "");
}

TEST_CASE("an origin that says connection: close is taken at its word") {
  Proxy proxy;
  Origin& origin = proxy.origin();
  origin.on_request = [](Origin::Conn& conn, Message&) { conn.answer("bye", "Connection: close\r\n"); };
  Client& client = proxy.client();
  for (size_t i = 1; i <= 3; ++i) {
    client.get();
    CHECK(proxy.run([&] { return done(client, i); }));
    CHECK(client.last().count("connection") == 0);
  }
  CHECK(client.in.complete() == 3);
  CHECK(origin.conns.size() == 3);
  CHECK(proxy.verdict() == "");
}

TEST_CASE("idle connections are used again last in, first out") {
  Proxy proxy;
  Origin& origin = proxy.origin();
  std::vector<size_t> used;
  std::vector<Origin::Conn*> waiting;
  origin.on_request = [&](Origin::Conn& conn, Message&) { waiting.push_back(&conn); };
  std::vector<Client*> clients;
  for (int i = 0; i < 3; ++i) {
    clients.push_back(&proxy.client());
    clients.back()->get();
  }
  CHECK(proxy.run([&] { return waiting.size() == 3; }));
  for (Origin::Conn* conn : waiting) {             // they become idle in this order
    conn->answer("x");
    proxy.run_for(5ms);
  }
  CHECK(proxy.pooled() == 3);
  Origin::Conn* const last = waiting.back();
  origin.on_request = [&](Origin::Conn& conn, Message&) {
    CHECK(&conn == last);
    conn.answer("y");
  };
  for (int i = 0; i < 5; ++i) {
    clients[0]->get();
    CHECK(proxy.run([&] { return done(*clients[0], static_cast<size_t>(2 + i)); }));
    proxy.run_for(1ms);
  }
  CHECK(origin.conns.size() == 3);
  CHECK(proxy.verdict() == "");
}

}  // namespace weir::simtest

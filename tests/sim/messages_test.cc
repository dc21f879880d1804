// Messages on their way through: order, framing, ends that are early, late or missing.
#include <catch2/catch_test_macros.hpp>

#include "tests/sim/proxy.h"

namespace weir::simtest {
namespace {

using namespace std::chrono_literals;

}  // namespace

TEST_CASE("pipelined requests are answered in order, however slow the first is", "[H4]") {
  Proxy proxy;
  int asked = 0;
  proxy.origin().on_request = [&](Origin::Conn& conn, Message& request) {
    const std::string path = request.target();
    proxy.network.after(10ms * (20 - ++asked), [&conn, path] { conn.answer(path); });
  };
  Client& client = proxy.client();
  for (int i = 0; i < 20; ++i) client.get("/" + std::to_string(i));
  CHECK(proxy.run([&] { return done(client, 20); }));
  REQUIRE(client.in.messages.size() == 20);
  for (int i = 0; i < 20; ++i) CHECK(client.in.messages[static_cast<size_t>(i)].body == "/" + std::to_string(i));
  CHECK(proxy.server().accepted.get() == 1);
  CHECK(proxy.verdict() == "");
}

// The answer to a bad request has to wait for room behind those before it; then its client is gone. What it asked for is logged out
// of bytes that nobody else holds.
TEST_CASE("a refused request whose client leaves before its answer is logged as it was sent") {
  size_t hits = 0;
  for (size_t size = 20'000; size < 30'000 && hits < 2; size += 120) {   // one of these leaves no room for another answer
    Proxy proxy({.routes = "routes: [{match: {path: /fill}, respond: {body: \"" + std::string(30'000, 'x') + "\"}}, {to: app}]\n",
                 .link = {.send_buffer_bytes = 16u << 10, .window_bytes = 16u << 10}, .access_log = true});
    proxy.origin().on_request = [&](Origin::Conn& conn, Message&) { conn.answer(std::string(size, 'x')); };
    Client& client = proxy.client();
    client.peer.allow(0);
    std::string all;
    for (int i = 0; i < 9; ++i) all += "GET /fill HTTP/1.1\r\nHost: a\r\n\r\n";
    all += "GET /last HTTP/1.1\r\nHost: a\r\n\r\n";
    client.send(all + "GET /bad HTTP/1.1\r\nHost: a\r\nBroken\r\n\r\n");
    proxy.run_for(10ms);
    proxy.log();
    client.peer.reset();
    CHECK(proxy.run([&] { return proxy.server().open.get() == 0; }));
    const std::string log = proxy.log();
    if (log.find("/bad") == std::string::npos) continue;
    ++hits;
    CHECK(log.find("\"path\":\"/bad\"") != std::string::npos);
    CHECK(log.find("\"end\":\"client_reset\"") != std::string::npos);
    CHECK(proxy.verdict() == "");
  }
  CHECK(hits > 0);
}

TEST_CASE("reading ahead of a pipeline is bounded", "[H4][M3]") {
  Proxy proxy({.timeouts = "response: 0s"});
  Origin& origin = proxy.origin();
  origin.on_request = nullptr;
  Client& client = proxy.client();
  std::string all;
  for (int i = 0; i < 20'000; ++i) all += "GET /" + std::to_string(i) + " HTTP/1.1\r\nHost: a\r\n\r\n";
  client.send(all);
  proxy.run_for(5s);
  const SimLink& link = proxy.network.link();
  CHECK(all.size() - client.peer.unsent() <= link.send_buffer_bytes + link.window_bytes + 4 * kSlabBytes);
  CHECK(proxy.slabs() <= 4);
  CHECK(origin.requests == 1);
  origin.conns[0].answer("0");
  origin.on_request = [](Origin::Conn& conn, Message& request) { conn.answer(request.target()); };
  CHECK(proxy.run([&] { return done(client, 20'000); }));
  CHECK(client.in.complete() == 20'000);
  CHECK(client.last().body == "/19999");
  CHECK(proxy.verdict() == "");
}

TEST_CASE("three kinds of request in one stream, cut at every place", "[H4]") {
  const std::string stream =
      "GET /1 HTTP/1.1\r\nHost: a\r\n\r\n"
      "POST /2 HTTP/1.1\r\nHost: a\r\nContent-Length: 11\r\n\r\nhello world"
      "PUT /3 HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n5;x=y\r\nchunk\r\n3\r\ned!\r\n0\r\nX-Sum: 1\r\n\r\n"
      "DELETE /4 HTTP/1.1\r\nHost: a\r\n\r\n";
  for (size_t cut = 0; cut <= stream.size(); ++cut) {
    Proxy proxy;
    std::string seen;
    proxy.origin().on_request = [&](Origin::Conn& conn, Message& request) {
      seen += request.method() + request.target() + "=" + request.body + ";";
      conn.answer(request.target());
    };
    Client& client = proxy.client();
    if (cut == 0) {                              // byte by byte
      for (size_t i = 0; i < stream.size(); ++i)
        proxy.network.after(1ms * (i + 1), [&client, &stream, i] { client.send(stream.substr(i, 1)); });
    } else {
      client.send(stream.substr(0, cut));
      proxy.network.after(5ms, [&] { client.send(stream.substr(cut)); });
    }
    const bool answered = proxy.run([&] { return done(client, 4); });
    const std::string verdict = proxy.verdict();
    const bool right = answered && client.in.complete() == 4 && client.last().body == "/4" && verdict.empty() &&
                       seen == "GET/1=;POST/2=hello world;PUT/3=chunked!;DELETE/4=;";
    if (!right) FAIL_CHECK("cut at " << cut << ": " << seen << ' ' << verdict << client.in.error);
  }
}

TEST_CASE("a head that never ends is refused within its limit", "[H2][H4]") {
  Proxy proxy({.more = "limits: {request_head: 32KiB}\n"});
  Client& client = proxy.client();
  client.send("GET / HTTP/1.1\r\nHost: a\r\n" + std::string(1u << 20, 'x'));
  size_t most = 0;
  CHECK(proxy.run([&] {
    most = std::max(most, proxy.slabs());
    return client.in.complete() == 1;
  }));
  CHECK(client.last().status() == 431);
  CHECK(most <= 5);
  CHECK(proxy.run([&] { return client.peer.ended(); }));
  CHECK(client.peer.error() == 0);
  CHECK(proxy.verdict() == "");
}

TEST_CASE("a short answer never looks whole, and its connection is not used again", "[H7]") {
  const std::string big = pattern(1, 400'000);
  struct Case { const char* name; std::string head; std::string body; bool reset; };
  const Case cases[] = {
      {"length", "Content-Length: 100\r\n", std::string(50, 'x'), false},
      {"length, nothing of it", "Content-Length: 100\r\n", "", false},
      {"length, reset", "Content-Length: 100\r\n", std::string(50, 'x'), true},
      {"long length, relayed", "Content-Length: 1000000\r\n", big, false},
      {"long length, reset", "Content-Length: 1000000\r\n", big, true},
      {"chunked", "Transfer-Encoding: chunked\r\n", "5\r\nhello\r\n", false},
      {"chunked, within a chunk", "Transfer-Encoding: chunked\r\n", "5\r\nhel", false},
      {"chunked, before the last line", "Transfer-Encoding: chunked\r\n", "5\r\nhello\r\n0\r\n", false},
      {"chunked, not a chunk", "Transfer-Encoding: chunked\r\n", "5\r\nhello\r\nxyz\r\n", false},
      {"until close, reset", "", "hello", true},
  };
  for (const Case& one : cases) {
    for (const bool relay : {false, true}) {
      CAPTURE(one.name, relay);
      Proxy proxy({.pipes = {.relay = relay}});
      Origin& origin = proxy.origin();
      origin.on_request = [&](Origin::Conn& conn, Message&) {
        conn.peer.send("HTTP/1.1 200 OK\r\n" + one.head + "\r\n" + one.body);
        proxy.network.after(50ms, [&] { one.reset ? conn.peer.reset() : conn.peer.finish(); });
      };
      Client& client = proxy.client();
      client.get();
      CHECK(proxy.run([&] { return client.closed(); }));
      CHECK(client.in.complete() == 0);
      CHECK(proxy.pooled() == 0);
      CHECK(proxy.run([&] { return proxy.open_origins() == 0; }));
      CHECK(proxy.verdict() == "");
    }
  }
}

TEST_CASE("a short answer takes no whole one before it along", "[H4][H7]") {
  Proxy proxy;
  const std::string body = pattern(1, 200'000);
  proxy.origin().on_request = [&](Origin::Conn& conn, Message& request) {
    if (request.target() == "/whole") return conn.peer.send("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + chunked(body, 9000));
    conn.peer.send("HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nshort");
    conn.peer.finish();
  };
  proxy.network.link().window_bytes = proxy.network.link().send_buffer_bytes = 20'000;
  Client& client = proxy.client();
  client.peer.allow(100);
  client.get("/whole");
  client.get("/short");
  proxy.run_for(2s);
  client.peer.allow(UINT64_MAX);
  CHECK(proxy.run([&] { return client.closed(); }));
  CHECK(client.peer.error() == 0);
  CHECK(client.in.complete() == 1);
  CHECK((client.in.messages[0].body == body));
  CHECK(client.last().body == "short");
  client.peer.close();
  CHECK(proxy.verdict() == "");
}

TEST_CASE("an HTTP/1.0 client tells a cut answer from a whole one by the reset", "[H7]") {
  for (const bool whole : {true, false}) {
    CAPTURE(whole);
    Proxy proxy;
    proxy.origin().on_request = [&](Origin::Conn& conn, Message&) {
      conn.peer.send("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n" + std::string(whole ? "0\r\n\r\n" : ""));
      if (!whole) conn.peer.finish();
    };
    Client& client = proxy.client();
    client.in.asked("GET");
    client.send("GET / HTTP/1.0\r\nHost: a\r\n\r\n");
    CHECK(proxy.run([&] { return client.closed(); }));
    CHECK((client.peer.error() == 0) == whole);
    CHECK((client.in.complete() == 1) == whole);
    CHECK(proxy.verdict() == "");
  }
}

TEST_CASE("what follows an answer is not passed on, and its connection is not used again", "[H7]") {
  const std::string big = pattern(1, 400'000);
  for (const bool later : {false, true}) {
    for (const bool large : {false, true}) {
      CAPTURE(later, large);
      Proxy proxy;
      Origin& origin = proxy.origin();
      const std::string body = large ? big : "hello";
      origin.on_request = [&](Origin::Conn& conn, Message&) {
        conn.answer(body);
        const std::string more = "HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\npoison";
        if (!later) conn.peer.send(more);
        else proxy.network.after(1ms, [&conn, more] { conn.peer.send(more); });
      };
      Client& client = proxy.client();
      client.get();
      CHECK(proxy.run([&] { return done(client, 1); }));
      CHECK((client.last().body == body));
      proxy.run_for(10ms);
      CHECK(proxy.pooled() == 0);
      client.get();
      CHECK(proxy.run([&] { return done(client, 2); }));
      CHECK(client.in.complete() == 2);
      CHECK((client.last().body == body));
      CHECK(origin.conns.size() == 2);
      CHECK(proxy.verdict() == "");
    }
  }
}

TEST_CASE("an early answer survives an unread request body, without a reset", "[H6]") {
  const std::string body = pattern(6, 4u << 20);  // more than all buffers on the way hold
  for (const bool origin_closes : {false, true}) {
    for (const bool in_chunks : {false, true}) {
      CAPTURE(origin_closes, in_chunks);
      Proxy proxy;
      Origin& origin = proxy.origin();
      origin.on_accept = [](Origin::Conn& conn) { conn.peer.allow(200); };
      origin.on_change = [&](Origin::Conn& conn) {
        if (conn.in.messages.empty() || !conn.in.messages[0].head_done || conn.note != nullptr) return;
        conn.note = &conn;
        conn.answer("too much", "Connection: close\r\n", 413);
        if (origin_closes) proxy.network.after(1ms, [&] { conn.peer.close(); });
      };
      Client& client = proxy.client();
      client.in.asked("POST");
      client.send("POST / HTTP/1.1\r\nHost: a\r\n");
      if (in_chunks) client.send("Transfer-Encoding: chunked\r\n\r\n" + chunked(body, 10'000));
      else client.send("Content-Length: " + std::to_string(body.size()) + "\r\n\r\n" + body);
      client.peer.allow(0);                      // it reads only when it has sent all
      CHECK(proxy.run([&] { return client.peer.unsent() == 0 || client.closed(); }));
      client.peer.allow(UINT64_MAX);
      CHECK(proxy.run([&] { return client.closed(); }));
      CHECK(client.peer.error() == 0);
      CHECK(client.in.complete() == 1);
      CHECK(client.last().status() == 413);
      CHECK(client.last().body == "too much");
      CHECK(client.last().field("connection") == "close");
      client.peer.close();
      CHECK(proxy.run([&] { return proxy.server().open.get() == 0; }));
      CHECK(proxy.timeouts(h1::ServerTimeoutKind::linger) == 0);
      CHECK(proxy.verdict() == "");
    }
  }
}

TEST_CASE("request and end of file in one segment get the full answer, and nothing spins meanwhile", "[E9]") {
  for (const bool post : {false, true}) {
    for (const bool later : {false, true}) {
      CAPTURE(post, later);
      Proxy proxy;
      const std::string body = pattern(7, 300'000);
      proxy.origin().on_request = [&](Origin::Conn& conn, Message&) {
        proxy.network.after(2s, [&] { conn.answer(body); });
      };
      Client& client = proxy.client();
      if (post) client.post("some body");
      else client.get();
      if (later) proxy.network.after(1s, [&] { client.peer.finish(); });
      else client.peer.finish();
      proxy.run_for(1500ms);
      const uint64_t ticks = proxy.loop.stats().ticks.get();
      proxy.run_for(400ms);
      CHECK(proxy.loop.stats().ticks.get() - ticks <= 4);
      CHECK(proxy.run([&] { return client.closed(); }));
      CHECK(client.peer.error() == 0);
      CHECK(client.in.complete() == 1);
      CHECK((client.last().body == body));
      CHECK(proxy.run([&] { return proxy.server().open.get() == 0; }));
      CHECK(proxy.verdict() == "");
    }
  }
}

TEST_CASE("a client that goes away takes its exchange with it, wherever that stands") {
  for (const bool reset : {false, true}) {
    for (const int stage : {0, 1, 2, 3}) {
      CAPTURE(reset, stage);
      Proxy proxy({.timeouts = "response: 0s, client_body: 0s, keepalive: 0s"});
      Origin& origin = proxy.origin();
      origin.on_request = [&](Origin::Conn& conn, Message&) {
        if (stage == 2) conn.peer.send("HTTP/1.1 200 OK\r\nContent-Length: 9000000\r\n\r\n" + std::string(2'000'000, 'x'));
        if (stage == 3) conn.peer.send("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + chunked(pattern(1, 900'000), 9000));
      };
      Client& client = proxy.client();
      if (stage == 3) client.peer.allow(100);
      if (stage == 0) client.send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 10\r\n\r\nhalf");
      else client.get();
      proxy.run_for(1s);
      CHECK(proxy.open_origins() == 1);
      reset ? client.peer.reset() : client.peer.close();
      // Without a reset an end of file alone is a half-close: what is sent then finds out (stage 1 waits for its answer).
      if (!reset && stage == 1) origin.conns[0].answer("late");
      CHECK(proxy.run([&] { return proxy.server().open.get() == 0; }));
      CHECK(proxy.exchanges.exchanges.in_use() == 0);
      if (stage != 1) CHECK(proxy.pooled() == 0);
      CHECK(proxy.verdict() == "");
    }
  }
}

TEST_CASE("interim answers, and answers without a body", "[H9]") {
  Proxy proxy;
  Origin& origin = proxy.origin();
  std::string body;
  origin.on_change = [](Origin::Conn& conn) {
    if (conn.in.messages.empty() || !conn.in.messages[0].head_done || conn.note != nullptr) return;
    conn.note = &conn;
    conn.peer.send("HTTP/1.1 103 Early Hints\r\nLink: </a.css>\r\n\r\nHTTP/1.1 100 Continue\r\n\r\n");
  };
  origin.on_request = [&](Origin::Conn& conn, Message& request) {
    const std::string path = request.target();
    body += request.body;
    if (path == "/head") conn.peer.send("HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n");
    else if (path == "/204") conn.peer.send("HTTP/1.1 204 No Content\r\n\r\n");
    else if (path == "/304") conn.peer.send("HTTP/1.1 304 Not Modified\r\nContent-Length: 100\r\nETag: \"x\"\r\n\r\n");
    else conn.answer("done");
  };
  Client& client = proxy.client();
  client.in.asked("POST");
  client.send("POST /post HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\nExpect: 100-continue\r\n\r\n");
  CHECK(proxy.run([&] { return client.in.messages.size() == 2; }));
  CHECK(client.in.messages[0].status() == 103);
  CHECK(client.in.messages[0].field("link") == "</a.css>");
  CHECK(client.in.messages[1].status() == 100);
  client.send("body");
  CHECK(proxy.run([&] { return done(client, 1); }));
  CHECK(client.last().body == "done");
  CHECK(body == "body");
  client.in.asked("HEAD");
  client.send("HEAD /head HTTP/1.1\r\nHost: a\r\n\r\n");
  client.get("/204");
  client.get("/304");
  client.get("/last");
  CHECK(proxy.run([&] { return done(client, 5); }));
  REQUIRE(client.in.messages.size() == 7);
  CHECK(client.in.messages[3].field("content-length") == "100");
  CHECK(client.in.messages[4].status() == 204);
  CHECK(client.in.messages[4].count("content-length") == 0);
  CHECK(client.in.messages[5].field("etag") == "\"x\"");
  CHECK(client.last().body == "done");
  CHECK(origin.conns.size() == 1);
  CHECK(proxy.verdict() == "");
}

TEST_CASE("a fault in the head reaches no origin; a fault in the body ends the origin's request unterminated", "[H3]") {
  Proxy proxy;
  Origin& origin = proxy.origin();
  Client& client = proxy.client();
  client.in.asked("POST");
  client.send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n");
  CHECK(proxy.run([&] { return done(client, 1); }));
  CHECK(client.last().status() == 400);
  CHECK(origin.conns.empty());
  Client& second = proxy.client();
  second.in.asked("POST");
  second.send("POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n");
  CHECK(proxy.run([&] { return !origin.conns.empty() && !origin.conns[0].in.messages.empty() &&
                               origin.conns[0].in.messages[0].body == "hello"; }));
  second.send("5x\r\n");
  CHECK(proxy.run([&] { return done(second, 1); }));
  CHECK(second.last().status() == 400);
  CHECK(proxy.run([&] { return origin.conns[0].closed(); }));
  CHECK(origin.conns[0].in.complete() == 0);
  CHECK(proxy.pooled() == 0);
  CHECK(proxy.verdict() == "");
}

TEST_CASE("a body over its limit is 413", "[H2]") {
  Proxy proxy({.more = "limits: {request_body: 1KiB}\n"});
  Origin& origin = proxy.origin();
  Client& declared = proxy.client();
  declared.post(std::string(1025, 'x'));
  CHECK(proxy.run([&] { return done(declared, 1); }));
  CHECK(declared.last().status() == 413);
  CHECK(origin.conns.empty());
  Client& found = proxy.client();
  found.in.asked("POST");
  found.send("POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n" + chunked(pattern(1, 1025), 100));
  CHECK(proxy.run([&] { return done(found, 1); }));
  CHECK(found.last().status() == 413);
  CHECK(origin.requests == 0);
  Client& right = proxy.client();
  right.post(std::string(1024, 'x'));
  CHECK(proxy.run([&] { return done(right, 1); }));
  CHECK(right.last().status() == 200);
  CHECK(proxy.verdict() == "");
}

TEST_CASE("trailers and hop-by-hop fields", "[H5][H9]") {
  Proxy proxy;
  Message seen;
  proxy.origin().on_request = [&](Origin::Conn& conn, Message& request) {
    seen = request;
    conn.peer.send("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nConnection: X-Hop\r\nX-Hop: 1\r\nKeep-Alive: timeout=5\r\n"
                   "X-End: 1\r\n\r\n2\r\nok\r\n0\r\nX-Sum: abc\r\n\r\n");
  };
  Client& client = proxy.client();
  client.in.asked("POST");
  client.send("POST / HTTP/1.1\r\nHost: a\r\nTE: trailers\r\nConnection: x-mine, te\r\nX-Mine: 1\r\nX-Forwarded-For: 6.6.6.6\r\n"
              "X-Other: 2\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nx\r\n0\r\nX-Up: 7\r\nContent-Length: 9\r\n\r\n");
  CHECK(proxy.run([&] { return done(client, 1); }));
  CHECK(seen.count("x-mine") == 0);
  CHECK(seen.field("x-other") == "2");
  CHECK(seen.count("x-forwarded-for") == 1);
  CHECK(seen.field("x-forwarded-for") == "127.0.0.1");
  CHECK(seen.field("x-forwarded-host") == "a");
  REQUIRE(seen.trailers.size() == 1);
  CHECK(seen.trailers[0].first == "x-up");
  CHECK(client.last().count("x-hop") == 0);
  CHECK(client.last().count("keep-alive") == 0);
  CHECK(client.last().field("x-end") == "1");
  REQUIRE(client.last().trailers.size() == 1);
  CHECK(client.last().trailers[0].second == "abc");
  CHECK(proxy.verdict() == "");
}

}  // namespace weir::simtest

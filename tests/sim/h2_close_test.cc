// HTTP/2 to clients: how connections and streams end: deadlines, drain, cut; GOAWAY is the last that is said.
#include <catch2/catch_test_macros.hpp>

#include <algorithm>
#include <memory>
#include <set>

#include "tests/sim/h2_client.h"

namespace weir::simtest {
namespace {

using namespace std::chrono_literals;
using h2::EndCause;
using h2::ErrorCode;
using h2::ServerTimeoutKind;

uint64_t timeouts(Proxy& proxy, ServerTimeoutKind kind) { return proxy.h2().timeouts[static_cast<size_t>(kind)].get(); }

}  // namespace

TEST_CASE("h2: an idle connection, one that never begins, and one stuck in a header block end with GOAWAY(NO_ERROR)", "[h2][T1][C1][C2]") {
  Proxy proxy({.listener = "protocols: [h2]", .timeouts = "keepalive: 20s, client_header: 5s"});
  proxy.origin();
  H2Client idle(proxy), silent(proxy, {.preface = false, .acknowledge = false}), partial(proxy), half(proxy);
  const int32_t id = idle.get();
  CHECK(proxy.run([&] { return idle.answer(id).done(); }));
  proxy.run_for(10ms);
  partial.headers(1, h2_get(), h2::kEndStream);
  half.send(H2Client::frame(1, 5, 1, h2_block(h2_get())).substr(0, 20));
  const TimePoint began = proxy.now();
  for (H2Client* client : {&silent, &partial, &half}) {
    CHECK(proxy.run([&] { return client->closed(); }));
    CHECK(client->goaway() == number(ErrorCode::no_error));
    CHECK(client->peer.error() == 0);
  }
  CHECK(proxy.now() - began <= 5510ms);
  CHECK(proxy.now() - began >= 4900ms);
  CHECK(timeouts(proxy, ServerTimeoutKind::client_header) == 3);
  CHECK_FALSE(idle.closed());
  CHECK(proxy.run([&] { return idle.closed(); }));
  CHECK(proxy.now() - began >= 20s);
  CHECK(proxy.now() - began <= 21s);
  CHECK(idle.goaway() == number(ErrorCode::no_error));
  CHECK(idle.goaways.back().first == id);
  CHECK(timeouts(proxy, ServerTimeoutKind::keepalive) == 1);
  CHECK(proxy.goaways(EndCause::timeout, ErrorCode::no_error) == 4);
  CHECK(proxy.verdict() == "");
}

TEST_CASE("h2: a stream that awaits its client is bounded: 408 before an answer, a reset behind its head", "[h2][T3]") {
  Proxy proxy({.timeouts = "client_body: 3s, stream_idle: 30s"});
  proxy.origin().on_change = [](Origin::Conn& conn) {
    if (conn.note != nullptr || conn.in.messages.empty() || conn.in.messages.back().target() != "/talk") return;
    conn.note = &conn;
    conn.peer.send("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n");
  };
  proxy.origin().on_request = [](Origin::Conn& conn, Message&) { conn.answer("ok"); };
  H2Client client(proxy);
  const int32_t mute = client.request(h2_get("/", "POST"), false);
  const int32_t talk = client.request(h2_get("/talk", "POST"), false);
  const TimePoint began = proxy.now();
  CHECK(proxy.run([&] { return client.answer(mute).done(); }));
  CHECK(client.answer(mute).status == 408);
  CHECK(proxy.now() - began >= 3s);
  CHECK(proxy.now() - began <= 3100ms);
  const int32_t beside = client.get();
  CHECK(proxy.run([&] { return client.answer(talk).done(); }));
  CHECK(proxy.now() - began >= 30s);
  CHECK(proxy.now() - began <= 31s);
  CHECK(client.answer(talk).reset == number(ErrorCode::cancel));
  CHECK(client.answer(beside).status == 200);
  CHECK(timeouts(proxy, ServerTimeoutKind::client_body) == 1);
  CHECK(timeouts(proxy, ServerTimeoutKind::stream_idle) == 1);
  CHECK(client.goaways.empty());
  CHECK(proxy.verdict() == "");
}

TEST_CASE("h2: a client that owes a stream window is bounded by write; others, quiet ones too, are not cut", "[h2][T3]") {
  Proxy proxy({.timeouts = "write: 5s"});
  const std::string body = pattern(1, 300'000);
  std::vector<Origin::Conn*> events;
  proxy.origin().on_request = nullptr;
  proxy.origin().on_change = [&](Origin::Conn& conn) {
    if (conn.note != nullptr || conn.in.messages.empty()) return;
    conn.note = &conn;
    if (conn.in.messages.back().target() == "/events") {
      conn.peer.send("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n");
      events.push_back(&conn);
    } else {
      conn.answer(body);
    }
  };
  H2Client client(proxy, {.credit = false});
  const int32_t owed = client.get("/owed"), slow = client.get("/slow"), sse = client.get("/events");
  client.window(0, 10 << 20);
  proxy.run_for(100ms);
  TimePoint reset_at{};
  client.on_frame = [&](H2Client&, const H2Frame& f) {
    if (f.is(FrameType::rst_stream)) reset_at = proxy.now();
  };
  const TimePoint began = proxy.now();
  // Updates that let a byte a second go are progress, updates of the connection are none.
  for (int i = 0; i < 12; ++i) {
    client.window(slow, 1000);
    client.window(0, 1);
    proxy.run_for(1s);
  }
  CHECK(client.answer(owed).reset == number(ErrorCode::cancel));
  CHECK(reset_at - began <= 6s);
  CHECK(reset_at - began >= 4800ms);
  CHECK(client.answer(slow).body.size() == 65535 + 12'000);
  CHECK_FALSE(client.answer(slow).done());
  CHECK_FALSE(client.answer(sse).done());
  events.front()->peer.send("1\r\nx\r\n");
  client.window(slow, 1 << 20);
  CHECK(proxy.run([&] { return client.answer(slow).done() && client.answer(sse).body == "x"; }));
  CHECK((client.answer(slow).body == body));
  CHECK(timeouts(proxy, ServerTimeoutKind::write) == 1);
  CHECK(proxy.verdict() == "");
}

TEST_CASE("h2: a connection whose window is never given back ends by write", "[h2][T3][C2]") {
  Proxy proxy({.timeouts = "write: 5s"});
  proxy.origin().on_request = [](Origin::Conn& conn, Message&) { conn.answer(std::string(200'000, 'x')); };
  H2Client client(proxy, {.settings = {{4, 1 << 20}}, .credit = false});
  client.get();
  const TimePoint began = proxy.now();
  CHECK(proxy.run([&] { return client.closed(); }));
  CHECK(proxy.now() - began >= 5s);
  CHECK(proxy.now() - began <= 6s);
  CHECK(client.body_bytes == 65535);
  CHECK(client.goaway() == number(ErrorCode::no_error));
  CHECK(proxy.verdict() == "");
}

TEST_CASE("h2: write: a non-reader is closed, a slow reader gets everything", "[h2][T2][C3]") {
  Proxy proxy({.timeouts = "write: 5s", .link = {.send_buffer_bytes = 64 * 1024, .window_bytes = 64 * 1024}});
  const std::string body = pattern(1, 4 << 20);
  proxy.origin().on_request = [&](Origin::Conn& conn, Message&) { conn.answer(body); };
  H2Client stuck(proxy, {.settings = {{4, 8 << 20}}, .credit = false}), slow(proxy, {.settings = {{4, 8 << 20}}, .credit = false});
  stuck.window(0, 8 << 20);
  slow.window(0, 8 << 20);
  proxy.run_for(10ms);
  stuck.peer.allow(stuck.peer.received_bytes());
  slow.peer.allow(slow.peer.received_bytes());
  stuck.get();
  const int32_t id = slow.get();
  const TimePoint began = proxy.now();
  TimePoint stuck_until{};
  for (int i = 0; i < 400 && !slow.answer(id).done(); ++i) {
    slow.peer.allow(slow.peer.received_bytes() + 64 * 1024);
    proxy.run_for(250ms);
    if (stuck_until == TimePoint{} && proxy.h2().open.get() == 1) stuck_until = proxy.now();
  }
  CHECK(stuck_until - began <= 7s);   // two looks at the acknowledgements
  CHECK(stuck_until - began >= 5s);
  CHECK(proxy.now() - began >= 15s);
  CHECK((slow.answer(id).body == body));
  CHECK(timeouts(proxy, ServerTimeoutKind::write) == 1);
  CHECK(proxy.verdict() == "");
}

TEST_CASE("h2: a drain takes two steps; racing streams complete, later ones never reach an origin", "[h2][C1][C4][C5]") {
  for (uint64_t seed = 1; seed <= 10; ++seed) {
    CAPTURE(seed);
    Proxy proxy({.seed = seed, .link = {.latency = 5ms}});
    std::set<std::string> reached;
    proxy.origin().on_request = [&](Origin::Conn& conn, Message& request) {
      reached.insert(request.target());
      proxy.network.after(30ms, [&conn] { conn.answer(std::string(1000, 'x')); });
    };
    H2Client client(proxy);
    // It goes on asking every 3 ms, whatever it is told.
    int asked = 0;
    std::function<void()> ask = [&] {
      if (client.closed() || asked == 40) return;
      client.get("/" + std::to_string(client.next_stream));
      ++asked;
      proxy.network.after(3ms, ask);
    };
    ask();
    proxy.network.after(60ms, [&] { proxy.drain(); });
    CHECK(proxy.run([&] { return client.closed(); }));
    CHECK(client.peer.error() == 0);
    REQUIRE(client.goaways.size() >= 2);
    CHECK(client.goaways.front() == std::pair<int32_t, uint32_t>{h2::kLastStreamId, 0u});
    CHECK(client.goaway() == number(ErrorCode::no_error));
    const int32_t last = client.goaways.back().first;
    CHECK(last < h2::kLastStreamId);
    CHECK(last > 1);
    for (int32_t id = 1; id < client.next_stream; id += 2) {
      const bool there = reached.count("/" + std::to_string(id)) != 0;
      if (there != (id <= last) || (id <= last && client.answer(id).body.size() != 1000)) FAIL_CHECK(id << " of " << last);
    }
    client.peer.close();
    CHECK(proxy.run([&] { return proxy.listener().empty(); }));
    CHECK(proxy.verdict() == "");
  }
}

TEST_CASE("h2: idle connections are drained too, one after the other", "[h2][C4]") {
  Proxy proxy;
  proxy.origin();
  std::vector<std::unique_ptr<H2Client>> clients;
  std::set<int64_t> told_at;
  for (int i = 0; i < 50; ++i) {
    H2Client& client = *clients.emplace_back(std::make_unique<H2Client>(proxy));
    client.get();
    client.on_frame = [&](H2Client& c, const H2Frame& f) {
      if (f.is(FrameType::goaway) && c.goaways.size() == 1) told_at.insert(proxy.now().time_since_epoch() / 10ms);
    };
  }
  proxy.run_for(100ms);
  const TimePoint began = proxy.now();
  proxy.drain();
  CHECK(proxy.run([&] { return std::all_of(clients.begin(), clients.end(), [](const auto& c) { return c->closed(); }); }));
  CHECK(proxy.now() - began <= 1s);
  CHECK(told_at.size() >= 25);  // of 50 slots of 10 ms
  for (const auto& client : clients) {
    CHECK(client->goaway() == number(ErrorCode::no_error));
    CHECK(client->goaways.size() == 2);
    client->peer.close();
  }
  CHECK(proxy.run([&] { return proxy.drained(); }));
  CHECK(proxy.verdict() == "");
}

TEST_CASE("h2: a client that answers no PING is told its last stream after a second", "[h2][C4]") {
  Proxy proxy;
  proxy.origin().on_request = [&](Origin::Conn& conn, Message&) { proxy.network.after(3s, [&conn] { conn.answer("late"); }); };
  H2Client client(proxy, {.acknowledge = false});
  const int32_t id = client.get();
  proxy.run_for(10ms);
  proxy.drain();
  proxy.run_for(900ms);
  CHECK(client.goaways.size() == 1);
  proxy.run_for(200ms);
  CHECK(client.goaways.size() == 2);
  CHECK(proxy.run([&] { return client.closed(); }));
  CHECK(client.answer(id).body == "late");
  CHECK(client.goaways.size() == 3);
  CHECK(client.goaway() == number(ErrorCode::no_error));
  CHECK(client.goaways.back().first == id);
  CHECK(proxy.verdict() == "");
}

TEST_CASE("h2: a cut says GOAWAY and ends at once; one that does not read delays nothing", "[h2][C1][C2][C3][T4]") {
  Proxy proxy;
  proxy.origin().on_request = [](Origin::Conn& conn, Message& request) {
    if (request.target() == "/big") conn.answer(std::string(5'000'000, 'x'));
  };
  H2Client reader(proxy), deaf(proxy, {.settings = {{4, 8 << 20}}, .credit = false}), idle(proxy);
  const int32_t id = reader.get("/stuck");
  deaf.window(0, 8 << 20);
  proxy.run_for(10ms);
  deaf.peer.allow(deaf.peer.received_bytes());
  deaf.get("/big");
  proxy.run_for(1s);
  const TimePoint began = proxy.now();
  proxy.drain();
  proxy.listener().cut(make_fault(What::shutting_down));
  CHECK(proxy.run([&] { return reader.closed() && idle.closed(); }));
  CHECK(proxy.now() - began <= 50ms);
  CHECK(reader.goaway() == number(ErrorCode::no_error));
  CHECK(reader.goaways.back().first == id);
  CHECK(idle.goaway() == number(ErrorCode::no_error));
  reader.peer.close();
  idle.peer.close();
  CHECK(proxy.run([&] { return proxy.listener().empty(); }));
  CHECK(proxy.now() - began <= 600ms);
  CHECK(proxy.goaways(EndCause::shutdown, ErrorCode::no_error) == 3);
  CHECK(proxy.verdict() == "");
}

TEST_CASE("h2: a client that has said all it wants gets its answers, then GOAWAY and the end", "[h2][E9][C1]") {
  Proxy proxy;
  proxy.origin().on_request = [&](Origin::Conn& conn, Message&) { proxy.network.after(100ms, [&conn] { conn.answer(std::string(20'000, 'x')); }); };
  H2Client client(proxy, {.acknowledge = false, .credit = false});
  const int32_t id = client.get(), half = client.request(h2_get("/", "POST"), false);
  client.peer.finish();
  CHECK(proxy.run([&] { return client.closed(); }));
  CHECK(client.answer(id).body.size() == 20'000);
  CHECK(client.answer(half).status == 0);
  CHECK(client.goaway() == number(ErrorCode::no_error));
  CHECK(client.peer.error() == 0);
  CHECK(proxy.verdict() == "");
}

TEST_CASE("h2: a client that vanishes, at any moment, leaves nothing behind", "[h2]") {
  for (uint64_t seed = 1; seed <= 60; ++seed) {
    CAPTURE(seed);
    Proxy proxy({.seed = seed});
    SimRandom random(seed);
    proxy.origin().on_request = [&](Origin::Conn& conn, Message&) {
      const std::string body(random.below(200'000), 'x');
      proxy.network.after(Duration(static_cast<int64_t>(random.below(2'000'000))), [&conn, body] { conn.answer(body); });
    };
    H2Client client(proxy);
    for (int i = 0; i < 10; ++i) {
      const int32_t id = client.request(h2_get("/", "POST"), random.below(2) == 0);
      if (random.below(2) == 0) client.upload(id, std::string(random.below(100'000), 'y'), random.below(2) == 0);
      if (random.below(4) == 0) client.reset(id);
    }
    proxy.network.after(Duration(static_cast<int64_t>(random.below(3'000'000))), [&] {
      if (random.below(2) == 0) client.peer.reset();
      else client.peer.close();
    });
    proxy.run_for(Duration(static_cast<int64_t>(random.below(4'000'000))));
    if (random.below(3) == 0) proxy.drain();
    proxy.run_for(10ms);
    CHECK(proxy.verdict() == "");
  }
}

}  // namespace weir::simtest

// HTTP/2 to clients that mean harm: what they may cost, and how that ends; and the benign neighbour of each, which is let be.
#include <catch2/catch_test_macros.hpp>

#include <algorithm>

#include "tests/sim/h2_client.h"

namespace weir::simtest {
namespace {

using namespace std::chrono_literals;
using h2::EndCause;
using h2::ErrorCode;

const std::string kBudget = "limits: {overhead_frames: 100, resets: 20, h2_streams: 16}\n";

// One frame of a flood; a stream that was answered is open to it as `stream`.
using Flood = std::function<void(H2Client&, int i)>;

struct Kind {
  const char* name;
  Flood send;
};

std::vector<Kind> kinds() {
  return {
      {"PING", [](H2Client& c, int) { c.ping(); }},
      {"PING ACK", [](H2Client& c, int) { c.frame(FrameType::ping, h2::kAck, 0, "12345678"); }},
      {"SETTINGS", [](H2Client& c, int) { c.frame(FrameType::settings, 0, 0, ""); }},
      {"SETTINGS ACK", [](H2Client& c, int) { c.frame(FrameType::ping, h2::kAck, 0, "12345678"); }},
      {"PRIORITY", [](H2Client& c, int) { c.frame(FrameType::priority, 0, 1, std::string("\0\0\0\0\x10", 5)); }},
      {"unknown", [](H2Client& c, int) { c.frame(static_cast<FrameType>(0xbe), 0, 0, "x"); }},
      {"PRIORITY_UPDATE", [](H2Client& c, int) { c.frame(static_cast<FrameType>(0x10), 0, 0, h2_number(1, 4) + "u=1"); }},
      {"GOAWAY", [](H2Client& c, int i) {
         if (i == 0) c.get("/slow");   // else it is done
         c.frame(FrameType::goaway, 0, 0, h2_number(0, 8));
       }},
      {"WINDOW_UPDATE", [](H2Client& c, int) { c.window(0, 1); }},
      {"DATA on a closed stream", [](H2Client& c, int) { c.data(1, "", false); }},
      {"refused streams", [](H2Client& c, int i) {
         if (i == 0)
           for (int s = 0; s < 16; ++s) c.request({{":method", "POST"}, {":scheme", "http"}, {":authority", "a"}, {":path", "/slow"}}, false);
         c.get();
       }},
      {"empty DATA", [](H2Client& c, int i) {
         if (i == 0) c.request({{":method", "POST"}, {":scheme", "http"}, {":authority", "a"}, {":path", "/slow"}}, false);
         c.data(c.next_stream - 2, "", false);
       }},
      {"DATA of padding", [](H2Client& c, int i) {
         if (i == 0) c.request({{":method", "POST"}, {":scheme", "http"}, {":authority", "a"}, {":path", "/slow"}}, false);
         c.frame(FrameType::data, h2::kPadded, c.next_stream - 2, std::string("\x03\0\0\0", 4));
       }},
  };
}

// A server whose origin answers "/slow" never.
struct World {
  Proxy proxy;
  H2Client client;
  explicit World(const std::string& more = kBudget) : proxy({.more = more}), client(proxy) {
    proxy.origin().on_request = [](Origin::Conn& conn, Message& request) {
      if (request.target() != "/slow") conn.answer("hello");
    };
    const int32_t first = client.get();
    proxy.run([this, first] { return client.answer(first).done(); });
  }
  bool alive() {
    const int32_t id = client.get("/alive");
    return proxy.run([&] { return client.answer(id).done() || client.closed(); }) && client.answer(id).status == 200;
  }
};

}  // namespace

TEST_CASE("h2: each kind of overhead ends with ENHANCE_YOUR_CALM over the budget, and not below it", "[h2][P1]") {
  for (const Kind& kind : kinds()) {
    CAPTURE(kind.name);
    {
      World world;
      for (int i = 0; i < 80; ++i) kind.send(world.client, i);
      world.proxy.run_for(10ms);
      CHECK_FALSE(world.client.closed());
      CHECK(world.client.goaways.empty());
      CHECK(world.proxy.verdict() == "");
    }
    World world;
    for (int i = 0; i < 130; ++i) kind.send(world.client, i);
    CHECK(world.proxy.run([&] { return world.client.closed(); }));
    CHECK(world.client.goaway() == number(ErrorCode::enhance_your_calm));
    CHECK(world.client.peer.error() == 0);
    CHECK(world.proxy.goaways(EndCause::overhead, ErrorCode::enhance_your_calm) == 1);
    CHECK(world.proxy.verdict() == "");
  }
}

TEST_CASE("h2: SETTINGS are charged by their entries, a header block by its CONTINUATIONs and its size", "[h2][P1][P13]") {
  {
    World world;
    std::string entries;
    for (int i = 0; i < 120; ++i) entries += h2_number(0x99, 2) + h2_number(1, 4);
    world.client.frame(FrameType::settings, 0, 0, entries);
    CHECK(world.proxy.run([&] { return world.client.closed(); }));
    CHECK(world.client.goaway() == number(ErrorCode::enhance_your_calm));
    CHECK(world.proxy.verdict() == "");
  }
  for (const size_t piece : {size_t{0}, size_t{16000}}) {
    CAPTURE(piece);
    World world;
    world.client.headers(3, h2_get(), h2::kEndStream);
    for (int i = 0; i < 200; ++i) world.client.frame(FrameType::continuation, 0, 3, h2_block({{"x", std::string(piece, 'x')}}).substr(0, piece));
    CHECK(world.proxy.run([&] { return world.client.closed(); }));
    CHECK(world.client.goaway() == number(ErrorCode::enhance_your_calm));
    CHECK(world.proxy.origin().requests == 1);
    CHECK(world.proxy.verdict() == "");
  }
  World world;   // a few are fine, beyond the eight that the library would have allowed too
  world.client.headers(3, h2_get(), h2::kEndStream);
  for (int i = 0; i < 20; ++i) world.client.frame(FrameType::continuation, i == 19 ? h2::kEndHeaders : 0, 3, h2_block({{"x", "y"}}));
  CHECK(world.proxy.run([&] { return world.client.answer(3).done(); }));
  CHECK(world.client.answer(3).status == 200);
  CHECK(world.proxy.verdict() == "");
}

TEST_CASE("h2: the budget decays with work and never starts anew: bursts of half of it between requests still trip", "[h2][P2]") {
  {
    World world;
    int bursts = 0;
    while (!world.client.closed() && bursts < 20) {
      for (int i = 0; i < 50; ++i) world.client.ping();
      world.alive();
      ++bursts;
    }
    CHECK(world.client.goaway() == number(ErrorCode::enhance_your_calm));
    CHECK(bursts <= 4);
    CHECK(world.proxy.verdict() == "");
  }
  World world;   // a browser: a few of everything beside each request
  for (int i = 0; i < 300; ++i) {
    world.client.ping();
    world.client.window(0, 1000);
    world.client.frame(FrameType::priority, 0, world.client.next_stream, std::string("\0\0\0\0\x10", 5));
    if (!world.alive()) break;
  }
  CHECK(world.client.answers.size() == 301);
  CHECK(world.client.goaways.empty());
  CHECK(world.proxy.verdict() == "");
}

TEST_CASE("h2: a download credited in small updates completes with no GOAWAY", "[h2][P3][P4]") {
  Proxy proxy({.more = kBudget});
  const std::string body = pattern(1, 4 << 20);
  proxy.origin().on_request = [&](Origin::Conn& conn, Message&) { conn.answer(body); };
  H2Client client(proxy, {.credit = false});
  client.on_frame = [](H2Client& c, const H2Frame& f) {
    if (!f.is(FrameType::data)) return;
    for (size_t left = f.payload.size(); left > 0; left -= std::min<size_t>(left, 512)) {
      c.window(0, static_cast<uint32_t>(std::min<size_t>(left, 512)));
      if (!c.answer(f.stream).ended) c.window(f.stream, static_cast<uint32_t>(std::min<size_t>(left, 512)));
    }
  };
  const int32_t id = client.get();
  CHECK(proxy.run([&] { return client.answer(id).done() || client.closed(); }));
  CHECK((client.answer(id).body == body));
  CHECK(client.goaways.empty());
  CHECK(proxy.verdict() == "");
}

TEST_CASE("h2: a stream without window and idle updates beyond the budget", "[h2][P5]") {
  Proxy proxy({.more = kBudget});
  proxy.origin();
  H2Client client(proxy, {.settings = {{4, 0}}});
  client.get();
  proxy.run_for(10ms);
  for (int i = 0; i < 130; ++i) client.window(0, 1);
  CHECK(proxy.run([&] { return client.closed(); }));
  CHECK(client.goaway() == number(ErrorCode::enhance_your_calm));
  CHECK(client.body_bytes == 0);
  CHECK(proxy.verdict() == "");
}

TEST_CASE("h2: one reset too many; a stream reset in the batch that opened it reaches no origin", "[h2][P6]") {
  Proxy proxy;
  proxy.origin();
  H2Client client(proxy);
  for (int i = 0; i < 512; ++i) {
    std::string both = H2Client::frame(1, h2::kEndHeaders | h2::kEndStream, client.next_stream, h2_block(h2_get()));
    both += H2Client::frame(3, 0, client.next_stream, h2_number(8, 4));
    client.send(both);
    client.next_stream += 2;
  }
  proxy.run_for(20ms);
  CHECK_FALSE(client.closed());
  CHECK(proxy.h2().requests.get() <= 16);   // those whose reset came in the next read
  const int32_t alive = client.get();
  CHECK(proxy.run([&] { return client.answer(alive).done(); }));
  CHECK(client.answer(alive).status == 200);
  client.reset(client.get());
  CHECK(proxy.run([&] { return client.closed(); }));
  CHECK(client.goaway() == number(ErrorCode::enhance_your_calm));
  CHECK(proxy.goaways(EndCause::resets, ErrorCode::enhance_your_calm) == 1);
  CHECK(proxy.verdict() == "");
}

TEST_CASE("h2: resets over hours are no attack; streams that the client makes us reset count like its own", "[h2][P6]") {
  {
    World world;
    for (int i = 0; i < 60; ++i) {
      world.client.reset(world.client.get("/slow"));
      world.proxy.run_for(2s);
    }
    CHECK(world.alive());
    CHECK(world.proxy.verdict() == "");
  }
  World world;
  for (int i = 0; i < 30; ++i) {
    H2Fields fields = h2_get();
    fields.emplace_back("Upper", "x");
    world.client.request(fields, true);
    world.proxy.run_for(1ms);
  }
  CHECK(world.proxy.run([&] { return world.client.closed(); }));
  CHECK(world.client.goaway() == number(ErrorCode::enhance_your_calm));
  CHECK(world.proxy.verdict() == "");
}

TEST_CASE("h2: a stream too many is refused and the connection lives", "[h2][P6]") {
  Proxy proxy;
  proxy.origin().on_request = [&](Origin::Conn& conn, Message&) { proxy.network.after(50ms, [&conn] { conn.answer("ok"); }); };
  H2Client client(proxy);
  proxy.run_for(10ms);   // its number is acknowledged
  for (int i = 0; i < 257; ++i) client.get();
  CHECK(proxy.run([&] { return std::all_of(client.answers.begin(), client.answers.end(), [](const auto& a) { return a.second.done(); }) && client.answers.size() >= 257; }));
  CHECK(client.answer(513).reset == number(ErrorCode::refused_stream));
  for (int i = 0; i < 256; ++i)
    if (client.answer(2 * i + 1).status != 200) FAIL_CHECK(i);
  CHECK(proxy.origin().requests == 256);
  CHECK(proxy.h2().refused.get() == 1);
  const int32_t next = client.get();
  CHECK(proxy.run([&] { return client.answer(next).done(); }));
  CHECK(client.answer(next).status == 200);
  CHECK(client.goaways.empty());
  CHECK(proxy.verdict() == "");
}

TEST_CASE("h2: what breaks the connection's rules ends it with its exact code", "[h2][P11][C1]") {
  struct Row { const char* name; ErrorCode code; Flood send; };
  const std::vector<Row> rows = {
      {"even id", ErrorCode::protocol_error, [](H2Client& c, int) { c.headers(2, h2_get()); }},
      {"lower id", ErrorCode::protocol_error, [](H2Client& c, int) { c.frame(FrameType::data, 0, 9, "x"); }},
      {"window overflow", ErrorCode::flow_control_error, [](H2Client& c, int) { c.window(0, 0x7fffffff); }},
      {"zero window update", ErrorCode::protocol_error, [](H2Client& c, int) { c.window(0, 0); }},
      {"short GOAWAY", ErrorCode::frame_size_error, [](H2Client& c, int) { c.frame(FrameType::goaway, 0, 0, "1234"); }},
      {"short PING", ErrorCode::frame_size_error, [](H2Client& c, int) { c.frame(FrameType::ping, 0, 0, "1234"); }},
      {"short SETTINGS", ErrorCode::frame_size_error, [](H2Client& c, int) { c.frame(FrameType::settings, 0, 0, "1234"); }},
      {"large frame", ErrorCode::frame_size_error, [](H2Client& c, int) { c.frame(FrameType::headers, 4, 3, std::string(16385, 'x')); }},
      {"SETTINGS on a stream", ErrorCode::protocol_error, [](H2Client& c, int) { c.frame(FrameType::settings, 0, 1, ""); }},
      {"bad setting", ErrorCode::flow_control_error,
       [](H2Client& c, int) { c.frame(FrameType::settings, 0, 0, h2_number(4, 2) + h2_number(0x80000000, 4)); }},
      {"RST_STREAM of an idle stream", ErrorCode::protocol_error, [](H2Client& c, int) { c.reset(9); }},
      {"CONTINUATION of nothing", ErrorCode::protocol_error, [](H2Client& c, int) { c.frame(FrameType::continuation, 4, 1, ""); }},
      {"a frame within a header block", ErrorCode::protocol_error, [](H2Client& c, int) { c.headers(3, h2_get(), 0); c.ping(); }},
      {"PUSH_PROMISE", ErrorCode::protocol_error, [](H2Client& c, int) { c.frame(FrameType::push_promise, 4, 1, h2_number(2, 4)); }},
      {"a block that cannot be decoded", ErrorCode::compression_error, [](H2Client& c, int) { c.frame(FrameType::headers, 5, 3, "\xff\xff\xff\xff"); }},
  };
  for (const Row& row : rows) {
    CAPTURE(row.name);
    World world("");
    row.send(world.client, 0);
    CHECK(world.proxy.run([&] { return world.client.closed(); }));
    CHECK(world.client.goaway() == number(row.code));
    CHECK(world.client.goaways.size() == 1);
    CHECK(world.client.goaways.back().first == 1);
    CHECK(world.client.peer.error() == 0);
    CHECK(world.proxy.verdict() == "");
  }
  Proxy proxy;
  H2Client client(proxy, {.preface = false});
  client.send(h2::kPreface);
  client.ping();
  CHECK(proxy.run([&] { return client.closed(); }));
  CHECK(client.goaway() == number(ErrorCode::protocol_error));
  CHECK(proxy.verdict() == "");
}

TEST_CASE("h2: receive windows are enforced, of a stream and of the connection", "[h2][P14]") {
  {
    World world("");
    const int32_t id = world.client.request(h2_get("/slow", "POST"), false);
    world.proxy.run_for(10ms);
    for (Origin::Conn& conn : world.proxy.origin().conns) conn.peer.allow(conn.peer.received_bytes());
    for (int i = 0; i < 120; ++i) world.client.data(id, std::string(16384, 'x'), false);
    world.proxy.run_for(10ms);
    for (Origin::Conn& conn : world.proxy.origin().conns) conn.peer.allow(UINT64_MAX);
    // The library ends the connection for what the RFC lets it end the stream alone for.
    CHECK((world.client.answer(id).reset == number(ErrorCode::flow_control_error) ||
           world.client.goaway() == number(ErrorCode::flow_control_error)));
    CHECK(world.proxy.h2().bytes_in.get() < 2'000'000);
    CHECK(world.proxy.verdict() == "");
  }
  // Each stream may send what its window says; the connection's own is not given back while 4 MiB are held.
  Proxy proxy({.timeouts = "connect: 60s"});
  proxy.network.blackhole(address_of(kOrigin1), true);
  H2Client client(proxy);
  proxy.run_for(10ms);
  for (int i = 0; i < 200; ++i) client.upload(client.request(h2_get("/slow", "POST"), false), std::string(60'000, 'x'), true);
  proxy.run_for(5s);
  const uint64_t came = proxy.h2().bytes_in.get();
  CHECK(came > 4 << 20);
  CHECK(came < (8 << 20) + 200'000);
  CHECK_FALSE(client.closed());
  CHECK(proxy.run([&] { return client.answer(1).done(); }));   // the connects fail, and what was held for them goes
  proxy.run_for(1s);
  CHECK(client.connection_window > 2 << 20);
  CHECK(proxy.verdict() == "");
}

TEST_CASE("h2: a thousand cancelled uploads leak no credit of the connection", "[h2][P14]") {
  Proxy proxy({.more = "limits: {resets: 100000}\n"});
  proxy.origin();
  H2Client client(proxy);
  for (int i = 0; i < 1000; ++i) {
    const int32_t id = client.request(h2_get("/", "POST"), false);
    client.upload(id, std::string(60'000, 'x'), false);
    client.reset(id);
    proxy.run_for(1ms);
  }
  const int32_t id = client.request(h2_get("/", "POST"), false);
  client.upload(id, std::string(1 << 20, 'y'), true);
  CHECK(proxy.run([&] { return client.answer(id).done() || client.closed(); }));
  CHECK(client.answer(id).status == 200);
  CHECK(client.connection_window > 1 << 20);
  CHECK(proxy.verdict() == "");
}

TEST_CASE("h2: a client that never reads what it asks for is not listened to without end", "[h2][P1]") {
  Proxy proxy({.timeouts = "write: 5s", .more = "limits: {overhead_frames: 1000000}\n"});
  H2Client client(proxy);
  proxy.run_for(10ms);
  client.peer.allow(client.peer.received_bytes());
  for (int i = 0; i < 200'000; ++i) client.ping();
  proxy.run_for(3s);
  CHECK(client.peer.unsent() > 0);
  CHECK(proxy.run([&] { return proxy.h2().open.get() == 0; }));
  CHECK(proxy.verdict() == "");
}

TEST_CASE("h2: a quiet stream with pings for an hour, and messages each of which is pinged, are no flood", "[h2][P2]") {
  Proxy proxy({.more = kBudget});
  Origin::Conn* stream = nullptr;
  proxy.origin().on_change = [&](Origin::Conn& conn) {
    if (stream != nullptr || conn.in.messages.empty()) return;
    stream = &conn;
    conn.peer.send("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n");
  };
  H2Client client(proxy);
  const int32_t id = client.request(h2_get("/", "POST"), false);
  CHECK(proxy.run([&] { return client.answer(id).status == 200; }));
  for (int i = 0; i < 350; ++i) {
    client.ping();
    proxy.run_for(10s);
  }
  CHECK(client.goaways.empty());
  size_t pings = 0;
  client.on_frame = [&](H2Client& c, const H2Frame& f) {
    if (!f.is(FrameType::data)) return;
    c.ping();
    ++pings;
  };
  for (int i = 0; i < 1000; ++i) {
    stream->peer.send("7\r\nmessage\r\n");
    proxy.run_for(1ms);
  }
  CHECK(pings == 1000);
  CHECK(client.goaways.empty());
  CHECK_FALSE(client.closed());
  CHECK(proxy.verdict() == "");
}

}  // namespace weir::simtest

// HTTP/2 to clients: requests and answers, bodies, trailers, heads; what is malformed stays in its stream.
#include <catch2/catch_test_macros.hpp>

#include <algorithm>

#include "tests/sim/h2_client.h"

namespace weir::simtest {
namespace {

using namespace std::chrono_literals;
using h2::ErrorCode;

bool all_done(H2Client& client, size_t count) {
  size_t done = 0;
  for (const auto& [id, answer] : client.answers) done += answer.done();
  return done >= count || client.closed();
}

H2Fields with(H2Fields fields, const H2Fields& more) {
  fields.insert(fields.end(), more.begin(), more.end());
  return fields;
}

H2Fields without(H2Fields fields, const std::string& name) {
  std::erase_if(fields, [&](const auto& field) { return field.first == name; });
  return fields;
}

}  // namespace

TEST_CASE("h2: a request by prior knowledge, whatever the cut", "[h2][H1]") {
  for (size_t cut : {size_t{0}, size_t{1}, size_t{3}, size_t{4}, size_t{14}, size_t{23}, size_t{24}, size_t{30}, size_t{40}}) {
    CAPTURE(cut);
    Proxy proxy;
    proxy.origin();
    H2Client client(proxy, {.preface = false, .acknowledge = false});
    const std::string bytes = std::string(h2::kPreface) + H2Client::frame(4, 0, 0, "") +
                              H2Client::frame(1, h2::kEndHeaders | h2::kEndStream, 1, h2_block(h2_get("/x?y")));
    client.send(bytes.substr(0, cut));
    proxy.run_for(10ms);
    client.send(bytes.substr(cut));
    CHECK(proxy.run([&] { return all_done(client, 1); }));
    CHECK(client.answer(1).status == 200);
    CHECK(client.answer(1).body == "hello");
    CHECK(client.answer(1).field("content-length") == "5");
    CHECK(client.error == "");
    CHECK(proxy.h2().requests.get() == 1);
    CHECK(proxy.server().accepted.get() == 1);
    CHECK(proxy.origin().conns.front().in.messages.front().target() == "/x?y");
    CHECK(proxy.verdict() == "");
  }
}

TEST_CASE("h2: a listener that speaks h2 alone ends what is no preface with a GOAWAY; one that speaks h1 alone answers 400", "[h2][H1]") {
  {
    Proxy proxy({.listener = "protocols: [h2]"});
    proxy.origin();
    H2Client good(proxy);
    good.get();
    CHECK(proxy.run([&] { return all_done(good, 1); }));
    CHECK(good.answer(1).status == 200);
    H2Client bad(proxy, {.preface = false});
    bad.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    CHECK(proxy.run([&] { return bad.closed(); }));
    CHECK(bad.goaway() == number(ErrorCode::protocol_error));
    CHECK(proxy.server().accepted.get() == 2);
    CHECK(proxy.verdict() == "");
  }
  Proxy proxy({.listener = "protocols: [h1]"});
  Client& client = proxy.client();
  client.send(std::string(h2::kPreface) + H2Client::frame(4, 0, 0, ""));
  CHECK(proxy.run([&] { return client.closed(); }));
  CHECK(client.last().status() == 400);
  CHECK(proxy.verdict() == "");
}

TEST_CASE("h2: what the server says first: its limits, and a window for the connection", "[h2]") {
  Proxy proxy({.more = "limits: {h2_streams: 77, request_head: 8KiB, header_count: 10}\n"});
  H2Client client(proxy);
  proxy.run_for(10ms);
  REQUIRE(client.frames.size() >= 2);
  CHECK(client.settings == std::vector<std::pair<int, uint32_t>>{{3, 77}, {6, 8192 + 320}, {9, 1}});
  CHECK(client.connection_window == 4 << 20);
  CHECK(proxy.verdict() == "");
}

TEST_CASE("h2: a hundred requests at once come back by their streams, in one write each tick", "[h2]") {
  Proxy proxy;
  proxy.origin().on_request = [](Origin::Conn& conn, Message& request) { conn.answer(request.target() + std::string(3000, 'x')); };
  H2Client client(proxy);
  for (int i = 0; i < 100; ++i) client.get("/" + std::to_string(i));
  CHECK(proxy.run([&] { return all_done(client, 100); }));
  for (int i = 0; i < 100; ++i) {
    const H2Answer& answer = client.answer(2 * i + 1);
    if (answer.status != 200 || answer.body != "/" + std::to_string(i) + std::string(3000, 'x') || !answer.ended) FAIL_CHECK(i);
  }
  CHECK(client.error == "");
  CHECK(proxy.verdict() == "");
}

TEST_CASE("h2: bodies of several MiB both ways at once, byte-exact, with either framing at the origin", "[h2]") {
  for (const bool known : {true, false}) {
    CAPTURE(known);
    Proxy proxy({.seed = known ? 5u : 6u});
    const std::string up = pattern(1, 5'000'003), down = pattern(2, 7'000'001);
    proxy.origin().on_request = [&](Origin::Conn& conn, Message& request) {
      CHECK((request.body == up));
      CHECK(request.chunked == !known);
      if (known) conn.answer(down);
      else conn.peer.send("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + chunked(down, 50'000));
    };
    H2Client client(proxy);
    H2Fields fields = h2_get("/", "POST");
    if (known) fields.emplace_back("content-length", std::to_string(up.size()));
    const int32_t id = client.request(fields, false);
    client.upload(id, up, true);
    CHECK(proxy.run([&] { return all_done(client, 1); }));
    CHECK(client.answer(id).status == 200);
    CHECK((client.answer(id).body == down));
    CHECK(client.answer(id).ended);
    CHECK(client.answer(id).field("content-length") == (known ? std::to_string(down.size()) : ""));
    CHECK(client.error == "");
    CHECK(proxy.verdict() == "");
  }
}

TEST_CASE("h2: answers without a body: HEAD, 204, 304, and ours", "[h2][H9]") {
  Proxy proxy({.routes = "routes: [{match: {path: /ping}, respond: {status: 200, body: pong}}, {to: app}]\n"});
  proxy.origin().on_request = [](Origin::Conn& conn, Message& request) {
    if (request.method() == "HEAD") conn.peer.send("HTTP/1.1 200 OK\r\nContent-Length: 55\r\n\r\n");
    else if (request.target() == "/304") conn.peer.send("HTTP/1.1 304 X\r\nETag: \"a\"\r\nContent-Length: 9\r\n\r\n");
    else conn.peer.send("HTTP/1.1 204 X\r\n\r\n");
  };
  H2Client client(proxy);
  const int32_t head = client.request(h2_get("/", "HEAD"), true);
  const int32_t no_content = client.get("/204");
  const int32_t unchanged = client.get("/304");
  const int32_t own = client.get("/ping");
  CHECK(proxy.run([&] { return all_done(client, 4); }));
  CHECK(client.answer(head).field("content-length") == "55");
  CHECK(client.answer(no_content).status == 204);
  CHECK(client.answer(unchanged).field("etag") == "\"a\"");
  CHECK(client.answer(own).body == "pong");
  for (const auto& [id, answer] : client.answers) CHECK((answer.ended && answer.reset == -1));
  CHECK(client.answer(head).body + client.answer(no_content).body + client.answer(unchanged).body == "");
  CHECK(client.error == "");
  CHECK(proxy.verdict() == "");
}

TEST_CASE("h2: interim answers and trailers pass, both ways; a length where an origin expects one", "[h2][H9]") {
  Proxy proxy;
  std::vector<std::pair<std::string, std::string>> trailers;
  std::string empty_post;
  proxy.origin().on_request = [&](Origin::Conn& conn, Message& request) {
    if (request.target() == "/post") empty_post = request.field("content-length");
    else trailers = request.trailers;
    conn.peer.send("HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\nHTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
                   "2\r\nok\r\n0\r\nGrpc-Status: 0\r\nContent-Length: 5\r\n\r\n");
  };
  H2Client client(proxy);
  const int32_t id = client.request(h2_get("/", "POST"), false);
  client.data(id, "abc", false);
  client.headers(id, {{"x-sum", "7"}, {"content-length", "3"}, {"cookie", "a=b"}});
  const int32_t post = client.request(h2_get("/post", "POST"), true);
  CHECK(proxy.run([&] { return all_done(client, 2); }));
  CHECK(trailers == std::vector<std::pair<std::string, std::string>>{{"x-sum", "7"}});
  CHECK(empty_post == "0");
  CHECK(client.answer(id).interim == std::vector<int>{103});
  CHECK(client.answer(id).body == "ok");
  CHECK(client.answer(id).trailers == H2Fields{{"grpc-status", "0"}});
  CHECK(client.answer(post).trailers == H2Fields{{"grpc-status", "0"}});
  CHECK(client.error == "");
  CHECK(proxy.verdict() == "");
}

TEST_CASE("h2: what an origin gets: host, path, one cookie, no hop-by-hop field, who asked", "[h2][H5][H10]") {
  Proxy proxy;
  H2Client client(proxy);
  proxy.origin();
  client.request(with({{":method", "GET"}, {":scheme", "http"}, {":path", "/a/./b/../c%7e?q=%2F"}, {":authority", "Shop.Example.COM:80"}},
                      {{"cookie", "a=1"}, {"x-one", "1"}, {"cookie", "b=2"}, {"te", "trailers"}, {"host", "shop.example.com:80"},
                       {"cookie", "c=3"}, {"x-empty", ""}, {"priority", "u=1"}}),
                 true);
  CHECK(proxy.run([&] { return all_done(client, 1); }));
  const Message& request = proxy.origin().conns.front().in.messages.front();
  CHECK(request.target() == "/a/c~?q=%2F");
  CHECK(request.field("host") == "shop.example.com");
  CHECK(request.count("host") == 1);
  CHECK(request.field("cookie") == "a=1; b=2; c=3");
  CHECK(request.count("cookie") == 1);
  CHECK(request.field("x-one") == "1");
  CHECK(request.count("x-empty") == 1);
  CHECK(request.count("te") + request.count("transfer-encoding") + request.count("connection") == 0);
  CHECK(request.field("x-forwarded-proto") == "http");
  CHECK(proxy.verdict() == "");
}

TEST_CASE("h2: malformed requests are reset with PROTOCOL_ERROR; a request beside them completes", "[h2][P10][P12]") {
  const H2Fields get = h2_get();
  const H2Fields post = h2_get("/", "POST");
  const std::vector<H2Fields> bad = {
      with(get, {{"X-Upper", "1"}}),
      with(get, {{"connection", "close"}}),
      with(get, {{"keep-alive", "1"}}),
      with(get, {{"proxy-connection", "x"}}),
      with(get, {{"transfer-encoding", "chunked"}}),
      with(get, {{"upgrade", "h2c"}}),
      with(get, {{"te", "gzip"}}),
      with(get, {{"x-blank", " edged"}}),
      with(get, {{"x-blank", "edged\t"}}),
      with(get, {{"x-lf", "a\nb"}}),
      with(get, {{"x name", "a"}}),
      with(get, {{":path", "/twice"}}),
      with(get, {{":unknown", "1"}}),
      with({{"x-first", "1"}}, get),
      with(get, {{":status", "200"}}),
      without(get, ":path"),
      without(get, ":method"),
      without(get, ":scheme"),
      with(without(get, ":path"), {{":path", ""}}),
      {{":method", "CONNECT"}, {":scheme", "http"}, {":authority", "a:1"}, {":path", "/"}},
      {{":method", "CONNECT"}, {":scheme", "http"}, {":authority", "a:1"}},
      {{":method", "CONNECT"}},
      with(post, {{"content-length", "+1"}}),
      with(post, {{"content-length", "1 "}}),
      with(post, {{"content-length", ""}}),
      with(post, {{"content-length", "1"}, {"content-length", "1"}}),
      with(get, {{"content-length", "5"}}),
  };
  for (size_t i = 0; i < bad.size(); ++i) {
    CAPTURE(i);
    Proxy proxy;
    proxy.origin();
    H2Client client(proxy);
    const int32_t first = client.get();
    const int32_t id = client.request(bad[i], true);
    const int32_t last = client.get();
    CHECK(proxy.run([&] { return all_done(client, 3); }));
    CHECK(client.answer(id).reset == number(ErrorCode::protocol_error));
    CHECK(client.answer(id).status == 0);
    CHECK(client.answer(first).status == 200);
    CHECK(client.answer(last).status == 200);
    CHECK(client.goaways.empty());
    CHECK(proxy.origin().requests == 2);
    CHECK(proxy.verdict() == "");
  }
}

TEST_CASE("h2: what only HTTP forbids is answered, and reaches no origin", "[h2][P12][H3][H10]") {
  const H2Fields get = h2_get();
  struct Row { H2Fields fields; int status; };
  const std::vector<Row> rows = {
      {with(get, {{"host", "b"}}), 400},
      {with(without(get, ":authority"), {{":authority", "user@a"}}), 400},
      {with(without(get, ":authority"), {{":authority", "a b"}}), 0},
      {with(without(get, ":path"), {{":path", "/a%2Fb"}}), 400},
      {with(without(get, ":path"), {{":path", "/a#b"}}), 400},
      {with(without(get, ":scheme"), {{":scheme", "ftp"}}), 400},
      {with(get, {{"expect", "the-best"}}), 417},
      {{{":method", "CONNECT"}, {":authority", "a:443"}}, 501},
  };
  for (const Row& row : rows) {
    CAPTURE(row.status, row.fields.back().second);
    Proxy proxy;
    proxy.origin();
    H2Client client(proxy);
    const int32_t id = client.request(row.fields, true);
    CHECK(proxy.run([&] { return all_done(client, 1); }));
    if (client.answer(id).status != row.status) CHECK(client.answer(id).reset == number(ErrorCode::protocol_error));
    CHECK(proxy.origin().requests == 0);
    CHECK(proxy.verdict() == "");
  }
}

TEST_CASE("h2: the body is as long as it was said to be, before excess reaches an origin", "[h2][P12]") {
  for (const std::string body : {"1234", "123456"}) {
    CAPTURE(body);
    Proxy proxy;
    Origin& origin = proxy.origin();
    H2Client client(proxy);
    const int32_t id = client.request(with(h2_get("/", "POST"), {{"content-length", "5"}}), false);
    client.data(id, body, true);
    const int32_t next = client.get();
    CHECK(proxy.run([&] { return all_done(client, 2); }));
    CHECK(client.answer(id).reset == number(ErrorCode::protocol_error));
    CHECK(client.answer(next).status == 200);
    CHECK(origin.requests == 1);
    for (const auto& conn : origin.conns)
      for (const Message& message : conn.in.messages) CHECK(message.body.size() <= 5);
    CHECK(proxy.verdict() == "");
  }
}

TEST_CASE("h2: an answer cut short by its origin is reset, never complete", "[h2][H7]") {
  for (const bool known : {true, false}) {
    CAPTURE(known);
    Proxy proxy;
    proxy.origin().on_request = [&](Origin::Conn& conn, Message&) {
      conn.peer.send(known ? "HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhalf" : "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nhalf\r\n");
      conn.peer.finish();
    };
    H2Client client(proxy);
    const int32_t id = client.get();
    CHECK(proxy.run([&] { return all_done(client, 1); }));
    CHECK(client.answer(id).reset == number(ErrorCode::internal_error));
    CHECK_FALSE(client.answer(id).ended);
    CHECK(client.goaways.empty());
    CHECK(proxy.verdict() == "");
  }
}

TEST_CASE("h2: an early answer is whole, then the rest of the request is refused; what races it does no harm", "[h2][P10]") {
  Proxy proxy({.more = "limits: {request_body: 1MiB}\n"});
  proxy.origin().on_change = [](Origin::Conn& conn) {
    if (conn.note != nullptr || conn.in.messages.empty() || conn.in.messages.back().target() != "/early") return;
    conn.note = &conn;
    conn.answer("no", "Connection: close\r\n", 403);
  };
  H2Client client(proxy);
  const int32_t early = client.request(h2_get("/early", "POST"), false);
  client.data(early, std::string(1000, 'x'), false);
  CHECK(proxy.run([&] { return client.answer(early).done(); }));
  for (int i = 0; i < 3; ++i) client.data(early, std::string(16000, 'x'), i == 2);
  const int32_t large = client.request(with(h2_get("/large", "POST"), {{"content-length", "1048577"}}), false);
  const int32_t beside = client.get("/beside");
  CHECK(proxy.run([&] { return all_done(client, 3); }));
  CHECK(client.answer(early).status == 403);
  CHECK(client.answer(early).body == "no");
  CHECK(client.answer(early).ended);
  proxy.run_for(100ms);
  CHECK(client.answer(early).reset == number(ErrorCode::no_error));
  CHECK(client.answer(large).status == 413);
  CHECK(client.answer(beside).status == 200);
  CHECK(client.goaways.empty());
  CHECK(proxy.verdict() == "");
}

TEST_CASE("h2: errors of a stream stay in it", "[h2][P10]") {
  Proxy proxy;
  proxy.origin();
  proxy.origin().on_request = [&](Origin::Conn& conn, Message&) { proxy.network.after(100ms, [&conn] { conn.answer("slow"); }); };
  H2Client client(proxy);
  const int32_t beside = client.get();
  const int32_t trailers = client.request(h2_get("/", "POST"), false);
  client.headers(trailers, {{"x", "1"}}, h2::kEndHeaders);            // trailers without END_STREAM
  const int32_t again = client.get();
  client.headers(again, {{"x", "1"}});                                // HEADERS after END_STREAM
  const int32_t more = client.get();
  client.data(more, "more", true);                                    // DATA after END_STREAM
  const int32_t window = client.get();
  client.window(window, 0x7fffffff);                                  // the stream's window overflows
  CHECK(proxy.run([&] { return client.answer(beside).done(); }));
  CHECK(client.answer(beside).body == "slow");
  CHECK(client.answer(trailers).reset == number(ErrorCode::protocol_error));
  CHECK(client.answer(again).reset == number(ErrorCode::stream_closed));
  CHECK(client.answer(more).reset == number(ErrorCode::stream_closed));
  CHECK(client.answer(window).reset == number(ErrorCode::flow_control_error));
  CHECK(client.goaways.empty());
  const int32_t closed = client.get();
  CHECK(proxy.run([&] { return client.answer(closed).done(); }));
  client.data(closed, "late", true);                                  // of a stream that is closed
  const int32_t last = client.get();
  CHECK(proxy.run([&] { return client.answer(last).done(); }));
  CHECK(client.answer(last).body == "slow");
  CHECK(client.goaways.empty());
  CHECK(proxy.verdict() == "");
}

TEST_CASE("h2: heads above the limits: 431, 414, and the connection goes on; a list without end ends it", "[h2][P13]") {
  Proxy proxy({.more = "limits: {request_head: 4KiB, header_count: 10}\n"});
  proxy.origin();
  H2Client client(proxy);
  H2Fields many = h2_get();
  for (int i = 0; i < 11; ++i) many.emplace_back("x-" + std::to_string(i), "y");
  H2Fields crumbs = h2_get();
  for (int i = 0; i < 50; ++i) crumbs.emplace_back("cookie", "c" + std::to_string(i));
  const int32_t too_many = client.request(many, true);
  const int32_t too_large = client.request(with(h2_get(), {{"x", std::string(5000, 'x')}}), true);
  const int32_t too_long = client.request(h2_get("/" + std::string(5000, 'x')), true);
  const int32_t fits = client.request(crumbs, true);
  CHECK(proxy.run([&] { return all_done(client, 4); }));
  CHECK(client.answer(too_many).status == 431);
  CHECK(client.answer(too_large).status == 431);
  CHECK(client.answer(too_long).status == 414);
  CHECK(client.answer(fits).status == 200);
  CHECK(client.goaways.empty());
  CHECK(proxy.origin().requests == 1);
  // The same entry of the table again and again: a few bytes that decode to many.
  std::string bomb = h2_block(h2_get()) + std::string("\x40\x01x\x7f\xa1\x1e", 6) + std::string(4000, 'b');
  for (int i = 0; i < 200; ++i) bomb += '\xbe';
  client.frame(FrameType::headers, h2::kEndHeaders | h2::kEndStream, client.next_stream, bomb);
  CHECK(proxy.run([&] { return client.closed(); }));
  CHECK(client.goaway() == number(ErrorCode::enhance_your_calm));
  CHECK(proxy.goaways(h2::EndCause::header_list, ErrorCode::enhance_your_calm) == 1);
  CHECK(proxy.verdict() == "");
}

TEST_CASE("h2: refused header blocks are decoded all the same: the table stays in step", "[h2][P13]") {
  Proxy proxy({.more = "limits: {h2_streams: 1}\n"});
  std::string seen;
  proxy.origin().on_request = [&](Origin::Conn& conn, Message& request) {
    seen = request.field("x-mark");
    proxy.network.after(10ms, [&conn] { conn.answer("ok"); });
  };
  H2Client client(proxy);
  const int32_t first = client.get();
  proxy.run_for(1ms);
  client.frame(FrameType::headers, h2::kEndHeaders | h2::kEndStream, 3, h2_block(h2_get()) + "\x40\x06x-mark\x05" "found");
  CHECK(proxy.run([&] { return client.answer(first).done() && client.answer(3).done(); }));
  CHECK(client.answer(3).reset == number(ErrorCode::refused_stream));
  client.frame(FrameType::headers, h2::kEndHeaders | h2::kEndStream, 5, h2_block(h2_get()) + "\xbe");
  CHECK(proxy.run([&] { return client.answer(5).done(); }));
  CHECK(client.answer(5).status == 200);
  CHECK(seen == "found");
  CHECK(proxy.verdict() == "");
}

TEST_CASE("h2: a client without a header table gets answers that need none", "[h2][P13]") {
  Proxy proxy;
  proxy.origin();
  H2Client client(proxy, {.settings = {{1, 0}}});
  for (int i = 0; i < 5; ++i) client.get();
  CHECK(proxy.run([&] { return all_done(client, 5); }));
  CHECK(client.error == "");
  for (const auto& [id, answer] : client.answers) CHECK(answer.status == 200);
  CHECK(proxy.verdict() == "");
}

TEST_CASE("h2: a hundred streams, one never read: the other 99 finish, it holds its bounds", "[h2][P7][M3]") {
  Proxy proxy;
  const std::string body = pattern(3, 300'000);
  proxy.origin().on_request = [&](Origin::Conn& conn, Message&) { conn.answer(body); };
  H2Client client(proxy, {.credit = false});
  for (int i = 0; i < 100; ++i) client.get();
  client.on_frame = [](H2Client& c, const H2Frame& f) {
    if (!f.is(FrameType::data) || f.payload.empty()) return;
    c.window(0, static_cast<uint32_t>(f.payload.size()));
    if (f.stream != 41 && !c.answer(f.stream).ended) c.window(f.stream, static_cast<uint32_t>(f.payload.size()));
  };
  CHECK(proxy.run([&] { return all_done(client, 99); }));
  CHECK_FALSE(client.answer(41).done());
  CHECK(client.answer(41).body.size() == 65535);
  for (const auto& [id, answer] : client.answers)
    if (id != 41) CHECK((answer.body == body));
  CHECK(proxy.slabs() * kSlabBytes <= 512u << 10);
  client.window(41, 1 << 20);
  CHECK(proxy.run([&] { return client.answer(41).done(); }));
  CHECK((client.answer(41).body == body));
  CHECK(proxy.verdict() == "");
}

TEST_CASE("h2: bidirectional streaming: each message passes in the tick in which it came", "[h2][T5]") {
  Proxy proxy;
  size_t echoed = 0;
  bool ended = false;
  proxy.origin().on_change = [&](Origin::Conn& conn) {
    if (conn.in.messages.empty() || !conn.in.messages.back().head_done) return;
    if (conn.note == nullptr) conn.peer.send("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n");
    conn.note = &conn;
    const std::string& body = conn.in.messages.back().body;
    if (body.size() > echoed) conn.peer.send(chunked(body.substr(echoed), 100).substr(0, chunked(body.substr(echoed), 100).size() - 5));
    echoed = body.size();
    if (conn.in.messages.back().complete && !std::exchange(ended, true)) conn.peer.send("0\r\ngrpc-status: 0\r\n\r\n");
  };
  H2Client client(proxy);
  const int32_t id = client.request(with(h2_get("/s/M", "POST"), {{"te", "trailers"}, {"content-type", "application/grpc"}}), false);
  CHECK(proxy.run([&] { return client.answer(id).status == 200; }));
  std::string sent;
  for (int i = 0; i < 50; ++i) {
    const std::string message = "message " + std::to_string(i);
    const TimePoint began = proxy.now();
    client.data(id, message, false);
    sent += message;
    CHECK(proxy.run([&] { return client.answer(id).body == sent; }));
    CHECK(proxy.now() - began <= 1ms);
  }
  client.data(id, "", true);
  CHECK(proxy.run([&] { return client.answer(id).done(); }));
  CHECK(client.answer(id).trailers == H2Fields{{"grpc-status", "0"}});
  CHECK(client.answer(id).reset == -1);
  CHECK(proxy.verdict() == "");
}

TEST_CASE("h2: urgent answers come before others, equal ones share (RFC 9218)", "[h2][P15]") {
  Proxy proxy({.link = {.latency = 10ms}});
  const std::string bulk(400'000, 'b'), urgent(16'384, 'u');
  proxy.origin().on_request = [&](Origin::Conn& conn, Message& request) { conn.answer(request.target() == "/urgent" ? urgent : bulk); };
  H2Client client(proxy, {.settings = {{4, 1 << 20}}, .credit = false});
  client.window(0, 600'000);
  std::vector<int32_t> bulks;
  for (int i = 0; i < 8; ++i) bulks.push_back(client.get("/bulk", {{"priority", "u=3, i"}}));
  proxy.run_for(500ms);                                      // the connection's window is used up
  CHECK(client.body_bytes == 665'535);
  const auto [least, most] = std::minmax_element(bulks.begin(), bulks.end(), [&](int32_t a, int32_t b) {
    return client.answer(a).body.size() < client.answer(b).body.size();
  });
  CHECK(client.answer(*most).body.size() - client.answer(*least).body.size() <= client.answer(*most).body.size() / 5);
  const int32_t id = client.get("/urgent", {{"priority", "u=0"}});
  const int32_t late = client.get("/urgent", {{"priority", "u=7"}});
  client.frame(static_cast<FrameType>(0x10), 0, 0, h2_number(static_cast<uint32_t>(bulks[7]), 4) + "u=1");   // PRIORITY_UPDATE
  proxy.run_for(200ms);
  client.window(0, 16'384);
  proxy.run_for(100ms);
  CHECK(client.answer(id).ended);
  const size_t raised = client.answer(bulks[7]).body.size(), other = client.answer(bulks[6]).body.size();
  for (int i = 0; i < 10; ++i) {   // what has been raised goes before its like as long as some of it is at hand
    client.window(0, 16'384);
    proxy.run_for(50ms);
  }
  CHECK(client.answer(bulks[7]).body.size() == raised + 163'840);
  CHECK(client.answer(bulks[6]).body.size() == other);
  CHECK(client.answer(late).body.empty());
  CHECK(proxy.verdict() == "");
}

}  // namespace weir::simtest

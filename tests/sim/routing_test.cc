// What routes do to requests and answers on their way.
#include <catch2/catch_test_macros.hpp>

#include "tests/sim/proxy.h"

namespace weir::simtest {
namespace {

using namespace std::chrono_literals;
using config::Snapshot;

config::PathRegex regex(const char* pattern) { return *config::PathRegex::compile(pattern); }

// A proxy whose configuration was changed, an origin that remembers, and one client.
struct World {
  explicit World(std::function<void(Snapshot&)> change, const std::string& routes = "routes: [{to: app}]\n")
      : proxy({.routes = routes, .change = std::move(change)}), client(proxy.client()) {
    proxy.origin().on_request = [this](Origin::Conn& conn, Message& request) {
      seen = request;
      ++requests;
      conn.answer("hello", answer_fields);
    };
  }
  // The answer to a GET.
  Message get(const std::string& path = "/", const std::string& more = "") {
    client.get(path, more);
    return wait();
  }
  Message wait() {
    const size_t wanted = ++asked_;
    CHECK(proxy.run([&] { return client.in.complete() >= wanted || client.closed(); }));
    return client.last();
  }
  Proxy proxy;
  Client& client;
  Message seen;
  size_t requests = 0;
  std::string answer_fields;

 private:
  size_t asked_ = 0;
};

}  // namespace

TEST_CASE("a prefix is replaced by another, the query stays") {
  World world([](Snapshot& c) { c.routes[0].rewrite.path_prefix = ""; }, "routes: [{match: {path_prefix: /api}, to: app}]\n");
  world.get("/api/users?a=/api/b");
  CHECK(world.seen.target() == "/users?a=/api/b");
  world.get("/api");
  CHECK(world.seen.target() == "/");
  world.get("/api/");
  CHECK(world.seen.target() == "/");
  world.get("/api?x");
  CHECK(world.seen.target() == "/?x");
  CHECK(world.proxy.verdict() == "");
}

TEST_CASE("a longer prefix and another host: X-Forwarded-Host says what the client asked for") {
  World world([](Snapshot& c) {
    c.routes[0].rewrite.path_prefix = "/v2/shop";
    c.routes[0].rewrite.host = "shop.internal";
  }, "routes: [{match: {path_prefix: /api}, to: app}]\n");
  world.get("/api/users");
  CHECK(world.seen.target() == "/v2/shop/users");
  CHECK(world.seen.field("host") == "shop.internal");
  CHECK(world.seen.count("host") == 1);
  CHECK(world.seen.field("x-forwarded-host") == "a");
  CHECK(world.proxy.verdict() == "");
}

TEST_CASE("a path is rewritten by what a pattern found in it") {
  World world([](Snapshot& c) {
    c.routes[0].rewrite.path_regex = regex("^/old/([a-z]+)/([0-9]+)$");
    c.routes[0].rewrite.replacement = "/new/$2/$1";
  });
  world.get("/old/shoes/42?size=9");
  CHECK(world.seen.target() == "/new/42/shoes?size=9");
  world.get("/other");
  CHECK(world.seen.target() == "/other");
  CHECK(world.proxy.verdict() == "");
}

TEST_CASE("a rewrite that would climb out of its folder is refused, and its connection is not lost") {
  World world([](Snapshot& c) {
    c.routes[0].rewrite.path_regex = regex("^/files");
    c.routes[0].rewrite.replacement = "/data/";
  });
  world.get("/filesx");
  CHECK(world.seen.target() == "/data/x");
  CHECK(world.get("/files../secret").status() == 400);
  CHECK(world.requests == 1);
  world.get("/files..a");
  CHECK(world.seen.target() == "/data/..a");
  CHECK(world.proxy.origin().conns.size() == 1);
  CHECK(world.proxy.verdict() == "");
}

TEST_CASE("a path is matched by a pattern") {
  World world([](Snapshot& c) { c.routes[0].match->path_regex = regex("^/[0-9]+$"); },
              "routes: [{match: {method: GET}, to: app}, {respond: {status: 404, body: no}}]\n");
  CHECK(world.get("/17").status() == 200);
  CHECK(world.get("/17?x").status() == 200);
  CHECK(world.get("/17a").status() == 404);
  CHECK(world.proxy.verdict() == "");
}

TEST_CASE("request fields are removed, set and added, after our own") {
  World world([](Snapshot& c) {
    auto& edits = c.routes[0].request_headers;
    edits.remove = {"cookie", "x-forwarded-host"};
    edits.set = {{"x-env", "prod"}, {"x-forwarded-proto", "https"}};
    edits.add = {{"x-tag", "one"}, {"x-tag", "two"}};
  });
  world.get("/", "Cookie: a=b\r\nX-Env: dev\r\nX-ENV: test\r\nX-Tag: zero\r\nAccept: */*\r\n");
  CHECK(world.seen.count("cookie") == 0);
  CHECK(world.seen.count("x-forwarded-host") == 0);
  CHECK(world.seen.count("x-env") == 1);
  CHECK(world.seen.field("x-env") == "prod");
  CHECK(world.seen.count("x-forwarded-proto") == 1);
  CHECK(world.seen.field("x-forwarded-proto") == "https");
  CHECK(world.seen.count("x-tag") == 3);
  CHECK(world.seen.field("accept") == "*/*");
  CHECK(world.proxy.verdict() == "");
}

TEST_CASE("edits are made once, however often a request is tried") {
  Proxy proxy({.servers = {kOrigin1, kOrigin2}, .change = [](Snapshot& c) {
                 c.routes[0].request_headers.add = {{"x-tag", "one"}};
                 c.routes[0].rewrite.path_prefix = "/base";
               }});
  Message seen;
  proxy.origin(kOrigin2).on_request = [&](Origin::Conn& conn, Message& request) {
    seen = request;
    conn.answer("second");
  };
  Client& client = proxy.client();
  for (size_t i = 1; i <= 2; ++i) {
    client.get("/x");
    CHECK(proxy.run([&] { return client.in.complete() == i; }));
    CHECK(seen.count("x-tag") == 1);
    CHECK(seen.target() == "/base/x");
  }
  CHECK(proxy.upstream().retries_connect.get() >= 1);
  CHECK(proxy.verdict() == "");
}

TEST_CASE("fields of every answer are edited: an origin's, a respond's and our own errors'") {
  const auto edit = [](Snapshot& c) {
    for (config::Route& route : c.routes) {
      route.response_headers.remove = {"server"};
      route.response_headers.set = {{"x-frame-options", "DENY"}};
      route.response_headers.add = {{"set-cookie", "w=1"}};
    }
  };
  World world(edit, "routes: [{match: {path: /ping}, respond: {status: 200, body: pong}}, {match: {path: /app}, to: app}, "
                    "{redirect: {status: 302, location: /app}}]\n");
  world.answer_fields = "Server: x\r\nX-Frame-Options: SAMEORIGIN\r\nSet-Cookie: a=b\r\n";
  const auto check = [&](const Message& answer, int status, size_t cookies) {
    CHECK(answer.status() == status);
    CHECK(answer.count("server") == 0);
    CHECK(answer.count("x-frame-options") == 1);
    CHECK(answer.field("x-frame-options") == "DENY");
    CHECK(answer.count("set-cookie") == cookies);
  };
  check(world.get("/app"), 200, 2);
  check(world.get("/ping"), 200, 1);
  check(world.get("/"), 302, 1);
  CHECK(world.client.last().field("location") == "/app");
  world.proxy.origin().on_request = [](Origin::Conn& conn, Message&) { conn.peer.close(); };
  check(world.get("/app"), 502, 1);
  CHECK(world.proxy.verdict() == "");
}

TEST_CASE("edits reach what we add ourselves: a redirect's location, an error's cause") {
  const auto edit = [](Snapshot& c) {
    c.routes[0].response_headers.set = {{"location", "/other"}};
    c.routes[1].response_headers.remove = {"proxy-status", "date"};
  };
  World world(edit, "routes: [{match: {path: /old}, redirect: {location: /new}}, {to: app}]\n");
  const Message moved = world.get("/old");
  CHECK(moved.status() == 308);
  CHECK(moved.count("location") == 1);
  CHECK(moved.field("location") == "/other");
  world.proxy.origin().on_request = [](Origin::Conn& conn, Message&) { conn.peer.close(); };
  const Message failed = world.get("/");
  CHECK(failed.status() == 502);
  CHECK(failed.count("proxy-status") == 0);
  CHECK(failed.count("date") == 0);
  CHECK(world.proxy.verdict() == "");
}

TEST_CASE("what is set is there, however many fields the origin sent") {
  World world([](Snapshot& c) {
    c.routes[0].via = true;
    c.routes[0].response_headers.set = {{"strict-transport-security", "max-age=1"}};
    c.routes[0].response_headers.add = {{"x-tag", "t"}};
  });
  world.answer_fields = "Strict-Transport-Security: max-age=0\r\n";
  for (int i = 0; i < 254; ++i) world.answer_fields += "x-" + std::to_string(i) + ": y\r\n";  // with Content-Length: 256
  const Message answer = world.get("/");
  CHECK(answer.status() == 200);
  CHECK(answer.field("x-253") == "y");
  CHECK(answer.count("strict-transport-security") == 1);
  CHECK(answer.field("strict-transport-security") == "max-age=1");
  CHECK(answer.field("x-tag") == "t");
  CHECK(answer.field("via") == "1.1 weir");
  CHECK(world.proxy.verdict() == "");
}

TEST_CASE("what is removed or set is not there in a trailer section or an interim answer either", "[H5]") {
  World world([](Snapshot& c) {
    c.routes[0].request_headers.remove = {"x-auth-user"};
    c.routes[0].request_headers.set = {{"x-env", "prod"}};
    c.routes[0].response_headers.remove = {"x-secret"};
  });
  world.proxy.origin().on_request = [&](Origin::Conn& conn, Message& request) {
    world.seen = request;
    conn.peer.send("HTTP/1.1 103 Early Hints\r\nLink: </a>\r\nX-Secret: 1\r\n\r\n");
    conn.peer.send("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\nX-Secret: 2\r\nX-Sum: 7\r\n\r\n");
  };
  world.client.in.asked("POST");
  world.client.send("POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhi\r\n0\r\n"
                    "X-Auth-User: admin\r\nX_Auth_User: admin\r\nX-Env: dev\r\nX_Forwarded_For: 1.1.1.1\r\nX-Sum: 9\r\n\r\n");
  const Message answer = world.wait();
  using Fields = std::vector<std::pair<std::string, std::string>>;
  CHECK(world.seen.body == "hi");
  CHECK(world.seen.trailers == Fields{{"x-sum", "9"}});
  CHECK(world.seen.field("x-env") == "prod");
  CHECK(answer.trailers == Fields{{"x-sum", "7"}});
  REQUIRE(world.client.in.messages.size() == 2);
  CHECK(world.client.in.messages[0].status() == 103);
  CHECK(world.client.in.messages[0].fields == Fields{{"link", "</a>"}});
  CHECK(world.proxy.verdict() == "");
}

TEST_CASE("a name with `_` for `-` gets past no rule about requests") {
  for (const bool trusted : {false, true}) {
    CAPTURE(trusted);
    World world([&](Snapshot& c) {
      if (trusted) c.listeners[0].trusted_proxies = {*config::parse_cidr("0.0.0.0/0")};
      c.routes[0].request_headers.remove = {"x-auth-user", "user-agent"};
      c.routes[0].request_headers.set = {{"x-env", "prod"}};
    });
    world.get("/", "X_Forwarded_For: 6.6.6.6\r\nx-forwarded_proto: https\r\nX_Forwarded-Host: evil\r\nX_REQUEST_ID: mine\r\n"
                   "X_Auth_User: root\r\nX-Auth_User: root\r\nUser_Agent: me\r\nx_env: dev\r\nx_other: kept\r\nx-auth-users: k\r\n");
    std::string names;
    for (const auto& [name, value] : world.seen.fields)
      if (name.find('_') != std::string::npos) names += name + " ";
    CHECK(names == "x_other ");
    CHECK(world.seen.field("x-auth-users") == "k");
    CHECK(world.seen.field("x-env") == "prod");
    CHECK(world.seen.count("x-forwarded-for") == 1);
    CHECK(world.proxy.verdict() == "");
  }
}

TEST_CASE("a request that names no host has no X-Forwarded-Host") {
  World world({});
  world.client.in.asked("GET");
  world.client.send("GET / HTTP/1.0\r\n\r\n");
  CHECK(world.wait().status() == 200);
  CHECK(world.seen.count("x-forwarded-host") == 0);
  CHECK(world.seen.count("x-forwarded-for") == 1);
  CHECK(world.seen.field("x-request-id").size() == 32);
  CHECK(world.proxy.verdict() == "");
}

TEST_CASE("a content type that is set replaces ours") {
  World world([](Snapshot& c) { c.routes[0].response_headers.set = {{"content-type", "application/json"}}; },
              "routes: [{match: {path: /ping}, respond: {status: 200, body: \"{}\"}}, {to: app}]\n");
  const Message answer = world.get("/ping");
  CHECK(answer.count("content-type") == 1);
  CHECK(answer.field("content-type") == "application/json");
  CHECK(answer.body == "{}");
  CHECK(world.proxy.verdict() == "");
}

TEST_CASE("forwarding fields of a peer that is not trusted are replaced") {
  World world({});
  world.get("/", "X-Forwarded-For: 6.6.6.6\r\nX-Forwarded-Proto: https\r\nX-Forwarded-Host: evil\r\nForwarded: for=6.6.6.6\r\n"
                 "X-Request-Id: mine\r\n");
  CHECK(world.seen.count("x-forwarded-for") == 1);
  CHECK(world.seen.field("x-forwarded-for") != "6.6.6.6");
  CHECK(world.seen.field("x-forwarded-proto") == "http");
  CHECK(world.seen.field("x-forwarded-host") == "a");
  CHECK(world.seen.count("forwarded") == 0);
  CHECK(world.seen.count("x-request-id") == 1);
  CHECK(world.seen.field("x-request-id").size() == 32);
  const std::string first = world.seen.field("x-request-id");
  world.get("/");
  CHECK(world.seen.field("x-request-id") != first);
  CHECK(world.proxy.verdict() == "");
}

TEST_CASE("those of a trusted proxy are kept, and its address joins the chain") {
  const auto trust = [](Snapshot& c) {
    c.listeners[0].trusted_proxies = {*config::parse_cidr("0.0.0.0/0")};
    c.routes[0].forwarded = c.routes[0].via = true;
  };
  World world(trust);
  world.answer_fields = "Via: 1.1 cache\r\n";
  const Message answer =
      world.get("/", "X-Forwarded-For: 6.6.6.6\r\nX-Forwarded-For: 7.7.7.7\r\nX-Forwarded-Proto: https\r\nX-Forwarded-Host: shop\r\n"
                     "X-Request-Id: theirs-1\r\nForwarded: for=6.6.6.6\r\nVia: 1.1 edge\r\n");
  CHECK(world.seen.count("x-forwarded-for") == 1);
  CHECK(world.seen.field("x-forwarded-for").starts_with("6.6.6.6, 7.7.7.7, "));
  CHECK(world.seen.field("x-forwarded-proto") == "https");
  CHECK(world.seen.count("x-forwarded-proto") == 1);
  CHECK(world.seen.field("x-forwarded-host") == "shop");
  CHECK(world.seen.count("x-forwarded-host") == 1);
  CHECK(world.seen.field("x-request-id") == "theirs-1");
  CHECK(world.seen.count("x-request-id") == 1);
  CHECK(world.seen.count("forwarded") == 2);
  CHECK(world.seen.count("via") == 2);
  CHECK(answer.count("via") == 2);
  world.get("/");
  CHECK(world.seen.field("x-forwarded-for").find(',') == std::string::npos);
  CHECK(world.seen.field("x-forwarded-proto") == "http");
  CHECK(world.seen.field("x-forwarded-host") == "a");
  CHECK(world.seen.field("x-request-id").size() == 32);
  CHECK(world.seen.field("forwarded").find("host=\"a\";proto=http") != std::string::npos);
  CHECK(world.proxy.verdict() == "");
}

TEST_CASE("a trusted proxy that writes Forwarded alone: its client's X-Forwarded-* are replaced, on every try") {
  Proxy proxy({.servers = {kOrigin1, kOrigin2}, .change = [](Snapshot& c) {
                 c.listeners[0].trusted_proxies = {*config::parse_cidr("127.0.0.0/8")};
                 c.listeners[0].trusted_header = config::TrustedHeader::forwarded;
                 c.listeners[0].redirect_https = true;
               }});
  Message seen;
  proxy.origin(kOrigin2).on_request = [&](Origin::Conn& conn, Message& request) {
    seen = request;
    conn.answer("x");
  };
  Client& client = proxy.client();
  for (size_t i = 1; i <= 2; ++i) {   // one of the two is tried at the server that is down first
    client.get("/", "Forwarded: for=7.7.7.7;proto=https\r\nX-Forwarded-For: 6.6.6.6\r\nX-Forwarded-Proto: http\r\n"
                    "X-Forwarded-Host: evil\r\nX-Request-Id: theirs\r\n");
    CHECK(proxy.run([&] { return client.in.complete() == i; }));
    CHECK(client.last().status() == 200);   // it came by https: no circle
    CHECK(seen.field("x-forwarded-for") == "7.7.7.7, 127.0.0.1");
    CHECK(seen.count("x-forwarded-for") == 1);
    CHECK(seen.field("x-forwarded-proto") == "https");
    CHECK(seen.field("x-forwarded-host") == "a");
    CHECK(seen.field("x-request-id") == "theirs");
    CHECK(seen.field("forwarded") == "for=7.7.7.7;proto=https");
  }
  CHECK(proxy.upstream().retries_connect.get() >= 1);
  CHECK(proxy.verdict() == "");
}

TEST_CASE("a rewrite that puts an escape together which no request may have is refused") {
  World world([](Snapshot& c) {
    c.routes[0].rewrite.path_regex = regex("25");
    c.routes[0].rewrite.replacement = "";
  });
  for (const char* path : {"/a/%252e./b", "/%252fa", "/%255c", "/.%252e"}) {
    CAPTURE(path);
    CHECK(world.get(path).status() == 400);
  }
  CHECK(world.requests == 0);
  world.get("/%2541");
  CHECK(world.seen.target() == "/%41");
  CHECK(world.proxy.verdict() == "");
}

TEST_CASE("routes by the client's network and scheme, as a trusted proxy tells them") {
  const auto change = [](Snapshot& c) {
    c.listeners[0].trusted_proxies = {*config::parse_cidr("0.0.0.0/0")};
    for (size_t i = 0; i < 2; ++i) c.routes[i].match->path.reset();
    c.routes[0].match->clients = {*config::parse_cidr("2001:db8::/32")};
    c.routes[1].match->scheme = config::Scheme::https;
  };
  World world(change, "routes: [{match: {path: /1}, respond: {status: 200, body: net}}, "
                      "{match: {path: /2}, respond: {status: 200, body: tls}}, {respond: {status: 200, body: rest}}]\n");
  CHECK(world.get("/", "X-Forwarded-For: 2001:db8::1\r\n").body == "net");
  CHECK(world.get("/", "X-Forwarded-For: 2001:db9::1\r\nX-Forwarded-Proto: https\r\n").body == "tls");
  CHECK(world.get("/", "X-Forwarded-Proto: http\r\n").body == "rest");
  CHECK(world.proxy.verdict() == "");
}

TEST_CASE("redirect_https sends all but ACME challenges to https, and nobody in circles") {
  const auto change = [](Snapshot& c) {
    c.listeners[0].redirect_https = true;
    c.listeners[0].trusted_proxies = {*config::parse_cidr("0.0.0.0/0")};
  };
  World world(change);
  const Message answer = world.get("/a?b=c");
  CHECK(answer.status() == 308);
  CHECK(answer.field("location") == "https://a/a?b=c");
  CHECK(world.get("/.well-known/acme-challenge/token").status() == 200);
  CHECK(world.get("/.well-known/other").status() == 308);
  CHECK(world.get("/", "X-Forwarded-Proto: https\r\n").status() == 200);
  world.client.in.asked("OPTIONS");
  world.client.send("OPTIONS * HTTP/1.1\r\nHost: a\r\n\r\n");
  CHECK(world.wait().status() == 400);
  CHECK(world.requests == 2);
  CHECK(world.proxy.verdict() == "");
}

TEST_CASE("the closest limit of a request's body counts, a larger one too, whatever its framing") {
  const auto change = [](Snapshot& c) {
    c.listeners[0].own_limits.request_body_bytes = 100;
    c.routes[0].own_limits.request_body_bytes = 5000;
    c.routes[1].own_limits.request_body_bytes = 10;
  };
  World world(change, "routes: [{match: {path: /large}, to: app}, {match: {path: /small}, to: app}, {to: app}]\n");
  const auto post = [&](const std::string& path, size_t size, bool in_chunks) {
    Client& client = world.proxy.client();
    client.in.asked("POST");
    const std::string body = pattern(1, size);
    client.send("POST " + path + " HTTP/1.1\r\nHost: a\r\n");
    client.send(in_chunks ? "Transfer-Encoding: chunked\r\n\r\n" + chunked(body, 7)
                          : "Content-Length: " + std::to_string(size) + "\r\n\r\n" + body);
    CHECK(world.proxy.run([&] { return client.in.complete() >= 1 || client.closed(); }));
    return client.last().status();
  };
  for (const bool in_chunks : {false, true}) {
    CAPTURE(in_chunks);
    CHECK(post("/large", 5000, in_chunks) == 200);
    CHECK(post("/large", 5001, in_chunks) == 413);
    CHECK(post("/small", 10, in_chunks) == 200);
    CHECK(post("/small", 11, in_chunks) == 413);
    CHECK(post("/", 100, in_chunks) == 200);
    CHECK(post("/", 101, in_chunks) == 413);
  }
  CHECK(world.proxy.verdict() == "");
}

TEST_CASE("redirect_https drops the port that was asked for") {
  World world([](Snapshot& c) { c.listeners[0].redirect_https = true; });
  world.client.in.asked("GET");
  world.client.send("GET /x HTTP/1.1\r\nHost: shop.example:8080\r\n\r\n");
  CHECK(world.wait().field("location") == "https://shop.example/x");
  CHECK(world.proxy.verdict() == "");
}

}  // namespace weir::simtest

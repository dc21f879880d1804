// Text in, snapshot out: every key that is read, every default, what is inherited.
#include <catch2/catch_test_macros.hpp>

#include "config/describe.h"
#include "config/diff.h"
#include "config/schema.h"
#include "config/values.h"
#include "tests/source_dir.h"
#include "tests/unit/config/support.h"

namespace weir::config {
namespace {

using namespace std::chrono_literals;

std::string quoted(std::string text) {   // what "did you mean" asks for, out of a message
  const size_t at = text.find("did you mean `") + 14;
  return text.substr(at, text.find('`', at) - at);
}

}  // namespace

TEST_CASE("the defaults of the timeouts table", "[T1]") {
  const Timeouts t = snapshot_of(kListener).timeouts;
  CHECK(t.client_header == 10s);
  CHECK(t.client_body == 30s);
  CHECK(t.stream_idle == 1h);
  CHECK(t.keepalive == 60s);
  CHECK(t.write == 30s);
  CHECK(t.connect == 5s);
  CHECK(t.response == 60s);
  CHECK(t.origin_body == 60s);
  CHECK(t.origin_idle == 4s);
  CHECK(t.tunnel_idle == 1h);
  CHECK(t.ws_ping == 30s);
  CHECK(t.ws_pong == 10s);
  CHECK(t.linger == 5s);
  for (size_t i = 0; i < kTimeouts; ++i) {   // what the table spells is what the struct has
    const auto which = static_cast<Timeout>(i);
    const Row* row = find_row(Level::timeouts, timeout_name(which));
    REQUIRE(row != nullptr);
    CHECK(parse_duration(row->fallback).value() == t.at(which));
  }
}

TEST_CASE("the defaults of the limits table and of the rest") {
  const Snapshot s = snapshot_of(kListener);
  CHECK(s.limits.request_head_bytes == 32u << 10);
  CHECK(s.limits.header_count == 128);
  CHECK(s.limits.request_body_bytes == kUnlimited);
  CHECK(s.limits.response_head_bytes == 64u << 10);
  CHECK(s.limits.connections == 65536);
  CHECK_FALSE(s.limits.connections_set);
  CHECK_FALSE(s.limits.memory_bytes.has_value());
  CHECK(s.limits.h2_streams == 256);
  CHECK(s.limits.overhead_frames == 1000);
  CHECK(s.limits.resets == 512);
  CHECK(s.limits.ws_message_bytes == kUnlimited);
  CHECK(s.limits.pipe_min_bytes == 64u << 10);
  CHECK(s.limits.pipe_max_bytes == 8u << 20);
  CHECK(s.limits == Limits{});               // the table's defaults are the struct's
  CHECK(s.workers == 0);
  CHECK(s.admin.bind.text() == "unix:/run/weir/admin.sock");
  CHECK(s.admin == Admin{});
  CHECK_FALSE(s.metrics.has_value());
  CHECK(s.user.empty());
  CHECK(s.log.level == LogLevel::info);
  CHECK(s.log.format == LogFormat::text);
  CHECK_FALSE(s.log.access.has_value());
  CHECK(s.shutdown.delay == 0s);
  CHECK(s.shutdown.grace == 10s);
  CHECK(s.shutdown == Shutdown{});
  CHECK(s.routes.empty());
  CHECK_FALSE(s.fallback.has_value());
  CHECK(s.tests.empty());
  REQUIRE(s.listeners.size() == 1);
  CHECK(s.listeners[0].name == ":80");
  CHECK(s.listeners[0].engine == EngineChoice::adaptive);
  CHECK(s.listeners[0].protocols == std::vector{Protocol::h1, Protocol::h2});
  CHECK(s.files == std::vector<std::string>{"t.yaml"});
  const Snapshot more = snapshot_of(kListener + kUpstream +
                                    "log: {access: {}}\nroutes:\n"
                                    "  - {match: {path: /a}, respond: {}}\n"
                                    "  - {match: {path: /b}, redirect: {location: /}}\n"
                                    "  - {to: [{upstream: a}]}\n");
  CHECK(more.log.access == AccessLog{"stdout", AccessFormat::json});
  CHECK(std::get<Respond>(more.routes[0].action) == Respond{200, ""});
  CHECK(std::get<Redirect>(more.routes[1].action) == Redirect{308, "/"});
  CHECK(std::get<Forward>(more.routes[2].action) == Forward{{{0, 1}}});
  CHECK(more.upstreams[0].balance == Balance::round_robin);
  CHECK(more.upstreams[0].servers == std::vector{Server{{"127.0.0.1", 81, ""}, 1}});
}

TEST_CASE("every key, written out") {
  const Snapshot s = snapshot_of(R"(version: 1
workers: 3
listeners:
  - name: main
    bind: [":443", "127.0.0.1:8080", "[::1]:8080", "unix:/run/x.sock"]
    engine: io_uring
    protocols: [h1]
    timeouts: {keepalive: 5s}
  - {name: two, bind: "0.0.0.0:81", engine: epoll}
routes:
  - name: api
    match:
      host: [Shop.Example.com., "*.example.org"]
      path_prefix: /api/
      method: [GET, POST]
      header: {X-Beta: "1"}
      query: {v: 2, bare: ""}
      listener: main
    to: [{upstream: b, weight: 90}, {upstream: a, weight: 10}]
    timeouts: {response: 30s}
  - {match: {path: /old, host: "[0:0::1]"}, redirect: {status: 301, location: "https://x/new"}}
  - {match: {path: /ping, method: PUT, listener: [main, two]}, respond: {status: 404, body: "no\n"}}
  - {to: a}
upstreams:
  b:
    servers: ["10.0.0.5:8080", {address: "[::1]:80", weight: 2}, "unix:/run/app.sock", "App.internal:8080"]
    balance: round_robin
    protocol: h1
    timeouts: {connect: 1s, response: 9s}
  a: {servers: [{address: "h:1", weight: 0}, "h:2"]}
timeouts: {client_header: 1s, client_body: 2s, stream_idle: 3s, keepalive: 4s, write: 5s, connect: 6s, response: 7s,
           origin_body: 8m, origin_idle: 9h, linger: 0s}
limits: {request_head: 16KiB, header_count: 64, request_body: 10MiB, response_head: 32KiB, connections: 100,
         memory: 1GiB, pipe: {min: 32KiB, max: 1MiB}}
admin: {bind: "unix:/tmp/admin.sock"}
metrics: {bind: "127.0.0.1:9145"}
user: weir
log: {level: debug, format: json, access: {path: /var/log/a.log, format: combined}}
shutdown: {delay: 1s, grace: 250ms}
tests:
  - {get: "https://Shop.example.com:444/api/x?v=2#top", expect: {upstream: b, route: api}}
  - {get: "http://x", expect: {status: 404}}
)");
  CHECK(s.workers == 3);
  REQUIRE(s.listeners.size() == 2);
  const Listener& main = s.listeners[0];
  CHECK(main.name == "main");
  REQUIRE(main.binds.size() == 4);
  CHECK(main.binds[0] == SocketName{"", 443, ""});
  CHECK(main.binds[0].is_any());
  CHECK(main.binds[1] == SocketName{"127.0.0.1", 8080, ""});
  CHECK(main.binds[2] == SocketName{"::1", 8080, ""});
  CHECK(main.binds[2].text() == "[::1]:8080");
  CHECK(main.binds[3] == SocketName{"", 0, "/run/x.sock"});
  CHECK(main.engine == EngineChoice::io_uring);
  CHECK(main.where.text() == "t.yaml:4:5");
  CHECK(s.listeners[1].engine == EngineChoice::epoll);

  REQUIRE(s.routes.size() == 4);
  const Match& match = s.routes[0].match.value();
  CHECK(match.hosts == std::vector<HostPattern>{{"shop.example.com", false}, {"example.org", true}});
  CHECK(match.path_prefix == "/api");
  CHECK_FALSE(match.path.has_value());
  CHECK(match.methods == std::vector<std::string>{"GET", "POST"});
  CHECK(match.headers == std::vector<NameValue>{{"x-beta", "1"}});
  CHECK(match.query == std::vector<NameValue>{{"v", "2"}, {"bare", ""}});
  CHECK(match.listeners == std::vector<size_t>{0});
  CHECK(std::get<Forward>(s.routes[0].action) == Forward{{{1, 90}, {0, 10}}});
  CHECK(s.routes[1].name == "[::1]/old");
  CHECK(std::get<Redirect>(s.routes[1].action) == Redirect{301, "https://x/new"});
  CHECK(s.routes[2].name == "/ping");
  CHECK(s.routes[2].match->listeners == std::vector<size_t>{0, 1});
  CHECK(std::get<Respond>(s.routes[2].action) == Respond{404, "no\n"});
  CHECK(s.fallback == 3);

  REQUIRE(s.upstreams.size() == 2);
  CHECK(s.upstreams[0].name == "a");
  CHECK(s.upstreams[0].servers == std::vector{Server{{"h", 1, ""}, 0}, Server{{"h", 2, ""}, 1}});
  const std::vector<Server> servers{{{"10.0.0.5", 8080, ""}, 1}, {{"::1", 80, ""}, 2}, {{"", 0, "/run/app.sock"}, 1},
                                    {{"app.internal", 8080, ""}, 1}};
  CHECK(s.upstreams[1].servers == servers);
  CHECK(servers[0].address.is_literal());
  CHECK_FALSE(servers[3].address.is_literal());

  const Timeouts top{1s, 2s, 3s, 4s, 5s, 6s, 7s, 8min, 9h, 1h, 30s, 10s, 0s};
  CHECK(s.timeouts == top);
  CHECK(s.timeouts.linger == kOff);
  const Limits limits{16u << 10, 64, 10u << 20, 32u << 10, 100, true, 1u << 30, 256, 1000, 512, kUnlimited, 32u << 10,
                      1u << 20};
  CHECK(s.limits == limits);
  CHECK(s.admin.set);
  CHECK(s.admin.bind.text() == "unix:/tmp/admin.sock");
  CHECK(s.metrics.value().bind.text() == "127.0.0.1:9145");
  CHECK(s.user == "weir");
  CHECK(s.log == Log{LogLevel::debug, LogFormat::json, AccessLog{"/var/log/a.log", AccessFormat::combined}});
  CHECK(s.shutdown == Shutdown{1s, 250ms});
  REQUIRE(s.tests.size() == 2);
  CHECK(s.tests[0].https);
  CHECK(s.tests[0].host == "shop.example.com:444");
  CHECK(s.tests[0].target == "/api/x?v=2");
  CHECK(s.tests[0].expect.upstream == "b");
  CHECK(s.tests[0].expect.route == "api");
  CHECK(s.tests[1].target == "/");
  CHECK(s.tests[1].expect.status == 404);
}

TEST_CASE("timeouts: the closest wins, and 0s switches off itself alone", "[T1]") {
  const Snapshot s = snapshot_of(R"(version: 1
listeners:
  - {bind: ":80", timeouts: {write: 2s, keepalive: 2s, response: 2s}}
routes:
  - {to: a, timeouts: {write: 0s}}
upstreams:
  a: {servers: ["h:1"], timeouts: {write: 3s, response: 3s}}
timeouts: {write: 1s, connect: 1s}
)");
  CHECK(s.listeners[0].timeouts.write == 2s);
  CHECK(s.listeners[0].timeouts.connect == 1s);
  CHECK(s.upstreams[0].timeouts.write == 3s);
  CHECK(s.upstreams[0].timeouts.keepalive == 60s);
  CHECK(s.routes[0].timeouts.write == kOff);
  CHECK(s.routes[0].timeouts.response == 60s);
  Timeouts expected;
  expected.write = kOff;          // the route's
  expected.response = 3s;         // the upstream's, over the listener's
  expected.keepalive = 2s;        // the listener's
  expected.connect = 1s;          // the top's
  CHECK(exchange_timeouts(s, s.listeners[0], &s.upstreams[0], s.routes[0]) == expected);
  expected.response = 2s;
  CHECK(exchange_timeouts(s, s.listeners[0], nullptr, s.routes[0]) == expected);
}

TEST_CASE("each timeout can be set at each level where it counts", "[T1]") {
  const auto is_read = [](Level level, std::string_view name) {
    const Row* row = find_row(level, name);
    return row != nullptr && row->need != Need::later;
  };
  for (size_t i = 0; i < kTimeouts; ++i) {
    const auto which = static_cast<Timeout>(i);
    const std::string name(timeout_name(which));
    if (!is_read(Level::timeouts, name)) continue;
    if (!is_read(Level::exchange_timeouts, name)) {
      const std::string unknown = "unknown key `" + name + "` in the `timeouts` of a route or upstream; it belongs in "
                                  "the `timeouts` of a listener or the top\n";
      const std::string set = "timeouts: {" + name + ": 1s}}\n";
      CHECK(problems_of(kListener + kUpstream + "routes:\n  - {to: a, " + set) == "t.yaml:7:24: " + unknown);
      CHECK(problems_of(kListener + "upstreams:\n  a: {servers: [\"h:1\"], " + set + "routes: [{to: a}]\n") ==
            "t.yaml:5:36: " + unknown);
      const Snapshot s = snapshot_of("version: 1\nlisteners: [{bind: \":80\", timeouts: {" + name + ": 2ms}}]\n");
      CHECK(s.listeners[0].timeouts.at(which) == 2ms);
      continue;
    }
    const std::string set = "timeouts: {" + std::string(timeout_name(which)) + ": ";
    const Snapshot s = snapshot_of("version: 1\n" + set + "1ms}\nlisteners: [{bind: \":80\", " + set +
                                   "2ms}}]\nroutes: [{to: a, " + set + "3ms}}]\nupstreams: {a: {servers: [\"h:1\"], " +
                                   set + "4ms}}}\n");
    CAPTURE(timeout_name(which));
    CHECK(s.timeouts.at(which) == 1ms);
    CHECK(s.listeners[0].timeouts.at(which) == 2ms);
    CHECK(s.routes[0].timeouts.at(which) == 3ms);
    CHECK(s.upstreams[0].timeouts.at(which) == 4ms);
    Timeouts others;
    others.at(which) = 1ms;
    CHECK(s.timeouts == others);   // and no other one moved
  }
}

TEST_CASE("one size fixes the pipe; unlimited and auto are words") {
  CHECK(snapshot_of(kListener + "limits: {pipe: 1MiB}\n").limits.pipe_min_bytes == 1u << 20);
  CHECK(snapshot_of(kListener + "limits: {pipe: 1MiB}\n").limits.pipe_max_bytes == 1u << 20);
  CHECK(snapshot_of(kListener + "limits: {pipe: {max: 1MiB}}\n").limits.pipe_min_bytes == 64u << 10);
  CHECK(snapshot_of(kListener + "limits: {request_body: unlimited}\n").limits.request_body_bytes == kUnlimited);
  CHECK(snapshot_of(kListener + "limits: {request_body: 0B}\n").limits.request_body_bytes == 0);
  CHECK(snapshot_of(kListener + "workers: auto\n").workers == 0);
}

TEST_CASE("what a route changes, and whom a listener believes") {
  const Snapshot s = snapshot_of(R"yaml(version: 1
listeners:
  - {name: web, bind: ":80", trusted_proxies: [10.0.0.0/8, unix, "::1"], trusted_header: forwarded, redirect_https: true, limits: {header_count: 9}}
  - {bind: "unix:/x", unix: {mode: 640, user: u, group: "7"}}
defaults: {via: true}
routes:
  - match: {path_prefix: /api/, client: 10.1.0.0/16, scheme: https}
    to: a
    rewrite: {path_prefix: /v2/, host: App.Internal:81}
    headers: {request: {set: {X-A: "1"}, add: {x-b: ""}, remove: X-C}, response: {remove: [server]}}
    limits: {request_body: 1KiB}
    forwarded: true
    via: false
  - {match: {path_prefix: /, method: GET}, to: a, rewrite: {path_prefix: /}}
  - {match: {path_regex: "^/x"}, to: a, rewrite: {path_regex: "^/(x)", replacement: /$1/y}}
upstreams:
  a: {servers: ["h:1"], balance: random, max_connections: 7, limits: {response_head: 2KiB}}
limits: {request_body: 5KiB, response_head: 3KiB}
admin: {unix: {mode: "0600"}}
tests: [{get: "http://x/", method: PUT, header: {A: b}, client: "[::1]", listener: web, expect: {status: 404}}]
)yaml");
  const Listener& web = s.listeners[0];
  CHECK(web.redirect_https);
  CHECK(web.trusted_header == TrustedHeader::forwarded);
  CHECK(s.listeners[1].trusted_header == TrustedHeader::x_forwarded);
  CHECK(web.trust_unix);
  CHECK(web.trusted_proxies == std::vector{parse_cidr("10.0.0.0/8").value(), parse_cidr("::1").value()});
  CHECK(web.limits.header_count == 9);
  CHECK(web.limits.request_body_bytes == 5120);
  CHECK(s.listeners[1].unix_access == UnixAccess{0640, "u", "7"});
  CHECK_FALSE(s.listeners[1].redirect_https);
  const Route& api = s.routes[0];
  CHECK(api.match->clients == std::vector{parse_cidr("10.1.0.0/16").value()});
  CHECK(api.match->scheme == Scheme::https);
  CHECK(api.rewrite == Rewrite{"/v2", {}, "", "app.internal:81"});
  CHECK(api.request_headers == HeaderEdits{{"x-c"}, {{"x-a", "1"}}, {{"x-b", ""}}});
  CHECK(api.response_headers == HeaderEdits{{"server"}, {}, {}});
  CHECK(api.forwarded);
  CHECK_FALSE(api.via);
  CHECK(s.routes[1].via);   // of defaults
  CHECK(s.routes[1].rewrite.path_prefix == "");
  CHECK(s.routes[2].name == "~^/x");
  REQUIRE(s.routes[2].rewrite.path_regex.has_value());
  CHECK(s.routes[2].rewrite.path_regex->pattern() == "^/(x)");
  CHECK(s.routes[2].rewrite.replacement == "/$1/y");
  CHECK(s.upstreams[0].balance == Balance::random);
  CHECK(s.upstreams[0].max_connections == 7);
  CHECK(s.admin.unix_access == UnixAccess{0600, "", ""});
  CHECK_FALSE(s.admin.set);
  REQUIRE(s.tests.size() == 1);
  CHECK(s.tests[0].method == "PUT");
  CHECK(s.tests[0].headers == std::vector<NameValue>{{"a", "b"}});
  CHECK(s.tests[0].client == "::1");
  CHECK(s.tests[0].listener == 0);

  // The closest wins, value by value.
  const Limits on_route = exchange_limits(s, web, &s.upstreams[0], api);
  CHECK(on_route.request_body_bytes == 1024);      // the route's
  CHECK(on_route.response_head_bytes == 2048);     // the upstream's
  CHECK(on_route.header_count == 9);               // the listener's
  CHECK(exchange_limits(s, s.listeners[1], nullptr, s.routes[1]) == s.limits);
}

TEST_CASE("what a variable holds may be of any kind, quoted for YAML's sake or not") {
  FakeWorld world;
  world.variables = {{"N", "3"}, {"B", "true"}, {"T", "5s"}};
  const Snapshot s = snapshot_of("version: 1\nlisteners: [{bind: \":80\", redirect_https: \"${B}\"}]\nworkers: \"${N}\"\n"
                                 "timeouts: {write: \"${T}\"}\n", world);
  CHECK(s.workers == 3);
  CHECK(s.listeners[0].redirect_https);
  CHECK(s.timeouts.write == 5s);
}

TEST_CASE("names that nobody gave") {
  const Snapshot s = snapshot_of(kListener + kUpstream + R"(routes:
  - {to: a, match: {path_prefix: /a, method: GET}}
  - {to: a, match: {path_prefix: /a, method: PUT}}
  - {to: a, match: {host: "*.x", path: /b}}
  - {to: a, match: {method: GET}}
  - {to: a, match: {path: /)" + std::string(200, 'x') + R"(}}
  - {to: a}
)");
  std::vector<std::string> names;
  for (const Route& route : s.routes) names.push_back(route.name);
  CHECK(names == std::vector<std::string>{"/a/*", "/a/* #2", "*.x/b", "route-4", "/" + std::string(99, 'x') + "...",
                                          "fallback"});
}

TEST_CASE("an upstream that no route uses is a warning, not an error") {
  const Snapshot s = snapshot_of(kListener + kUpstream);
  REQUIRE(s.warnings.size() == 1);
  CHECK(s.warnings[0].text() == "t.yaml:5:3: no route goes to upstream `a`");
}

TEST_CASE("describe gives a configuration that means the same; the hash is about meaning") {
  const std::string text = R"(version: 1
listeners:
  - {name: main, bind: [":443", "unix:/run/x.sock"], engine: epoll, timeouts: {write: 90s}}
routes:
  - {match: {host: ["*.a.b", c], path_prefix: /x, method: GET, header: {h: "é \" \\ $${x}"}, query: {q: "1"},
             listener: main}, to: [{upstream: u, weight: 3}], timeouts: {response: 1500ms}}
  - {match: {path: /p}, respond: {status: 418, body: "line\n\ttab \x01 $${HOME}"}}
  - {redirect: {status: 302, location: "https://x/"}}
upstreams:
  u: {servers: ["h:1", {address: "[::1]:2", weight: 5}], timeouts: {connect: 0s}}
limits: {request_body: 1025B, connections: 7, memory: 64MiB}
admin: {bind: "unix:/a"}
metrics: {bind: ":9145"}
user: weir
log: {level: warn, format: json, access: {format: combined}}
workers: 2
tests: [{get: "http://c/p", expect: {status: 418, route: /p}}]
)";
  const Snapshot first = snapshot_of(text);
  const std::string described = describe(first);
  const Snapshot second = snapshot_of(described);
  CHECK(describe(second) == described);
  CHECK(second.hash == first.hash);
  CHECK(std::get<Respond>(second.routes[1].action).body == "line\n\ttab \x01 ${HOME}");
  CHECK(second.routes[0].match == first.routes[0].match);
  CHECK(snapshot_of("# a comment\n" + text).hash == first.hash);
  CHECK(snapshot_of(text + "shutdown: {grace: 10s}\n").hash == first.hash);   // the default, spelt out
  CHECK(snapshot_of(text + "shutdown: {grace: 11s}\n").hash != first.hash);
}

TEST_CASE("the complete example survives being described; secrets do not leave") {
  const Snapshot first = load(source_dir() + "/docs/examples/complete.yaml", Environment::real()).value();
  const std::string described = describe(first);
  const Snapshot second = snapshot_of(described);
  CHECK(describe(second) == described);
  CHECK(diff(first, second).empty());
  CHECK(describe(first, Secrets::redacted) == described);   // it has none

  const std::string text = kListener + kUpstream + R"(routes:
  - match: {path: /a, header: {cookie: "s3cr3t-1"}, query: {token: s3cr3t-2}}
    to: a
    headers:
      request: {set: {Authorization: s3cr3t-3, x-plain: seen}, add: {X-Api-Key: s3cr3t-4}}
      response: {set: {Set-Cookie: s3cr3t-5}}
tests: [{get: "http://a/", header: {proxy-authorization: s3cr3t-6}, expect: {status: 404}}]
)";
  const Snapshot s = snapshot_of(text);
  const std::string kept = describe(s);
  const std::string redacted = describe(s, Secrets::redacted);
  for (char n = '1'; n <= '6'; ++n) CHECK(kept.find(std::string("s3cr3t-") + n) != std::string::npos);
  CHECK(redacted.find("s3cr3t") == std::string::npos);
  CHECK(redacted.find("(redacted)") != std::string::npos);
  CHECK(redacted.find("\"x-plain\": \"seen\"") != std::string::npos);
  CHECK(snapshot_of(redacted).routes.size() == 1);
}

TEST_CASE("what the reader proposes is what it takes") {
  for (const char* wrong : {"30", "30sec", "5min", "7 days", "10 MS", "2H"}) {
    CAPTURE(wrong);
    REQUIRE_FALSE(parse_duration(wrong).has_value());
    CHECK(parse_duration(quoted(parse_duration(wrong).error())).has_value());
  }
  for (const char* wrong : {"30", "64k", "64KB", "1 gb", "3T", "12b"}) {
    CAPTURE(wrong);
    REQUIRE_FALSE(parse_size(wrong).has_value());
    CHECK(parse_size(quoted(parse_size(wrong).error())).has_value());
  }
  for (uint64_t ms : {0ull, 1ull, 999ull, 1000ull, 90'000ull, 3'600'000ull, 86'400'000ull}) {
    CHECK(parse_duration(duration_text(Milliseconds(ms))).value().count() == static_cast<int64_t>(ms));
  }
  for (uint64_t bytes : {0ull, 1ull, 1023ull, 1024ull, 65536ull, 1ull << 40}) {
    CHECK(parse_size(size_text(bytes)).value() == bytes);
  }
}

}  // namespace weir::config

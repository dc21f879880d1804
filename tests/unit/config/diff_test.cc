#include "config/diff.h"

#include <catch2/catch_test_macros.hpp>

#include "tests/unit/config/support.h"

namespace weir::config {
namespace {

const std::string kBase = R"(version: 1
listeners:
  - {name: one, bind: ":80"}
  - {name: two, bind: [":81", ":82"]}
routes:
  - {name: r, match: {path: /x, listener: two}, to: b}
  - {to: [{upstream: a, weight: 2}, {upstream: b}]}
upstreams:
  a: {servers: ["h:1"]}
  b: {servers: ["h:2"]}
)";

Diff after(const std::string& old_text, const std::string& new_text) {
  std::string text = kBase;
  const size_t at = text.find(old_text);
  REQUIRE(at != std::string::npos);
  return diff(snapshot_of(kBase), snapshot_of(text.replace(at, old_text.size(), new_text)));
}

}  // namespace

TEST_CASE("the same configuration changes nothing") {
  const Snapshot s = snapshot_of(kBase);
  const Diff d = diff(s, snapshot_of("# other comments\n" + kBase + "timeouts: {write: 30s}\n"));
  CHECK(d.empty());
  REQUIRE(d.binds.size() == 3);
  for (const BindChange& bind : d.binds) CHECK(bind.before == bind.after);
  REQUIRE(d.listeners.size() == 2);
  CHECK(d.listeners[1].change == Change::unchanged);
  CHECK(d.upstreams.size() == 2);
}

TEST_CASE("listeners: a socket depends on its address alone") {
  const Diff d = after("  - {name: two, bind: [\":81\", \":82\"]}\n",
                       "  - {name: three, bind: \":83\"}\n  - {name: two, bind: \":82\", engine: epoll}\n");
  CHECK_FALSE(d.empty());
  REQUIRE(d.binds.size() == 4);
  CHECK(d.binds[0].after == 0);
  CHECK(d.binds[1].bind.text() == ":81");
  CHECK_FALSE(d.binds[1].after.has_value());
  CHECK(d.binds[2].bind.text() == ":82");
  CHECK(d.binds[2].before == 1);
  CHECK(d.binds[2].after == 2);
  CHECK(d.binds[3].bind.text() == ":83");
  CHECK_FALSE(d.binds[3].before.has_value());
  CHECK(d.binds[3].after == 1);
  REQUIRE(d.listeners.size() == 3);
  CHECK(d.listeners[0].change == Change::unchanged);
  CHECK(d.listeners[1].change == Change::added);
  CHECK(d.listeners[2].change == Change::changed);
  CHECK(d.listeners[2].before == 1);
  CHECK_FALSE(d.routes);   // the index of `two` moved, the routes did not change
}

TEST_CASE("upstreams: by structure, not by name") {
  // b is renamed to c: its pool can live on.
  std::string text = kBase;
  for (size_t at; (at = text.find("upstream: b")) != std::string::npos;) text.replace(at, 11, "upstream: c");
  text.replace(text.find("to: b"), 5, "to: c");
  text.replace(text.find("  b: {"), 6, "  c: {");
  const Diff renamed = diff(snapshot_of(kBase), snapshot_of(text));
  REQUIRE(renamed.upstreams.size() == 2);
  CHECK(renamed.upstreams[1].change == Change::unchanged);
  CHECK(renamed.upstreams[1].before == 1);
  CHECK(renamed.upstreams[1].renamed);
  CHECK(renamed.routes);
  CHECK_FALSE(renamed.empty());

  const Diff changed = after("h:2", "h:3");
  CHECK(changed.upstreams[0].change == Change::unchanged);
  CHECK(changed.upstreams[1].change == Change::changed);
  CHECK_FALSE(changed.routes);

  const Diff added = after("upstreams:\n", "upstreams:\n  0: {servers: [\"h:9\"]}\n");
  REQUIRE(added.upstreams.size() == 3);
  CHECK(added.upstreams[0].change == Change::added);
  CHECK_FALSE(added.routes);   // every index moved, no route did
  const Diff removed = diff(snapshot_of(kBase + "  z: {servers: [\"h:9\"]}\n"), snapshot_of(kBase));
  REQUIRE(removed.upstreams.size() == 3);
  CHECK(removed.upstreams[2].change == Change::removed);
  CHECK(removed.upstreams[2].before == 2);
}

TEST_CASE("every key of a listener, an upstream and a route counts") {
  for (const char* key : {"redirect_https: true", "trusted_header: forwarded", "trusted_proxies: [unix]", "trusted_proxies: [::1]",
                          "limits: {header_count: 3}"}) {
    CAPTURE(key);
    const Diff d = after("bind: \":80\"", "bind: \":80\", " + std::string(key));
    CHECK(d.listeners[0].change == Change::changed);
    CHECK(d.listeners[1].change == Change::unchanged);
  }
  for (const char* key : {"balance: random", "max_connections: 3", "limits: {response_head: 3KiB}"}) {
    CAPTURE(key);
    CHECK(after("[\"h:1\"]", "[\"h:1\"], " + std::string(key)).upstreams[0].change == Change::changed);
  }
  for (const char* key : {"rewrite: {host: x}", "headers: {request: {remove: x}}", "headers: {response: {remove: x}}",
                          "via: true", "forwarded: true", "limits: {request_body: 3KiB}"}) {
    CAPTURE(key);
    CHECK(after("to: b", "to: b, " + std::string(key)).routes);
  }
  for (const char* key : {"scheme: http", "client: 10.0.0.0/8"}) {
    CAPTURE(key);
    CHECK(after("path: /x", "path: /x, " + std::string(key)).routes);
  }
}

TEST_CASE("routes and settings") {
  CHECK(after("path: /x", "path: /y").routes);
  CHECK(after("listener: two", "listener: one").routes);
  CHECK(after("weight: 2", "weight: 3").routes);
  CHECK(after("to: b", "respond: {}").routes);
  CHECK(after("to: b", "timeouts: {write: 1s}, to: b").routes);
  const auto settings = [](const std::string& line) { return after("version: 1\n", "version: 1\n" + line).settings; };
  CHECK(settings("workers: 2\n") == std::vector<std::string>{"workers"});
  CHECK(settings("timeouts: {write: 1s}\n") == std::vector<std::string>{"timeouts"});
  CHECK(settings("limits: {connections: 1}\n") == std::vector<std::string>{"limits"});
  CHECK(settings("admin: {bind: \"unix:/a\"}\n") == std::vector<std::string>{"admin"});
  CHECK(settings("metrics: {bind: \":9\"}\n") == std::vector<std::string>{"metrics"});
  CHECK(settings("user: x\n") == std::vector<std::string>{"user"});
  CHECK(settings("log: {level: warn}\n") == std::vector<std::string>{"log"});
  CHECK(settings("shutdown: {grace: 1s}\n") == std::vector<std::string>{"shutdown"});
  CHECK(settings("tests: [{get: \"http://a/\", expect: {route: r}}]\n") == std::vector<std::string>{"tests"});
  CHECK(settings("timeouts: {write: 30s}\n").empty());
}

}  // namespace weir::config

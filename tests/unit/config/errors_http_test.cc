// The mistakes around rewrites, header changes, limits, networks and patterns.
#include "tests/unit/config/cases.h"

namespace weir::config {

TEST_CASE("networks") {
  const auto trusted = [](const std::string& value, const std::string& why) {
    return listener("    trusted_proxies: [\"" + value + "\"]\n", "4:23: trusted_proxies: `" + value + "` " + why);
  };
  const std::string no = "is no address and no network such as `10.0.0.0/8` or `fd00::/8`";
  check({
      trusted("10.0.0.0.0/8", no),
      trusted("proxy.internal", no),
      trusted("10.0.0.0/33", "has no valid length: a number from 0 to 32 follows the `/`"),
      trusted("fd00::/129", "has no valid length: a number from 0 to 128 follows the `/`"),
      trusted("10.0.0.0/", "has no valid length: a number from 0 to 32 follows the `/`"),
      trusted("10.0.0.0/8x", "has no valid length: a number from 0 to 32 follows the `/`"),
      trusted("10.0.0.1/8", "has bits set behind its length; did you mean `10.0.0.0/8`?"),
      trusted("fd00::1/8", "has bits set behind its length; did you mean `fd00::/8`?"),
      trusted("::ffff:10.0.0.1", "is an IPv4 address inside IPv6; write it as IPv4"),
      listener("    trusted_proxies: {}\n",
               "4:22: `trusted_proxies` must be an address, a network, or a list of them, not a mapping"),
      match("client: unix", "7:29: client: `unix` " + no),
      match("client: []", "7:29: `client` is an empty list"),
  });
  CHECK(problems_of(kListener + "    trusted_proxies: []\n") == "");
}

TEST_CASE("unix sockets") {
  const std::string socket = "version: 1\nlisteners:\n  - bind: unix:/run/x\n";
  check({
      listener("    unix: {mode: \"0660\"}\n", "4:11: `unix` is about unix sockets; this listener has none"),
      {socket + "    unix: {mode: rw}\n", "4:18: mode: `rw` is no octal mode such as `0660`"},
      {socket + "    unix: {mode: 1777}\n", "4:18: mode: `1777` is no octal mode such as `0660`"},
      {socket + "    unix: {mode: 0888}\n", "4:18: mode: `0888` is no octal mode such as `0660`"},
      {socket + "    unix: {owner: x}\n", "4:12: unknown key `owner` in `unix`"},
      top("admin: {unix: {mode: \"7\"}}\n", "4:22: mode: `7` is no octal mode such as `0660`"),
  });
}

TEST_CASE("path patterns") {
  const auto regex = [](const std::string& value, const std::string& why) {
    return match("path_regex: '" + value + "'", "7:33: path_regex: `" + value + "` " + why);
  };
  std::string large;
  for (size_t i = 0; i < 120; ++i) large += "a{1000}";
  check({
      regex("^/a(", "has a `(` without its `)`: `^/a(`"),
      regex("^/a)", "has a `)` without its `(`"),
      regex("/[a", "has a `[` without its `]`: `[a`"),
      regex("*x", "repeats nothing: `*`; a `\\` before it takes it as it is"),
      regex("a**", "repeats a repetition: `**`"),
      regex("a{1001}", "repeats something too often: `{1001}`; at most 1000 times"),
      regex("[z-a]", "has a range that ends before it begins, or an unknown class: `z-a`"),
      regex("[[:x:]]", "has a range that ends before it begins, or an unknown class: `[:x:]`"),
      regex("a\\", "ends in a `\\` that nothing follows"),
      regex("a\\q", "has a `\\` before a character that it gives no meaning: `\\q`"),
      regex("(a)\\1", "has a `\\` before a character that it gives no meaning: `\\1`"),
      regex("a(?=b)", "looks ahead or behind (`(?=`), which cannot be done in linear time: it is not supported"),
      regex("((a{100}){100}){100}", "repeats something too often: `{100}`; at most 1000 times"),
      regex("\\pX", "has a range that ends before it begins, or an unknown class: `\\pX`"),
      regex(large, "is too large once compiled"),
      regex("/b\u00fccher", "has letters outside ASCII; in a path they stand percent-encoded"),
      match("path: /a, path_regex: b", "7:43: a match has either `path` or `path_regex`"),
      match("path_prefix: /a, path_regex: b", "7:50: a match has either `path_prefix` or `path_regex`"),
      match("scheme: ftp", "7:29: scheme: `ftp` is none of `http` or `https`"),
  });
}

TEST_CASE("rewrites") {
  const auto rewrite = [](const std::string& inside, const std::string& problems) {
    return routes("  - {match: {path_prefix: /a}, to: a, rewrite: {" + inside + "}}\n", problems);
  };
  check({
      rewrite("", "7:48: `rewrite` is an empty mapping"),
      rewrite("path_prefix: b", "7:62: path_prefix: `b` must begin with `/`"),
      rewrite("path_prefix: \"/b?c\"", "7:62: path_prefix: `/b?c` is more than a path"),
      rewrite("path_prefix: /b c", "7:62: path_prefix: `/b c` has characters that stand percent-encoded in a request; "
                                   "write them so"),
      routes("  - {to: a, rewrite: {path_prefix: /}}\n",
             "7:36: path_prefix: the `match` of this route has no `path_prefix` whose place it could take; there is "
             "`path_regex`"),
      routes("  - {match: {path: /a}, to: a, rewrite: {path_prefix: /}}\n",
             "7:55: path_prefix: the `match` of this route has no `path_prefix` whose place it could take; there is "
             "`path_regex`"),
      rewrite("path_regex: x", "7:61: `path_regex` needs a `replacement` beside it"),
      rewrite("replacement: x", "7:62: `replacement` needs a `path_regex` beside it"),
      rewrite("path_regex: (, replacement: x", "7:61: path_regex: `(` has a `(` without its `)`: `(`"),
      rewrite("path_regex: x, replacement: $1",
              "7:77: replacement: `$1` asks for group `$1`, but the pattern has none"),
      rewrite("path_regex: (x), replacement: $2",
              "7:79: replacement: `$2` asks for group `$2`, but the pattern has one"),
      rewrite("path_regex: (x)(y), replacement: $3",
              "7:82: replacement: `$3` asks for group `$3`, but the pattern has 2"),
      rewrite("path_regex: x, replacement: a$",
              "7:77: replacement: `a$` has a `$` that no digit follows; `$$` stands for a plain `$`"),
      rewrite("path_regex: x, replacement: \"/a?b\"", "7:77: replacement: `/a?b` is more than a path"),
      rewrite("path_prefix: /b, path_regex: x, replacement: y",
              "7:78: a rewrite has either `path_prefix` or `path_regex`"),
      rewrite("host: a b", "7:55: host: `a b` is no host such as `app.internal` or `10.0.0.5:8080`"),
      rewrite("host: \"*.a\"", "7:55: host: `*.a` is no host such as `app.internal` or `10.0.0.5:8080`"),
      rewrite("host: \"unix:/x\"", "7:55: host: `unix:/x` is no host such as `app.internal` or `10.0.0.5:8080`"),
      rewrite("prefix: /", "7:49: unknown key `prefix` in `rewrite`"),
      routes("  - {respond: {}, rewrite: {host: x}}\n", "7:28: `rewrite` needs `to`: this route passes nothing on"),
      routes("  - {to: a, rewrite: /x}\n", "7:22: `rewrite` must be a mapping (`key: value`), not text"),
  });
  CHECK(problems_of(routes("  - {to: a, rewrite: {path_regex: x, replacement: \"\", host: \"[::1]:8080\"}}\n", "").text) == "");
}

TEST_CASE("changes of header fields") {
  const auto request = [](const std::string& inside, const std::string& problems) {
    return routes("  - {to: a, headers: {request: {" + inside + "}}}\n", problems);
  };
  const std::string own = " frames a message or belongs to one connection: it cannot be changed";
  check({
      request("set: {a b: c}", "7:39: set: `a b` is no field name"),
      request("set: {Connection: close}", "7:39: set: `Connection`" + own),
      request("add: {content-length: 5}", "7:39: add: `content-length`" + own),
      request("remove: Transfer-Encoding", "7:41: remove: `Transfer-Encoding`" + own),
      request("set: {host: x}", "7:39: set: `host` is changed by `rewrite: {host: ...}`"),
      request("set: {a: b, A: c}", "7:45: set: `A` is given twice"),
      request("remove: [a, A]", "7:45: remove: `A` is given twice"),
      request("set: {a: b}, remove: [A]",
              "7:55: remove: `A` is also in `set`, which takes the place of all of that name"),
      request("set: {a: \" b\"}", "7:39: set: `a` has a value that begins or ends with a space"),
      request("set: {a: \"b\\r\\nc\"}", "7:42: `a` contains a control character"),
      request("set: {a: " + std::string(8193, 'x') + "}", "7:39: set: `a` has a value longer than 8192 bytes"),
      request("set: [a]", "7:38: `set` must be a mapping (`key: value`), not a list"),
      request("sett: {a: b}", "7:33: unknown key `sett` in the changes of header fields; did you mean `set`?"),
      routes("  - {respond: {}, headers: {request: {set: {a: b}}}}\n",
             "7:38: `request` needs `to`: this route passes nothing on"),
  });
  CHECK(problems_of(routes("  - {to: a, headers: {request: {set: {}, add: {}, remove: []}, response: {}}}\n", "").text) == "");
}

TEST_CASE("limits that are set closer") {
  check({
      listener("    limits: {request_head: 2MiB}\n", "4:28: request_head: `2MiB` is too large: at most 1MiB"),
      listener("    limits: {memory: 1GiB}\n",
               "4:14: unknown key `memory` in the `limits` of a listener; it belongs in `limits`"),
      routes("  - {to: a, limits: {request_head: 1KiB}}\n",
             "7:22: unknown key `request_head` in the `limits` of a route; it belongs in the `limits` of a listener"),
      routes("  - {to: a, limits: {request_body: 1}}\n",
             "7:36: request_body: `1` has no unit; did you mean `1KiB`? (or `unlimited`)"),
      upstreams("  a: {servers: [\"a:1\"], limits: {response_head: 1B}}\n",
                "5:49: response_head: `1B` is too small: at least 1KiB"),
      upstreams("  a: {servers: [\"a:1\"], max_connections: 0}\n", "5:42: max_connections: `0` is too small: at least 1"),
      upstreams("  a: {servers: [\"a:1\"], max_connections: many}\n",
                "5:42: max_connections: `many` is no whole number (or `unlimited`)"),
  });
}

TEST_CASE("routes that are never reached, by pattern, scheme and client") {
  const auto two = [](const std::string& first, const std::string& second) {
    return problems_of(
        routes("  - {name: x, to: a, match: {" + first + "}}\n  - {to: a, match: {" + second + "}}\n", "").text);
  };
  const std::string never =
      "t.yaml:8:5: this route is never reached: the route `x` at t.yaml:7:5 takes every request that it matches\n";
  CHECK(two("path_regex: ^/a", "path_regex: ^/a") == never);
  CHECK(two("path_regex: ^/a", "path: /ab") == never);
  CHECK(two("path_regex: ^/a", "path: /b") == "");
  CHECK(two("path_regex: ^/a", "path_prefix: /a") == "");
  CHECK(two("path_prefix: /a", "path_regex: ^/a/b") == "");
  CHECK(two("host: b", "host: b, path_regex: x") == never);
  CHECK(two("scheme: http", "scheme: http, path: /") == never);
  CHECK(two("scheme: http", "path: /") == "");
  CHECK(two("client: 10.0.0.0/8", "client: [10.1.0.0/16, 10.2.3.4]") == never);
  CHECK(two("client: 10.0.0.0/8", "client: [10.1.0.0/16, 11.0.0.1]") == "");
  CHECK(two("client: 10.0.0.0/8", "path: /") == "");
  CHECK(two("client: 10.0.0.0/8", "client: \"::/0\"") == "");
}

TEST_CASE("a route is held against those that could shadow it, wherever their hosts and paths put them") {
  const std::vector<std::pair<std::string, std::string>> covers_each{
      {"host: \"*.c\"", "host: a.b.c, path: /x"},       {"host: \"*.b.c\", path_prefix: /x", "host: a.b.c, path: /x/y/z"},
      {"path_prefix: /x", "host: [a.b, c.d], path_prefix: /x/y"}, {"host: [q.r, a.b]", "host: a.b"},
      {"host: \"*.c\"", "host: \"*.b.c\", path_regex: z"},      {"path: /", "path: /"},
      {"path_prefix: /x", "path: /x"},                  {"host: \"[::1]\"", "host: \"[0::1]\""},
  };
  for (const auto& [wide, narrow] : covers_each) {
    CAPTURE(wide, narrow);
    const std::string between = "  - {to: a, match: {host: z.z}}\n  - {to: a, match: {path: /z}}\n";
    const std::string text = routes("  - {name: x, to: a, match: {" + wide + "}}\n" + between + "  - {to: a, match: {" +
                                        narrow + "}}\n", "").text;
    CHECK(problems_of(text) == "t.yaml:10:5: this route is never reached: the route `x` at t.yaml:7:5 takes every "
                               "request that it matches\n");
  }
}

TEST_CASE("requests of tests") {
  const auto test = [](const std::string& inside, const std::string& problems) {
    return top("tests: [{get: \"http://a/\", " + inside + ", expect: {status: 404}}]\n", problems);
  };
  check({
      test("method: G T", "4:36: method: `G T` is no method"),
      test("header: {a b: c}", "4:37: header: `a b` is no field name"),
      test("client: 10.0.0.0/8", "4:36: client: `10.0.0.0/8` is no address such as `192.0.2.7`"),
      test("client: me", "4:36: client: `me` is no address such as `192.0.2.7`"),
      test("listener: x", "4:38: there is no listener named `x`"),
  });
}

TEST_CASE("https that nobody could speak is a warning") {
  const auto warnings = [](const std::string& under_listener) {
    const Snapshot s = snapshot_of(kListener + under_listener + kUpstream + "routes: [{to: a, match: {scheme: https}}]\n");
    return s.warnings.size();
  };
  CHECK(warnings("") == 1);
  CHECK(warnings("    trusted_proxies: 10.0.0.1\n") == 0);
  CHECK(warnings("    trusted_proxies: unix\n") == 0);
}

}  // namespace weir::config

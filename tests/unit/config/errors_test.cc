// Every mistake there is a message for: text in, exact message with its place out.
#include "tests/unit/config/cases.h"

namespace weir::config {

TEST_CASE("what is no configuration at all") {
  check({
      {"", "1:1: the file is empty"},
      {"# only a comment\n", "1:1: the file is empty"},
      {"- a\n", "1:1: the file must be a mapping that begins with `version: 1`, not a list"},
      {"hello\n", "1:1: the file must be a mapping that begins with `version: 1`, not text"},
      {"version: 1\n", "1:1: `listeners` is missing at the top level"},
      {"listeners: [{bind: \":80\"}]\n", "1:1: `version` is missing at the top level"},
      {"version: 1\nlisteners: []\n", "2:12: `listeners` is empty: nothing would be served"},
      {"version: 2\nlisteners: [{bind: \":80\"}]\n", "1:10: version: `2` is not known; there is only `1`"},
  });
  CHECK(problems_of(std::string_view("version: 1\0", 11)) == "t.yaml: contains a zero byte: this is no text file\n");
}

TEST_CASE("what is no YAML") {
  const std::string no = "not valid YAML: ";
  check({
      {"version: [1\nlisteners: 2\n", "2:10: " + no + "a list that begins with `[` is not closed by `]`"},
      {"version: {a: 1\n", "1:15: " + no + "a mapping that begins with `{` is not closed by `}`"},
      {"version: 1\n\tlisteners: 1\n", "2:1: " + no + "a tab in the indentation; only spaces count there"},
      {"version: 1\n  listeners: 1\n",
       "2:12: " + no + "a `:` where none can be; a text that contains `: ` needs quotes"},
      {"version: \"1\n", "1:12: " + no + "a text in quotes is not closed before this"},
      {"version: *x\n", "1:10: " + no + "an alias (`*name`) whose anchor (`&name`) does not stand before it"},
      {"version: @x\n",
       "1:10: " + no + "a character that no value can begin with; texts that begin with it need quotes"},
      {"version: 1\n---\nversion: 1\n", "2:1: a second YAML document (after `---`) in one file: only one is read"},
      {"version: !!int 1\n", "1:1: `listeners` is missing at the top level\n"
                             "1:10: YAML tags (`tag:yaml.org,2002:int`) are not used here; leave it out"},
      {"[a, b]: 1\n", "1:1: a key must be plain text"},
      {"version: 1\na: &x [*x]\n", "2:8: an alias inside the value that its own anchor names"},
  });
}

TEST_CASE("unknown, misplaced, missing and doubled keys") {
  check({
      top("wrokers: 2\n", "4:1: unknown key `wrokers` at the top level; did you mean `workers`?"),
      top("zebra: 2\n", "4:1: unknown key `zebra` at the top level"),
      top("path_prefix: /\n", "4:1: unknown key `path_prefix` at the top level; it belongs in `match`"),
      listener("    Engine: epoll\n", "4:5: unknown key `Engine` in a listener; did you mean `engine`?"),
      {"version: 1\nlisteners:\n  - bnd: \":80\"\n", "3:5: unknown key `bnd` in a listener; did you mean `bind`?"},
      {"version: 1\nlisteners:\n  - name: x\n", "3:5: `bind` is missing in a listener"},
      listener("    bind: \":81\"\n", "4:5: `bind` is given twice; the first one is at t.yaml:3:5"),
      top("version: 1\n", "4:1: `version` is given twice; the first one is at t.yaml:1:1"),
      upstreams("  a: {}\n", "5:6: `servers` is missing in an upstream"),
      upstreams("  a: {servers: [{weight: 1}]}\n", "5:17: `address` is missing in a server"),
      upstreams("  a:\n", "5:3: upstream `a` has no value"),
      top("timeouts:\n", "4:1: `timeouts` has no value"),
      top("timeouts: {reponse: 1s}\n",
          "4:12: unknown key `reponse` in the `timeouts` of a listener or the top; did you mean `response`?"),
      top("metrics: {}\n", "4:10: `bind` is missing in `metrics`"),
      routes("  - {redirect: {status: 301}}\n", "7:16: `location` is missing in `redirect`"),
      routes("  - {to: [{weight: 2}]}\n", "7:11: `upstream` is missing in a weighted target"),
  });
}

TEST_CASE("keys whose pieces are not built yet are refused, not ignored") {
  const std::string later = " is not supported by this version yet";
  check({
      listener("    tls: {cert: a, early_data: true}\n", "4:20: `early_data`" + later),
      listener("    proxy_protocol: accept\n", "4:5: `proxy_protocol`" + later),
      listener("    alt_svc: false\n", "4:5: `alt_svc`" + later),
      listener("    protocols: [h1, h3]\n", "4:21: protocols: `h3`" + later),
      routes("  - {to: a, retry: {}}\n", "7:13: `retry`" + later),
      routes("  - {to: a, websocket: true}\n", "7:13: `websocket`" + later),
      upstreams("  a: {servers: [\"a:1\"], balance: p2c_ewma}\n", "5:34: balance: `p2c_ewma`" + later),
      upstreams("  a: {servers: [\"a:1\"], protocol: h2}\n", "5:35: protocol: `h2`" + later),
      upstreams("  a: {servers: [\"a:1\"], tls: {}}\n", "5:25: `tls`" + later),
      upstreams("  a: {servers: [\"a:1\"], health: {}}\n", "5:25: `health`" + later),
      upstreams("  a: {servers: [\"a:1\"], outlier: {}}\n", "5:25: `outlier`" + later),
      top("defaults: {compress: {}}\n", "4:12: `compress`" + later),
      routes("  - {to: a, trace: start}\n", "7:13: `trace`" + later),
      servers("[{address: \"a:1\", tier: 2}]", "5:34: `tier`" + later),
      top("limits: {ws_message: unlimited}\n", "4:10: `ws_message`" + later),
      top("timeouts: {tunnel_idle: 1h, ws_ping: 30s, ws_pong: 1}\n",
          "4:12: `tunnel_idle`" + later + "\n4:29: `ws_ping`" + later + "\n4:43: `ws_pong`" + later),
      routes("  - {to: a, timeouts: {tunnel_idle: 1h}}\n", "7:24: `tunnel_idle`" + later),
  });
  // What asks for what is so anyway is no reason to refuse a file.
  CHECK(problems_of(kListener + "    proxy_protocol: none\ndefaults: {trace: pass}\n") == "");
}

TEST_CASE("booleans are true and false alone") {
  const std::string only = "is no boolean here, only `true` and `false` are; did you mean ";
  check({
      listener("    redirect_https: yes\n", "4:21: redirect_https: `yes` " + only + "`true`?"),
      listener("    redirect_https: on\n", "4:21: redirect_https: `on` " + only + "`true`?"),
      listener("    redirect_https: off\n", "4:21: redirect_https: `off` " + only + "`false`?"),
      listener("    redirect_https: No\n", "4:21: redirect_https: `No` " + only + "`false`?"),
      listener("    redirect_https: True\n", "4:21: redirect_https: `True` " + only + "`true`?"),
      listener("    redirect_https: \"true\"\n",
               "4:21: redirect_https: `true` is text; a boolean stands without quotes"),
      listener("    redirect_https: []\n", "4:21: `redirect_https` must be `true` or `false`, not a list"),
      listener("    redirect_https: 1\n", "4:21: redirect_https: `1` is no boolean: it takes `true` or `false`"),
  });
}

TEST_CASE("times, sizes and numbers") {
  const auto write = [](const std::string& value, const std::string& why) {
    return top("timeouts: {write: " + value + "}\n", "4:19: write: `" + value + "` " + why);
  };
  const auto memory = [](const std::string& value, const std::string& why) {
    return top("limits: {memory: " + value + "}\n", "4:18: memory: `" + value + "` " + why);
  };
  check({
      write("30", "has no unit; did you mean `30s`?"),
      write("0", "has no unit; did you mean `0s`?"),
      write("30 s", "has an unknown unit; did you mean `30s`?"),
      write("30sec", "has an unknown unit; did you mean `30s`?"),
      write("30S", "has an unknown unit; did you mean `30s`?"),
      write("5min", "has an unknown unit; did you mean `5m`?"),
      write("3w", "has an unknown unit; there are ms, s, m, h, d"),
      write("1.5s", "is not a whole number; take a smaller unit (write a whole number and its unit, such as `30s`)"),
      write("1h30m", "has more than one number; write a whole number and its unit, such as `30s`"),
      write("-1s", "is no number with a unit; write a whole number and its unit, such as `30s`"),
      write("never", "is no number with a unit; write a whole number and its unit, such as `30s`"),
      write("4000d", "is too large: at most 3650d"),
      write("99999999999999999999s", "is too large"),
      top("timeouts: {write: [1s]}\n", "4:19: `write` must be a time such as `30s`, not a list"),
      top("timeouts: {write: }\n", "4:12: `write` has no value"),
      memory("1024", "has no unit; did you mean `1024KiB`?"),
      memory("64MB", "has an unknown unit; did you mean `64MiB`?"),
      memory("64m", "has an unknown unit; did you mean `64MiB`?"),
      memory("1GiB2", "has more than one number; write a whole number and its unit, such as `64KiB`"),
      memory("1MiB", "is too small: at least 16MiB"),
      memory("20000000TiB", "is too large"),
      top("limits: {memory: 64MiB, pipe: 16MiB}\n",
          "4:18: memory: one connection may need 136488960 bytes (`pipe`, `request_head`, `response_head`); 80 % of 64MiB is less"),
      top("workers: 32\nlimits: {memory: 16MiB}\n",
          "5:18: memory: 32 worker(s) need 30736384 bytes at least; 80 % of 16MiB is less"),
      top("limits: {memory: 16MiB, connections: 20000}\n",
          "4:38: connections: 20000 idle connections of 1024 bytes do not fit 80 % of `memory` (16MiB): at most 13107"),
      top("limits: {request_head: 2MiB}\n", "4:24: request_head: `2MiB` is too large: at most 1MiB"),
      top("limits: {header_count: 257}\n", "4:24: header_count: `257` is too large: at most 256"),
      top("limits: {header_count: \"5\"}\n", "4:24: header_count: a number stands without quotes: `5`"),
      top("limits: {header_count: {}}\n", "4:24: `header_count` must be a whole number, not a mapping"),
      top("limits: {request_body: none}\n",
          "4:24: request_body: `none` is no number with a unit; write a whole number and its unit, such as `64KiB` "
          "(or `unlimited`)"),
      top("limits: {pipe: 1KiB}\n", "4:16: pipe: `1KiB` is too small: at least 16KiB"),
      top("limits: {pipe: {min: 1MiB, max: 64KiB}}\n", "4:16: pipe: `min` (1MiB) is larger than `max` (64KiB)"),
      top("limits: {pipe: [1]}\n", "4:16: `pipe` must be a size such as `64KiB`, or a mapping, not a list"),
      top("workers: 0\n", "4:10: workers: `0` is too small: at least 1"),
      top("workers: many\n", "4:10: workers: `many` is no whole number (or `auto`)"),
      top("workers: 99999999999999999999\n", "4:10: workers: `99999999999999999999` is too large (or `auto`)"),
  });
}

TEST_CASE("words, texts and forms") {
  check({
      listener("    engine: iouring\n", "4:13: engine: `iouring` is none of `adaptive`, `epoll` or `io_uring`; did you "
                                        "mean `io_uring`?"),
      listener("    engine: [epoll]\n", "4:13: `engine` must be `adaptive`, `epoll` or `io_uring`, not a list"),
      listener("    protocols: h1\n", "4:16: `protocols` must be a list (`[a, b]`), not text"),
      listener("    protocols: []\n", "4:16: `protocols` is an empty list"),
      listener("    protocols: [h1, h1]\n", "4:16: `protocols` names one twice"),
      listener("    protocols: [http]\n", "4:17: protocols: `http` is none of `h1` or `h2`"),
      listener("    name: \"\"\n", "4:11: `name` is empty"),
      listener("    name: \"a\\tb\"\n", "4:11: `name` contains a control character"),
      listener("    name: {}\n", "4:11: `name` must be text, not a mapping"),
      listener("    name: " + std::string(129, 'x') + "\n", "4:11: `name` is longer than 128 bytes"),
      {"version: 1\nlisteners: {bind: \":80\"}\n",
       "2:12: `listeners` must be a list of mappings (`- key: value`), not a mapping"},
      {"version: 1\nlisteners: [x]\n", "2:13: a mapping (`key: value`) must stand here, not text"},
      top("log: {level: loud}\n", "4:14: level: `loud` is none of `debug`, `info`, `warn` or `error`"),
      top("log: {level: warning}\n",
          "4:14: level: `warning` is none of `debug`, `info`, `warn` or `error`; did you mean `warn`?"),
      top("log: {access: {path: sdtout}}\n", "4:22: path: `sdtout` is neither `stdout`, `stderr` nor an absolute path; "
                                             "did you mean `stdout`?"),
      top("log: {access: json}\n", "4:15: `access` must be a mapping (`key: value`), not text"),
      top("upstreams: []\n", "4:12: `upstreams` must be a mapping (`key: value`), not a list"),
      top("timeouts: 5s\n", "4:11: `timeouts` must be a mapping (`key: value`), not text"),
  });
}

TEST_CASE("addresses to listen on") {
  check({
      binding("8080", "3:11: bind: `8080` is a port without an address; did you mean `:8080`?"),
      binding("\"*:80\"", "3:11: bind: `*:80` is written `:80` here"),
      binding("localhost:80",
              "3:11: bind: `localhost:80` needs a numeric address: `localhost` would have to be looked up"),
      binding("127.0.0.1", "3:11: bind: `127.0.0.1` has no port; write `127.0.0.1:8080`"),
      binding("\"127.0.0.1:\"", "3:11: bind: `127.0.0.1:` has no port; write `127.0.0.1:8080`"),
      binding("\":0\"", "3:11: bind: `:0` has no valid port: `0` is not between 1 and 65535"),
      binding("\":65536\"", "3:11: bind: `:65536` has no valid port: `65536` is not between 1 and 65535"),
      binding("\"::1:80\"",
              "3:11: bind: `::1:80` has more than one `:`; IPv6 addresses stand in brackets: `[::1]:8080`"),
      binding("\"[::1:80\"", "3:11: bind: `[::1:80` has no closing `]`"),
      binding("\"[::x]:80\"", "3:11: bind: `[::x]:80` has no valid IPv6 address between the brackets"),
      binding("http://127.0.0.1:80",
              "3:11: bind: `http://127.0.0.1:80` is a URL; write host and port only: `127.0.0.1:80`"),
      binding("unix:run/x", "3:11: bind: `unix:run/x` needs an absolute path: `unix:/run/x.sock`"),
      binding("unix:/" + std::string(107, 'x'), "3:11: bind: `unix:/" + std::string(107, 'x') +
                                                 "` is too long for a unix socket: at most 107 bytes of path"),
      binding("[]", "3:11: `bind` is an empty list"),
      binding("[\":80\", {}]", "3:19: an entry of `bind` must be text, not a mapping"),
      binding("[\":80\", \":80\"]", "3:19: bind: `:80` is taken by `:80` at t.yaml:3:12"),
      binding("[\":80\", \"0.0.0.0:80\"]", "3:19: bind: `0.0.0.0:80` is taken by `:80` at t.yaml:3:12"),
      binding("[\"[::]:80\", \":80\"]", "3:23: bind: `:80` is taken by `[::]:80` at t.yaml:3:12"),
      binding("[\"[::1]:80\", \"[0:0::1]:80\"]", "3:24: bind: `[::1]:80` is taken by `[::1]:80` at t.yaml:3:12"),
      {kListener + "  - {name: b, bind: \":80\"}\n", "4:21: bind: `:80` is taken by `:80` at t.yaml:3:11"},
      top("metrics: {bind: \":80\"}\n", "4:17: bind: `:80` is taken by `:80` at t.yaml:3:11"),
      binding("unix:/run/weir/admin.sock\nadmin: {bind: \"unix:/run/weir/admin.sock\"}",
           "4:15: bind: `unix:/run/weir/admin.sock` is taken by `unix:/run/weir/admin.sock` at t.yaml:3:11"),
      binding("unix:/run/weir/admin.sock",
           "3:11: bind: `unix:/run/weir/admin.sock` is taken by the default of `admin`"),
      top("admin: {bind: \"127.0.0.1:9000\"}\n",
          "4:15: bind: `127.0.0.1:9000` is a TCP address, which needs `token: FILE`; without one take a unix "
          "socket: `unix:/run/weir/admin.sock`"),
      top("admin: {token: \"\"}\n", "4:16: `token` is empty"),
  });
  // An address beside the wildcard is more special, not the same.
  CHECK(problems_of("version: 1\nlisteners: [{bind: [\":80\", \"127.0.0.1:80\", \"[::1]:80\"]}]\n") == "");
}

TEST_CASE("servers") {
  check({
      servers("[\"10.0.0.5\"]", "5:17: servers: `10.0.0.5` has no port; write `10.0.0.5:8080`"),
      servers("[\"10.0.0.256:80\"]", "5:17: servers: `10.0.0.256:80` is no valid IPv4 address and no host name"),
      servers("[\"a b:80\"]", "5:17: servers: `a b:80` has no valid host name: `a b`"),
      servers("[\"-a:80\"]", "5:17: servers: `-a:80` has no valid host name: `-a`"),
      servers("[\":80\"]", "5:17: servers: `:80` has no host in front of the port"),
      servers("[{address: \"a\"}]", "5:27: address: `a` has no port; write `a:8080`"),
      servers("[[a]]", "5:17: a server must be text, not a list"),
      servers("\"a:1\"", "5:16: `servers` must be a list, not text"),
      servers("[]", "5:16: `servers` is an empty list"),
      servers("[\"a:1\", \"A:1\"]", "5:24: server `a:1` is listed twice; `weight` gives it a larger share"),
      servers("[{address: \"a:1\", weight: 0}]", "5:16: every server of `a` has weight 0: none would be used"),
      servers("[{address: \"a:1\", weight: 70000}]", "5:42: weight: `70000` is too large: at most 65535"),
      upstreams("  \"\": {servers: [\"a:1\"]}\n", "5:3: the name of an upstream is empty"),
  });
}

TEST_CASE("what a route matches") {
  check({
      match("", "7:20: `match` is empty; leave it out to make this route the fallback"),
      match("path: x", "7:27: path: `x` must begin with `/`"),
      match("path: \"/x?y\"", "7:27: path: `/x?y` is more than a path; `query` matches what follows the `?`"),
      match("path: \"/a b\"",
            "7:27: path: `/a b` has characters that stand percent-encoded in a request; write them so"),
      match("path: /a%2", "7:27: path: `/a%2` has a `%` without two hex digits"),
      match("path: /%41", "7:27: path: `/%41` can never match: requests are compared with `%41` decoded; write the "
                          "character itself"),
      match("path: /a/../b", "7:27: path: `/a/../b` can never match: requests are compared without dot segments"),
      match("path_prefix: /a/.",
            "7:34: path_prefix: `/a/.` can never match: requests are compared without dot segments"),
      match("path: /a, path_prefix: /a", "7:44: a match has either `path` or `path_prefix`"),
      match("method: get", "7:29: method: methods are case-sensitive; did you mean `GET`?"),
      match("method: \"GE T\"", "7:29: method: `GE T` is no method"),
      match("method: []", "7:29: `method` is an empty list"),
      match("header: {a b: c}", "7:30: header: `a b` is no field name"),
      match("header: {a: b, A: c}", "7:36: header: `A` is given twice"),
      match("header: {}", "7:29: `header` is an empty mapping"),
      match("header: {a: [b]}", "7:33: `a` must be text, not a list"),
      match("query: {\"a&b\": c}", "7:29: query: `a&b=c` cannot stand in a URL so; percent-encode it"),
      match("host: \"*\"", "7:27: host: `*` would be any host; leave `host` out for that"),
      match("host: \"a.*.b\"", "7:27: host: `a.*.b` has a `*` inside; it may only stand first: `*.example.com`"),
      match("host: \"a:80\"", "7:27: host: `a:80` has a port; hosts are compared without it: `a`"),
      match("host: \"https://a\"", "7:27: host: `https://a` is a URL; write the host name only"),
      match("host: a_b..c", "7:27: host: `a_b..c` is no valid host name"),
      match("host: \"[::x]\"", "7:27: host: `[::x]` is no valid IPv6 address"),
      match("host: b\u00fccher.de",
            "7:27: host: `b\u00fccher.de` has letters outside ASCII; write it as browsers send it (`xn--...`)"),
      match("listener: \":8\"", "7:31: there is no listener named `:8`; did you mean `:80`?"),
  });
}

TEST_CASE("what a route does") {
  check({
      routes("  - {match: {path: /}}\n", "7:5: a route needs one of `to`, `respond` and `redirect`"),
      routes("  - {to: a, respond: {}}\n", "7:22: a route has one action: it cannot have both `to` and `respond`"),
      routes("  - {to: b}\n", "7:10: there is no upstream named `b`"),
      routes("  - {to: [{upstream: a}, {upstream: a}]}\n", "7:37: upstream `a` is listed twice"),
      routes("  - {to: [{upstream: a, weight: 0}]}\n", "7:10: every target has weight 0: none would be used"),
      routes("  - {to: []}\n", "7:10: `to` is an empty list"),
      routes("  - {to: {a: 1}}\n", "7:10: `to` must be a name, or a list of mappings, not a mapping"),
      routes("  - {respond: {status: 199}}\n", "7:24: status: `199` is too small: at least 200"),
      routes("  - {respond: {status: 204, body: x}}\n", "7:35: an answer with status 204 has no body"),
      routes("  - {respond: {body: []}}\n", "7:22: `body` must be text, not a list"),
      routes("  - {redirect: {status: 300, location: /}}\n",
             "7:25: status: `300` is none of `301`, `302`, `303`, `307` or `308`"),
      routes("  - {redirect: {location: \"/a b\"}}\n",
             "7:27: location: `/a b` has characters that no URL has; write them percent-encoded"),
      routes("  - {redirect: {location: \"/a\\r\\nb\"}}\n", "7:27: `location` contains a control character"),
      routes("  - {to: a, timeouts: {response: 30}}\n", "7:34: response: `30` has no unit; did you mean `30s`?"),
      routes("  - {name: x, to: a, match: {path: /}}\n  - {name: x, to: a}\n",
             "8:12: a second route named `x`; the first one is at t.yaml:7:5"),
      {kListener + "    name: x\n  - {name: x, bind: \":81\"}\n",
       "5:12: a second listener named `x`; the first one is at t.yaml:3:5"},
  });
}

TEST_CASE("routes that are never reached") {
  const auto two = [](const std::string& first, const std::string& second, const std::string& name) {
    return routes("  - {to: a, match: {" + first + "}}\n  - {to: a, match: {" + second + "}}\n",
                  "8:5: this route is never reached: the route `" + name +
                      "` at t.yaml:7:5 takes every request that it matches");
  };
  check({
      two("path: /a", "path: /a", "/a"),
      two("path_prefix: /a", "path: /a/b", "/a/*"),
      two("path_prefix: /a/", "path_prefix: /a", "/a/*"),
      two("path_prefix: /", "host: x", "route-1"),
      two("host: \"*.b.c\"", "host: a.b.c", "*.b.c"),
      two("host: \"*.b.c\"", "host: \"*.a.b.c\"", "*.b.c"),
      two("host: [x, y]", "host: y, path: /", "x"),
      two("method: [GET, POST]", "method: GET", "route-1"),
      two("header: {A: b}", "header: {a: b, c: d}", "route-1"),
      two("query: {a: b}", "query: {a: b}, path: /x", "route-1"),
      two("listener: \":80\"", "path: /x", "route-1"),
      routes("  - {to: a}\n  - {to: a}\n",
             "8:5: a second route without `match`: the fallback is already the route `fallback` at t.yaml:7:5"),
      routes("  - {to: a}\n  - {to: a, match: {path_prefix: /}}\n",
             "7:5: this route is never reached: the route `route-2` at t.yaml:8:5 takes every request that it matches"),
  });
  const auto fine = [](const std::string& first, const std::string& second) {
    const std::string both = "  - {to: a, match: {" + first + "}}\n  - {to: a, match: {" + second + "}}\n";
    const std::string text = routes(both, "").text;
    CAPTURE(text);
    CHECK(problems_of(text) == "");
  };
  fine("path: /a", "path_prefix: /a");
  fine("path_prefix: /a", "path: /ab");
  fine("host: \"*.b.c\"", "host: b.c");
  fine("host: a", "path: /");
  fine("method: GET", "path: /");
  fine("header: {a: b}", "header: {a: c}");
  fine("path: /x, method: GET", "path: /x");
}

TEST_CASE("tests of the configuration itself") {
  const auto test = [](const std::string& inside, const std::string& problems) {
    return top("tests: [{" + inside + "}]\n", problems);
  };
  check({
      test("get: /x, expect: {status: 404}", "4:15: get: `/x` is no URL such as `https://shop.example.com/x`"),
      test("get: \"http:///x\", expect: {status: 404}",
           "4:15: get: `http:///x` is no URL such as `https://shop.example.com/x`"),
      test("get: \"http://a/\"", "4:9: `expect` is missing in a test"),
      test("get: \"http://a/\", expect: {}",
           "4:36: `expect` is empty: it needs `upstream`, `route` or `status`"),
      test("get: \"http://a/\", expect: {upstream: x}", "4:47: there is no upstream named `x`"),
      test("get: \"http://a/\", expect: {route: x}", "4:44: there is no route named `x`"),
  });
}

TEST_CASE("all problems of a file are printed, in the order of the file") {
  check({{"version: 1\n"
          "workers: lots\n"
          "listeners:\n"
          "  - {bind: \":80\", engine: epol}\n"
          "  - {bind: \":80\"}\n"
          "routes:\n"
          "  - {to: shpo, timeouts: {write: 5}}\n"
          "  - {respond: {status: 200}, colour: red}\n"
          "upstreams:\n"
          "  shop: {servers: [\"10.0.0.5\"]}\n",
          "2:10: workers: `lots` is no whole number (or `auto`)\n"
          "4:27: engine: `epol` is none of `adaptive`, `epoll` or `io_uring`; did you mean `epoll`?\n"
          "5:12: bind: `:80` is taken by `:80` at t.yaml:4:12\n"
          "7:10: there is no upstream named `shpo`; did you mean `shop`?\n"
          "7:34: write: `5` has no unit; did you mean `5s`?\n"
          "8:5: a second route without `match`: the fallback is already the route `fallback` at t.yaml:7:5\n"
          "8:30: unknown key `colour` in a route\n"
          "10:20: servers: `10.0.0.5` has no port; write `10.0.0.5:8080`"}});
}

}  // namespace weir::config

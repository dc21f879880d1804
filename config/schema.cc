#include "config/schema.h"

#include <algorithm>
#include <array>
#include <numeric>

namespace weir::config {
namespace {

using L = Level;
using T = Type;
constexpr uint64_t kKi = 1024;
constexpr uint64_t kMi = 1024 * kKi;
constexpr uint64_t kGi = 1024 * kMi;

constexpr Row row(Level level, std::string_view key, Type type, Need need, std::string_view fallback,
                  std::string_view doc) {
  return {level, key, type, need, fallback, "", "", Level::none, 0, 0, false, doc};
}
constexpr Row must(Level level, std::string_view key, Type type, std::string_view doc) {
  return row(level, key, type, Need::required, "", doc);
}
constexpr Row may(Level level, std::string_view key, Type type, std::string_view fallback, std::string_view doc) {
  return row(level, key, type, Need::optional, fallback, doc);
}
constexpr Row later(Level level, std::string_view key, Type type, std::string_view doc, std::string_view fallback = "",
                    std::string_view words = "") {
  Row made = row(level, key, type, Need::later, fallback, doc);
  made.words = words;
  return made;
}
constexpr Row in(Row made, uint64_t min, uint64_t max) {
  made.min = min;
  made.max = max;
  return made;
}
constexpr Row may_be_empty(Row made) {
  made.may_be_empty = true;
  return made;
}
constexpr Row words(Row made, std::string_view words, std::string_view later_words = "") {
  made.words = words;
  made.later_words = later_words;
  return made;
}
// What a piece that is not built yet will read: this wrapper goes when it comes. Until then its field has the default.
constexpr Row not_yet(Row made) {
  made.need = Need::later;
  return made;
}
constexpr Row child(Row made, Level level) {
  made.child = level;
  return made;
}

constexpr auto kRows = std::to_array<Row>({
    // ---- the top
    words(must(L::top, "version", T::word, "The version of this format. There is one."), "1"),
    may(L::top, "include", T::texts, "", "More files to read, as glob patterns relative to this file."),
    in(words(may(L::top, "workers", T::count, "auto", "Threads; `auto` is the CPUs that this process may use."),
             "auto"),
       1, 1024),
    child(must(L::top, "listeners", T::maps, "Where clients connect."), L::listener),
    child(may(L::top, "routes", T::maps, "[]", "What happens to a request: the first route that matches decides."),
          L::route),
    child(may(L::top, "upstreams", T::named_maps, "{}", "The backends, by name."), L::upstream),
    child(may(L::top, "timeouts", T::map, "{}", "Time limits for everything below."), L::timeouts),
    child(may(L::top, "limits", T::map, "{}", "Limits of the whole process."), L::limits),
    child(may(L::top, "admin", T::map, "{}", "The socket of the admin API."), L::admin),
    child(may(L::top, "metrics", T::map, "(off)", "A read-only address for scrapers and browsers."), L::metrics),
    may(L::top, "user", T::text, "(keep the user)", "When started as root: bind, then become this user."),
    child(may(L::top, "log", T::map, "{}", "The log and the access log."), L::log),
    child(may(L::top, "shutdown", T::map, "{}", "How the daemon ends."), L::shutdown),
    child(may(L::top, "tests", T::maps, "[]", "Requests and what must come of them; run by check and before a reload."),
          L::test),
    child(may(L::top, "defaults", T::map, "{}", "What routes have that do not say otherwise."), L::defaults),

    may(L::defaults, "via", T::boolean, "false", "As in a route."),
    may(L::defaults, "forwarded", T::boolean, "false", "As in a route."),
    later(L::defaults, "compress", T::any, "Compression."),
    later(L::defaults, "errors", T::any, "Error pages."),
    later(L::defaults, "trace", T::word, "Trace context.", "pass", "pass start"),

    // ---- listeners
    may(L::listener, "name", T::text, "(the text of the first bind)", "For messages, metrics and `match.listener`."),
    must(L::listener, "bind", T::binds, "`\":443\"` (IPv4 and IPv6), `\"127.0.0.1:8080\"`, `\"[::1]:8080\"`, "
                                        "`\"unix:/run/x.sock\"`, or a list of them."),
    words(may(L::listener, "engine", T::word, "adaptive", "How the kernel is asked for I/O; `adaptive` chooses."),
          "adaptive epoll io_uring"),
    words(may(L::listener, "protocols", T::words, "[h1, h2]", "What clients may speak."), "h1 h2", "h3"),
    child(may(L::listener, "timeouts", T::map, "{}", "Time limits of this listener."), L::timeouts),
    child(may(L::listener, "limits", T::map, "{}", "Limits of the requests on this listener."), L::listener_limits),
    may(L::listener, "redirect_https", T::boolean, "false",
        "Answer every request with 308 to https, but for ACME challenges."),
    may_be_empty(may(L::listener, "trusted_proxies", T::networks, "[]",
                     "Addresses, networks and `unix`: whose X-Forwarded-* and Forwarded fields are believed.")),
    words(may(L::listener, "trusted_header", T::word, "x_forwarded", "Which of them the trusted proxies write: X-Forwarded-For "
                                                                     "and -Proto, or Forwarded (RFC 7239) alone."),
          "x_forwarded forwarded"),
    child(may(L::listener, "unix", T::map, "(as the process makes them)", "Who may connect to its unix sockets."),
          L::unix_file),
    child(may(L::listener, "tls", T::map, "(plain)", "Certificates: clients speak TLS to this listener."), L::listener_tls),
    later(L::listener, "proxy_protocol", T::word, "Expect the PROXY protocol.", "none", "none accept require"),
    later(L::listener, "alt_svc", T::any, "The Alt-Svc field."),

    in(may(L::listener_limits, "request_head", T::size, "(as at the top)", "Over it 431 (the request line alone: 414)."),
       kKi, kMi),
    in(may(L::listener_limits, "header_count", T::count, "(as at the top)", "Over it 431."), 1, 256),
    words(may(L::listener_limits, "request_body", T::size, "(as at the top)", "Over it 413."), "unlimited"),

    may(L::unix_file, "mode", T::text, "(by the umask)", "Permission bits in octal, such as `0660`."),
    may(L::unix_file, "user", T::text, "(the daemon's)", "Who owns the file: a name or a number."),
    may(L::unix_file, "group", T::text, "(the daemon's)", "Its group: a name or a number."),

    may(L::listener_tls, "cert", T::text, "", "A PEM file: the server's certificate, then those that lead to its root."),
    may(L::listener_tls, "key", T::text, "(in the `cert` file)", "A PEM file: its private key, without a password."),
    child(may(L::listener_tls, "certificates", T::maps, "",
              "Instead of `cert` and `key`: several of them, chosen by the name that the client asks for; the first is the "
              "default."),
          L::certificate),
    words(may(L::listener_tls, "min_version", T::word, "1.2", "The oldest version of TLS that is spoken."), "1.2 1.3"),
    may(L::listener_tls, "client_ca", T::text, "(not asked for)",
        "A PEM file: whose signature makes a client's certificate good."),
    words(may(L::listener_tls, "client_auth", T::word, "require",
              "With `client_ca`: every client needs a certificate, or it is asked for one and a bad one is refused."),
          "require request"),
    may(L::listener_tls, "client_crl", T::text, "(none)",
        "A PEM file: revocation lists; every authority that signs clients needs one."),
    later(L::listener_tls, "early_data", T::boolean, "Requests before the handshake is done.", "false"),

    must(L::certificate, "cert", T::text, "A PEM file: the server's certificate, then those that lead to its root."),
    may(L::certificate, "key", T::text, "(in the `cert` file)", "A PEM file: its private key, without a password."),

    // ---- routes
    may(L::route, "name", T::text, "(its host and path)", "For messages, logs and metrics."),
    child(may(L::route, "match", T::map, "(the fallback)", "Which requests; a route without it takes what no other "
                                                           "does, wherever it stands."),
          L::match),
    child(may(L::route, "to", T::text_or_maps, "", "The upstream, or a list of upstreams with weights."), L::target),
    child(may(L::route, "respond", T::map, "", "Answer at once."), L::respond),
    child(may(L::route, "redirect", T::map, "", "Send the client elsewhere."), L::redirect),
    child(may(L::route, "timeouts", T::map, "{}", "Time limits of this route; they win over all others."),
          L::exchange_timeouts),
    child(may(L::route, "limits", T::map, "{}", "Limits of the messages on this route."), L::route_limits),
    child(may(L::route, "rewrite", T::map, "(nothing changes)", "Change the path or the host on the way to the origin."),
          L::rewrite),
    child(may(L::route, "headers", T::map, "{}", "Change header fields on the way."), L::headers),
    may(L::route, "via", T::boolean, "false", "Add a Via field to requests and answers."),
    may(L::route, "forwarded", T::boolean, "false", "Send Forwarded (RFC 7239) beside X-Forwarded-*."),
    later(L::route, "retry", T::any, "Try again elsewhere."),
    later(L::route, "websocket", T::any, "WebSocket."),
    later(L::route, "connect", T::any, "CONNECT tunnels."),
    later(L::route, "compress", T::any, "Compression."),
    later(L::route, "buffer", T::any, "Hold request bodies for retries."),
    later(L::route, "mirror", T::any, "Copy requests to another upstream."),
    later(L::route, "errors", T::any, "Error pages."),
    later(L::route, "hedge", T::any, "Hedged requests."),
    later(L::route, "trace", T::word, "Trace context.", "pass", "pass start"),

    may(L::match, "host", T::texts, "(any)", "Exact, or `*.example.com`; one or a list."),
    may(L::match, "path", T::text, "(any)", "The exact path."),
    may(L::match, "path_prefix", T::text, "(any)", "Whole segments: `/api` is /api and /api/x, not /apis."),
    may(L::match, "path_regex", T::text, "(any)",
        "A pattern that is found anywhere in the path; `^` and `$` tie it to the ends."),
    may(L::match, "method", T::texts, "(any)", "One or a list, case-sensitive."),
    may(L::match, "header", T::named_texts, "(any)", "Fields and their exact values."),
    may(L::match, "query", T::named_texts, "(any)", "Query parameters and their values, as they stand in the URL."),
    may(L::match, "listener", T::texts, "(any)", "The name of a listener, or a list."),
    words(may(L::match, "scheme", T::word, "(any)", "What the client speaks: the listener's, or what a trusted proxy "
                                                    "says in X-Forwarded-Proto."),
          "http https"),
    may(L::match, "client", T::networks, "(any)", "Addresses and networks; the client as `trusted_proxies` finds it."),

    must(L::target, "upstream", T::text, "Its name."),
    in(may(L::target, "weight", T::count, "1", "Its share among the weights of the list."), 0, 1'000'000),

    may(L::rewrite, "path_prefix", T::text, "", "Takes the place of the `path_prefix` that the route matches."),
    may(L::rewrite, "path_regex", T::text, "", "What this pattern finds first in the path is replaced."),
    may(L::rewrite, "replacement", T::text, "", "By what: `$1` to `$9` are the pattern's groups, `$0` is all that was "
                                                "found, `$$` is `$`."),
    may(L::rewrite, "host", T::text, "(as the client sent it)", "The host that the origin is asked for."),

    child(may(L::headers, "request", T::map, "{}", "On the way to the origin."), L::edits),
    child(may(L::headers, "response", T::map, "{}", "On the way to the client."), L::edits),
    may_be_empty(may(L::edits, "remove", T::texts, "[]", "Names of fields to leave out.")),
    may_be_empty(may(L::edits, "set", T::named_texts, "{}", "Fields that take the place of all those of their name.")),
    may_be_empty(may(L::edits, "add", T::named_texts, "{}", "Fields beside those that are there.")),

    words(may(L::route_limits, "request_body", T::size, "(as in the listener)", "Over it 413."), "unlimited"),
    in(may(L::route_limits, "response_head", T::size, "(as in the upstream)", "Over it 502."), kKi, kMi),

    in(may(L::respond, "status", T::count, "200", "The status of the answer."), 200, 599),
    may(L::respond, "body", T::text, "\"\"", "The body of the answer."),
    words(may(L::redirect, "status", T::word, "308", "The status of the answer."), "301 302 303 307 308"),
    must(L::redirect, "location", T::text, "The Location field."),

    // ---- upstreams
    child(must(L::upstream, "servers", T::texts_or_maps, "`\"10.0.0.5:8080\"`, `\"app.internal:8080\"`, "
                                                         "`\"unix:/run/app.sock\"`, or maps with a weight."),
          L::server),
    words(may(L::upstream, "balance", T::word, "round_robin", "Which server is next: in turn, the one with the fewest "
                                                           "requests under way, or any; all by weight."),
          "round_robin least_requests random", "p2c_ewma hash sticky"),
    words(may(L::upstream, "protocol", T::word, "h1", "What is spoken to the servers."), "h1", "h2 auto"),
    child(may(L::upstream, "timeouts", T::map, "{}", "Time limits of this upstream."), L::exchange_timeouts),
    child(may(L::upstream, "limits", T::map, "{}", "Limits of the answers of this upstream."), L::upstream_limits),
    in(words(may(L::upstream, "max_connections", T::count, "unlimited",
                 "Connections to all its servers together, for the process; over it 503."),
             "unlimited"),
       1, 100'000'000),
    later(L::upstream, "tls", T::any, "TLS to the servers."),
    later(L::upstream, "health", T::any, "Health checks."),
    later(L::upstream, "outlier", T::any, "Ejecting servers that fail."),
    later(L::upstream, "retry", T::any, "Try again elsewhere."),
    later(L::upstream, "queue", T::any, "Waiting for a connection."),
    later(L::upstream, "concurrency", T::any, "Requests at once."),
    later(L::upstream, "hedge", T::any, "Hedged requests."),
    later(L::upstream, "cookie", T::any, "The cookie of sticky balance."),
    later(L::upstream, "send_proxy_protocol", T::any, "Send the PROXY protocol."),
    must(L::server, "address", T::server, "As in the short form."),
    in(may(L::server, "weight", T::count, "1", "Its share; 0 gets nothing."), 0, 65'535),
    later(L::server, "tier", T::any, "Backup servers."),
    later(L::server, "max_connections", T::any, "Connections to the server."),
    in(may(L::upstream_limits, "response_head", T::size, "(as at the top)", "Over it 502, the header named in the log."),
       kKi, kMi),

    // ---- timeouts: `0s` switches one off
    may(L::timeouts, "client_header", T::duration, "10s", "The whole request head, absolute; answers 408."),
    may(L::timeouts, "client_body", T::duration, "30s",
        "Between body bytes from the client, until the response head is out."),
    may(L::timeouts, "stream_idle", T::duration, "1h", "No body byte either way after the response head is out."),
    may(L::timeouts, "keepalive", T::duration, "60s", "An idle client connection."),
    may(L::timeouts, "write", T::duration, "30s",
        "No byte accepted by the client while bytes are owed; progress re-arms it."),
    may(L::timeouts, "connect", T::duration, "5s", "To an origin, TLS included."),
    may(L::timeouts, "response", T::duration, "60s", "The origin's response head; answers 504."),
    may(L::timeouts, "origin_body", T::duration, "60s",
        "Between body bytes from the origin when its length was declared (else stream_idle)."),
    may(L::timeouts, "origin_idle", T::duration, "4s", "An idle origin connection in the pool."),
    not_yet(may(L::timeouts, "tunnel_idle", T::duration, "1h", "A tunnel with no byte either way.")),
    not_yet(may(L::timeouts, "ws_ping", T::duration, "30s", "Until an idle WebSocket client is pinged.")),
    not_yet(may(L::timeouts, "ws_pong", T::duration, "10s", "For the answer to that ping.")),
    may(L::timeouts, "linger", T::duration, "5s",
        "Discarding an unread request body after an early answer; `0s`: it closes at once, and a reset may take the answer along."),

    // What is about one exchange. The others run while no route is known: before its head is whole, or after its end.
    may(L::exchange_timeouts, "client_body", T::duration, "(as in the listener)",
        "Between body bytes from the client, until the response head is out."),
    may(L::exchange_timeouts, "stream_idle", T::duration, "(as in the listener)",
        "No body byte either way after the response head is out."),
    may(L::exchange_timeouts, "write", T::duration, "(as in the listener)",
        "No byte accepted by the client while bytes are owed; progress re-arms it."),
    may(L::exchange_timeouts, "connect", T::duration, "(as in the listener)", "To an origin, TLS included."),
    may(L::exchange_timeouts, "response", T::duration, "(as in the listener)", "The origin's response head; answers 504."),
    may(L::exchange_timeouts, "origin_body", T::duration, "(as in the listener)",
        "Between body bytes from the origin when its length was declared (else stream_idle)."),
    may(L::exchange_timeouts, "origin_idle", T::duration, "(as in the listener)", "An idle origin connection in the pool."),
    not_yet(may(L::exchange_timeouts, "tunnel_idle", T::duration, "", "A tunnel with no byte either way.")),
    not_yet(may(L::exchange_timeouts, "ws_ping", T::duration, "", "Until an idle WebSocket client is pinged.")),
    not_yet(may(L::exchange_timeouts, "ws_pong", T::duration, "", "For the answer to that ping.")),

    // ---- limits
    in(may(L::limits, "request_head", T::size, "32KiB", "Over it 431 (the request line alone: 414)."), kKi, kMi),
    in(may(L::limits, "header_count", T::count, "128", "Over it 431."), 1, 256),
    words(may(L::limits, "request_body", T::size, "unlimited", "Over it 413."), "unlimited"),
    in(may(L::limits, "response_head", T::size, "64KiB", "Over it 502, the header named in the log."), kKi, kMi),
    in(may(L::limits, "connections", T::count, "65536", "Client connections; over it they are refused and counted. "
                                                        "At most what RLIMIT_NOFILE carries."),
       1, 100'000'000),
    in(may(L::limits, "memory", T::size, "(half of the cgroup's or machine's)", "What the process holds for its connections. At "
                                                                                "80 % grants shrink to 16KiB, at 95 % accepting "
                                                                                "stops and exchanges that stand still end; see "
                                                                                "memory.md."),
       16 * kMi, 0),
    in(may(L::limits, "h2_streams", T::count, "256", "Streams at once of one client; over it REFUSED_STREAM."), 1,
       1'000'000),
    in(may(L::limits, "overhead_frames", T::count, "1000",
           "Frames of one client that carry neither request nor body; over it GOAWAY ENHANCE_YOUR_CALM."),
       1, 1'000'000'000),
    in(may(L::limits, "resets", T::count, "512", "Streams that one client resets; over it GOAWAY ENHANCE_YOUR_CALM."), 1,
       1'000'000'000),
    not_yet(in(words(may(L::limits, "ws_message", T::size, "unlimited", "Over it close 1009."), "unlimited"), 1, 0)),
    child(in(may(L::limits, "pipe", T::size_or_map, "{min: 64KiB, max: 8MiB}",
                 "What one body direction may hold: it starts at `min` and grows to `max` by bandwidth times delay; "
                 "one size fixes it."),
             16 * kKi, kGi),
          L::pipe),
    in(may(L::pipe, "min", T::size, "64KiB", "Where each pipe starts."), 16 * kKi, kGi),
    in(may(L::pipe, "max", T::size, "8MiB", "As far as it may grow."), 16 * kKi, kGi),

    // ---- the rest
    may(L::admin, "bind", T::bind, "unix:/run/weir/admin.sock", "A unix socket; a TCP address only with `token`."),
    child(may(L::admin, "unix", T::map, "(as the process makes it)", "Who may connect to it."), L::unix_file),
    may(L::admin, "token", T::text, "", "A file whose one line each request must carry as its bearer token."),
    must(L::metrics, "bind", T::bind, "Where /metrics, /healthz and /readyz are served."),
    words(may(L::log, "level", T::word, "info", "What is logged: this and what is graver."), "debug info warn error"),
    words(may(L::log, "format", T::word, "text", "The form of a line."), "text json"),
    child(may(L::log, "access", T::map, "(off)", "The access log."), L::access),
    may(L::access, "path", T::text, "stdout", "`stdout`, `stderr` or a file (absolute)."),
    words(may(L::access, "format", T::word, "json", "One JSON object a line, or the line that GoAccess reads."),
          "json combined"),
    may(L::shutdown, "delay", T::duration, "0s", "/readyz says 503 for so long while connections are still accepted."),
    may(L::shutdown, "grace", T::duration, "10s", "How long running exchanges may take to end."),
    must(L::test, "get", T::text, "The URL."),
    may(L::test, "method", T::text, "GET", "The method of the request."),
    may(L::test, "header", T::named_texts, "{}", "Fields that the request carries."),
    may(L::test, "listener", T::text, "(by the URL's port)", "The listener that takes it."),
    may(L::test, "client", T::text, "(unknown)", "The client's address."),
    child(must(L::test, "expect", T::map, "What must come of it; at least one key."), L::expect),
    may(L::expect, "upstream", T::text, "", "The upstream it goes to (one of them, where there are weights)."),
    may(L::expect, "route", T::text, "", "The route that takes it."),
    in(may(L::expect, "status", T::count, "", "The status that Weir itself answers (respond, redirect, or no route)."),
       200, 599),
});

// Letters added, missing, replaced, or two neighbours exchanged.
size_t distance(std::string_view a, std::string_view b) {
  std::vector<size_t> before(b.size() + 1);
  std::vector<size_t> above(b.size() + 1);
  std::vector<size_t> current(b.size() + 1);
  std::iota(above.begin(), above.end(), size_t{0});
  for (size_t i = 1; i <= a.size(); ++i) {
    current[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t change = above[j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1);
      current[j] = std::min({above[j] + 1, current[j - 1] + 1, change});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) {
        current[j] = std::min(current[j], before[j - 2] + 1);
      }
    }
    std::swap(before, above);
    std::swap(above, current);
  }
  return above[b.size()];
}

// "-" for "_", a plural and capitals cost nothing: they are the commonest slips.
std::string plain(std::string_view text) {
  std::string out;
  for (char c : text) {
    if (c == '-' || c == '_') continue;
    out += c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  }
  if (out.size() > 1 && out.back() == 's') out.pop_back();
  return out;
}

}  // namespace

std::span<const Row> schema() { return kRows; }

const Row* find_row(Level level, std::string_view key) {
  auto at = std::find_if(kRows.begin(), kRows.end(), [&](const Row& r) { return r.level == level && r.key == key; });
  return at == kRows.end() ? nullptr : &*at;
}

bool says_what_is_so(const Row& row) {
  return !row.fallback.empty() && (row.type == Type::boolean || row.type == Type::word);
}

std::string_view level_phrase(Level level) {
  constexpr std::array<std::string_view, kLevels> kPhrases{
      "nowhere", "at the top level", "in `defaults`", "in a listener", "in the `limits` of a listener", "in `unix`",
      "in `tls`", "in a certificate",
      "in a route", "in `match`", "in a weighted target", "in `rewrite`", "in `headers`",
      "in the changes of header fields", "in `respond`", "in `redirect`", "in the `limits` of a route", "in an upstream",
      "in the `limits` of an upstream", "in a server", "in the `timeouts` of a listener or the top",
      "in the `timeouts` of a route or upstream", "in `limits`", "in `pipe`", "in `admin`",
      "in `metrics`", "in `log`", "in `access`", "in `shutdown`", "in a test", "in `expect`"};
  return kPhrases.at(static_cast<size_t>(level));
}

std::string_view level_name(Level level) {
  constexpr std::array<std::string_view, kLevels> kNames{
      "none", "top", "defaults", "listener", "listener_limits", "unix", "tls", "certificate", "route",
      "match", "target", "rewrite", "headers",
      "header_edits", "respond", "redirect", "route_limits", "upstream", "upstream_limits", "server", "timeouts",
      "exchange_timeouts", "limits", "pipe", "admin", "metrics", "log", "access", "shutdown", "test", "expect"};
  return kNames.at(static_cast<size_t>(level));
}

std::string_view actions() { return "to respond redirect"; }

std::vector<std::string_view> split_words(std::string_view words) {
  std::vector<std::string_view> out;
  while (!words.empty()) {
    const size_t end = std::min(words.find(' '), words.size());
    if (end > 0) out.push_back(words.substr(0, end));
    words.remove_prefix(std::min(end + 1, words.size()));
  }
  return out;
}

std::optional<std::string> nearest(std::string_view text, std::span<const std::string_view> candidates) {
  const std::string wanted = plain(text);
  size_t best = std::max<size_t>(1, wanted.size() / 3) + 1;
  std::optional<std::string> found;
  for (std::string_view candidate : candidates) {
    if (candidate == text) continue;
    const std::string other = plain(candidate);
    if (other.size() > wanted.size() + 3 || wanted.size() > other.size() + 3) continue;   // long texts need no table
    size_t far = distance(wanted, other);
    const bool longer = wanted.starts_with(other) || other.starts_with(wanted);
    if (longer && wanted.size() >= 4 && other.size() >= 4) far = std::min<size_t>(far, 2);   // "warning" for "warn"
    if (far >= best || far >= other.size()) continue;
    best = far;
    found = candidate;
  }
  return found;
}

std::string key_hint(Level level, std::string_view key) {
  std::vector<std::string_view> here;
  const Row* elsewhere = nullptr;
  for (const Row& row : kRows) {
    if (row.level == level) here.push_back(row.key);
    else if (row.key == key && elsewhere == nullptr) elsewhere = &row;
  }
  if (elsewhere != nullptr) return "; it belongs " + std::string(level_phrase(elsewhere->level));
  if (auto near = nearest(key, here)) return "; did you mean `" + *near + "`?";
  return "";
}

}  // namespace weir::config

// Snapshot: the whole configuration as plain data: every default filled in, every name resolved to an index.
// Owner: whoever called load(); it is a value. Nobody changes it after load(): it may be read from any thread.
// Guarantees: names and binds are unique; indices are in range; what this version does not support never gets here (it
// is an error of load()). Durations: zero means "switched off".
// It never holds a descriptor, a resolved address or anything of the running daemon.
#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "config/cidr.h"
#include "config/path_regex.h"

namespace weir::config {

using Milliseconds = std::chrono::milliseconds;
inline constexpr Milliseconds kOff{0};

// Where something stands in the files the user wrote. line 0: it was not written, it is a default.
struct Where {
  std::string file;
  uint32_t line = 0;    // 1-based
  uint32_t column = 0;  // 1-based
  std::string text() const;  // "file:line:column"
};

// An address as written: never looked up here. Either unix_path is set, or port (and host; ":443" has none).
struct SocketName {
  std::string host;       // "127.0.0.1", "::1" (no brackets), "app.internal"; empty: every address, IPv4 and IPv6
  uint16_t port = 0;
  std::string unix_path;

  bool is_unix() const { return !unix_path.empty(); }
  bool is_any() const { return unix_path.empty() && host.empty(); }  // ":443": dual-stack
  bool is_literal() const;   // unix, any, or a numeric address: needs no lookup
  std::string text() const;  // the canonical form: ":443", "127.0.0.1:80", "[::1]:80", "unix:/path", "app.internal:80"
  bool operator==(const SocketName&) const = default;
};

enum class EngineChoice : uint8_t { adaptive, epoll, io_uring };
enum class Protocol : uint8_t { h1, h2 };
enum class Scheme : uint8_t { http, https };
enum class ClientAuth : uint8_t { require, request };
enum class TlsVersion : uint8_t { tls12, tls13 };
enum class Balance : uint8_t { round_robin, least_requests, random };
enum class TrustedHeader : uint8_t { x_forwarded, forwarded };
enum class LogLevel : uint8_t { debug, info, warn, error };
enum class LogFormat : uint8_t { text, json };
enum class AccessFormat : uint8_t { json, combined };

// The table of docs/config.md. Listener, upstream and route carry what they set themselves beside the result.
enum class Timeout : uint8_t {
  client_header, client_body, stream_idle, keepalive, write, connect, response, origin_body, origin_idle, tunnel_idle,
  ws_ping, ws_pong, linger
};
inline constexpr size_t kTimeouts = 13;
std::string_view timeout_name(Timeout which);

struct Timeouts {
  Milliseconds client_header{10'000};
  Milliseconds client_body{30'000};
  Milliseconds stream_idle{3'600'000};
  Milliseconds keepalive{60'000};
  Milliseconds write{30'000};
  Milliseconds connect{5'000};
  Milliseconds response{60'000};
  Milliseconds origin_body{60'000};
  Milliseconds origin_idle{4'000};
  Milliseconds tunnel_idle{3'600'000};
  Milliseconds ws_ping{30'000};
  Milliseconds ws_pong{10'000};
  Milliseconds linger{5'000};

  Milliseconds& at(Timeout which);
  Milliseconds at(Timeout which) const;
  bool operator==(const Timeouts&) const = default;
};

// What one level set, and nothing else.
struct TimeoutOverrides {
  std::array<std::optional<Milliseconds>, kTimeouts> set;

  Timeouts over(Timeouts base) const;  // base with what is set here laid over it
  bool empty() const;
  bool operator==(const TimeoutOverrides&) const = default;
};

inline constexpr uint64_t kUnlimited = UINT64_MAX;

// At the top they hold for the process, not per worker.
struct Limits {
  uint64_t request_head_bytes = 32 * 1024;
  uint64_t header_count = 128;
  uint64_t request_body_bytes = kUnlimited;
  uint64_t response_head_bytes = 64 * 1024;
  uint64_t connections = 65'536;
  bool connections_set = false;                 // false: the daemon may lower it to what RLIMIT_NOFILE carries
  std::optional<uint64_t> memory_bytes;         // none: half of the cgroup's or the machine's
  uint64_t h2_streams = 256;
  uint64_t overhead_frames = 1000;
  uint64_t resets = 512;
  uint64_t ws_message_bytes = kUnlimited;
  uint64_t pipe_min_bytes = 64 * 1024;
  uint64_t pipe_max_bytes = 8 * 1024 * 1024;
  bool operator==(const Limits&) const = default;
};

// What one level set of the limits of one message: a listener the first three, an upstream response_head, a route
// request_body and response_head.
struct LimitOverrides {
  std::optional<uint64_t> request_head_bytes;
  std::optional<uint64_t> header_count;
  std::optional<uint64_t> request_body_bytes;
  std::optional<uint64_t> response_head_bytes;

  Limits over(Limits base) const;      // base with what is set here laid over it
  bool empty() const;
  bool operator==(const LimitOverrides&) const = default;
};

// The file of a unix socket that is listened on. What is empty stays as the process makes it.
struct UnixAccess {
  std::optional<uint16_t> mode;        // permission bits, 0 to 0777
  std::string user;                    // a name or a number, looked up by the daemon
  std::string group;
  bool empty() const;
  bool operator==(const UnixAccess&) const = default;
};

// The paths as the daemon opens them.
struct CertificateFiles {
  std::string cert;
  std::string key;                 // may be the same file
  Where where;
  bool operator==(const CertificateFiles& other) const { return cert == other.cert && key == other.key; }
};

struct ListenerTls {
  std::vector<CertificateFiles> certificates;   // at least one; the first is the default
  TlsVersion min_version = TlsVersion::tls12;
  std::string client_ca{};         // empty: clients' certificates are not asked for
  ClientAuth client_auth = ClientAuth::require;
  std::string client_crl{};        // empty: none
  bool operator==(const ListenerTls&) const = default;
};

struct Listener {
  std::string name;                // default: the text of the first bind
  std::vector<SocketName> binds;   // at least one; unix paths and numeric addresses only
  EngineChoice engine = EngineChoice::adaptive;
  std::vector<Protocol> protocols{Protocol::h1, Protocol::h2};
  TimeoutOverrides own_timeouts;
  Timeouts timeouts;               // built-in < top < this listener: for what happens before a route is known
  LimitOverrides own_limits;
  Limits limits;                   // likewise; request_head_bytes and header_count count here and nowhere closer
  UnixAccess unix_access;          // of the unix sockets among the binds
  std::optional<ListenerTls> tls;  // none: plain
  // All requests are answered with 308 to https://HOST/TARGET, without routing, but for those under
  // /.well-known/acme-challenge/, which take the ordinary way. HOST is the request's, without its port.
  bool redirect_https = false;
  // Peers whose X-Forwarded-For (-Proto, -Host) and Forwarded are believed: the client is the right-most address that is
  // not one of these. From all others these fields are replaced.
  std::vector<Cidr> trusted_proxies;
  // x_forwarded: Forwarded counts only where there is no X-Forwarded-For. forwarded: it alone counts, theirs are replaced.
  TrustedHeader trusted_header = TrustedHeader::x_forwarded;
  bool trust_unix = false;         // peers of unix sockets (they have no address) are such proxies too
  Where where;
};

struct HostPattern {
  std::string name;       // lower case, no port, no final dot; for "*.example.com": "example.com"
  bool wildcard = false;  // any number of labels (at least one) before ".name"
  std::string text() const;
  bool operator==(const HostPattern&) const = default;
};

struct NameValue {
  std::string name;       // header names in lower case
  std::string value;      // exact
  bool operator==(const NameValue&) const = default;
};

// All parts that are given must hold. Within a list one entry must.
struct Match {
  std::vector<HostPattern> hosts;       // empty: any
  std::optional<std::string> path;      // exact
  std::string path_prefix;              // whole segments, no final "/": "/api" holds for /api and /api/x; empty: any
  std::optional<PathRegex> path_regex;  // found anywhere in the path; of path, path_prefix and path_regex at most one is set
  std::vector<std::string> methods;     // case-sensitive tokens; empty: any
  std::vector<NameValue> headers;
  std::vector<NameValue> query;         // as they stand in the URL, byte for byte; a bare name has the value ""
  std::vector<size_t> listeners;        // indices into Snapshot::listeners; empty: any
  std::optional<Scheme> scheme;         // the client's: the listener's, or what a trusted proxy says in X-Forwarded-Proto
  std::vector<Cidr> clients;            // the client after trusted_proxies; empty: any; one without an address is in none
  bool operator==(const Match&) const = default;
};

struct Target {
  size_t upstream = 0;                  // index into Snapshot::upstreams
  uint32_t weight = 1;
  bool operator==(const Target&) const = default;
};
struct Forward {
  std::vector<Target> targets;          // at least one; the sum of the weights is at least 1
  bool operator==(const Forward&) const = default;
};
struct Respond {
  uint16_t status = 200;                // 200 to 599
  std::string body;
  bool operator==(const Respond&) const = default;
};
struct Redirect {
  uint16_t status = 308;                // 301, 302, 303, 307, 308
  std::string location;                 // as written; no control characters
  bool operator==(const Redirect&) const = default;
};
using Action = std::variant<Forward, Respond, Redirect>;

// On the way to the origin; after the match, which sees what the client sent. At most one of path_prefix and path_regex.
struct Rewrite {
  // Takes the place of Match::path_prefix: path_prefix + path.substr(match.path_prefix.size()), or "/" when that is empty.
  // No final "/" ("/" is ""). The query stays.
  std::optional<std::string> path_prefix;
  std::optional<PathRegex> path_regex;  // what it finds first in the path is replaced; finds nothing: the path stays
  std::string replacement;              // for PathRegex::replace
  std::string host;                     // sent as Host (and :authority); empty: as the client sent it
  bool empty() const;
  bool operator==(const Rewrite&) const = default;
};

// Applied in this order: remove, set, add; after all that Weir itself changes (X-Forwarded-*, Via ...), so they win.
// Never a field that frames a message or belongs to one connection, never Host. Names in lower case.
struct HeaderEdits {
  std::vector<std::string> remove;      // all fields of the name
  std::vector<NameValue> set;           // instead of all fields of the name
  std::vector<NameValue> add;           // beside those that are there; a name may be there twice
  bool empty() const;
  bool operator==(const HeaderEdits&) const = default;
};

struct Route {
  std::string name;                     // default: its host and path as text; unique
  std::optional<Match> match;           // none: the fallback
  Action action;
  TimeoutOverrides own_timeouts;
  Timeouts timeouts;                    // built-in < top < this route; for one exchange use exchange_timeouts()
  LimitOverrides own_limits;            // for one exchange use exchange_limits()
  Rewrite rewrite;                      // empty unless the action is Forward
  HeaderEdits request_headers;          // empty unless the action is Forward
  HeaderEdits response_headers;         // of every answer on this route, Weir's own too
  bool via = false;                     // Via, both ways
  bool forwarded = false;               // Forwarded (RFC 7239) beside X-Forwarded-*
  Where where;
};

struct Server {
  SocketName address;                   // a name is possible here: the daemon looks it up
  uint32_t weight = 1;                  // 0: listed but gets nothing
  bool operator==(const Server&) const = default;
};

struct Upstream {
  std::string name;
  std::vector<Server> servers;          // at least one, the sum of the weights is at least 1, no address twice
  Balance balance = Balance::round_robin;
  TimeoutOverrides own_timeouts;
  Timeouts timeouts;                    // built-in < top < this upstream
  LimitOverrides own_limits;
  uint64_t max_connections = kUnlimited;  // open to all its servers together, of the process
  Where where;
};

struct Admin {
  SocketName bind{.host = {}, .port = 0, .unix_path = "/run/weir/admin.sock"};
  bool set = false;                             // false: the default: failing to bind it is a warning, not an error
  UnixAccess unix_access;
  std::string token_file;                       // holds the token that each request must carry; never empty for TCP
  bool operator==(const Admin&) const = default;
};

struct Metrics {
  SocketName bind;
  bool operator==(const Metrics&) const = default;
};

struct AccessLog {
  std::string path = "stdout";                  // "stdout", "stderr" or a file
  AccessFormat format = AccessFormat::json;
  bool operator==(const AccessLog&) const = default;
};

struct Log {
  LogLevel level = LogLevel::info;
  LogFormat format = LogFormat::text;
  std::optional<AccessLog> access;              // none: no access log
  bool operator==(const Log&) const = default;
};

struct Shutdown {
  Milliseconds delay{0};
  Milliseconds grace{10'000};
  bool operator==(const Shutdown&) const = default;
};

// A request that the configuration makes about itself, and what must come of it.
struct ConfigTest {
  std::string method = "GET";
  std::string url;                              // as written
  bool https = false;
  std::string host;                             // lower case, with the port when one is written
  std::string target;                           // path and query, begins with "/"
  std::vector<NameValue> headers;               // that the request carries besides Host
  std::optional<size_t> listener;               // none: the one that has the URL's port, else the first
  std::string client;                           // a numeric address; empty: none is known
  struct Expect {
    std::optional<std::string> upstream;        // a known name
    std::optional<std::string> route;           // a known name
    std::optional<uint16_t> status;             // of a respond or redirect route; 404 where no route matches
    bool operator==(const Expect&) const = default;
  } expect;                                     // at least one of them
  Where where;
};

// One mistake (or, in Snapshot::warnings, one doubt).
struct Problem {
  Where where;
  std::string message;
  std::string text() const;                     // "file:line:column: message"
  bool operator==(const Problem& other) const { return text() == other.text(); }
};

struct Snapshot {
  uint32_t workers = 0;                         // 0: auto, the CPUs this process may use
  std::vector<Listener> listeners;              // at least one
  std::vector<Route> routes;                    // in file order; the fallback keeps its place
  std::optional<size_t> fallback;               // index of the route without match
  std::vector<Upstream> upstreams;              // sorted by name
  Timeouts timeouts;                            // built-in < top
  Limits limits;
  Admin admin;
  std::optional<Metrics> metrics;               // none: off
  std::string user;                             // empty: keep the user
  Log log;
  Shutdown shutdown;
  std::vector<ConfigTest> tests;

  std::vector<std::string> files;               // all that were read, the main one first
  std::vector<Problem> warnings;
  std::string hash;                             // 16 hex digits over the effective configuration; comments do not count
};

// The timeouts of one exchange: built-in < top < listener < upstream < route. upstream may be null (respond, redirect).
Timeouts exchange_timeouts(const Snapshot& snapshot, const Listener& listener, const Upstream* upstream,
                           const Route& route);
// Its limits, by the same order.
Limits exchange_limits(const Snapshot& snapshot, const Listener& listener, const Upstream* upstream,
                       const Route& route);

}  // namespace weir::config

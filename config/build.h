// build: the checked tree into a Snapshot: every level's keys read, names resolved, timeouts inherited.
// Its parts are in build_*.cc, match.cc and validate.cc; they share a Draft. Caller: load().
#pragma once

#include <map>
#include <string>
#include <vector>

#include "config/document.h"
#include "config/fields.h"
#include "config/snapshot.h"

namespace weir::config {

struct Environment;
using Index = std::map<std::string, size_t>;

// A certificate as it was written.
struct DraftCertificate {
  size_t listener;
  CertificateFiles files;
  Mark cert, key;
};

struct DraftPem {
  std::string_view key;
  std::string path;
  bool revocations;
  Mark mark;
};

// The snapshot in the making and where its pieces were written.
struct Draft {
  Report& report;
  Snapshot snapshot;
  Index listener_index;
  Index upstream_index;
  Index route_index;
  std::vector<Placed<SocketName>> binds;   // of listeners, admin and metrics, in file order
  std::vector<Mark> route_marks;
  std::vector<bool> route_sound;           // its match was read without a problem, so it can be compared with others
  std::vector<Mark> upstream_marks;
  std::vector<bool> upstream_used;
  std::map<std::string, size_t> routes_named;   // how many got this name by themselves
  std::vector<DraftCertificate> certificates;
  std::vector<DraftPem> pems;
  bool via = false;                        // of `defaults`
  bool forwarded = false;
};

Snapshot build(const Node& top, Report& report, const Environment& environment);

TimeoutOverrides read_timeouts(const Fields& level);
LimitOverrides read_limit_overrides(const Fields& level);
// One list of addresses and networks; the word `unix` sets *unix_too, and is a problem where that is null.
std::vector<Cidr> read_networks(Draft& draft, const Fields& fields, std::string_view key, bool* unix_too = nullptr);
void read_edits(Draft& draft, const Fields& fields, Route& route);   // rewrite and headers; after match and action
std::optional<ListenerTls> read_tls(Draft& draft, const Fields& listener);   // of the listener that is read
void read_upstreams(Draft& draft, const Fields& top);
void read_routes(Draft& draft, const Fields& top);     // after listeners and upstreams
void read_tests(Draft& draft, const Fields& top);      // after routes

Match build_match(Draft& draft, const Fields& fields);
std::string path_fault(const std::string& path);         // what makes it no path, in words that follow it, or ""
std::optional<PathRegex> read_regex(Draft& draft, const Fields& fields);   // the key `path_regex`
bool covers(const Match& wide, const Match& narrow, size_t listeners);   // every request of `narrow` is one of `wide`

// What only the whole shows: shadowed routes, two fallbacks, a bind twice, https without TLS, an unused upstream.
void check_routes(Draft& draft);
void check_memory(Draft& draft, const Fields& limits);   // a budget that the other limits cannot fit
void check_binds(Draft& draft);
void check_schemes(Draft& draft);
void check_unused(Draft& draft);
void check_certificates(Draft& draft, const Environment& environment);

// The `name` of a listener or route, or else `fallback`; entered into the index.
std::string read_name(Draft& draft, const Fields& fields, std::string_view what, const std::string& fallback,
                      Index& index, size_t place);
// The index that a name stands for; a problem with the nearest name when there is none.
std::optional<size_t> resolve(Draft& draft, const Placed<std::string>& name, const Index& index, std::string_view what);

}  // namespace weir::config

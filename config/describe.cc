#include "config/describe.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <cstdio>

#include "config/json_writer.h"
#include "config/schema.h"
#include "config/values.h"

namespace weir::config {
namespace {

constexpr std::string_view kRedacted = "(redacted)";

// A URL whose query's values are left out where their names speak of secrets.
std::string without_secrets(std::string_view url) {
  const size_t question = std::min(url.find('?'), url.size());
  std::string out(url.substr(0, question));
  for (size_t at = question; at < url.size();) {
    const size_t end = std::min(url.find_first_of("&#", at + 1), url.size());
    const std::string_view part = url.substr(at, end - at);   // with the sign before it
    const size_t equals = part.find('=');
    std::string name(part.substr(1, equals == part.npos ? part.npos : equals - 1));
    std::transform(name.begin(), name.end(), name.begin(), [](unsigned char c) { return std::tolower(c); });
    const bool hidden = equals != part.npos && is_secret_field(name);
    out += hidden ? part.substr(0, equals + 1) : part;
    if (hidden) out += kRedacted;
    at = end;
  }
  return out;
}

// A text of the configuration: `${` would be read as a variable.
class Json : public JsonWriter {
 public:
  explicit Json(Secrets secrets) : secrets_(secrets) {}

  void text(std::string_view text) {
    std::string escaped;
    for (size_t i = 0; i < text.size(); ++i) {
      if (text.substr(i).starts_with("${")) escaped += '$';
      escaped += text[i];
    }
    JsonWriter::text(escaped);
  }
  void pair(std::string_view name, std::string_view text) {
    key(name);
    this->text(text);
  }
  void pair(std::string_view name, uint64_t number) { JsonWriter::pair(name, number); }
  void field(const NameValue& field) {
    const bool hidden = secrets_ == Secrets::redacted && is_secret_field(field.name);
    pair(field.name, hidden ? kRedacted : std::string_view(field.value));
  }
  void url(std::string_view name, const std::string& url) {
    pair(name, secrets_ == Secrets::redacted ? without_secrets(url) : url);
  }

 private:
  Secrets secrets_;
};

std::string word_text(Level level, std::string_view key, size_t place) {
  return std::string(split_words(find_row(level, key)->words).at(place));
}

bool is_read(Level level, std::string_view key) { return find_row(level, key)->need != Need::later; }

std::string limit_text(uint64_t bytes) { return bytes == kUnlimited ? "unlimited" : size_text(bytes); }

void own_timeouts(Json& json, const TimeoutOverrides& own) {
  if (own.empty()) return;
  json.key("timeouts");
  json.open('{');
  for (size_t i = 0; i < kTimeouts; ++i) {
    if (own.set[i]) json.pair(timeout_name(static_cast<Timeout>(i)), duration_text(*own.set[i]));
  }
  json.close('}');
}

void own_limits(Json& json, const LimitOverrides& own) {
  if (own.empty()) return;
  json.key("limits");
  json.open('{');
  if (own.request_head_bytes) json.pair("request_head", size_text(*own.request_head_bytes));
  if (own.header_count) json.pair("header_count", *own.header_count);
  if (own.request_body_bytes) json.pair("request_body", limit_text(*own.request_body_bytes));
  if (own.response_head_bytes) json.pair("response_head", size_text(*own.response_head_bytes));
  json.close('}');
}

void unix_access(Json& json, const UnixAccess& access) {
  if (access.empty()) return;
  json.key("unix");
  json.open('{');
  if (access.mode) {
    char mode[8];
    std::snprintf(mode, sizeof mode, "0%03o", static_cast<unsigned>(*access.mode));
    json.pair("mode", std::string_view(mode));
  }
  if (!access.user.empty()) json.pair("user", access.user);
  if (!access.group.empty()) json.pair("group", access.group);
  json.close('}');
}

void tls(Json& json, const Listener& listener) {
  if (!listener.tls) return;
  json.key("tls");
  json.open('{');
  json.key("certificates");
  json.open('[');
  for (const CertificateFiles& files : listener.tls->certificates) {
    json.open('{');
    json.pair("cert", files.cert);
    json.pair("key", files.key);
    json.close('}');
  }
  json.close(']');
  json.pair("min_version", word_text(Level::listener_tls, "min_version", static_cast<size_t>(listener.tls->min_version)));
  if (!listener.tls->client_ca.empty()) {
    json.pair("client_ca", listener.tls->client_ca);
    json.pair("client_auth", word_text(Level::listener_tls, "client_auth", static_cast<size_t>(listener.tls->client_auth)));
    if (!listener.tls->client_crl.empty()) json.pair("client_crl", listener.tls->client_crl);
  }
  json.close('}');
}

void named(Json& json, std::string_view key, const std::vector<NameValue>& list) {
  if (list.empty()) return;
  json.key(key);
  json.open('{');
  for (const NameValue& field : list) json.field(field);
  json.close('}');
}

template <class List, class Text>
void texts(Json& json, std::string_view key, const List& list, Text text) {
  if (list.empty()) return;
  json.key(key);
  json.open('[');
  for (const auto& item : list) json.text(text(item));
  json.close(']');
}

std::string network_text(const Cidr& network) { return network.text(); }

void listeners(Json& json, const Snapshot& snapshot) {
  json.key("listeners");
  json.open('[');
  for (const Listener& listener : snapshot.listeners) {
    json.open('{');
    json.pair("name", listener.name);
    json.key("bind");
    json.open('[');
    for (const SocketName& bind : listener.binds) json.text(bind.text());
    json.close(']');
    json.pair("engine", word_text(Level::listener, "engine", static_cast<size_t>(listener.engine)));
    json.key("protocols");
    json.open('[');
    for (Protocol protocol : listener.protocols) {
      json.text(word_text(Level::listener, "protocols", static_cast<size_t>(protocol)));
    }
    json.close(']');
    own_timeouts(json, listener.own_timeouts);
    own_limits(json, listener.own_limits);
    json.flag("redirect_https", listener.redirect_https);
    json.key("trusted_proxies");
    json.open('[');
    for (const Cidr& network : listener.trusted_proxies) json.text(network.text());
    if (listener.trust_unix) json.text("unix");
    json.close(']');
    json.pair("trusted_header", word_text(Level::listener, "trusted_header", static_cast<size_t>(listener.trusted_header)));
    unix_access(json, listener.unix_access);
    tls(json, listener);
    json.close('}');
  }
  json.close(']');
}

void match(Json& json, const Match& match, const Snapshot& snapshot) {
  json.key("match");
  json.open('{');
  texts(json, "host", match.hosts, [](const HostPattern& host) { return host.text(); });
  if (match.path) json.pair("path", *match.path);
  else if (match.path_regex) json.pair("path_regex", match.path_regex->pattern());
  else json.pair("path_prefix", match.path_prefix + "/");
  texts(json, "method", match.methods, [](const std::string& method) { return method; });
  named(json, "header", match.headers);
  named(json, "query", match.query);
  texts(json, "listener", match.listeners, [&](size_t index) { return snapshot.listeners.at(index).name; });
  if (match.scheme) json.pair("scheme", word_text(Level::match, "scheme", static_cast<size_t>(*match.scheme)));
  texts(json, "client", match.clients, network_text);
  json.close('}');
}

void action(Json& json, const Action& action, const Snapshot& snapshot) {
  if (const auto* forward = std::get_if<Forward>(&action)) {
    json.key("to");
    json.open('[');
    for (const Target& target : forward->targets) {
      json.open('{');
      json.pair("upstream", snapshot.upstreams.at(target.upstream).name);
      json.pair("weight", target.weight);
      json.close('}');
    }
    json.close(']');
  } else if (const auto* respond = std::get_if<Respond>(&action)) {
    json.key("respond");
    json.open('{');
    json.pair("status", respond->status);
    json.pair("body", respond->body);
    json.close('}');
  } else if (const auto* redirect = std::get_if<Redirect>(&action)) {
    json.key("redirect");
    json.open('{');
    json.pair("status", redirect->status);
    json.url("location", redirect->location);
    json.close('}');
  }
}

void rewrite(Json& json, const Rewrite& rewrite) {
  if (rewrite.empty()) return;
  json.key("rewrite");
  json.open('{');
  if (rewrite.path_prefix) json.pair("path_prefix", *rewrite.path_prefix + "/");
  if (rewrite.path_regex) {
    json.pair("path_regex", rewrite.path_regex->pattern());
    json.pair("replacement", rewrite.replacement);
  }
  if (!rewrite.host.empty()) json.pair("host", rewrite.host);
  json.close('}');
}

void edits(Json& json, std::string_view key, const HeaderEdits& edits) {
  if (edits.empty()) return;
  json.key(key);
  json.open('{');
  texts(json, "remove", edits.remove, [](const std::string& name) { return name; });
  named(json, "set", edits.set);
  named(json, "add", edits.add);
  json.close('}');
}

void headers(Json& json, const Route& route) {
  if (route.request_headers.empty() && route.response_headers.empty()) return;
  json.key("headers");
  json.open('{');
  edits(json, "request", route.request_headers);
  edits(json, "response", route.response_headers);
  json.close('}');
}

void routes(Json& json, const Snapshot& snapshot) {
  json.key("routes");
  json.open('[');
  for (const Route& route : snapshot.routes) {
    json.open('{');
    json.pair("name", route.name);
    if (route.match) match(json, *route.match, snapshot);
    action(json, route.action, snapshot);
    own_timeouts(json, route.own_timeouts);
    own_limits(json, route.own_limits);
    rewrite(json, route.rewrite);
    headers(json, route);
    json.flag("via", route.via);
    json.flag("forwarded", route.forwarded);
    json.close('}');
  }
  json.close(']');
}

void upstreams(Json& json, const Snapshot& snapshot) {
  json.key("upstreams");
  json.open('{');
  for (const Upstream& upstream : snapshot.upstreams) {
    json.key(upstream.name);
    json.open('{');
    json.key("servers");
    json.open('[');
    for (const Server& server : upstream.servers) {
      json.open('{');
      json.pair("address", server.address.text());
      json.pair("weight", server.weight);
      json.close('}');
    }
    json.close(']');
    json.pair("balance", word_text(Level::upstream, "balance", static_cast<size_t>(upstream.balance)));
    if (upstream.max_connections == kUnlimited) json.pair("max_connections", std::string_view("unlimited"));
    else json.pair("max_connections", upstream.max_connections);
    own_timeouts(json, upstream.own_timeouts);
    own_limits(json, upstream.own_limits);
    json.close('}');
  }
  json.close('}');
}

void limits(Json& json, const Limits& limits) {
  json.key("limits");
  json.open('{');
  json.pair("request_head", size_text(limits.request_head_bytes));
  json.pair("header_count", limits.header_count);
  json.pair("request_body", limit_text(limits.request_body_bytes));
  json.pair("response_head", size_text(limits.response_head_bytes));
  if (limits.connections_set) json.pair("connections", limits.connections);
  if (limits.memory_bytes) json.pair("memory", size_text(*limits.memory_bytes));
  const auto count = [&](std::string_view key, uint64_t number) {
    if (is_read(Level::limits, key)) json.pair(key, number);
  };
  count("h2_streams", limits.h2_streams);
  count("overhead_frames", limits.overhead_frames);
  count("resets", limits.resets);
  if (is_read(Level::limits, "ws_message")) json.pair("ws_message", limit_text(limits.ws_message_bytes));
  json.key("pipe");
  json.open('{');
  json.pair("min", size_text(limits.pipe_min_bytes));
  json.pair("max", size_text(limits.pipe_max_bytes));
  json.close('}');
  json.close('}');
}

void log(Json& json, const Log& log) {
  json.key("log");
  json.open('{');
  json.pair("level", word_text(Level::log, "level", static_cast<size_t>(log.level)));
  json.pair("format", word_text(Level::log, "format", static_cast<size_t>(log.format)));
  if (log.access) {
    json.key("access");
    json.open('{');
    json.pair("path", log.access->path);
    json.pair("format", word_text(Level::access, "format", static_cast<size_t>(log.access->format)));
    json.close('}');
  }
  json.close('}');
}

void tests(Json& json, const Snapshot& snapshot) {
  json.key("tests");
  json.open('[');
  for (const ConfigTest& test : snapshot.tests) {
    json.open('{');
    json.url("get", test.url);
    json.pair("method", test.method);
    named(json, "header", test.headers);
    if (test.listener) json.pair("listener", snapshot.listeners.at(*test.listener).name);
    if (!test.client.empty()) json.pair("client", test.client);
    json.key("expect");
    json.open('{');
    if (test.expect.upstream) json.pair("upstream", *test.expect.upstream);
    if (test.expect.route) json.pair("route", *test.expect.route);
    if (test.expect.status) json.pair("status", *test.expect.status);
    json.close('}');
    json.close('}');
  }
  json.close(']');
}

}  // namespace

bool is_secret_field(std::string_view name) {
  constexpr std::array<std::string_view, 4> kNames{"authorization", "proxy-authorization", "cookie", "set-cookie"};
  constexpr std::array<std::string_view, 6> kParts{"token", "secret", "password", "passwd", "credential", "key"};
  const auto inside = [&](std::string_view part) { return name.find(part) != name.npos; };
  return std::find(kNames.begin(), kNames.end(), name) != kNames.end() ||
         std::any_of(kParts.begin(), kParts.end(), inside) || name.ends_with("-auth");
}

std::string describe(const Snapshot& snapshot, Secrets secrets) {
  Json json(secrets);
  json.open('{');
  json.pair("version", uint64_t{1});
  if (snapshot.workers == 0) json.pair("workers", std::string_view("auto"));
  else json.pair("workers", snapshot.workers);
  listeners(json, snapshot);
  routes(json, snapshot);
  upstreams(json, snapshot);
  json.key("timeouts");
  json.open('{');
  for (size_t i = 0; i < kTimeouts; ++i) {
    const auto which = static_cast<Timeout>(i);
    if (!is_read(Level::timeouts, timeout_name(which))) continue;
    json.pair(timeout_name(which), duration_text(snapshot.timeouts.at(which)));
  }
  json.close('}');
  limits(json, snapshot.limits);
  json.key("admin");
  json.open('{');
  if (snapshot.admin.set) json.pair("bind", snapshot.admin.bind.text());
  unix_access(json, snapshot.admin.unix_access);
  if (!snapshot.admin.token_file.empty()) json.pair("token", snapshot.admin.token_file);
  json.close('}');
  if (snapshot.metrics) {
    json.key("metrics");
    json.open('{');
    json.pair("bind", snapshot.metrics->bind.text());
    json.close('}');
  }
  if (!snapshot.user.empty()) json.pair("user", snapshot.user);
  log(json, snapshot.log);
  json.key("shutdown");
  json.open('{');
  json.pair("delay", duration_text(snapshot.shutdown.delay));
  json.pair("grace", duration_text(snapshot.shutdown.grace));
  json.close('}');
  tests(json, snapshot);
  json.close('}');
  return json.take();
}

std::string hash_text(std::string_view text) {
  uint64_t hash = 0xcbf29ce484222325;
  for (char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3;
  char out[17];
  std::snprintf(out, sizeof out, "%016llx", static_cast<unsigned long long>(hash));
  return out;
}

}  // namespace weir::config

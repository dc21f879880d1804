#include "config/build.h"

#include <algorithm>
#include <array>

namespace weir::config {
namespace {

void read_pipe(Draft& draft, const Fields& fields, Limits& limits) {
  const Node* given = fields.node("pipe");
  if (given != nullptr && given->kind == Node::Kind::scalar) {
    if (auto size = number_of(*given, *find_row(Level::limits, "pipe"), draft.report)) {
      limits.pipe_min_bytes = limits.pipe_max_bytes = *size;
    }
    return;
  }
  const Fields pipe = fields.map("pipe");
  limits.pipe_min_bytes = pipe.number("min").value();
  limits.pipe_max_bytes = pipe.number("max").value();
  if (limits.pipe_min_bytes > limits.pipe_max_bytes) {
    draft.report.error(fields.mark("pipe"), "pipe: `min` (" + size_text(limits.pipe_min_bytes) +
                                                ") is larger than `max` (" + size_text(limits.pipe_max_bytes) + ")");
  }
}

UnixAccess read_unix_access(Draft& draft, const Fields& fields) {
  UnixAccess access;
  const Fields given = fields.map("unix");
  access.user = given.text("user").value_or("");
  access.group = given.text("group").value_or("");
  const auto mode = given.text("mode");
  if (!mode) return access;
  const size_t size = mode->size();
  if (size < 3 || size > 4 || mode->find_first_not_of("01234567") != mode->npos || (size == 4 && mode->front() != '0')) {
    draft.report.error(given.mark("mode"), "mode: " + quote(*mode) + " is no octal mode such as `0660`");
    return access;
  }
  access.mode = static_cast<uint16_t>(std::stoul(*mode, nullptr, 8));
  return access;
}

void read_limits(Draft& draft, const Fields& fields) {
  Limits& limits = draft.snapshot.limits;
  limits.request_head_bytes = fields.number("request_head").value();
  limits.header_count = fields.number("header_count").value();
  limits.request_body_bytes = fields.number("request_body").value();
  limits.response_head_bytes = fields.number("response_head").value();
  limits.connections = fields.number("connections").value();
  limits.connections_set = fields.written("connections");
  limits.memory_bytes = fields.number("memory");
  limits.h2_streams = fields.number("h2_streams").value();
  limits.overhead_frames = fields.number("overhead_frames").value();
  limits.resets = fields.number("resets").value();
  limits.ws_message_bytes = fields.number("ws_message").value();
  read_pipe(draft, fields, limits);
  check_memory(draft, fields);
}

void read_log(Draft& draft, const Fields& fields) {
  Log& log = draft.snapshot.log;
  log.level = static_cast<LogLevel>(fields.word("level"));
  log.format = static_cast<LogFormat>(fields.word("format"));
  const Fields access = fields.map("access");
  if (fields.node("access") == nullptr) return;
  log.access = AccessLog{access.text("path").value(), static_cast<AccessFormat>(access.word("format"))};
  const std::string& path = log.access->path;
  if (path == "stdout" || path == "stderr" || path.starts_with("/")) return;
  constexpr std::array<std::string_view, 2> kStreams{"stdout", "stderr"};
  auto near = nearest(path, kStreams);
  const std::string hint = near ? "; did you mean " + quote(*near) + "?" : "";
  draft.report.error(access.mark("path"),
                     "path: " + quote(path) + " is neither `stdout`, `stderr` nor an absolute path" + hint);
}

std::vector<Protocol> read_protocols(Draft& draft, const Fields& fields) {
  std::vector<Protocol> out;
  for (size_t place : fields.words("protocols")) {
    const auto protocol = static_cast<Protocol>(place);
    if (std::find(out.begin(), out.end(), protocol) == out.end()) out.push_back(protocol);
    else draft.report.error(fields.mark("protocols"), "`protocols` names one twice");
  }
  return out;
}

void read_listeners(Draft& draft, const Fields& top) {
  const auto items = top.items("listeners");
  const Node* given = top.node("listeners");
  if (given != nullptr && given->kind == Node::Kind::sequence && items.empty()) {
    draft.report.error(given->mark, "`listeners` is empty: nothing would be served");
  }
  for (const Node* item : items) {
    const Fields fields(item, Level::listener, draft.report);
    Listener listener;
    for (auto& bind : fields.binds("bind")) {
      listener.binds.push_back(bind.value);
      draft.binds.push_back(std::move(bind));
    }
    const std::string bind_text = listener.binds.empty() ? "" : listener.binds.front().text();
    const size_t place = draft.snapshot.listeners.size();
    listener.name = read_name(draft, fields, "listener", bind_text, draft.listener_index, place);
    listener.engine = static_cast<EngineChoice>(fields.word("engine"));
    if (fields.written("protocols")) listener.protocols = read_protocols(draft, fields);
    listener.own_timeouts = read_timeouts(fields);
    listener.timeouts = listener.own_timeouts.over(draft.snapshot.timeouts);
    listener.own_limits = read_limit_overrides(fields);
    listener.limits = listener.own_limits.over(draft.snapshot.limits);
    listener.redirect_https = fields.boolean("redirect_https");
    listener.trusted_proxies = read_networks(draft, fields, "trusted_proxies", &listener.trust_unix);
    listener.trusted_header = static_cast<TrustedHeader>(fields.word("trusted_header"));
    if (fields.written("trusted_header") && listener.trusted_proxies.empty() && !listener.trust_unix) {
      draft.report.warning(fields.mark("trusted_header"), "`trusted_header` has no effect without `trusted_proxies`");
    }
    listener.unix_access = read_unix_access(draft, fields);
    listener.tls = read_tls(draft, fields);
    const auto is_unix = [](const SocketName& bind) { return bind.is_unix(); };
    if (fields.written("unix") && std::none_of(listener.binds.begin(), listener.binds.end(), is_unix)) {
      draft.report.error(fields.mark("unix"), "`unix` is about unix sockets; this listener has none");
    }
    listener.where = draft.report.where(item->mark);
    draft.snapshot.listeners.push_back(std::move(listener));
  }
}

void read_admin(Draft& draft, const Fields& top) {
  const Fields admin = top.map("admin");
  draft.snapshot.admin.set = admin.written("bind");
  draft.snapshot.admin.unix_access = read_unix_access(draft, admin);
  if (auto token = admin.text("token")) draft.snapshot.admin.token_file = std::move(*token);
  if (auto bind = admin.bind("bind")) {
    if (!bind->is_unix() && !admin.written("token")) {
      draft.report.error(admin.mark("bind"), "bind: " + quote(bind->text()) +
                                                 " is a TCP address, which needs `token: FILE`; without one take a unix socket: "
                                                 "`unix:/run/weir/admin.sock`");
    }
    draft.binds.push_back({*bind, admin.mark("bind")});
    draft.snapshot.admin.bind = std::move(*bind);
  }
  const Fields metrics = top.map("metrics");
  if (top.node("metrics") == nullptr) return;
  if (auto bind = metrics.bind("bind")) {
    draft.binds.push_back({*bind, metrics.mark("bind")});
    draft.snapshot.metrics = Metrics{std::move(*bind)};
  }
}

}  // namespace

TimeoutOverrides read_timeouts(const Fields& level) {
  const Fields fields = level.map("timeouts");
  TimeoutOverrides out;
  for (size_t i = 0; i < kTimeouts; ++i) {
    const std::string_view name = timeout_name(static_cast<Timeout>(i));
    if (fields.has(name)) out.set[i] = fields.duration(name);
  }
  return out;
}

LimitOverrides read_limit_overrides(const Fields& level) {
  const Fields limits = level.map("limits");
  LimitOverrides out;
  const auto read = [&](std::string_view key, std::optional<uint64_t>& limit) {
    if (limits.has(key)) limit = limits.number(key);
  };
  read("request_head", out.request_head_bytes);
  read("header_count", out.header_count);
  read("request_body", out.request_body_bytes);
  read("response_head", out.response_head_bytes);
  return out;
}

std::vector<Cidr> read_networks(Draft& draft, const Fields& fields, std::string_view key, bool* unix_too) {
  std::vector<Cidr> out;
  for (const auto& [text, mark] : fields.texts(key)) {
    if (text == "unix" && unix_too != nullptr) {
      *unix_too = true;
      continue;
    }
    auto network = parse_cidr(text);
    if (!network) draft.report.error(mark, std::string(key) + ": " + quote(text) + " " + network.error());
    else out.push_back(*network);
  }
  return out;
}

std::string read_name(Draft& draft, const Fields& fields, std::string_view what, const std::string& fallback,
                      Index& index, size_t place) {
  const std::string name = fields.text("name").value_or(fallback);
  if (name.empty()) return name;   // a listener whose bind was wrong: that has been reported
  if (name.size() > 128) draft.report.error(fields.mark("name"), "`name` is longer than 128 bytes");
  auto [first, fresh] = index.emplace(name, place);
  if (fresh) return name;
  const size_t other = first->second;
  Where where;
  if (what == "listener") {
    const Listener& holder = draft.snapshot.listeners.at(other);
    // Both are named after the same bind: that is one mistake, and check_binds() names it.
    if (!fields.written("name") && !holder.binds.empty() && holder.binds.front().text() == name) return name;
    where = holder.where;
  } else {
    where = draft.snapshot.routes.at(other).where;
  }
  draft.report.error(fields.mark("name"), "a second " + std::string(what) + " named " + quote(name) +
                                              "; the first one is at " + where.text());
  return name;
}

std::optional<size_t> resolve(Draft& draft, const Placed<std::string>& name, const Index& index,
                              std::string_view what) {
  auto at = index.find(name.value);
  if (at != index.end()) return at->second;
  std::vector<std::string_view> known;
  for (const auto& entry : index) known.push_back(entry.first);
  auto near = nearest(name.value, known);
  draft.report.error(name.mark, "there is no " + std::string(what) + " named " + quote(name.value) +
                                    (near ? "; did you mean " + quote(*near) + "?" : ""));
  return std::nullopt;
}

Snapshot build(const Node& top_node, Report& report, const Environment& environment) {
  Draft draft{.report = report, .snapshot = {}, .listener_index = {}, .upstream_index = {}, .route_index = {},
              .binds = {}, .route_marks = {}, .route_sound = {}, .upstream_marks = {}, .upstream_used = {},
              .routes_named = {}, .certificates = {}, .pems = {}};
  const Fields top(&top_node, Level::top, report);
  top.word("version");
  draft.snapshot.workers = static_cast<uint32_t>(top.number("workers").value());
  draft.snapshot.timeouts = read_timeouts(top).over({});
  draft.snapshot.user = top.text("user").value_or("");
  read_limits(draft, top.map("limits"));
  read_log(draft, top.map("log"));
  const Fields shutdown = top.map("shutdown");
  draft.snapshot.shutdown = {shutdown.duration("delay").value(), shutdown.duration("grace").value()};
  const Fields defaults = top.map("defaults");
  draft.via = defaults.boolean("via");
  draft.forwarded = defaults.boolean("forwarded");
  read_listeners(draft, top);
  read_admin(draft, top);
  read_upstreams(draft, top);
  read_routes(draft, top);
  read_tests(draft, top);
  check_routes(draft);
  check_binds(draft);
  check_schemes(draft);
  check_unused(draft);
  check_certificates(draft, environment);
  return std::move(draft.snapshot);
}

}  // namespace weir::config

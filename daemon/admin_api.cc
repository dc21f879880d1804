#include "daemon/admin_api.h"

#include <algorithm>
#include <charconv>
#include <fstream>

#include "config/describe.h"
#include "daemon/connections.h"
#include "daemon/json.h"
#include "daemon/json_value.h"
#include "daemon/metrics.h"
#include "daemon/supervisor.h"

namespace weir {

namespace {

constexpr size_t kConnectionsMax = 10'000;

AdminAnswer json_answer(std::string body) { return {200, "application/json", std::move(body), {}}; }
AdminAnswer text_answer(uint16_t status, std::string body) {
  return {status, "text/plain; charset=utf-8", std::move(body), {}};
}
AdminAnswer said(std::string_view sentence) {
  json::Writer out;
  out.object().member("ok", true).member("message", sentence).end_object();
  return json_answer(out.text() + "\n");
}
AdminAnswer bad(std::string_view sentence) { return AdminAnswer::error(400, sentence); }

// A handler that only looks, and takes no parameters.
AdminHandler view(std::function<AdminAnswer()> make) {
  return [make = std::move(make)](const AdminRequest& request, const AdminReply& reply) {
    if (const std::string unknown = request.unknown_parameter({}); !unknown.empty()) reply(bad("unknown parameter " + unknown));
    else reply(make());
  };
}

const config::Listener* listener_named(const Supervisor& supervisor, std::string_view name) {
  for (const config::Listener& listener : supervisor.runtime().config.listeners)
    if (listener.name == name) return &listener;
  return nullptr;
}

std::string upstreams_json(Supervisor& supervisor) {
  const Runtime& runtime = supervisor.runtime();
  const StatsRegistry& registry = supervisor.registry();
  json::Writer out;
  out.object().key("upstreams").array();
  for (const config::Upstream& upstream : runtime.config.upstreams) {
    out.object().member("name", upstream.name).member("protocol", "h1");
    out.member("connections", registry.upstreams.sum(upstream.name, [](const UpstreamStats& s) { return s.client.open.get(); }));
    out.key("servers").array();
    for (const config::Server& server : upstream.servers) {
      const std::string name = server.address.text();
      out.object().member("address", name).member("weight", server.weight).key("resolved").array();
      if (const auto found = runtime.addresses.find(name); found != runtime.addresses.end())
        for (const Address& address : found->second) out.value(address.text());
      out.end_array().key("answers").object();
      for (size_t code = 1; code < 6; ++code)
        out.member(std::to_string(code) + "xx", registry.origins.sum(upstream.name + '\n' + name, [&](const OriginStats& s) {
          return s.answers[code].get();
        }));
      out.end_object().end_object();
    }
    out.end_array().end_object();
  }
  out.end_array().end_object();
  return out.text() + "\n";
}

// What a listener runs on in one worker. Both engines may have connections of it: one that changes engine does so at its next op.
void worker_engine(json::Writer& out, Supervisor& supervisor, const config::Listener& listener, size_t worker,
                   const ListenerStats& stats) {
  const EngineKind kind = supervisor.engine_of(listener);
  out.object().member("worker", static_cast<uint64_t>(worker)).member("engine", engine_name(kind));
  out.member("tier", supervisor.workers()[worker]->engine_tier(kind)).member("reason", supervisor.engine_reason(listener));
  out.member("connections", stats.server.open.get()).end_object();
}

std::string engines_json(Supervisor& supervisor) {
  json::Writer out;
  out.object().key("engines").array();
  for (const EngineKind kind : {EngineKind::epoll, EngineKind::uring}) {
    const std::string tier = supervisor.workers().front()->engine_tier(kind);
    out.object().member("engine", engine_name(kind)).member("running", !tier.empty());
    if (!tier.empty()) out.member("tier", tier);
    if (kind == EngineKind::uring && !supervisor.uring_refusal().empty()) out.member("refused", supervisor.uring_refusal());
    out.end_object();
  }
  out.end_array().key("listeners").array();
  for (const config::Listener& listener : supervisor.runtime().config.listeners) {
    out.object().member("listener", listener.name).member("engine", engine_name(supervisor.engine_of(listener)));
    out.member("tier", supervisor.workers().front()->engine_tier(supervisor.engine_of(listener)));
    out.member("reason", supervisor.engine_reason(listener)).key("workers").array();
    supervisor.registry().listeners.each([&](const std::string& name, size_t worker, const ListenerStats& stats) {
      if (name == listener.name) worker_engine(out, supervisor, listener, worker, stats);
    });
    out.end_array().end_object();
  }
  out.end_array().end_object();
  return out.text() + "\n";
}

// Empty text, or what is wrong with the parameters.
std::string read_filter(const AdminRequest& request, ConnectionFilter& filter) {
  if (const std::string unknown = request.unknown_parameter({"listener", "client", "state", "limit"}); !unknown.empty())
    return "unknown parameter " + unknown + "; there are listener, client, state and limit";
  filter.listener = request.parameter("listener");
  filter.client = request.parameter("client");
  if (const std::string state = request.parameter("state"); state == "active" || state == "idle") filter.active = state == "active";
  else if (!state.empty()) return "state is active or idle";
  if (const std::string limit = request.parameter("limit"); !limit.empty()) {
    const auto read = std::from_chars(limit.data(), limit.data() + limit.size(), filter.limit);
    if (read.ec != std::errc() || read.ptr != limit.data() + limit.size() || filter.limit > kConnectionsMax)
      return "limit is a number up to " + std::to_string(kConnectionsMax);
  }
  return {};
}

// What the workers have sent so far, for one request.
struct Collection {
  size_t left = 0;
  size_t limit = 0;
  ConnectionList list;
  AdminReply reply;
  void add(ConnectionList part) {
    list.matching += part.matching;
    for (std::string& row : part.rows)
      if (list.rows.size() < limit) list.rows.push_back(std::move(row));
    if (--left != 0) return;
    json::Writer out;
    out.object().key("connections").array();
    for (const std::string& row : list.rows) out.raw(row);
    out.end_array().member("shown", list.rows.size()).member("matching", list.matching).end_object();
    reply(json_answer(out.text() + "\n"));
  }
};

void connections(const AdminRequest& request, const AdminReply& reply, Supervisor& supervisor) {
  ConnectionFilter filter;
  if (const std::string wrong = read_filter(request, filter); !wrong.empty()) {
    reply(bad(wrong));
    return;
  }
  if (!filter.listener.empty() && listener_named(supervisor, filter.listener) == nullptr) {
    reply(AdminAnswer::error(404, "there is no listener " + filter.listener));
    return;
  }
  const auto all = std::make_shared<Collection>();
  all->left = supervisor.workers().size();
  all->limit = filter.limit;
  all->reply = reply;
  for (auto& worker : supervisor.workers())
    worker->list_connections(filter, [all](ConnectionList part) { all->add(std::move(part)); });
}

void log_level(const AdminRequest& request, const AdminReply& reply, Supervisor& supervisor) {
  static constexpr std::string_view kLevels[] = {"debug", "info", "warn", "error"};
  const auto body = json::Value::parse(request.body);
  if (!body || !body->at("level").is(json::Value::Kind::text) || body->members().size() != 1) {
    reply(bad("the body is {\"level\": \"debug\"}, info, warn or error"));
    return;
  }
  const std::string& level = body->at("level").text();
  const auto found = std::find(std::begin(kLevels), std::end(kLevels), level);
  if (found == std::end(kLevels)) {
    reply(bad("there is no level " + level + "; there are debug, info, warn and error"));
    return;
  }
  supervisor.set_log_level(static_cast<config::LogLevel>(found - std::begin(kLevels)));
  reply(said("the log's level is " + level + " until the next reload"));
}

void reload(const AdminReply& reply, Supervisor& supervisor) {
  supervisor.reload([reply](const ReloadVerdict& verdict) {
    json::Writer out;
    out.object().member("ok", verdict.ok).member(verdict.ok ? "message" : "error", verdict.sentence);
    out.member("generation", verdict.generation).member("hash", verdict.hash);
    out.key("problems").array();
    for (const std::string& problem : verdict.problems) out.value(problem);
    out.end_array().end_object();
    AdminAnswer answer = json_answer(out.text() + "\n");
    answer.status = verdict.ok ? 200 : verdict.bad_config ? 400 : 503;
    reply(answer);
  });
}

}  // namespace

std::expected<std::string, std::string> read_token(const std::string& path) {
  std::ifstream file(path);
  std::string token;
  if (!file || !std::getline(file, token)) return std::unexpected("admin token " + path + ": the file cannot be read, or is empty");
  while (!token.empty() && (token.back() == '\r' || token.back() == ' ')) token.pop_back();
  for (const char c : token)
    if (c <= ' ' || c >= 0x7f)
      return std::unexpected("admin token " + path + ": a token is one line of visible ASCII without blanks");
  if (token.empty()) return std::unexpected("admin token " + path + ": its first line is empty");
  return token;
}

void add_probe_routes(AdminServer& server, Supervisor& supervisor) {
  server.route("GET", "/metrics", view([&] {
                 return AdminAnswer{200, "text/plain; version=0.0.4; charset=utf-8", metrics_text(supervisor), {}};
               }));
  server.route("GET", "/healthz", view([] { return text_answer(200, "ok\n"); }));
  server.route("GET", "/readyz", view([&] {
                 const std::string why = supervisor.not_ready();
                 return why.empty() ? text_answer(200, "ready\n") : text_answer(503, why + "\n");
               }));
}

void add_admin_routes(AdminServer& server, Supervisor& supervisor) {
  server.route("GET", "/status", view([&] { return json_answer(status_json(supervisor)); }));
  server.route("GET", "/config", view([&] {
                 return json_answer(config::describe(supervisor.runtime().config, config::Secrets::redacted));
               }));
  server.route("GET", "/upstreams", view([&] { return json_answer(upstreams_json(supervisor)); }));
  server.route("GET", "/engines", view([&] { return json_answer(engines_json(supervisor)); }));
  server.route("GET", "/connections", [&](const AdminRequest& request, const AdminReply& reply) {
    connections(request, reply, supervisor);
  });
  server.route("POST", "/reload", [&](const AdminRequest&, const AdminReply& reply) { reload(reply, supervisor); });
  server.route("POST", "/drain", [&](const AdminRequest&, const AdminReply& reply) {
    const std::string failed = supervisor.drain(true);
    reply(failed.empty() ? said("draining: /readyz says 503, everything is served on") : AdminAnswer::error(503, failed));
  });
  server.route("POST", "/undrain", [&](const AdminRequest&, const AdminReply& reply) {
    const std::string failed = supervisor.drain(false);
    reply(failed.empty() ? said("serving") : AdminAnswer::error(503, failed));
  });
  server.route("POST", "/stop", [&](const AdminRequest&, const AdminReply& reply) {
    reply(said("stopping"));
    supervisor.stop_by_admin();
  });
  server.route("POST", "/log-level", [&](const AdminRequest& request, const AdminReply& reply) {
    log_level(request, reply, supervisor);
  });
}

}  // namespace weir

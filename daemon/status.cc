// /status and /metrics: what the supervisor knows and the workers have counted, as JSON and as Prometheus text.
#include <unistd.h>

#include <algorithm>
#include <array>

#include "daemon/json.h"
#include "daemon/supervisor.h"

namespace weir {

namespace {

template <class F>
uint64_t sum_workers(Supervisor& supervisor, F&& f) {
  uint64_t total = 0;
  for (auto& worker : supervisor.workers()) total += f(*worker);
  return total;
}

uint64_t most_generations(Supervisor& supervisor) {
  uint64_t most = 0;
  for (auto& worker : supervisor.workers()) most = std::max(most, worker->generations().get());
  return most;
}

// Counters that must stay zero: a bug of ours when they do not.
struct Zero {
  const char* name;
  const char* help;
  uint64_t (*read)(Worker&);
};
constexpr std::array<Zero, 3> kZeros = {{
    {"weir_pipe_audit_failures_total", "Pipes found with nothing to wait for; must stay zero.",
     [](Worker& w) { return w.pipe_stats().audits_failed.get(); }},
    {"weir_uring_stale_completions_total", "Completions that met no operation of theirs; must stay zero.",
     [](Worker& w) { return w.uring_stats().stale.get(); }},
    {"weir_uring_lost_completions_total", "Completions that the kernel could not keep; must stay zero.",
     [](Worker& w) { return w.uring_stats().cq_lost.get(); }},
}};

class Text {
 public:
  void family(const char* name, const char* type, const char* help) {
    out_ += std::string("# HELP ") + name + ' ' + help + "\n# TYPE " + name + ' ' + type + '\n';
    name_ = name;
  }
  using Label = std::pair<const char*, std::string>;
  void sample(std::initializer_list<Label> labels, uint64_t value) {
    out_ += name_;
    char separator = '{';
    for (const auto& [key, text] : labels) {
      out_ += separator;
      out_ += std::string(key) + "=\"" + escaped(text) + '"';
      separator = ',';
    }
    if (separator == ',') out_ += '}';
    out_ += ' ' + std::to_string(value) + '\n';
  }
  const std::string& text() const { return out_; }

 private:
  static std::string escaped(const std::string& text) {
    std::string out;
    for (const char c : text) {
      if (c == '\\' || c == '"') out += '\\';
      if (c == '\n') out += "\\n";
      else out += c;
    }
    return out;
  }
  std::string out_;
  std::string name_;
};

std::string class_text(size_t index) { return index == 0 ? "none" : std::to_string(index) + "xx"; }

void requests(Text& text, Supervisor& supervisor) {
  text.family("weir_requests_total", "counter", "Requests that ended, by the class of their answer (none: none was sent).");
  const auto& routes = supervisor.registry().routes;
  for (const std::string& key : routes.keys()) {
    const size_t cut = key.find('\n');
    for (size_t code = 0; code < 6; ++code) {
      const uint64_t count = routes.sum(key, [&](const RouteStats& r) { return r.answers[code].get(); });
      if (count != 0)
        text.sample({{"listener", key.substr(0, cut)},
                     {"route", key.substr(cut + 1)},
                     {"protocol", "h1"},
                     {"code_class", class_text(code)}},
                    count);
    }
  }
}

void connections(Text& text, Supervisor& supervisor) {
  const auto each = [&](auto&& emit) {
    for (const config::Listener& listener : supervisor.runtime().config.listeners) emit(listener);
  };
  const auto sum = [&](const config::Listener& l, auto&& read) { return supervisor.registry().listeners.sum(l.name, read); };
  text.family("weir_connections", "gauge", "Client connections now.");
  each([&](const config::Listener& l) {
    const char* engine = engine_name(supervisor.engine_of(l));
    text.sample({{"listener", l.name}, {"protocol", "h1"}, {"engine", engine}, {"state", "open"}},
                sum(l, [](const ListenerStats& s) { return s.server.open.get(); }));
  });
  text.family("weir_connections_accepted_total", "counter", "Client connections accepted.");
  each([&](const config::Listener& l) {
    text.sample({{"listener", l.name}}, sum(l, [](const ListenerStats& s) { return s.server.accepted.get(); }));
  });
  text.family("weir_accept_refused_total", "counter", "Client connections refused, by cause.");
  each([&](const config::Listener& l) {
    for (size_t cause = 0; cause < kRefusedCauses; ++cause)
      text.sample({{"listener", l.name}, {"cause", refused_name(static_cast<RefusedCause>(cause))}},
                  sum(l, [&](const ListenerStats& s) { return s.refused[cause].get(); }));
  });
  text.family("weir_bytes_total", "counter", "Bytes of clients' connections.");
  each([&](const config::Listener& l) {
    text.sample({{"listener", l.name}, {"direction", "in"}},
                sum(l, [](const ListenerStats& s) { return s.server.bytes_in.get(); }));
    text.sample({{"listener", l.name}, {"direction", "out"}},
                sum(l, [](const ListenerStats& s) { return s.server.bytes_out.get(); }));
  });
}

void timeouts(Text& text, Supervisor& supervisor) {
  static constexpr std::array<const char*, h1::kServerTimeoutKinds> kServer = {"client_header", "client_body", "stream_idle",
                                                                               "keepalive", "write", "linger"};
  static constexpr std::array<const char*, h1::kClientTimeoutKinds> kClient = {"connect", "response", "origin_body",
                                                                               "origin_stream_idle", "origin_idle"};
  text.family("weir_timeouts_total", "counter", "Deadlines that passed, by kind.");
  for (size_t kind = 0; kind < kServer.size(); ++kind) {
    uint64_t count = 0;
    supervisor.registry().listeners.each(
        [&](const std::string&, size_t, const ListenerStats& s) { count += s.server.timeouts[kind].get(); });
    text.sample({{"kind", kServer[kind]}, {"protocol", "h1"}}, count);
  }
  for (size_t kind = 0; kind < kClient.size(); ++kind) {
    uint64_t count = 0;
    supervisor.registry().upstreams.each(
        [&](const std::string&, size_t, const UpstreamStats& s) { count += s.client.timeouts[kind].get(); });
    text.sample({{"kind", kClient[kind]}, {"protocol", "h1"}}, count);
  }
}

void upstreams(Text& text, Supervisor& supervisor) {
  const auto& registry = supervisor.registry().upstreams;
  const std::vector<std::string> names = registry.keys();
  text.family("weir_upstream_requests_total", "counter", "Answers of origins, by class.");
  for (const std::string& name : names) {
    for (size_t code = 1; code < 6; ++code) {
      const uint64_t count = registry.sum(name, [&](const UpstreamStats& s) { return s.answers[code].get(); });
      if (count != 0) text.sample({{"upstream", name}, {"code_class", class_text(code)}}, count);
    }
  }
  const auto each = [&](const char* family, const char* type, const char* help, auto&& read) {
    text.family(family, type, help);
    for (const std::string& name : names) text.sample({{"upstream", name}}, registry.sum(name, read));
  };
  each("weir_upstream_connections", "gauge", "Connections to origins now.",
       [](const UpstreamStats& s) { return s.client.open.get(); });
  each("weir_upstream_connects_total", "counter", "Connections opened to origins.",
       [](const UpstreamStats& s) { return s.client.opened.get(); });
  text.family("weir_retries_total", "counter", "Requests tried again.");
  for (const std::string& name : names) {
    text.sample({{"upstream", name}, {"reason", "connect"}},
                registry.sum(name, [](const UpstreamStats& s) { return s.retries_connect.get(); }));
    text.sample({{"upstream", name}, {"reason", "reused"}},
                registry.sum(name, [](const UpstreamStats& s) { return s.retries_reused.get(); }));
  }
}

void process(Text& text, Supervisor& supervisor) {
  text.family("weir_buffered_bytes", "gauge", "Memory of slabs in use.");
  text.sample({}, sum_workers(supervisor, [](Worker& w) { return w.loop_stats().slabs_in_use.get() * kSlabBytes; }));
  text.family("weir_memory_budget_bytes", "gauge", "Memory that buffers may take.");
  text.sample({}, supervisor.memory_bytes());
  text.family("weir_pool_growth_total", "counter", "Segments added to the slab pools.");
  text.sample({}, sum_workers(supervisor, [](Worker& w) { return w.loop_stats().pool_growths.get(); }));
  text.family("weir_loop_stalls_total", "counter", "Ticks above 10 ms, by the phase that took most of it.");
  for (int phase = 0; phase < kPhases; ++phase)
    text.sample({{"phase", phase_name(static_cast<Phase>(phase))}},
                sum_workers(supervisor, [&](Worker& w) { return w.loop_stats().stalls[static_cast<size_t>(phase)].get(); }));
  text.family("weir_relay_bytes_total", "counter", "Body bytes moved inside the kernel.");
  text.sample({}, sum_workers(supervisor, [](Worker& w) { return w.pipe_stats().relay_bytes.get(); }));
  text.family("weir_access_log_dropped_total", "counter", "Access log lines that could not be written.");
  text.sample({}, supervisor.access_lines_dropped());
  for (const Zero& zero : kZeros) {
    text.family(zero.name, "counter", zero.help);
    text.sample({}, sum_workers(supervisor, zero.read));
  }
  text.family("weir_config_generation", "gauge", "Number of the configuration that serves.");
  text.sample({}, supervisor.generation_served());
  text.family("weir_config_last_reload_success", "gauge", "1 when the last reload was taken.");
  text.sample({}, supervisor.last_reload_ok() ? 1 : 0);
  text.family("weir_config_last_reload_timestamp_seconds", "gauge", "When the configuration was last read.");
  text.sample({}, static_cast<uint64_t>(supervisor.last_reload_unix()));
  text.family("weir_build_info", "gauge", "What is running.");
  text.sample({{"version", WEIR_VERSION}}, 1);
}

}  // namespace

std::string metrics_text(Supervisor& supervisor) {
  Text text;
  requests(text, supervisor);
  connections(text, supervisor);
  timeouts(text, supervisor);
  upstreams(text, supervisor);
  process(text, supervisor);
  return text.text();
}

std::string status_json(Supervisor& supervisor) {
  const Runtime& runtime = supervisor.runtime();
  json::Writer out;
  out.object();
  out.member("version", WEIR_VERSION).member("pid", static_cast<uint64_t>(getpid()));
  out.member("stage", stage_name(supervisor.stage()));
  out.member("workers", static_cast<uint64_t>(supervisor.workers().size()));
  out.key("config").object().member("hash", runtime.config.hash).member("generation", supervisor.generation_served());
  out.member("last_reload_success", supervisor.last_reload_ok());
  out.member("live_generations", most_generations(supervisor));
  out.end_object();
  out.key("listeners").array();
  for (const config::Listener& listener : runtime.config.listeners) {
    const EngineKind kind = supervisor.engine_of(listener);
    out.object().member("name", listener.name).member("engine", engine_name(kind));
    out.member("tier", supervisor.workers().front()->engine_tier(kind)).member("reason", supervisor.engine_reason(listener));
    out.member("connections", supervisor.registry().listeners.sum(
                                  listener.name, [](const ListenerStats& s) { return s.server.open.get(); }));
    out.key("binds").array();
    for (const config::SocketName& bind : listener.binds) {
      out.object().member("bind", bind.text()).key("inodes").array();
      for (const uint64_t inode : supervisor.sockets().inodes(bind.text())) out.value(inode);
      out.end_array().end_object();
    }
    out.end_array().end_object();
  }
  out.end_array();
  out.key("must_stay_zero").object();
  for (const Zero& zero : kZeros) out.member(zero.name, sum_workers(supervisor, zero.read));
  out.end_object().end_object();
  return out.text() + "\n";
}

}  // namespace weir

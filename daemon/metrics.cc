#include "daemon/metrics.h"

#include <algorithm>
#include <map>

#include "daemon/supervisor.h"
#include "daemon/version.h"

namespace weir {

namespace {

template <class F>
uint64_t sum_workers(Supervisor& supervisor, F&& f) {
  uint64_t total = 0;
  for (auto& worker : supervisor.workers()) total += f(*worker);
  return total;
}

class Text {
 public:
  void family(const char* name, const char* type, const char* help) {
    out_ += std::string("# HELP ") + name + ' ' + help + "\n# TYPE " + name + ' ' + type + '\n';
    name_ = name;
  }
  using Label = std::pair<const char*, std::string>;
  void sample(std::initializer_list<Label> labels, uint64_t value) { sample("", labels, std::to_string(value)); }
  void sample(const char* suffix, std::initializer_list<Label> labels, const std::string& value) {
    out_ += name_;
    out_ += suffix;
    char separator = '{';
    for (const auto& [key, text] : labels) {
      out_ += separator;
      out_ += std::string(key) + "=\"" + escaped(text) + '"';
      separator = ',';
    }
    if (separator == ',') out_ += '}';
    out_ += ' ' + value + '\n';
  }
  // The buckets, sum and count of one label's histogram, added up over the workers.
  void histogram(const Label& label, const std::vector<const Histogram*>& parts) {
    uint64_t count = 0, sum_ns = 0;
    for (size_t at = 0; at <= Histogram::kBounds; ++at) {
      for (const Histogram* part : parts) count += part->bucket(at);
      const std::string bound = at == Histogram::kBounds ? "+Inf" : seconds(uint64_t{Histogram::kBoundsUs[at]} * 1000);
      sample("_bucket", {label, {"le", bound}}, std::to_string(count));
    }
    for (const Histogram* part : parts) sum_ns += part->sum_ns();
    sample("_sum", {label}, seconds(sum_ns));
    sample("_count", {label}, std::to_string(count));
  }
  const std::string& text() const { return out_; }

 private:
  static std::string seconds(uint64_t ns) {   // without trailing zeros
    std::string part = std::to_string(1'000'000'000 + ns % 1'000'000'000).substr(1);
    part.erase(part.find_last_not_of('0') + 1);
    return std::to_string(ns / 1'000'000'000) + (part.empty() ? "" : '.' + part);
  }
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

std::pair<std::string, std::string> halves(const std::string& key) {
  const size_t cut = key.find('\n');
  return {key.substr(0, cut), key.substr(cut + 1)};
}

template <class Block, class Read>
std::vector<const Histogram*> parts_of(const StatsFamily<Block>& family, const std::string& key, Read read) {
  std::vector<const Histogram*> parts;
  family.each([&](const std::string& name, size_t, const Block& block) {
    if (name == key) parts.push_back(&read(block));
  });
  return parts;
}

std::vector<const Histogram*> durations_of(const StatsFamily<ListenerStats>& family, const std::string& listener) {
  std::vector<const Histogram*> parts;
  for (size_t p = 0; p < kClientProtocols; ++p) {
    const auto of = [p](const ListenerStats& s) -> const Histogram& { return s.durations[p]; };
    for (const Histogram* part : parts_of(family, listener, of)) parts.push_back(part);
  }
  return parts;
}

void requests(Text& text, Supervisor& supervisor) {
  text.family("weir_requests_total", "counter",
              "Requests that ended, by the class of their answer (none: none was sent). No route took those without one.");
  const auto emit = [&](const std::string& listener, const std::string& route, size_t protocol, size_t code, uint64_t count) {
    const char* spoken = kClientProtocolNames[protocol];
    if (count != 0)
      text.sample({{"listener", listener}, {"route", route}, {"protocol", spoken}, {"code_class", class_text(code)}}, count);
  };
  const auto& routes = supervisor.registry().routes;
  for (const std::string& key : routes.keys()) {
    const auto [listener, route] = halves(key);
    for (size_t p = 0; p < kClientProtocols; ++p)
      for (size_t code = 0; code < 6; ++code)
        emit(listener, route, p, code, routes.sum(key, [&](const RouteStats& r) { return r.answers[p][code].get(); }));
  }
  const auto& listeners = supervisor.registry().listeners;
  for (const std::string& name : listeners.keys())
    for (size_t p = 0; p < kClientProtocols; ++p)
      for (size_t code = 0; code < 6; ++code)
        emit(name, "", p, code, listeners.sum(name, [&](const ListenerStats& s) { return s.unrouted[p][code].get(); }));
  text.family("weir_request_duration_seconds", "histogram", "From a request's whole head to the end of its answer.");
  for (const config::Listener& listener : supervisor.runtime().config.listeners)
    text.histogram({"listener", listener.name}, durations_of(listeners, listener.name));
}

void errors(Text& text, Supervisor& supervisor) {
  text.family("weir_requests_failed_total", "counter", "Requests that ended with an error, whoever's it was.");
  text.sample({}, sum_workers(supervisor, [](Worker& w) { return w.exchange_stats().failed.get(); }));
  text.family("weir_request_errors_total", "counter", "The same by cause: the codes of docs/errors.md.");
  for (size_t what = 1; what < static_cast<size_t>(What::kCount); ++what) {
    uint64_t count = 0;
    supervisor.registry().listeners.each(
        [&](const std::string&, size_t, const ListenerStats& s) { count += s.errors[what].get(); });
    text.sample({{"cause", fault_row(static_cast<What>(what)).code}}, count);
  }
}

bool speaks_h2(const config::Listener& listener) {
  return std::find(listener.protocols.begin(), listener.protocols.end(), config::Protocol::h2) != listener.protocols.end();
}

void goaways(Text& text, Supervisor& supervisor) {
  text.family("weir_goaway_sent_total", "counter", "GOAWAY frames sent to clients, by their error code and what caused them.");
  for (size_t cause = 1; cause < h2::kEndCauses; ++cause) {
    for (size_t code = 0; code < h2::kErrorCodes; ++code) {
      uint64_t count = 0;
      supervisor.registry().listeners.each(
          [&](const std::string&, size_t, const ListenerStats& s) { count += s.h2.goaways[cause][code].get(); });
      if (count == 0) continue;
      text.sample({{"protocol", "h2"}, {"code", h2::kErrorNames[code]}, {"cause", h2::kEndCauseNames[cause]}}, count);
    }
  }
}

void connections(Text& text, Supervisor& supervisor) {
  const auto each = [&](auto&& emit) {
    for (const config::Listener& listener : supervisor.runtime().config.listeners) emit(listener);
  };
  const auto sum = [&](const config::Listener& l, auto&& read) { return supervisor.registry().listeners.sum(l.name, read); };
  text.family("weir_connections", "gauge", "Client connections now: active ones have a request in progress.");
  each([&](const config::Listener& l) {
    const char* engine = engine_name(supervisor.engine_of(l));
    const uint64_t open = sum(l, [](const ListenerStats& s) { return s.server.open.get(); });
    const uint64_t ended = sum(l, [](const ListenerStats& s) { return s.durations[0].count(); });
    const uint64_t begun = sum(l, [](const ListenerStats& s) { return s.server.requests.get(); });
    const uint64_t active = std::min(open, begun - std::min(begun, ended));   // read one after the other while they change
    text.sample({{"listener", l.name}, {"protocol", "h1"}, {"engine", engine}, {"state", "active"}}, active);
    text.sample({{"listener", l.name}, {"protocol", "h1"}, {"engine", engine}, {"state", "idle"}}, open - active);
    const uint64_t h2_open = sum(l, [](const ListenerStats& s) { return s.h2.open.get(); });
    const uint64_t h2_busy = sum(l, [](const ListenerStats& s) { return s.h2.busy.get(); });
    if (!speaks_h2(l) && h2_open == 0) return;
    text.sample({{"listener", l.name}, {"protocol", "h2"}, {"engine", engine}, {"state", "active"}}, std::min(h2_open, h2_busy));
    text.sample({{"listener", l.name}, {"protocol", "h2"}, {"engine", engine}, {"state", "idle"}},
                h2_open - std::min(h2_open, h2_busy));
  });
  text.family("weir_streams", "gauge", "Streams of HTTP/2 clients now.");
  each([&](const config::Listener& l) {
    text.sample({{"listener", l.name}}, sum(l, [](const ListenerStats& s) { return s.h2.streams.get(); }));
  });
  text.family("weir_streams_refused_total", "counter", "Streams of HTTP/2 clients over limits.h2_streams.");
  each([&](const config::Listener& l) {
    text.sample({{"listener", l.name}}, sum(l, [](const ListenerStats& s) { return s.h2.refused.get(); }));
  });
  goaways(text, supervisor);
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
                sum(l, [](const ListenerStats& s) { return s.server.bytes_in.get() + s.h2.bytes_in.get(); }));
    text.sample({{"listener", l.name}, {"direction", "out"}},
                sum(l, [](const ListenerStats& s) { return s.server.bytes_out.get() + s.h2.bytes_out.get(); }));
  });
}

void tls(Text& text, Supervisor& supervisor) {
  const auto& config = supervisor.runtime().config;
  const auto sum = [&](const config::Listener& l, auto&& read) { return supervisor.registry().listeners.sum(l.name, read); };
  const auto each = [&](auto&& f) {
    for (const config::Listener& listener : config.listeners)
      if (listener.tls) f(listener);
  };
  text.family("weir_tls_handshakes_total", "counter", "TLS handshakes of clients, by result.");
  each([&](const config::Listener& l) {
    uint64_t failed = 0;
    for (size_t why = 0; why < kTlsFailures; ++why)
      failed += sum(l, [&](const ListenerStats& s) { return s.tls.failed[why].get(); });
    text.sample({{"listener", l.name}, {"result", "full"}}, sum(l, [](const ListenerStats& s) { return s.tls.full.get(); }));
    text.sample({{"listener", l.name}, {"result", "resumed"}}, sum(l, [](const ListenerStats& s) { return s.tls.resumed.get(); }));
    text.sample({{"listener", l.name}, {"result", "failed"}}, failed);
  });
  text.family("weir_tls_handshake_failures_total", "counter", "TLS handshakes of clients that failed, by reason.");
  each([&](const config::Listener& l) {
    for (size_t why = 0; why < kTlsFailures; ++why)
      text.sample({{"listener", l.name}, {"reason", tls_failure_name(static_cast<TlsFailure>(why))}},
                  sum(l, [&](const ListenerStats& s) { return s.tls.failed[why].get(); }));
  });
}

void certificates(Text& text, Supervisor& supervisor) {
  text.family("weir_tls_cert_not_after_seconds", "gauge", "When a listener's certificate expires.");
  for (const CertificateAge& age : supervisor.certificates())
    text.sample({{"cert", age.file}}, static_cast<uint64_t>(age.not_after));
}

// A kind that both sides have is one series.
void timeouts(Text& text, Supervisor& supervisor) {
  static constexpr std::array<const char*, h1::kServerTimeoutKinds> kServer = {"client_header", "client_body", "stream_idle",
                                                                               "keepalive", "write", "linger"};
  static constexpr std::array<const char*, h1::kClientTimeoutKinds> kClient = {"connect", "response", "origin_body",
                                                                               "stream_idle", "origin_idle"};
  std::map<std::string, uint64_t> counts, h2_counts;
  supervisor.registry().listeners.each([&](const std::string&, size_t, const ListenerStats& s) {
    for (size_t kind = 0; kind < kServer.size(); ++kind) counts[kServer[kind]] += s.server.timeouts[kind].get();
    for (size_t kind = 0; kind < kServer.size(); ++kind) h2_counts[kServer[kind]] += s.h2.timeouts[kind].get();
  });
  supervisor.registry().upstreams.each([&](const std::string&, size_t, const UpstreamStats& s) {
    for (size_t kind = 0; kind < kClient.size(); ++kind) counts[kClient[kind]] += s.client.timeouts[kind].get();
  });
  for (const char* kind : kServer) counts.try_emplace(kind, 0);
  for (const char* kind : kClient) counts.try_emplace(kind, 0);
  text.family("weir_timeouts_total", "counter", "Deadlines that passed, by kind.");
  for (const auto& [kind, count] : counts) text.sample({{"kind", kind}, {"protocol", "h1"}}, count);
  for (const auto& [kind, count] : h2_counts) text.sample({{"kind", kind}, {"protocol", "h2"}}, count);
}

void upstreams(Text& text, Supervisor& supervisor) {
  const auto& registry = supervisor.registry().upstreams;
  const auto& origins = supervisor.registry().origins;
  const std::vector<std::string> names = registry.keys();
  text.family("weir_upstream_requests_total", "counter", "Answers of origins, by class.");
  for (const std::string& key : origins.keys()) {
    const auto [upstream, origin] = halves(key);
    for (size_t code = 1; code < 6; ++code) {
      const uint64_t count = origins.sum(key, [&](const OriginStats& s) { return s.answers[code].get(); });
      if (count != 0) text.sample({{"upstream", upstream}, {"origin", origin}, {"code_class", class_text(code)}}, count);
    }
  }
  text.family("weir_upstream_connect_seconds", "histogram", "How long connects to origins took that succeeded.");
  for (const std::string& name : names)
    text.histogram({"upstream", name},
                   parts_of(registry, name, [](const UpstreamStats& s) -> const Histogram& { return s.client.connected; }));
  const auto each = [&](const char* family, const char* type, const char* help, auto&& read) {
    text.family(family, type, help);
    for (const std::string& name : names) text.sample({{"upstream", name}}, registry.sum(name, read));
  };
  each("weir_upstream_connections", "gauge", "Connections to origins now.",
       [](const UpstreamStats& s) { return s.client.open.get(); });
  each("weir_upstream_connects_total", "counter", "Connections opened to origins.",
       [](const UpstreamStats& s) { return s.client.opened.get(); });
  each("weir_upstream_connects_failed_total", "counter", "Connections to origins that could not be opened.",
       [](const UpstreamStats& s) { return s.client.connect_failed.get(); });
  text.family("weir_retries_total", "counter", "Requests tried again.");
  for (const std::string& name : names) {
    text.sample({{"upstream", name}, {"reason", "connect"}},
                registry.sum(name, [](const UpstreamStats& s) { return s.retries_connect.get(); }));
    text.sample({{"upstream", name}, {"reason", "reused"}},
                registry.sum(name, [](const UpstreamStats& s) { return s.retries_reused.get(); }));
  }
}

void process(Text& text, Supervisor& supervisor) {
  text.family("weir_buffered_bytes", "gauge", "Memory of buffers in use: slabs, and the kernel's pipes of relays.");
  text.sample({}, sum_workers(supervisor, [](Worker& w) {
                return w.loop_stats().slabs_in_use.get() * kSlabBytes + w.loop_stats().relay_pipe_bytes.get();
              }));
  text.family("weir_memory_budget_bytes", "gauge", "Memory that connections may take (limits.memory).");
  text.sample({}, supervisor.memory().limit());
  text.family("weir_memory_held_bytes", "gauge", "What is held of it: buffers in use or kept, connections, exchanges.");
  text.sample({}, sum_workers(supervisor, [](Worker& w) { return w.loop_stats().memory_held.get(); }));
  text.family("weir_memory_leased_bytes", "gauge", "What the workers have leased of it; the levels at 80 and 95 % follow this.");
  text.sample({}, supervisor.memory().used());
  text.family("weir_memory_waited_total", "counter", "Requests that waited for memory before they began.");
  text.sample({}, sum_workers(supervisor, [](Worker& w) { return w.exchange_stats().waited_for_memory.get(); }));
  text.family("weir_memory_ended_total", "counter", "Exchanges that were ended to make room.");
  text.sample({}, sum_workers(supervisor, [](Worker& w) { return w.memory_stats().ended.get(); }));
  text.family("weir_memory_trimmed_bytes_total", "counter", "Memory of free buffers that was given back to the kernel.");
  text.sample({}, sum_workers(supervisor, [](Worker& w) { return w.memory_stats().trimmed.get(); }));
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
  for (const ZeroCounter& zero : kZeroCounters) {
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
  text.sample({{"version", kVersion}, {"commit", commit_text()}}, 1);
}

}  // namespace

std::string metrics_text(Supervisor& supervisor) {
  Text text;
  requests(text, supervisor);
  errors(text, supervisor);
  connections(text, supervisor);
  tls(text, supervisor);
  certificates(text, supervisor);
  timeouts(text, supervisor);
  upstreams(text, supervisor);
  process(text, supervisor);
  return text.text();
}

}  // namespace weir

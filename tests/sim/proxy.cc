#include "tests/sim/proxy.h"

#include <algorithm>
#include <stdexcept>

#include "config/load.h"
#include "daemon/log.h"
#include "tests/sim/heap.h"

namespace weir::simtest {

namespace {

// The simulation allocates as it likes: what happens inside the engine does not count.
class UncountedEngine final : public Engine {
 public:
  explicit UncountedEngine(std::unique_ptr<Engine> inner) : inner_(std::move(inner)) {}
  EngineKind kind() const noexcept override { return inner_->kind(); }
  Turn turn(OpList& submitted, OpList& cancelled, OpList& completed, const Wait& wait) noexcept override {
    const HeapPause pause;
    return inner_->turn(submitted, cancelled, completed, wait);
  }
  int open(const Address& to) noexcept override { const HeapPause pause; return inner_->open(to); }
  void shutdown(Socket& socket, ShutdownHow how) noexcept override { const HeapPause pause; inner_->shutdown(socket, how); }
  void close(Socket& socket, bool reset) noexcept override { const HeapPause pause; inner_->close(socket, reset); }
  void leave(Socket& socket) noexcept override { const HeapPause pause; inner_->leave(socket); }
  uint64_t acked_bytes(const Socket& socket) noexcept override { const HeapPause pause; return inner_->acked_bytes(socket); }
  void relay_quiet(RelayOp& op) noexcept override { const HeapPause pause; inner_->relay_quiet(op); }
  void set_wake(int fd) noexcept override { inner_->set_wake(fd); }
  std::string tier() const override { return inner_->tier(); }

 private:
  std::unique_ptr<Engine> inner_;
};

std::string config_text(const Proxy::Options& options) {
  std::string text = "version: 1\nlisteners: [{bind: \"" + std::string(kFront) + "\"" +
                     (options.listener.empty() ? "" : ", " + options.listener) + "}]\n" + options.routes;
  text += "upstreams:\n  app:\n    servers: [";
  for (const auto& server : options.servers) text += "\"" + server + "\", ";
  text += "]\n" + options.upstreams + "timeouts: {" + options.timeouts + "}\n" + options.more;
  return text;
}

config::Snapshot load(const std::string& text) {
  const config::Environment nothing{[](const std::string&) { return std::nullopt; },
                                    [](const std::string&) { return std::unexpected(std::string("no files here")); },
                                    [](const std::string&) { return std::vector<std::string>(); }};
  auto result = config::load_text(text, "t.yaml", nothing);
  if (!result) throw std::runtime_error(result.error().text());
  return std::move(*result);
}

}  // namespace
}  // namespace weir::simtest

namespace weir {

// What the worker's own thread may do and see, which here is the test's.
struct WorkerProbe {
  static std::unique_ptr<Worker> make(simtest::Proxy& proxy) {
    WorkerOptions options;
    options.slab_bytes_max = proxy.options_.slab_bytes_max;
    options.connections_left = &proxy.connections_left_;
    options.access = proxy.access_.get();
    options.memory = proxy.budget_.get();
    options.clock = &proxy.network.clock();
    return std::make_unique<Worker>(options, [](std::move_only_function<void()> work) { work(); },
                                    [&proxy](size_t) { proxy.drained_ = true; });
  }
  static Loop& loop(Worker& worker) { return worker.loop_; }
  static ExchangeContext& exchanges(Worker& worker) { return worker.exchanges_; }
  static SlotPool<h1::ServerConn>& conns(Worker& worker) { return worker.conns_; }
  static MemoryGuard& memory(Worker& worker) { return worker.memory_; }
  static PoolSet& pools(Worker& worker) { return worker.pools_; }
  static size_t h2_left(Worker& worker) { return worker.h2_conns_.in_use() + worker.h2_.streams.in_use() + worker.h2_.conns; }
  static void apply(Worker& worker, Publication&& publication) { worker.apply(std::move(publication)); }
  static Listener& listener(Worker& worker) { return *worker.listeners_.front(); }
  static WorkerRuntime& current(Worker& worker) { return *worker.runtimes_.back(); }
};

}  // namespace weir

namespace weir::simtest {

Address address_of(const std::string& text) { return *Address::parse(text); }

// ---- Client

Client::Client(Proxy& proxy) : peer(proxy.network.connect_peer(address_of(kFront))) {
  peer.on_event = [this](SimPeer& p) {
    in.feed(std::exchange(p.received, {}));
    if (p.ended()) in.ended();
    if (on_change) on_change(*this);
  };
}

void Client::get(const std::string& path, const std::string& more) {
  in.asked("GET");
  send("GET " + path + " HTTP/1.1\r\nHost: a\r\n" + more + "\r\n");
}

void Client::post(std::string_view body, const std::string& more) {
  in.asked("POST");
  send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: " + std::to_string(body.size()) + "\r\n" + more + "\r\n");
  send(body);
}

// ---- Origin

Origin::Origin(Proxy& p, const std::string& text) : proxy(p), address(address_of(text)) {
  on_request = [](Conn& conn, Message&) { conn.answer("hello"); };
  start();
}

void Origin::start() {
  proxy.network.serve(address, [this](SimPeer& accepted) {
    Conn& conn = conns.emplace_back(*this, accepted);
    accepted.on_event = [this, &conn](SimPeer& peer) {
      conn.in.feed(std::exchange(peer.received, {}));
      if (on_change) on_change(conn);
      while (conn.served < conn.in.complete()) {
        Message& request = conn.in.messages[conn.served++];
        ++requests;
        if (on_request) on_request(conn, request);
      }
      if (peer.ended() && !on_change) peer.close();
    };
    if (on_accept) on_accept(conn);
  });
}

void Origin::stop() { proxy.network.stop_serving(address); }

void Origin::Conn::answer(std::string_view body, const std::string& more, int status) {
  peer.send("HTTP/1.1 " + std::to_string(status) + " X\r\nContent-Length: " + std::to_string(body.size()) + "\r\n" + more + "\r\n");
  peer.send(body);
}

// ---- Proxy

Proxy::Proxy(const Options& options)
    : network(SimNetwork::Options{.seed = options.seed, .link = options.link, .faults = options.faults}), options_(options),
      connections_left_(options.connections), access_(options.access_log ? std::make_unique<AccessSink>() : nullptr),
      budget_(std::make_unique<MemoryBudget>(options.memory)),
      worker_(WorkerProbe::make(*this)), loop(WorkerProbe::loop(*worker_)),
      exchanges(WorkerProbe::exchanges(*worker_)), conns(WorkerProbe::conns(*worker_)), pools(WorkerProbe::pools(*worker_)),
      budget(*budget_), memory(WorkerProbe::memory(*worker_)) {
  log::set(log::Level::error, log::Format::text);
  if (access_ != nullptr) access_->on = true;
  if (options.two_engines) {
    engine_ = EngineKind::epoll;
    add_engine(EngineKind::uring);
  }
  add_engine(engine_);
  WorkerProbe::apply(*worker_, publication());
  const PipeLimits plain;
  PipeLimits pipes = exchanges.limits;
  if (options.pipes.cap_min != plain.cap_min) pipes.cap_min = options.pipes.cap_min;
  if (options.pipes.cap_max != plain.cap_max) pipes.cap_max = options.pipes.cap_max;
  exchanges.limits.relay = options.pipes.relay;
  memory.configure(pipes);
  listener_stats_ = &registry_.listeners.at(listener().name(), 0);
  upstream_stats_ = &registry_.upstreams.at("app", 0);
}

Proxy::~Proxy() { verdict(); }

std::string Proxy::log() {
  std::string lines;
  access_->ring.take(lines);
  return lines;
}

void Proxy::add_engine(EngineKind kind) {
  auto sim = std::make_unique<SimEngine>(network, loop.slabs(), kind);
  sims_.push_back(sim.get());
  std::unique_ptr<Engine> engine = std::move(sim);
  if (options_.heap) engine = std::make_unique<UncountedEngine>(std::move(engine));
  if (options_.wrap_engine) engine = options_.wrap_engine(std::move(engine));
  loop.add_engine(std::move(engine));
}

Publication Proxy::publication() {
  config::Snapshot config = load(config_text(options_));
  if (options_.change) options_.change(config);
  const Addresses addresses = resolve_all(config, {});
  Publication publication;
  publication.runtime = compile(std::move(config), addresses, ++generation_, 1, registry_);
  ListenerAssignment listener;
  listener.name = publication.runtime->config.listeners[0].name;
  listener.engine = engine_;
  listener.stats = &registry_.listeners.at(listener.name, 0);
  listener.binds = options_.binds;
  for (const std::string& bind : options_.binds) {
    if (std::find(listening_.begin(), listening_.end(), bind) != listening_.end()) continue;
    if (const int fd = network.listen(address_of(bind)); fd >= 0) listener.new_sockets.emplace_back(bind, fd);
  }
  listening_ = options_.binds;
  publication.listeners.push_back(std::move(listener));
  return publication;
}

void Proxy::reload(const std::function<void(Options&)>& change, EngineKind engine) {
  change(options_);
  engine_ = engine;
  worker_->publish(publication(), [] {});
  network.note("== configuration " + std::to_string(generation_) + ", engine " + engine_name(engine));
}

size_t Proxy::parked(EngineKind kind) const {
  size_t count = 0;
  for (const SimEngine* sim : sims_) count += sim->kind() == kind ? sim->parked() : 0;
  return count;
}

Listener& Proxy::listener() { return WorkerProbe::listener(*worker_); }

Origin& Proxy::origin(const std::string& text) {
  for (Origin& one : origins_)
    if (one.address.text() == text) return one;
  return origins_.emplace_back(*this, text);
}

bool Proxy::run(const std::function<bool()>& done) {
  Loop* const loops[] = {&loop};
  return network.run_until(loops, done);
}

void Proxy::run_for(Duration time) {
  Loop* const loops[] = {&loop};
  network.run_for(loops, time);
}

bool Proxy::tick() {
  const HeapCount count;
  return loop.tick(std::chrono::milliseconds(10)) > 0;
}

uint64_t Proxy::all_timeouts() const {
  uint64_t all = 0;
  for (const Counter& one : server().timeouts) all += one.get();
  for (const Counter& one : upstream().client.timeouts) all += one.get();
  return all;
}

size_t Proxy::pooled() const {
  size_t count = 0;
  for (const auto& target : WorkerProbe::current(*worker_).upstreams[0].targets) count += target.pool->idle();
  return count;
}

uint64_t Proxy::growths() {
  return loop.slabs().growths() + conns.growths() + pools.growths() + exchanges.exchanges.growths() + exchanges.trailers.growths();
}

// The scripts hold references to what a case has on its stack.
void Proxy::silence() {
  for (Client& client : clients_) client.peer.on_event = nullptr;
  for (Origin& origin : origins_)
    for (Origin::Conn& conn : origin.conns) conn.peer.on_event = nullptr;
  for (Origin& origin : origins_) origin.stop();
  network.drop_calls();
}

std::string Proxy::verdict() {
  if (over_) return {};
  over_ = true;
  silence();
  network.faults() = SimFaults{};
  listener().stop_accepting();
  listener().cut(make_fault(What::shutting_down));
  std::string wrong;
  const auto expect = [&](bool holds, const std::string& what, uint64_t count) {
    if (!holds) wrong += what + " (" + std::to_string(count) + "); ";
  };
  const auto nothing_open = [&] {
    pools.close_idle();
    return listener().empty() && pools.open() == 0;
  };
  expect(run(nothing_open), "connections never end", conns.in_use() + WorkerProbe::h2_left(*worker_) + pools.open());
  run_for(std::chrono::seconds(2));   // the loop's own timers of relays end, and cleared ones leave the wheel
  const ExchangeStats& e = exchanges.stats;
  expect(e.started.get() == e.ended.get(), "exchanges that did not end once", e.started.get() - e.ended.get());
  expect(worker_->generations().get() == 1, "configurations held", worker_->generations().get());
  expect(WorkerProbe::current(*worker_).exchanges == 0, "exchanges that hold the configuration",
         WorkerProbe::current(*worker_).exchanges);
  expect(exchanges.exchanges.in_use() == 0, "exchange slots held", exchanges.exchanges.in_use());
  expect(exchanges.trailers.in_use() == 0, "trailer slots held", exchanges.trailers.in_use());
  expect(exchanges.pipes.audits_failed.get() == 0, "pipe audits failed", exchanges.pipes.audits_failed.get());
  expect(conns.in_use() == 0 && server().open.get() == 0, "client connections left", conns.in_use());
  expect(WorkerProbe::h2_left(*worker_) == 0 && h2().open.get() == 0 && h2().streams.get() == 0 && h2().busy.get() == 0,
         "h2 connections or streams left", WorkerProbe::h2_left(*worker_));
  expect(upstream().client.open.get() == 0, "origin connections counted open", upstream().client.open.get());
  expect(loop.ops_in_flight() == 0, "ops in flight", loop.ops_in_flight());
  expect(network.descriptors() == 0, "descriptors open", network.descriptors());
  expect(slabs() == 0, "slabs held", slabs());
  expect(connections_left_.load() == options_.connections, "connection allowance lost",
         static_cast<uint64_t>(options_.connections - connections_left_.load()));
  Loop* const loops[] = {&loop};
  memory.rest();
  network.step(loops);
  size_t armed = 0;
  for (const SimEngine* sim : sims_) armed += sim->wake_at() != kNever;
  expect(armed == 0, "timers armed", armed);
  return wrong;
}

}  // namespace weir::simtest

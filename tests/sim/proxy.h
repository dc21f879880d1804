// Proxy: a whole Worker of the daemon on one or two simulated engines, between scripted clients and origins, in virtual time. It
// is given configurations as the supervisor gives them, drained and cut as by the supervisor. Owner: a test case. Thread: one.
// verdict() ends it (cuts what is left, closes pools) and says in words what was not as it should be: each exchange ended once,
// no slab, slot, descriptor, timer or op left behind, no audit failed. "" is the only good answer. It does so too when the case forgets.
#pragma once

#include <atomic>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "daemon/worker.h"
#include "engines/sim_engine.h"
#include "engines/sim_network.h"
#include "engines/sim_peer.h"
#include "tests/sim/wire.h"

namespace weir {
struct WorkerProbe;
}

namespace weir::simtest {

class Proxy;

inline constexpr const char* kOrigin1 = "10.0.0.1:80";
inline constexpr const char* kOrigin2 = "10.0.0.2:80";
inline constexpr const char* kFront = "127.0.0.1:80";

// A client connection. What it receives goes to `in`; on_change runs after each event.
struct Client {
  explicit Client(Proxy& proxy);
  Client(const Client&) = delete;
  void send(std::string_view bytes) { peer.send(bytes); }
  void get(const std::string& path = "/", const std::string& more = "");
  void post(std::string_view body, const std::string& more = "");      // with a content-length
  bool closed() const { return peer.ended() || peer.error() != 0; }
  const Message& last() const {
    static const Message kNone;
    return in.messages.empty() ? kNone : in.messages.back();
  }

  SimPeer& peer;
  Wire in{Wire::Side::responses};
  std::function<void(Client&)> on_change;
};
inline bool done(const Client& client, size_t answers) { return client.in.complete() >= answers || client.closed(); }

// What listens at one address. Unless told otherwise it answers each request with 200 and "hello".
struct Origin {
  struct Conn {
    Conn(Origin& o, SimPeer& p) : origin(o), peer(p) {}
    void answer(std::string_view body, const std::string& more = "", int status = 200);
    bool closed() const { return peer.ended() || peer.error() != 0; }
    Origin& origin;
    SimPeer& peer;
    Wire in{Wire::Side::requests};
    size_t served = 0;
    void* note = nullptr;
  };
  Origin(Proxy& p, const std::string& text);
  Origin(const Origin&) = delete;
  void stop();                                              // connects are refused
  void start();

  Proxy& proxy;
  Address address;
  std::deque<Conn> conns;
  std::function<void(Conn&)> on_accept;
  std::function<void(Conn&)> on_change;                     // after each event, before on_request
  std::function<void(Conn&, Message&)> on_request;          // each complete request
  uint64_t requests = 0;
};

class Proxy {
 public:
  struct Options {
    uint64_t seed = 1;
    std::string listener{};                                 // "protocols: [h2]"
    std::string timeouts{};                                 // "write: 1s, connect: 2s"
    std::string routes = "routes: [{to: app}]\n";
    std::string upstreams{};                                // further ones, besides `app`
    std::string more{};                                     // further top-level keys
    std::vector<std::string> servers{kOrigin1};
    PipeLimits pipes{};
    SimLink link{};
    SimFaults faults{};
    size_t slab_bytes_max = size_t{256} << 20;
    uint64_t memory = uint64_t{1} << 30;                    // limits.memory
    int64_t connections = 4096;
    std::vector<std::string> binds{kFront};
    bool two_engines = false;                               // which stand in for epoll, that has the listener at first, and io_uring
    std::function<std::unique_ptr<Engine>(std::unique_ptr<Engine>)> wrap_engine{};
    bool access_log = false;                                // its lines go to log()
    bool heap = false;                                      // count the heap allocations of the code under test (heap.h)
    std::function<void(config::Snapshot&)> change{};        // to what was read
  };
  explicit Proxy(const Options& options);
  Proxy() : Proxy(Options{}) {}
  ~Proxy();
  Proxy(const Proxy&) = delete;

  Origin& origin(const std::string& text = kOrigin1);       // found or made
  Client& client() { return clients_.emplace_back(*this); }

  bool run(const std::function<bool()>& done);              // false: it will never be
  void run_for(Duration time);
  TimePoint now() const { return network.now(); }
  bool tick();                                              // of the loop alone, heap counted; false: nothing was served
  std::string verdict();
  std::string log();                                        // the lines since the last call

  // Counters.
  uint64_t timeouts(h1::ServerTimeoutKind kind) const { return server().timeouts[static_cast<size_t>(kind)].get(); }
  uint64_t timeouts(h1::ClientTimeoutKind kind) const { return upstream().client.timeouts[static_cast<size_t>(kind)].get(); }
  uint64_t all_timeouts() const;
  const std::array<Counter, kRefusedCauses>& refused() const { return listener_stats_->refused; }
  const h1::ServerStats& server() const { return listener_stats_->server; }
  const h2::ServerStats& h2() const { return listener_stats_->h2; }
  uint64_t goaways(h2::EndCause cause, h2::ErrorCode code) const {
    return h2().goaways[static_cast<size_t>(cause)][static_cast<size_t>(code)].get();
  }
  Allowance& allowance() { return registry_.allowance("app"); }
  const UpstreamStats& upstream() const { return *upstream_stats_; }
  size_t pooled() const;                                    // idle connections to origins
  size_t open_origins() const { return pools.open(); }
  size_t slabs() { return loop.slabs().in_use(); }
  uint64_t growths();                                       // of every pool there is
  Listener& listener();
  void drain() { worker_->drain(); }
  bool drained() const { return drained_; }                 // the worker has said that nothing is left
  // A configuration made from changed options takes effect in the next tick, `engine` gets the listener and its connections.
  void reload(const std::function<void(Options&)>& change) { reload(change, engine_); }
  void reload(const std::function<void(Options&)>& change, EngineKind engine);
  EngineKind engine() const { return engine_; }
  size_t parked(EngineKind kind) const;                     // ops that wait in that engine
  uint64_t generation() const { return generation_; }
  size_t configurations() const { return worker_->generations().get(); }   // that the worker holds

  SimNetwork network;

 private:
  friend struct weir::WorkerProbe;
  Options options_;
  std::atomic<int64_t> connections_left_;
  std::unique_ptr<AccessSink> access_;
  std::unique_ptr<MemoryBudget> budget_;
  StatsRegistry registry_;
  std::unique_ptr<Worker> worker_;

 public:
  Loop& loop;
  ExchangeContext& exchanges;
  SlotPool<h1::ServerConn>& conns;
  PoolSet& pools;
  MemoryBudget& budget;
  MemoryGuard& memory;

 private:
  Publication publication();
  void add_engine(EngineKind kind);
  void silence();

  EngineKind engine_ = EngineKind::sim;
  uint64_t generation_ = 0;
  bool drained_ = false;
  std::vector<std::string> listening_;
  std::vector<const SimEngine*> sims_;
  ListenerStats* listener_stats_;
  UpstreamStats* upstream_stats_;
  std::deque<Client> clients_;
  std::deque<Origin> origins_;
  bool over_ = false;
};

Address address_of(const std::string& text);

}  // namespace weir::simtest

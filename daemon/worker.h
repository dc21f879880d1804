// Worker: one thread, one Loop, its share of every listener's sockets, its pools. Workers share nothing but the process's
// connection allowance; the supervisor talks to them through their mailboxes.
// Owner: the supervisor (its thread starts, publishes, drains and joins). All else here runs on the worker's own thread.
// Guarantees: a publication takes effect at a tick boundary; an exchange ends under the configuration it began with.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "daemon/connections.h"
#include "daemon/listener.h"
#include "engines/uring_engine.h"

namespace weir {

struct ListenerAssignment {
  std::string name;
  size_t index = 0;                                      // in the runtime's listeners
  EngineKind engine = EngineKind::epoll;
  ListenerStats* stats = nullptr;
  std::vector<std::string> binds;                        // all that it has now
  std::vector<std::pair<std::string, int>> new_sockets;  // of these the worker does not have yet; descriptors change hands
};

struct Publication {
  std::shared_ptr<const Runtime> runtime;
  std::vector<ListenerAssignment> listeners;
};

struct WorkerOptions {
  size_t index = 0;
  size_t slab_bytes_max = 0;              // address space; what may be held is the budget's to say
  MemoryBudget* memory = nullptr;
  bool epoll = true;
  bool uring = false;
  unsigned rings = 1;
  unsigned relay_pipes_max = UINT_MAX;                   // of each engine
  const UringProbe* probe = nullptr;
  std::atomic<int64_t>* connections_left = nullptr;
  AccessSink* access = nullptr;
  Clock* clock = nullptr;                                // another than the system's: no gathering, whose choice is measured
};

class Worker {
 public:
  // Runs a function on another thread's loop, soon. The supervisor's own.
  using Post = std::function<void(std::move_only_function<void()>)>;

  Worker(const WorkerOptions& options, Post to_supervisor, std::function<void(size_t)> emptied);
  ~Worker();

  // Makes the engines and starts the thread. Empty text: it runs; else why not.
  std::string start();
  // Any of these: the supervisor's thread. `applied` runs there too, once the worker serves by what was published.
  void publish(Publication publication, std::move_only_function<void()> applied);
  void drain();                                          // stop accepting; connections end as they become idle
  void stop_accepting();
  void announce(bool on);                                // answers say "connection: close"; nothing else changes
  void cut(const Fault& fault);                          // every connection, now
  // Its part of the live list; `done` runs on the supervisor's thread.
  void list_connections(const ConnectionFilter& filter, std::move_only_function<void(ConnectionList)> done);
  void stop_and_join();

  // Counters, for any thread.
  LoopStats& loop_stats() noexcept { return loop_.stats(); }
  const ExchangeStats& exchange_stats() const noexcept { return exchanges_.stats; }
  const PipeStats& pipe_stats() const noexcept { return exchanges_.pipes; }
  const MemoryStats& memory_stats() const noexcept { return memory_.stats; }
  const UringStats& uring_stats() const noexcept { return uring_stats_; }
  std::string engine_tier(EngineKind kind) { return loop_.has(kind) ? loop_.engine(kind)->tier() : std::string(); }
  const Counter& generations() const noexcept { return generations_; }   // runtimes in use, the current one included

 private:
  friend struct WorkerProbe;                             // a test that is worker's thread itself, instead of start()
  struct Task;
  void post(std::move_only_function<void()> work);
  void run() noexcept;
  void apply(Publication&& publication);
  void assign(const ListenerAssignment& assignment, WorkerRuntime& current);
  void housekeeping() noexcept;
  static void emptied_entry(void* worker) noexcept;
  static void housekeeping_entry(Pump& pump) noexcept;

  WorkerOptions options_;
  Post to_supervisor_;
  std::function<void(size_t)> emptied_;
  SystemClock clock_;
  Loop loop_;
  ExchangeContext exchanges_;
  MemoryGuard memory_;
  SlotPool<h1::ServerConn> conns_;
  TlsTurns turns_{loop_};
  h2::ServerContext h2_;
  SlotPool<h2::ServerConn> h2_conns_;
  PoolSet pools_;
  Forwarder forwarder_;
  ListenerHost host_;
  UringStats uring_stats_;
  Counter generations_;
  std::vector<std::unique_ptr<Listener>> listeners_;
  std::vector<std::unique_ptr<WorkerRuntime>> runtimes_;   // the current one is the last
  struct Housekeeping : Pump { Worker* worker = nullptr; } housekeeping_;
  struct StopWatch : Timer { Worker* worker = nullptr; } stop_watch_;
  bool draining_ = false;
  bool announcing_ = false;
  bool stopping_ = false;
  bool emptied_told_ = false;
  std::thread thread_;
};

}  // namespace weir

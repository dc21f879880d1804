// Listener: one configured listener on one worker: its listening sockets, what it accepts, and its client connections.
// Owner: the worker; it lives until it is retired and its last connection has ended. Thread: the worker's.
// Guarantees: every refused accept is counted by cause and logged at most once a second; out of descriptors it tries again (see
// acceptor.h); a listening socket is closed only after what was queued on it has been accepted; a change of engine reaches its
// sockets and its connections with their next operation, and closes none.
#pragma once

#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include "daemon/acceptor.h"
#include "daemon/budget.h"
#include "daemon/conn_list.h"
#include "daemon/forward.h"
#include "daemon/stats.h"

namespace weir {

class Listener;

// What a listener needs of its worker.
struct ListenerHost {
  Loop& loop;
  ExchangeContext& exchanges;
  SlotPool<h1::ServerConn>& conns;
  h2::ServerContext& h2;
  SlotPool<h2::ServerConn>& h2_conns;
  Forwarder& forwarder;
  MemoryGuard& memory;
  std::atomic<int64_t>& connections_left;                  // the process's limit, shared by all workers
  TlsTurns& turns;
  void (*emptied)(void* worker) noexcept;                  // a connection or accept op ended: look whether all is over
  void* worker;
};

class Listener final : public h1::ServerConnHost, public h2::ServerConnHost, public AcceptorOwner {
 public:
  Listener(ListenerHost& host, std::string name, EngineKind engine, ListenerStats& stats);
  ~Listener();

  void configure(size_t index, WorkerRuntime& current, const h1::HeadLimits& head, uint64_t body_max,
                 const h1::ServerTimeouts& timeouts, const TlsContext& tls) noexcept;   // an empty context: plain
  void offer(bool h1, bool h2, const h2::SessionLimits& limits) noexcept;   // what clients may speak; after configure
  void set_engine(EngineKind engine) noexcept;            // of every next operation, here and on its connections
  void add_socket(const std::string& bind, int fd);        // takes the descriptor over
  void keep_sockets(const std::vector<std::string>& binds) noexcept;   // drops all others
  void stop_accepting() noexcept;                          // all of them, once what is queued has been served
  void pause_accepting(bool pause) noexcept;               // while memory is short: what comes waits in the kernel's queue
  void drain() noexcept;                                   // its connections end as they become idle
  void cut(const Fault& fault) noexcept;                   // they end now
  void announce(bool on) noexcept;                         // answers say "connection: close", or no longer; still accepting
  const ConnList& connections() const noexcept { return conns_; }
  ConnList& connections() noexcept { return conns_; }
  const H2ConnList& h2_connections() const noexcept { return h2_conns_; }
  bool empty() const noexcept { return conns_.empty() && h2_conns_.empty() && sockets_.empty(); }
  bool retired = false;
  const std::string& name() const noexcept { return name_; }
  ListenerView& view() noexcept { return view_; }

 private:
  void on_accepted(const Accepted& accepted) noexcept override;
  void on_accept_failed(int error) noexcept override;
  void on_acceptor_closed(Acceptor& acceptor) noexcept override;
  void refused(RefusedCause cause, int error) noexcept;
  static void tls_failed(void* listener, const TlsFailed& failed, const TransportOwner& owner) noexcept;
  void conn_speaks_h2(h1::ServerConn& conn, Chain&& first) noexcept override;
  void conn_closed(h1::ServerConn& conn) noexcept override;
  void conn_closed(h2::ServerConn& conn) noexcept override;

  ListenerHost& host_;
  std::string name_;
  ListenerStats& stats_;
  ListenerView view_;
  h1::ServerPolicy policy_;
  TlsSetup tls_;
  h2::ServerPolicy h2_policy_;
  std::vector<std::unique_ptr<Acceptor>> sockets_;
  ConnList conns_;
  H2ConnList h2_conns_;
  bool drained_ = false;
  bool paused_ = false;
  bool cut_ = false;                  // what is accepted now ends at once
  TimePoint refused_logged_{};
  uint64_t refused_unlogged_ = 0;
};

}  // namespace weir

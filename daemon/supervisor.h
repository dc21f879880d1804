// Supervisor: the process: configuration, listening sockets, workers, signals, reload, drain, and the admin server, on a loop of
// its own on the main thread. It moves no client's bytes.
// Caller: main(). run() returns the exit code (0 ok, 1 failure, 75 cannot bind, 78 bad configuration).
// Guarantees: a reload that fails changes nothing; unchanged binds keep their sockets; a start failure is reported at once with
// its reason; every stage of the drain table (drain.h) is logged once.
#pragma once

#include <atomic>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "config/load.h"
#include "daemon/admin.h"
#include "daemon/bind.h"
#include "daemon/certificates.h"
#include "daemon/drain.h"
#include "daemon/signals.h"
#include "daemon/worker.h"

namespace weir {

struct SupervisorOptions {
  std::string config_path = "/etc/weir/weir.yaml";
  std::optional<config::LogLevel> log_level;   // from the command line: wins over the file
};

struct ReloadVerdict {
  bool ok = false;
  bool bad_config = false;
  std::string sentence{};
  std::vector<std::string> problems{};                   // with file, line and column
  uint64_t generation = 0;                               // that serves now
  std::string hash{};
};
using ReloadDone = std::function<void(const ReloadVerdict&)>;

class Supervisor {
 public:
  explicit Supervisor(SupervisorOptions options);
  ~Supervisor();
  int run();

  // What status and metrics are made of (supervisor's thread).
  const Runtime& runtime() const { return *runtime_; }
  const StatsRegistry& registry() const { return registry_; }
  std::vector<std::unique_ptr<Worker>>& workers() { return workers_; }
  const BoundSockets& sockets() const { return sockets_; }
  EngineKind engine_of(const config::Listener& listener) const;
  std::string engine_reason(const config::Listener& listener) const;
  DrainStage stage() const { return stage_; }
  const std::string& uring_refusal() const { return uring_refusal_; }
  std::string not_ready() const;                         // why new requests should go elsewhere; empty: they should not
  bool last_reload_ok() const { return last_reload_ok_; }
  int64_t last_reload_unix() const { return last_reload_unix_; }
  uint64_t generation_served() const { return generation_served_; }   // every worker serves by it
  const std::vector<CertificateAge>& certificates() const { return tls_.ages; }
  uint64_t started_unix() const { return started_unix_; }
  const std::string& config_path() const { return options_.config_path; }
  const MemoryBudget& memory() const { return memory_; }
  uint64_t access_lines_dropped() const { return access_->dropped(); }

  // What the admin server can tell it to do (supervisor's thread). Texts: why it was not done.
  void reload(ReloadDone done);                          // `done` is told the verdict, later
  std::string drain(bool on);                            // as asked by a person: /readyz says 503, all else goes on; and back
  void stop_by_admin();                                  // as TERM
  void set_log_level(config::LogLevel level);            // until the next reload

 private:
  struct Task;
  struct Later : Timer { Supervisor* self = nullptr; };
  void post(std::move_only_function<void()> work);       // any thread
  int start();
  int start_sockets();
  int start_engines();
  size_t worker_count(const config::Snapshot& config) const;
  int start_workers();
  void start_admin();
  void log_identity();
  void warn_unresolved();
  void later(std::function<void()> line) { later_.push_back(std::move(line)); }
  void publish(std::move_only_function<void()> then = {});  // then: every worker serves by it
  void keep_sockets();                                   // those of the serving configuration, no others
  std::vector<config::SocketName> binds_of(const config::Snapshot& config) const;
  void on_signal(int number);
  void reload();
  struct LookedUp;
  void finish_reload(config::LoadResult loaded, const LookedUp& names);
  void conclude_reload(const std::string& failed, ReloadVerdict verdict, const std::vector<ReloadDone>& whom);
  void tell_reloaded(const std::vector<ReloadDone>& whom, ReloadVerdict verdict) const;
  // Of a reload; else why nothing changed. then: every worker serves by it.
  std::string take(config::Snapshot config, const LookedUp& found, std::move_only_function<void()> then);
  void help(std::function<void()> job);                  // a blocking job, on the helper thread
  std::string refuse_change(const config::Snapshot& next) const;
  void watch_names();
  void look_names_up();
  void watch_files();
  void look_at_files();
  void take_files(const std::expected<LoadedTls, config::Problem>& loaded, const std::string& stamp);
  void warn_expiry();
  void warn_kept(const std::vector<std::string>& names);
  void go(DrainEvent event);
  void enter(DrainStage stage);
  void worker_emptied();
  int stop();

  SupervisorOptions options_;
  SystemClock clock_;
  Loop loop_;
  MemoryBudget memory_{uint64_t{64} << 20};              // the configuration says how much
  StatsRegistry registry_;
  TlsTicketKeys tickets_;                                // outlives every runtime
  LoadedTls tls_;                                        // what serves now
  std::string doubtful_stamp_, bad_stamp_;               // of changed files that could not be used, once and twice
  int64_t expiry_said_unix_ = 0;
  BoundSockets sockets_;
  BoundSockets admin_sockets_;
  std::shared_ptr<const Runtime> runtime_;
  std::vector<std::unique_ptr<Worker>> workers_;
  std::optional<UringProbe> probe_;
  std::string uring_refusal_;                            // why io_uring is not used; empty: it can be
  std::atomic<int64_t> connections_left_{0};
  int64_t connections_max_ = 0;
  uint64_t relay_pipes_ = 0;
  std::unique_ptr<AccessLog> access_;
  std::unique_ptr<AdminServer> admin_, metrics_;
  std::string admin_token_;                              // empty: who may open the socket may ask
  std::unique_ptr<Signals> signals_;
  std::thread helper_;                                   // one blocking job at a time: a reload or a look-up of names
  bool helper_busy_ = false;
  bool reload_again_ = false;
  std::vector<std::string> kept_names_;                  // they do not resolve now and keep their last addresses
  std::vector<ReloadDone> reload_asked_, reload_answered_;   // who waits for the next one, and for the one that runs
  Later delay_over_, grace_over_, names_due_, tickets_due_, files_due_;
  std::vector<std::function<void()>> later_;             // lines of the start that the identity line must precede
  DrainStage stage_ = DrainStage::serving;
  bool drain_without_limit_ = false;
  bool accepting_ = true;
  bool drained_ = false;                                 // by a person
  size_t emptied_ = 0;
  std::set<std::string> given_;                          // listener and bind: sockets that the workers have
  bool last_reload_ok_ = true;
  int64_t last_reload_unix_ = 0;
  uint64_t generation_served_ = 1;
  uint64_t started_unix_ = 0;
};

std::string status_json(Supervisor& supervisor);

}  // namespace weir

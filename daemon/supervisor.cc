#include "daemon/supervisor.h"

#include <pthread.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <climits>
#include <cstdio>
#include <cstring>
#include <ctime>

#include "config/footprint.h"
#include "daemon/admin_api.h"
#include "daemon/config_tests.h"
#include "daemon/log.h"
#include "daemon/notify.h"
#include "daemon/system.h"
#include "daemon/version.h"
#include "engines/epoll_engine.h"

namespace weir {

namespace {
constexpr int kExitFailure = 1, kExitCannotBind = 75, kExitBadConfig = 78;
constexpr Duration kNamesRefresh = std::chrono::seconds(30), kNamesRetry = std::chrono::seconds(5);
constexpr Duration kFilesLook = std::chrono::seconds(1);
constexpr int64_t kExpirySayEvery = 86'400;
constexpr Duration kCutPatience = std::chrono::seconds(3);
constexpr size_t kControlSlabBytes = size_t{64} << 20;
constexpr size_t kProbeSlabBytes = size_t{16} << 20;
constexpr size_t kAddressSpaceMax = size_t{16} << 40;   // of all pools; x86-64 has 128 TiB

log::Level level_of(config::LogLevel level) { return static_cast<log::Level>(level); }
log::Format format_of(config::LogFormat format) {
  return format == config::LogFormat::json ? log::Format::json : log::Format::text;
}
std::string signal_text(int number) { return std::string("SIG") + sigabbrev_np(number); }
}  // namespace

struct Supervisor::Task : Message {
  std::move_only_function<void()> work;
};

struct Supervisor::LookedUp {
  Addresses addresses;
  std::expected<LoadedTls, config::Problem> tls{};
  std::vector<std::string> kept;
};

Supervisor::Supervisor(SupervisorOptions options)
    : options_(std::move(options)), loop_(clock_, Loop::Options{.slab_bytes_max = kControlSlabBytes, .gather = false}) {
  delay_over_.self = grace_over_.self = names_due_.self = tickets_due_.self = files_due_.self = this;
  delay_over_.fire = [](Timer& timer) noexcept { static_cast<Later&>(timer).self->go(DrainEvent::delayed); };
  grace_over_.fire = [](Timer& timer) noexcept {
    Supervisor& self = *static_cast<Later&>(timer).self;
    if (self.stage_ == DrainStage::cutting) self.enter(DrainStage::stopped);  // patience is over
    else self.go(DrainEvent::grace_over);
  };
  names_due_.fire = [](Timer& timer) noexcept { static_cast<Later&>(timer).self->look_names_up(); };
  files_due_.fire = [](Timer& timer) noexcept { static_cast<Later&>(timer).self->look_at_files(); };
  tickets_due_.fire = [](Timer& timer) noexcept {
    Supervisor& self = *static_cast<Later&>(timer).self;
    self.tickets_.rotate();
    self.loop_.set_timer(timer, self.loop_.now() + kTicketKeyLife);
  };
}

Supervisor::~Supervisor() {
  if (helper_.joinable()) helper_.join();  // it is at its end, see stop()
}

void Supervisor::post(std::move_only_function<void()> work) {
  auto* task = new Task;
  task->work = std::move(work);
  task->run = [](Message& message) noexcept {
    const std::unique_ptr<Task> own(static_cast<Task*>(&message));
    own->work();
  };
  loop_.mailbox().push(*task);
}

int Supervisor::run() {
  if (const int failed = start(); failed != 0) {
    if (!log::stop()) _exit(failed);
    return failed;
  }
  notify::ready("serving");
  loop_.run();
  return stop();
}

int Supervisor::start() {
  auto loaded = config::load(options_.config_path, certificate_environment(false));
  if (!loaded) {
    fputs(loaded.error().text().c_str(), stderr);
    return kExitBadConfig;
  }
  if (const auto failed = run_config_tests(*loaded); !failed.empty()) {
    for (const config::Problem& problem : failed) fprintf(stderr, "%s\n", problem.text().c_str());
    return kExitBadConfig;
  }
  auto tls = load_tls(*loaded, tickets_);
  if (!tls) {
    fprintf(stderr, "%s\n", tls.error().text().c_str());
    return kExitBadConfig;
  }
  tls_ = std::move(*tls);
  const log::Level level = level_of(options_.log_level.value_or(loaded->log.level));
  log::start(level, format_of(loaded->log.format));
  for (const config::Problem& warning : loaded->warnings) later([text = warning.text()] { log::warn(text); });
  memory_.resize(loaded->limits.memory_bytes.value_or(system::usable_memory_bytes() / 2));
  const size_t workers = worker_count(*loaded);
  const Addresses addresses = resolve_all(*loaded, {});
  runtime_ = compile(std::move(*loaded), addresses, 1, workers, registry_, tls_.listeners);
  later([this] { warn_unresolved(); });
  int failed = start_sockets();
  if (failed == 0) failed = start_engines();
  if (failed == 0) failed = start_workers();
  for (const auto& line : std::exchange(later_, {})) line();
  if (failed != 0) return failed;
  start_admin();
  last_reload_unix_ = time(nullptr);
  started_unix_ = static_cast<uint64_t>(last_reload_unix_);
  publish();
  watch_names();
  watch_files();
  loop_.set_timer(tickets_due_, loop_.now() + kTicketKeyLife);
  signals_ = std::make_unique<Signals>([this](int number) { post([this, number] { on_signal(number); }); });
  return 0;
}

std::vector<config::SocketName> Supervisor::binds_of(const config::Snapshot& config) const {
  std::vector<config::SocketName> names;
  for (const config::Listener& listener : config.listeners)
    names.insert(names.end(), listener.binds.begin(), listener.binds.end());
  return names;
}

// All that needs the rights we were started with; then those are given up.
int Supervisor::start_sockets() {
  const config::Snapshot& config = runtime_->config;
  const uint64_t descriptors = system::raise_descriptor_limit();
  const size_t workers = worker_count(config);
  const system::DescriptorShare share = system::share_descriptors(descriptors, workers, config.limits.connections);
  relay_pipes_ = share.relay_pipes;
  connections_max_ = static_cast<int64_t>(share.connections);
  if (const auto fit = static_cast<int64_t>(config::connections_carried(memory_.limit())); connections_max_ > fit) {
    connections_max_ = fit;
    later([fit] { log::info("connections are limited by limits.memory", {{"limit", std::to_string(fit)}}); });
  }
  connections_left_ = connections_max_;
  if (static_cast<uint64_t>(connections_max_) < config.limits.connections)
    later([this, descriptors, set = config.limits.connections_set] {
      log::write(set ? log::Level::warn : log::Level::info, "connections are limited by RLIMIT_NOFILE",
                 {{"limit", std::to_string(connections_max_)}, {"descriptors", std::to_string(descriptors)}});
    });
  if (auto bound = sockets_.open(binds_of(config), workers, socket_modes(config)); !bound) {
    log::error(bound.error());
    return kExitCannotBind;
  }
  if (const std::string failed = AccessChange().apply(config); !failed.empty()) {
    log::error(failed);
    return kExitCannotBind;
  }
  if (!config.admin.token_file.empty()) {
    auto token = read_token(config.admin.token_file);
    if (!token) {
      log::error(token.error());
      return kExitFailure;
    }
    admin_token_ = std::move(*token);
  }
  const config::SocketName& admin_bind = config.admin.bind;
  config::UnixAccess admin_access = config.admin.unix_access;
  admin_access.mode = admin_access.mode.value_or(0660);
  if (auto bound = admin_sockets_.open({admin_bind}, 1, {{admin_bind.text(), *admin_access.mode}}); !bound) {
    if (config.admin.set) {
      log::error(bound.error());
      return kExitCannotBind;
    }
    later([text = bound.error()] { log::warn(text + "; going on without an admin socket"); });
  } else if (admin_bind.is_unix()) {
    if (const std::string failed = AccessChange().apply(admin_bind.unix_path, admin_access); !failed.empty()) {
      log::error(failed);
      return kExitCannotBind;
    }
  }
  if (config.metrics) {
    if (auto bound = admin_sockets_.open({config.metrics->bind}, 1); !bound) {
      log::error(bound.error());
      return kExitCannotBind;
    }
  }
  if (!config.user.empty() && system::is_root()) {
    if (auto became = system::become(config.user); !became) {
      log::error(became.error());
      return kExitFailure;
    }
  } else if (system::is_root()) {
    later([] { log::warn("running as root: set `user` to give that up after binding"); });
  }
  return 0;
}

int Supervisor::start_engines() {
  auto own = make_epoll_engine(loop_.slabs());
  if (!own) {
    log::error(std::string("epoll: ") + strerror(own.error()));
    return kExitFailure;
  }
  loop_.add_engine(std::move(*own));
  bool wanted = false, required = false;
  for (const config::Listener& listener : runtime_->config.listeners) {
    wanted = wanted || listener.engine != config::EngineChoice::epoll;
    required = required || listener.engine == config::EngineChoice::io_uring;
  }
  if (!wanted) return 0;
  probe_ = probe_uring();
  if (probe_->refusal) {
    uring_refusal_ = probe_->refusal->text;
  } else {
    // The probe used one small ring; whether the limits carry one for each worker shows only by making one.
    SlabPool scratch(kProbeSlabBytes);
    UringOptions one;
    one.rings = static_cast<unsigned>(worker_count(runtime_->config));
    one.probe = &*probe_;
    if (auto ring = make_uring_engine(scratch, one); !ring) uring_refusal_ = ring.error().text;
  }
  if (uring_refusal_.empty()) return 0;
  if (required) {
    log::error("engine io_uring cannot be used: " + uring_refusal_);
    return kExitFailure;
  }
  later([this] { log::info("adaptive listeners serve on epoll: " + uring_refusal_); });
  return 0;
}

EngineKind Supervisor::engine_of(const config::Listener& listener) const {
  if (listener.engine == config::EngineChoice::epoll || !uring_refusal_.empty()) return EngineKind::epoll;
  return EngineKind::uring;
}

std::string Supervisor::engine_reason(const config::Listener& listener) const {
  if (listener.engine != config::EngineChoice::adaptive) return "configured";
  return uring_refusal_.empty() ? "adaptive: io_uring is usable" : "adaptive: " + uring_refusal_;
}

// `auto`: one for each CPU, but no more than the memory budget carries.
size_t Supervisor::worker_count(const config::Snapshot& config) const {
  if (config.workers != 0) return config.workers;
  return std::max<size_t>(1, std::min<size_t>(system::usable_cpus(), config::workers_carried(config.limits, memory_.limit())));
}

int Supervisor::start_workers() {
  const config::Snapshot& config = runtime_->config;
  const size_t count = worker_count(config);
  WorkerOptions options;
  options.epoll = options.uring = false;
  for (const config::Listener& listener : config.listeners)
    (engine_of(listener) == EngineKind::uring ? options.uring : options.epoll) = true;
  // Any worker may need all of it, and a reload may allow more.
  options.slab_bytes_max = std::min<uint64_t>(std::max(memory_.limit(), system::usable_memory_bytes()), kAddressSpaceMax / count);
  options.memory = &memory_;
  options.rings = static_cast<unsigned>(count);
  options.relay_pipes_max = static_cast<unsigned>(std::min<uint64_t>(
      relay_pipes_ / (count * static_cast<size_t>(options.epoll + options.uring)), UINT_MAX));
  options.probe = probe_ ? &*probe_ : nullptr;
  options.connections_left = &connections_left_;
  access_ = std::make_unique<AccessLog>(count);
  if (const std::string failed = access_->configure(config.log.access); !failed.empty()) {
    log::error(failed);
    return kExitFailure;
  }
  for (size_t i = 0; i < count; ++i) {
    options.index = i;
    options.access = &access_->sink(i);
    workers_.push_back(std::make_unique<Worker>(
        options, [this](std::move_only_function<void()> work) { post(std::move(work)); }, [this](size_t) { worker_emptied(); }));
    if (const std::string failed = workers_.back()->start(); !failed.empty()) {
      log::error("worker " + std::to_string(i) + " cannot start: " + failed);
      workers_.clear();
      return kExitFailure;
    }
  }
  log_identity();
  return 0;
}

void Supervisor::warn_unresolved() {
  for (const std::string& name : runtime_->unresolved)
    log::warn("a server's name does not resolve; it is left out and tried again", {{"server", name}});
}

void Supervisor::log_identity() {
  std::string engines;
  for (const EngineKind kind : {EngineKind::epoll, EngineKind::uring}) {
    if (workers_.front()->engine_tier(kind).empty()) continue;
    if (!engines.empty()) engines += ',';
    engines += engine_name(kind);
  }
  log::info("weir " WEIR_VERSION " started", {{"commit", commit_text()},
                                             {"pid", std::to_string(getpid())},
                                             {"config", options_.config_path},
                                             {"hash", runtime_->config.hash},
                                             {"workers", std::to_string(workers_.size())},
                                             {"engines", engines},
                                             {"memory_budget_bytes", std::to_string(memory_.limit())},
                                             {"connections_max", std::to_string(connections_max_)}});
  for (const config::Listener& listener : runtime_->config.listeners) {
    const EngineKind kind = engine_of(listener);
    std::string binds;
    for (const config::SocketName& bind : listener.binds) {
      if (!binds.empty()) binds += ',';
      binds += bind.text();
    }
    log::info("listening", {{"listener", listener.name},
                            {"bind", binds},
                            {"engine", engine_name(kind)},
                            {"tier", workers_.front()->engine_tier(kind)},
                            {"reason", engine_reason(listener)}});
  }
}

void Supervisor::start_admin() {
  const config::Snapshot& config = runtime_->config;
  if (admin_sockets_.has(config.admin.bind.text())) {
    admin_ = std::make_unique<AdminServer>(loop_);
    if (!admin_token_.empty()) admin_->guard(admin_token_);
    add_probe_routes(*admin_, *this);
    add_admin_routes(*admin_, *this);
    admin_->listen(admin_sockets_.duplicate(config.admin.bind.text(), 0));
  }
  if (config.metrics) {
    metrics_ = std::make_unique<AdminServer>(loop_);
    add_probe_routes(*metrics_, *this);
    metrics_->refuse_foreign_pages();
    metrics_->listen(admin_sockets_.duplicate(config.metrics->bind.text(), 0));
  }
}

std::string Supervisor::not_ready() const {
  if (stage_ != DrainStage::serving) return "stopping";
  if (drained_) return "draining";
  return accepting_ ? "" : "not accepting";
}

std::string Supervisor::drain(bool on) {
  if (stage_ != DrainStage::serving) return "the process is stopping";
  if (drained_ == on) return {};
  drained_ = on;
  log::info(on ? "draining: /readyz says 503" : "serving again");
  for (auto& worker : workers_) worker->announce(on);
  return {};
}

void Supervisor::stop_by_admin() {
  log::info("asked to stop", {{"by", "the admin socket"}, {"stage", stage_name(stage_)}});
  // What drains without limit is given one; what has one keeps it.
  if (std::exchange(drain_without_limit_, false) && stage_ == DrainStage::refusing)
    loop_.set_timer(grace_over_, loop_.now() + runtime_->config.shutdown.grace);
  if (stage_ == DrainStage::serving) go(DrainEvent::term);
}

void Supervisor::set_log_level(config::LogLevel level) {
  log::set(level_of(level), format_of(runtime_->config.log.format));
  log::info("the log's level was changed over the admin socket");
}

// What changed is told to every worker; sockets that a worker's listener already has stay where they are.
void Supervisor::publish(std::move_only_function<void()> then) {
  struct Pending {
    size_t workers;
    uint64_t generation;
    std::move_only_function<void()> then;
  };
  auto pending = std::make_shared<Pending>(workers_.size(), runtime_->generation, std::move(then));
  for (size_t worker = 0; worker < workers_.size(); ++worker) {
    Publication publication;
    publication.runtime = runtime_;
    for (size_t index = 0; index < runtime_->config.listeners.size(); ++index) {
      const config::Listener& listener = runtime_->config.listeners[index];
      ListenerAssignment to;
      to.name = listener.name;
      to.index = index;
      to.engine = engine_of(listener);
      to.stats = &registry_.listeners.at(listener.name, worker);
      for (const config::SocketName& bind : listener.binds) {
        to.binds.push_back(bind.text());
        if (given_.contains(listener.name + '\n' + bind.text())) continue;
        const int fd = sockets_.duplicate(bind.text(), worker);
        if (fd >= 0) to.new_sockets.emplace_back(bind.text(), fd);
        else log::error("a listening socket could not be handed over", {{"bind", bind.text()}, {"error", strerror(-fd)}});
      }
      publication.listeners.push_back(std::move(to));
    }
    workers_[worker]->publish(std::move(publication), [this, pending] {
      if (--pending->workers != 0) return;
      generation_served_ = pending->generation;
      if (pending->then) pending->then();
    });
  }
  given_.clear();
  for (const config::Listener& listener : runtime_->config.listeners)
    for (const config::SocketName& bind : listener.binds) given_.insert(listener.name + '\n' + bind.text());
  accepting_ = true;
  keep_sockets();
}

void Supervisor::keep_sockets() {
  std::vector<std::string> kept;
  for (const config::SocketName& bind : binds_of(runtime_->config)) kept.push_back(bind.text());
  sockets_.keep_only(kept);
}

void Supervisor::help(std::function<void()> job) {
  if (helper_.joinable()) helper_.join();
  helper_busy_ = true;
  helper_ = std::thread([this, job = std::move(job)] {
    pthread_setname_np(pthread_self(), "weir-helper");
    job();
    post([this] {
      helper_busy_ = false;
      if (std::exchange(reload_again_, false)) reload();
    });
  });
}

void Supervisor::on_signal(int number) {
  switch (number) {
    case SIGHUP: reload(); break;
    case SIGQUIT:
      log::info("draining to the end", {{"signal", signal_text(number)}});
      drain_without_limit_ = true;
      if (stage_ == DrainStage::refusing) loop_.clear_timer(grace_over_);
      go(DrainEvent::term);
      break;
    case SIGTERM:
    case SIGINT:
      log::info("asked to stop", {{"signal", signal_text(number)}, {"stage", stage_name(stage_)}});
      go(stage_ == DrainStage::serving ? DrainEvent::term : DrainEvent::again);
      break;
    case SIGUSR1:
      if (const std::string failed = access_->reopen(); !failed.empty()) log::error(failed + "; the old file is written on");
      else log::info("logs reopened");
      break;
    case SIGUSR2: log::warn("binary upgrade is not supported by this version; restart the service instead"); break;
    case SIGWINCH:
      log::info("accepting has stopped", {{"signal", signal_text(number)}});
      for (auto& worker : workers_) worker->stop_accepting();
      sockets_.close_all();  // a reload binds them again
      given_.clear();
      accepting_ = false;
      break;
    default: break;
  }
}

void Supervisor::reload(ReloadDone done) {
  reload_asked_.push_back(std::move(done));
  reload();
}

void Supervisor::reload() {
  if (stage_ != DrainStage::serving) {
    log::warn("a stopping process does not reload");
    tell_reloaded(std::exchange(reload_asked_, {}), {.sentence = "a stopping process does not reload"});
    return;
  }
  if (helper_busy_) {
    reload_again_ = true;
    return;
  }
  reload_answered_ = std::exchange(reload_asked_, {});
  notify::reloading();
  log::info("reloading", {{"config", options_.config_path}});
  help([this, path = options_.config_path, before = runtime_->addresses] {
    auto loaded = std::make_shared<config::LoadResult>(config::load(path, certificate_environment(false)));
    auto names = std::make_shared<LookedUp>();
    if (*loaded) names->addresses = resolve_all(**loaded, before, &names->kept);
    if (*loaded) names->tls = load_tls(**loaded, tickets_);
    post([this, loaded, names] { finish_reload(std::move(*loaded), *names); });
  });
}

void Supervisor::finish_reload(config::LoadResult loaded, const LookedUp& names) {
  const auto whom = std::exchange(reload_answered_, {});
  if (stage_ != DrainStage::serving) {
    tell_reloaded(whom, {.sentence = "the reload was overtaken by a stop"});
    return;
  }
  last_reload_unix_ = time(nullptr);
  std::string failed;
  ReloadVerdict verdict;
  const auto problem_found = [&](const config::Problem& problem) {
    log::error(problem.text());
    verdict.problems.push_back(problem.text());
    verdict.bad_config = true;
  };
  if (!loaded) {
    for (const config::Problem& problem : loaded.error().list) problem_found(problem);
    failed = std::to_string(loaded.error().list.size()) + " problem(s) in the configuration";
  } else if (const auto tests = run_config_tests(*loaded); !tests.empty()) {
    for (const config::Problem& problem : tests) problem_found(problem);
    failed = std::to_string(tests.size()) + " of the configuration's own tests failed";
  } else if (!names.tls) {
    problem_found(names.tls.error());
    failed = "a certificate cannot be used";
  } else {
    warn_kept(names.kept);
    failed = take(std::move(*loaded), names, [this, whom] { conclude_reload({}, {}, whom); });
  }
  if (!failed.empty()) conclude_reload(failed, std::move(verdict), whom);
}

// Said only when it is true: after this line in the log no request is served by the old routes.
void Supervisor::conclude_reload(const std::string& failed, ReloadVerdict verdict, const std::vector<ReloadDone>& whom) {
  if (stage_ != DrainStage::serving) {
    tell_reloaded(whom, {.sentence = "the reload was overtaken by a stop"});
    return;
  }
  last_reload_ok_ = failed.empty();
  if (failed.empty()) {
    log::info("reloaded", {{"generation", std::to_string(runtime_->generation)}, {"hash", runtime_->config.hash}});
    notify::ready("serving generation " + std::to_string(runtime_->generation));
  } else {
    log::error("reload failed, the old configuration serves on", {{"reason", failed}});
    notify::ready("reload failed: " + failed);
  }
  verdict.ok = failed.empty();
  verdict.sentence = verdict.ok ? "generation " + std::to_string(runtime_->generation) + " serves" : failed;
  tell_reloaded(whom, std::move(verdict));
}

void Supervisor::tell_reloaded(const std::vector<ReloadDone>& whom, ReloadVerdict verdict) const {
  verdict.generation = runtime_->generation;
  verdict.hash = runtime_->config.hash;
  for (const ReloadDone& done : whom) done(verdict);
}

// Engines are made with the workers; what would need other ones needs a restart.
std::string Supervisor::refuse_change(const config::Snapshot& next) const {
  for (const config::Listener& listener : next.listeners) {
    const EngineKind kind = engine_of(listener);
    if (listener.engine == config::EngineChoice::io_uring && !uring_refusal_.empty())
      return listener.where.text() + ": engine io_uring cannot be used: " + uring_refusal_;
    if (workers_.front()->engine_tier(kind).empty())
      return listener.where.text() + ": listener " + listener.name + " needs engine " + engine_name(kind) +
             ", which no listener had at the start: restart for that";
  }
  return {};
}

std::string Supervisor::take(config::Snapshot config, const LookedUp& found, std::move_only_function<void()> then) {
  if (std::string refused = refuse_change(config); !refused.empty()) return refused;
  const config::Snapshot& now = runtime_->config;
  if (config.workers != now.workers) log::warn("a changed `workers` takes effect at the next start");
  if (!(config.admin == now.admin) || config.metrics != now.metrics || config.user != now.user)
    log::warn("changed `admin`, `metrics` or `user` take effect at the next start");
  if (auto bound = sockets_.open(binds_of(config), workers_.size(), socket_modes(config)); !bound) return bound.error();
  AccessChange access;
  if (std::string failed = access.apply(config); !failed.empty()) {
    keep_sockets();
    return failed;
  }
  if (!descriptors_to_spare(workers_.size() * binds_of(config).size())) {
    access.take_back();
    keep_sockets();
    return "too few descriptors are left to hand its sockets to the workers (RLIMIT_NOFILE)";
  }
  if (std::string failed = access_->configure(config.log.access); !failed.empty()) {
    access.take_back();
    keep_sockets();  // those that were bound for nothing go
    return failed;
  }
  for (const config::Problem& warning : config.warnings) log::warn(warning.text());
  log::set(level_of(options_.log_level.value_or(config.log.level)), format_of(config.log.format));
  memory_.resize(config.limits.memory_bytes.value_or(system::usable_memory_bytes() / 2));
  tls_ = *found.tls;
  runtime_ = compile(std::move(config), found.addresses, runtime_->generation + 1, workers_.size(), registry_, tls_.listeners);
  warn_unresolved();
  publish(std::move(then));
  watch_names();
  watch_files();
  return {};
}

void Supervisor::watch_files() {
  expiry_said_unix_ = time(nullptr);  // start and reload have just said it
  if (tls_.stamp.empty()) loop_.clear_timer(files_due_);
  else loop_.set_timer(files_due_, loop_.now() + kFilesLook);
}

// Certificates that were renewed are taken without a reload.
void Supervisor::look_at_files() {
  if (!tls_.stamp.empty()) loop_.set_timer(files_due_, loop_.now() + kFilesLook);
  if (time(nullptr) - expiry_said_unix_ >= kExpirySayEvery) warn_expiry();
  if (helper_busy_ || stage_ != DrainStage::serving) return;
  const std::string stamp = stamp_of_files(runtime_->config);
  if (stamp == tls_.stamp || stamp == bad_stamp_) return;
  help([this, runtime = runtime_, stamp] {
    auto loaded = std::make_shared<std::expected<LoadedTls, config::Problem>>(load_tls(runtime->config, tickets_));
    post([this, runtime, stamp, loaded] {
      if (stage_ == DrainStage::serving && runtime == runtime_) take_files(*loaded, stamp);
    });
  });
}

// What cannot be used at first may be half written: it is said when it is still so at the next look.
void Supervisor::take_files(const std::expected<LoadedTls, config::Problem>& loaded, const std::string& stamp) {
  if (!loaded) {
    if (std::exchange(doubtful_stamp_, stamp) != stamp) return;
    bad_stamp_ = stamp;
    log::error("changed certificate files cannot be used, the old ones serve on", {{"reason", loaded.error().text()}});
    return;
  }
  tls_ = *loaded;
  const uint64_t generation = runtime_->generation + 1;
  runtime_ = compile(config::Snapshot(runtime_->config), runtime_->addresses, generation, workers_.size(), registry_,
                     tls_.listeners);
  warn_expiry();
  publish([generation] { log::info("changed certificate files were taken", {{"generation", std::to_string(generation)}}); });
}

void Supervisor::warn_expiry() {
  expiry_said_unix_ = time(nullptr);
  for (const CertificateAge& age : tls_.ages)
    for (const config::CertificateFault& fault : expiry_faults({.names = {}, .not_after = age.not_after}, expiry_said_unix_))
      log::warn("a certificate " + fault.text, {{"cert", age.file}});
}

void Supervisor::watch_names() {
  if (has_names(runtime_->config))
    loop_.set_timer(names_due_, loop_.now() + (runtime_->unresolved.empty() ? kNamesRefresh : kNamesRetry));
  else
    loop_.clear_timer(names_due_);
}

// Once for each time that the list changes: the look-ups go on.
void Supervisor::warn_kept(const std::vector<std::string>& names) {
  if (std::exchange(kept_names_, names) == names) return;
  for (const std::string& name : names)
    log::warn("a server's name does not resolve now; its last addresses are kept", {{"server", name}});
}

// Names are looked up again now and then; only a changed answer makes a new generation.
void Supervisor::look_names_up() {
  if (helper_busy_ || stage_ != DrainStage::serving) {
    watch_names();
    return;
  }
  help([this, runtime = runtime_] {
    auto names = std::make_shared<LookedUp>();
    names->addresses = resolve_all(runtime->config, runtime->addresses, &names->kept);
    post([this, runtime, names] {
      const bool current = stage_ == DrainStage::serving && runtime == runtime_;
      if (current) warn_kept(names->kept);
      if (current && names->addresses != runtime_->addresses) {
        const uint64_t generation = runtime_->generation + 1;
        runtime_ = compile(config::Snapshot(runtime_->config), names->addresses, generation, workers_.size(), registry_,
                           tls_.listeners);
        log::info("names resolve differently now", {{"generation", std::to_string(runtime_->generation)}});
        publish();
      }
      watch_names();
    });
  });
}

void Supervisor::go(DrainEvent event) {
  const DrainStage next = next_stage(stage_, event);
  if (next != stage_) enter(next);
}

void Supervisor::enter(DrainStage stage) {
  stage_ = stage;
  const config::Shutdown& shutdown = runtime_->config.shutdown;
  log::info("stage", {{"stage", stage_name(stage)}});
  switch (stage) {
    case DrainStage::serving: break;
    case DrainStage::announcing:
      notify::stopping("draining");
      if (shutdown.delay.count() == 0) go(DrainEvent::delayed);
      else loop_.set_timer(delay_over_, loop_.now() + shutdown.delay);
      break;
    case DrainStage::refusing:
      for (auto& worker : workers_) worker->drain();
      sockets_.close_all();
      if (!drain_without_limit_) loop_.set_timer(grace_over_, loop_.now() + shutdown.grace);
      break;
    case DrainStage::cutting:
      for (auto& worker : workers_) {
        worker->drain();
        worker->cut(make_fault(What::shutting_down));
      }
      sockets_.close_all();
      loop_.set_timer(grace_over_, loop_.now() + kCutPatience);
      break;
    case DrainStage::stopped: loop_.stop(); break;
  }
}

void Supervisor::worker_emptied() {
  if (++emptied_ == workers_.size()) go(DrainEvent::emptied);
}

// Nothing here waits without an end: a thread of ours that is stuck in a call (a name server, a pipe that nobody reads) is left
// behind, and then the process ends without destroying what that thread may still use.
int Supervisor::stop() {
  signals_.reset();
  if (emptied_ != workers_.size()) {
    admin_sockets_.close_all();
    log::error("connections did not end when they were cut; exiting without them");
    log::stop();
    _exit(kExitFailure);
  }
  for (AdminServer* server : {admin_.get(), metrics_.get()}) {
    if (server == nullptr) continue;
    server->close();
    while (!server->empty()) loop_.tick(std::chrono::milliseconds(10));
  }
  workers_.clear();
  bool left_behind = !access_->close();
  admin_sockets_.close_all();
  log::info("stopped");
  left_behind |= !log::stop();
  if (left_behind || helper_busy_) _exit(0);
  return 0;
}

}  // namespace weir

#include "daemon/worker.h"

#include <pthread.h>
#include <signal.h>

#include <algorithm>
#include <cstring>

#include "daemon/log.h"
#include "engines/epoll_engine.h"

namespace weir {

struct Worker::Task : Message {
  std::move_only_function<void()> work;
};

Worker::Worker(const WorkerOptions& options, Post to_supervisor, std::function<void(size_t)> emptied)
    : options_(options), to_supervisor_(std::move(to_supervisor)), emptied_(std::move(emptied)),
      loop_(options.clock != nullptr ? *options.clock : clock_,
            Loop::Options{.slab_bytes_max = options.slab_bytes_max, .memory = options.memory, .gather = options.clock == nullptr}),
      exchanges_(loop_), memory_(*options.memory, exchanges_, options.index == 0), h2_(exchanges_),
      pools_(exchanges_, options.index),
      forwarder_(options.index, options.clock != nullptr ? RequestIds(options.index) : RequestIds()),
      host_{loop_, exchanges_, conns_, h2_, h2_conns_, forwarder_, memory_, *options.connections_left, turns_, emptied_entry,
            this} {
  conns_.charge_to(loop_.slabs().lease());
  forwarder_.log_to(options.access);
  housekeeping_.worker = this;
  housekeeping_.pump = housekeeping_entry;
  forwarder_.tell_when_unused(housekeeping_);
  pools_.tell_when_emptied(housekeeping_);
  stop_watch_.worker = this;
  stop_watch_.fire = [](Timer& timer) noexcept { static_cast<StopWatch&>(timer).worker->housekeeping(); };
}

Worker::~Worker() { stop_and_join(); }

std::string Worker::start() {
  if (options_.epoll) {
    auto engine = make_epoll_engine(loop_.slabs(), options_.relay_pipes_max);
    if (!engine) return std::string("epoll: ") + strerror(engine.error());
    loop_.add_engine(std::move(*engine));
  }
  if (options_.uring) {
    UringOptions ring;
    ring.rings = options_.rings;
    ring.relay_pipes_max = options_.relay_pipes_max;
    ring.probe = options_.probe;
    ring.stats = &uring_stats_;
    auto engine = make_uring_engine(loop_.slabs(), ring);
    if (!engine) return engine.error().text;
    loop_.add_engine(std::move(*engine));
  }
  thread_ = std::thread([this] { run(); });
  return {};
}

void Worker::run() noexcept {
  sigset_t all;
  sigfillset(&all);
  pthread_sigmask(SIG_BLOCK, &all, nullptr);
  const std::string name = "weir-" + std::to_string(options_.index);
  pthread_setname_np(pthread_self(), name.c_str());
  loop_.run();
}

void Worker::post(std::move_only_function<void()> work) {
  auto* task = new Task;
  task->work = std::move(work);
  task->run = [](Message& message) noexcept {
    const std::unique_ptr<Task> own(static_cast<Task*>(&message));
    own->work();
  };
  loop_.mailbox().push(*task);
}

void Worker::publish(Publication publication, std::move_only_function<void()> applied) {
  post([this, publication = std::move(publication), applied = std::move(applied)]() mutable {
    apply(std::move(publication));
    to_supervisor_(std::move(applied));
  });
}

void Worker::drain() {
  post([this] {
    draining_ = true;
    for (auto& listener : listeners_) {
      listener->stop_accepting();
      listener->drain();
    }
    loop_.mark_dirty(housekeeping_);
  });
}

void Worker::announce(bool on) {
  post([this, on] {
    announcing_ = on;
    for (auto& listener : listeners_) listener->announce(on);
  });
}

void Worker::list_connections(const ConnectionFilter& filter, std::move_only_function<void(ConnectionList)> done) {
  post([this, filter, done = std::move(done)]() mutable {
    ConnectionList list;
    for (const auto& listener : listeners_) weir::list_connections(*listener, options_.index, loop_.now(), filter, list);
    to_supervisor_([list = std::move(list), done = std::move(done)]() mutable { done(std::move(list)); });
  });
}

void Worker::stop_accepting() {
  post([this] {
    for (auto& listener : listeners_) listener->stop_accepting();
  });
}

void Worker::cut(const Fault& fault) {
  post([this, fault] {
    for (auto& listener : listeners_) listener->cut(fault);
  });
}

// Everything is cut on the loop's own thread, which ends once no descriptor and no op is left.
void Worker::stop_and_join() {
  if (!thread_.joinable()) return;
  post([this] {
    stopping_ = true;
    for (auto& listener : listeners_) {
      listener->stop_accepting();
      listener->cut(make_fault(What::shutting_down));
    }
    pools_.close_idle();
    loop_.mark_dirty(housekeeping_);
  });
  thread_.join();
}

void Worker::apply(Publication&& publication) {
  const uint64_t generation = publication.runtime->generation;
  runtimes_.push_back(std::make_unique<WorkerRuntime>(std::move(publication.runtime), pools_, options_.index));
  WorkerRuntime& current = *runtimes_.back();
  pools_.retire_unseen(generation);
  const config::Limits& limits = current.runtime->config.limits;
  memory_.configure({.cap_min = static_cast<uint32_t>(limits.pipe_min_bytes),
                     .cap_max = static_cast<uint32_t>(limits.pipe_max_bytes)});
  for (const ListenerAssignment& assignment : publication.listeners) assign(assignment, current);
  for (auto& listener : listeners_) {
    bool wanted = false;
    for (const ListenerAssignment& assignment : publication.listeners) wanted = wanted || assignment.name == listener->name();
    if (wanted || listener->retired) continue;
    listener->retired = true;
    ++listener->view().current->exchanges;  // requests on its last connections need the configuration that knew it
    listener->stop_accepting();
    listener->drain();
  }
  loop_.mark_dirty(housekeeping_);
}

void Worker::assign(const ListenerAssignment& assignment, WorkerRuntime& current) {
  Listener* listener = nullptr;
  for (auto& one : listeners_)
    if (!one->retired && one->name() == assignment.name) listener = one.get();
  if (listener == nullptr) {
    listeners_.push_back(std::make_unique<Listener>(host_, assignment.name, assignment.engine, *assignment.stats));
    listener = listeners_.back().get();
    listener->announce(announcing_);
  }
  const config::Snapshot& config = current.runtime->config;
  const config::Listener& plan = config.listeners[assignment.index];
  const config::Limits limits = listener_limits(config, plan);
  listener->configure(assignment.index, current, request_limits(limits), config::kUnlimited,  // of the body: by route
                      server_timeouts(plan.timeouts), current.runtime->listeners[assignment.index].tls.context);
  const auto speaks = [&](config::Protocol protocol) {
    return std::find(plan.protocols.begin(), plan.protocols.end(), protocol) != plan.protocols.end();
  };
  listener->offer(speaks(config::Protocol::h1), speaks(config::Protocol::h2), session_limits(config.limits));
  listener->set_engine(assignment.engine);
  listener->keep_sockets(assignment.binds);
  for (const auto& [bind, fd] : assignment.new_sockets) listener->add_socket(bind, fd);
}

void Worker::emptied_entry(void* worker) noexcept {
  auto& self = *static_cast<Worker*>(worker);
  self.loop_.mark_dirty(self.housekeeping_);
}

void Worker::housekeeping_entry(Pump& pump) noexcept { static_cast<Housekeeping&>(pump).worker->housekeeping(); }

// Lets go of listeners and configurations that nothing uses any more.
void Worker::housekeeping() noexcept {
  std::erase_if(listeners_, [](const auto& listener) {
    if (!listener->retired || !listener->empty()) return false;
    --listener->view().current->exchanges;
    return true;
  });
  if (runtimes_.size() > 1) {
    const WorkerRuntime* current = runtimes_.back().get();
    std::erase_if(runtimes_, [&](const auto& one) { return one.get() != current && one->exchanges == 0; });
  }
  if (pools_.retired() != 0) pools_.retire_unseen(runtimes_.back()->runtime->generation);
  generations_.set(runtimes_.size());
  if (stopping_) {
    bool over = pools_.open() == 0;
    for (const auto& listener : listeners_) over = over && listener->empty();
    if (over) loop_.stop();
    else loop_.set_timer(stop_watch_, loop_.now() + std::chrono::milliseconds(4));
  }
  if (!draining_ || emptied_told_) return;
  for (const auto& listener : listeners_)
    if (!listener->empty()) return;
  emptied_told_ = true;
  to_supervisor_([tell = emptied_, index = options_.index] { tell(index); });
}

}  // namespace weir

#include "daemon/listener.h"

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "daemon/log.h"

namespace weir {

namespace {
constexpr Duration kRetryAccept = std::chrono::milliseconds(100);
constexpr Duration kServeQueue = std::chrono::milliseconds(20);  // without an accept in this time the queue is empty
constexpr Duration kServeQueueMax = std::chrono::milliseconds(200);  // under a load that never pauses
}  // namespace

Listener::Listener(ListenerHost& host, std::string name, EngineKind engine, ListenerStats& stats)
    : host_(host), name_(std::move(name)), stats_(stats) {
  view_.name = name_;
  view_.engine = engine;
  policy_.handler = &host.forwarder;
  policy_.listener = &view_;
}

Listener::~Listener() { WEIR_ASSERT(empty()); }

void Listener::configure(size_t index, WorkerRuntime& current, const h1::HeadLimits& head, uint64_t body_max,
                         const h1::ServerTimeouts& timeouts) noexcept {
  view_.index = index;
  view_.current = &current;
  policy_.head = head;
  policy_.request_body_max = body_max;
  policy_.timeouts = timeouts;
}

void Listener::add_socket(const std::string& bind, int fd) {
  auto acceptor = std::make_unique<Acceptor>();
  acceptor->listener = this;
  acceptor->bind = bind;
  acceptor->complete = accepted_entry;
  acceptor->release = close_entry;
  acceptor->retry.acceptor = acceptor.get();
  acceptor->retry.fire = retry_entry;
  host_.loop.adopt(acceptor->listening, fd, view_.engine);
  acceptor->socket = &acceptor->listening;
  host_.loop.submit(*acceptor);
  sockets_.push_back(std::move(acceptor));
}

void Listener::keep_sockets(const std::vector<std::string>& binds) noexcept {
  for (auto& acceptor : sockets_)
    if (std::find(binds.begin(), binds.end(), acceptor->bind) == binds.end()) drop_socket(acceptor->bind);
}

void Listener::drop_socket(const std::string& bind) noexcept {
  for (auto& acceptor : sockets_) {
    if (acceptor->bind != bind || acceptor->closing) continue;
    acceptor->closing = true;
    acceptor->close_by = host_.loop.now() + kServeQueueMax;
    host_.loop.set_timer(acceptor->retry, host_.loop.now() + kServeQueue);
  }
}

void Listener::stop_accepting() noexcept {
  for (auto& acceptor : sockets_) drop_socket(acceptor->bind);
}

void Listener::accepted_entry(Op& op) noexcept {
  auto& acceptor = static_cast<Acceptor&>(op);
  acceptor.listener->accept(acceptor);
}

void Listener::accept(Acceptor& acceptor) noexcept {
  if (acceptor.result > 0) {
    for (int i = 0; i < acceptor.result; ++i) take(acceptor.accepted[static_cast<size_t>(i)]);
    if (acceptor.closing)
      host_.loop.set_timer(acceptor.retry, std::min(host_.loop.now() + kServeQueue, acceptor.close_by));
    if (acceptor.more) return;
  }
  if (acceptor.more) return;
  if (acceptor.closing) {
    close_socket(acceptor);
  } else if (acceptor.result >= 0 || acceptor.result == -ECANCELED) {
    host_.loop.submit(acceptor);
  } else {
    const int error = -acceptor.result;
    const bool descriptors = error == EMFILE || error == ENFILE;
    refused(descriptors ? RefusedCause::no_descriptor
                        : error == ENOMEM || error == ENOBUFS ? RefusedCause::no_memory : RefusedCause::other,
            error);
    host_.loop.set_timer(acceptor.retry, host_.loop.now() + kRetryAccept);
  }
}

void Listener::retry_entry(Timer& timer) noexcept {
  Acceptor& acceptor = *static_cast<Acceptor::Retry&>(timer).acceptor;
  Listener& self = *acceptor.listener;
  if (acceptor.closing) {
    if (acceptor.idle()) self.close_socket(acceptor);
    else self.host_.loop.cancel(acceptor);
  } else if (acceptor.idle()) {
    self.host_.loop.submit(acceptor);
  }
}

void Listener::close_socket(Acceptor& acceptor) noexcept {
  if (acceptor.listening.fd < 0) return;
  host_.loop.forget_timer(acceptor.retry);
  host_.loop.close(acceptor.listening);
  host_.loop.free_later(acceptor);
}

void Listener::close_entry(Slot& slot) noexcept {
  auto& acceptor = static_cast<Acceptor&>(slot);
  Listener& self = *acceptor.listener;
  std::erase_if(self.sockets_, [&](const auto& one) { return one.get() == &acceptor; });
  self.host_.emptied(self.host_.worker);
}

void Listener::take(const Accepted& accepted) noexcept {
  const auto give_back = [&](RefusedCause cause, int error) {
    Socket socket;
    host_.loop.adopt(socket, accepted.fd, view_.engine);
    host_.loop.close(socket, true);
    refused(cause, error);
  };
  if (host_.connections_left.fetch_sub(1, std::memory_order_relaxed) <= 0) {
    host_.connections_left.fetch_add(1, std::memory_order_relaxed);
    give_back(RefusedCause::limit, 0);
    return;
  }
  h1::ServerConn* conn =
      host_.conns.make(host_.exchanges, *this, policy_, stats_.server, accepted.fd, view_.engine, accepted.peer);
  if (conn == nullptr) {
    host_.connections_left.fetch_add(1, std::memory_order_relaxed);
    give_back(RefusedCause::no_memory, ENOMEM);
    return;
  }
  conn->next = conns_;
  if (conns_ != nullptr) conns_->prev = conn;
  conns_ = conn;
  if (cut_) conn->cut(make_fault(What::shutting_down));
}

void Listener::refused(RefusedCause cause, int error) noexcept {
  stats_.refused[static_cast<size_t>(cause)].add();
  ++refused_unlogged_;
  if (host_.loop.now() < refused_logged_ + std::chrono::seconds(1)) return;
  refused_logged_ = host_.loop.now();
  log::warn("connections refused", {{"listener", name_},
                                    {"cause", refused_name(cause)},
                                    {"error", error == 0 ? "limits.connections" : strerror(error)},
                                    {"count", std::to_string(refused_unlogged_)}});
  refused_unlogged_ = 0;
}

void Listener::conn_closed(h1::ServerConn& conn) noexcept {
  if (conn.prev != nullptr) conn.prev->next = conn.next;
  else conns_ = conn.next;
  if (conn.next != nullptr) conn.next->prev = conn.prev;
  host_.conns.destroy(&conn);
  host_.connections_left.fetch_add(1, std::memory_order_relaxed);
  host_.emptied(host_.worker);
}

void Listener::drain() noexcept {
  policy_.draining = true;
  for (h1::ServerConn* conn = conns_; conn != nullptr; conn = conn->next) conn->drain();
}

void Listener::cut(const Fault& fault) noexcept {
  cut_ = true;
  for (h1::ServerConn* conn = conns_; conn != nullptr; conn = conn->next) conn->cut(fault);
}

}  // namespace weir

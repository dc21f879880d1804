#include "daemon/listener.h"

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "daemon/log.h"

namespace weir {

Listener::Listener(ListenerHost& host, std::string name, EngineKind engine, ListenerStats& stats)
    : host_(host), name_(std::move(name)), stats_(stats) {
  view_.name = name_;
  view_.engine = engine;
  view_.stats = &stats_;
  policy_.handler = &host.forwarder;
  policy_.listener = &view_;
  tls_.turns = &host.turns;
  tls_.stats = &stats_.tls;
  tls_.failed = tls_failed;
  tls_.arg = this;
  paused_ = !host.memory.accepting();
  host.memory.add(*this);
  h2_policy_.handler = &host.forwarder;
  h2_policy_.listener = &view_;
}

Listener::~Listener() {
  WEIR_ASSERT(empty());
  host_.memory.remove(*this);
}

void Listener::configure(size_t index, WorkerRuntime& current, const h1::HeadLimits& head, uint64_t body_max,
                         const h1::ServerTimeouts& timeouts, const TlsContext& tls) noexcept {
  view_.index = index;
  view_.current = &current;
  policy_.head = head;
  policy_.request_body_max = body_max;
  policy_.timeouts = timeouts;
  if (tls) tls_.context = tls;   // connections that began before keep theirs
  policy_.tls = tls ? &tls_ : nullptr;
}

void Listener::offer(bool h1, bool h2, const h2::SessionLimits& limits) noexcept {
  policy_.h1 = h1;
  policy_.h2 = h2;
  const h1::ServerTimeouts& t = policy_.timeouts;
  h2_policy_.head = {policy_.head.head_bytes, policy_.head.fields};
  h2_policy_.request_body_max = policy_.request_body_max;
  h2_policy_.timeouts = {t.client_header, t.client_body, t.stream_idle, t.keepalive, t.write, t.linger};
  h2_policy_.session = limits;
  h2_policy_.session.header_list_bytes = policy_.head.head_bytes + 32 * policy_.head.fields;
}

void Listener::set_engine(EngineKind engine) noexcept {
  if (view_.engine == engine) return;
  view_.engine = engine;
  for (auto& acceptor : sockets_) acceptor->change_engine(engine);
  conns_.each([&](h1::ServerConn& conn) { conn.change_engine(engine); });
  h2_conns_.each([&](h2::ServerConn& conn) { conn.change_engine(engine); });
}

void Listener::add_socket(const std::string& bind, int fd) {
  sockets_.push_back(std::make_unique<Acceptor>(host_.loop, *this, bind, fd, view_.engine));
  if (paused_) sockets_.back()->pause(true);
}

void Listener::keep_sockets(const std::vector<std::string>& binds) noexcept {
  for (auto& acceptor : sockets_)
    if (std::find(binds.begin(), binds.end(), acceptor->bind()) == binds.end()) acceptor->close();
}

void Listener::stop_accepting() noexcept {
  for (auto& acceptor : sockets_) acceptor->close();
}

void Listener::pause_accepting(bool pause) noexcept {
  paused_ = pause;
  for (auto& acceptor : sockets_) acceptor->pause(pause);
}

void Listener::on_acceptor_closed(Acceptor& acceptor) noexcept {
  std::erase_if(sockets_, [&](const auto& one) { return one.get() == &acceptor; });
  host_.emptied(host_.worker);
}

void Listener::on_accept_failed(int error) noexcept {
  const bool descriptors = error == EMFILE || error == ENFILE;
  const bool memory = error == ENOMEM || error == ENOBUFS;
  refused(descriptors ? RefusedCause::no_descriptor : memory ? RefusedCause::no_memory : RefusedCause::other, error);
}

void Listener::on_accepted(const Accepted& accepted) noexcept {
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
    if (host_.memory.refusing()) give_back(RefusedCause::memory, 0);
    else give_back(RefusedCause::no_memory, ENOMEM);
    return;
  }
  conns_.add(*conn);
  if (cut_) conn->cut(make_fault(What::shutting_down));
  else if (!policy_.h1 && policy_.tls == nullptr) [[unlikely]] conn->hand_over();
}

void Listener::conn_speaks_h2(h1::ServerConn& carrier, Chain&& first) noexcept {
  h2::ServerConn* conn = host_.h2_conns.make(host_.h2, *this, h2_policy_, stats_.h2, carrier.transport(), &carrier,
                                             carrier.peer(), std::move(first));
  if (conn == nullptr) {
    carrier.transport().close(true);   // it is still the carrier's, and closes as such
    return;
  }
  conns_.remove(carrier);
  h2_conns_.add(*conn);
  if (drained_) conn->drain();
}

void Listener::refused(RefusedCause cause, int error) noexcept {
  stats_.refused[static_cast<size_t>(cause)].add();
  ++refused_unlogged_;
  if (host_.loop.now() < refused_logged_ + std::chrono::seconds(1)) return;
  refused_logged_ = host_.loop.now();
  log::warn("connections refused", {{"listener", name_},
                                    {"cause", refused_name(cause)},
                                    {"error", error != 0 ? strerror(error) : cause == RefusedCause::memory ? "limits.memory"
                                                                                                           : "limits.connections"},
                                    {"count", std::to_string(refused_unlogged_)}});
  refused_unlogged_ = 0;
}

void Listener::conn_closed(h1::ServerConn& conn) noexcept {
  conns_.remove(conn);
  host_.conns.destroy(&conn);
  host_.connections_left.fetch_add(1, std::memory_order_relaxed);
  host_.emptied(host_.worker);
}

// One client's trouble is nobody else's: only a debug log names it, and a counter.
void Listener::tls_failed(void* listener, const TlsFailed& failed, const TransportOwner& owner) noexcept {
  if (!log::enabled(log::Level::debug)) return;
  log::debug("TLS handshake failed", {{"listener", static_cast<const Listener*>(listener)->name_},
                                      {"client", static_cast<const h1::ServerConn&>(owner).peer().text()},
                                      {"reason", tls_failure_name(failed.why)},
                                      {"error", std::string(failed.text)},
                                      {"server_name", std::string(failed.server_name)}});
}

void Listener::conn_closed(h2::ServerConn& conn) noexcept {
  auto* carrier = static_cast<h1::ServerConn*>(conn.carrier());
  h2_conns_.remove(conn);
  host_.h2_conns.destroy(&conn);
  host_.conns.destroy(carrier);
  host_.connections_left.fetch_add(1, std::memory_order_relaxed);
  host_.emptied(host_.worker);
}

void Listener::announce(bool on) noexcept { policy_.draining = h2_policy_.draining = on || drained_; }

void Listener::drain() noexcept {
  drained_ = true;
  policy_.draining = h2_policy_.draining = true;
  conns_.each([](h1::ServerConn& conn) { conn.drain(); });
  h2_conns_.each([](h2::ServerConn& conn) { conn.drain(); });
}

void Listener::cut(const Fault& fault) noexcept {
  cut_ = true;
  conns_.each([&](h1::ServerConn& conn) { conn.cut(fault); });
  h2_conns_.each([&](h2::ServerConn& conn) { conn.cut(fault); });
}

}  // namespace weir

#include "daemon/admin.h"

#include <cerrno>
#include <cstring>

#include "daemon/json.h"
#include "daemon/log.h"

namespace weir {

AdminAnswer AdminAnswer::error(uint16_t status, std::string_view sentence) {
  json::Writer body;
  body.object().member("error", sentence).end_object();
  return {status, "application/json", body.text() + "\n"};
}

AdminServer::AdminServer(Loop& loop) : loop_(loop), exchanges_(loop) {
  policy_.handler = this;
  policy_.timeouts = {.client_header = std::chrono::seconds(10), .client_body = std::chrono::seconds(10),
                      .stream_idle = std::chrono::seconds(60), .keepalive = std::chrono::seconds(60),
                      .write = std::chrono::seconds(10), .linger = std::chrono::seconds(1)};
  policy_.request_body_max = 1u << 20;
}

AdminServer::~AdminServer() { WEIR_ASSERT(empty()); }

void AdminServer::route(const std::string& method, const std::string& path, std::function<AdminAnswer()> make) {
  routes_[path][method] = std::move(make);
}

void AdminServer::listen(int fd) {
  auto acceptor = std::make_unique<Acceptor>();
  acceptor->server = this;
  acceptor->complete = accepted_entry;
  acceptor->release = close_entry;
  loop_.adopt(acceptor->listening, fd, EngineKind::epoll);
  acceptor->socket = &acceptor->listening;
  loop_.submit(*acceptor);
  acceptors_.push_back(std::move(acceptor));
}

void AdminServer::accepted_entry(Op& op) noexcept {
  auto& acceptor = static_cast<Acceptor&>(op);
  AdminServer& self = *acceptor.server;
  for (int i = 0; i < op.result; ++i) {
    const Accepted& accepted = acceptor.accepted[static_cast<size_t>(i)];
    h1::ServerConn* conn = self.pool_.make(self.exchanges_, self, self.policy_, self.stats_, accepted.fd, EngineKind::epoll,
                                           accepted.peer);
    if (conn == nullptr) {
      Socket socket;
      self.loop_.adopt(socket, accepted.fd, EngineKind::epoll);
      self.loop_.close(socket, true);
      continue;
    }
    conn->next = self.conns_;
    if (self.conns_ != nullptr) self.conns_->prev = conn;
    self.conns_ = conn;
    if (self.closing_) conn->cut(make_fault(What::shutting_down));
  }
  if (acceptor.more) return;
  if (!self.closing_ && (op.result >= 0 || op.result == -ECANCELED)) {
    self.loop_.submit(acceptor);
    return;
  }
  if (!self.closing_) log::warn("the admin socket is closed", {{"error", strerror(-op.result)}});
  self.loop_.close(acceptor.listening);
  self.loop_.free_later(acceptor);
}

void AdminServer::close_entry(Slot& slot) noexcept {
  auto& acceptor = static_cast<Acceptor&>(slot);
  std::erase_if(acceptor.server->acceptors_, [&](const auto& one) { return one.get() == &acceptor; });
}

void AdminServer::close() noexcept {
  closing_ = true;
  for (auto& acceptor : acceptors_) loop_.cancel(*acceptor);
  for (h1::ServerConn* conn = conns_; conn != nullptr; conn = conn->next) conn->cut(make_fault(What::shutting_down));
}

void AdminServer::conn_closed(h1::ServerConn& conn) noexcept {
  if (conn.prev != nullptr) conn.prev->next = conn.next;
  else conns_ = conn.next;
  if (conn.next != nullptr) conn.next->prev = conn.prev;
  pool_.destroy(&conn);
}

AdminAnswer AdminServer::answer(std::string_view method, std::string_view path) const {
  const auto found = routes_.find(std::string(path.substr(0, path.find('?'))));
  if (found == routes_.end()) return AdminAnswer::error(404, "there is nothing at this path");
  const auto make = found->second.find(std::string(method == "HEAD" ? "GET" : method));
  if (make == found->second.end()) return AdminAnswer::error(405, "this path does not take that method");
  return make->second();
}

void AdminServer::on_request(Exchange& exchange) noexcept {
  const AdminAnswer made = answer(exchange.request().method_text, exchange.request().path);
  const ExtraField extra[] = {{"cache-control", "no-store"}};
  exchange.respond(made.status, made.type, made.body, extra);
}

}  // namespace weir

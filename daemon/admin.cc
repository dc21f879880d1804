#include "daemon/admin.h"

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
  acceptors_.push_back(std::make_unique<Acceptor>(loop_, *this, "admin", fd, EngineKind::epoll));
}

void AdminServer::on_accepted(const Accepted& accepted) noexcept {
  h1::ServerConn* conn = pool_.make(exchanges_, *this, policy_, stats_, accepted.fd, EngineKind::epoll, accepted.peer);
  if (conn == nullptr) {
    Socket socket;
    loop_.adopt(socket, accepted.fd, EngineKind::epoll);
    loop_.close(socket, true);
    return;
  }
  conns_.add(*conn);
  if (closing_) conn->cut(make_fault(What::shutting_down));
}

void AdminServer::on_accept_failed(int error) noexcept {
  if (failed_logged_ != TimePoint{} && loop_.now() < failed_logged_ + std::chrono::seconds(10)) return;
  failed_logged_ = loop_.now();
  log::warn("the admin socket cannot accept now; trying on", {{"error", strerror(error)}});
}

void AdminServer::on_acceptor_closed(Acceptor& acceptor) noexcept {
  std::erase_if(acceptors_, [&](const auto& one) { return one.get() == &acceptor; });
}

void AdminServer::close() noexcept {
  closing_ = true;
  for (auto& acceptor : acceptors_) acceptor->close_now();
  conns_.each([](h1::ServerConn& conn) { conn.cut(make_fault(What::shutting_down)); });
}

void AdminServer::conn_closed(h1::ServerConn& conn) noexcept {
  conns_.remove(conn);
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

#include "daemon/admin.h"

#include <arpa/inet.h>

#include <cstring>

#include "daemon/log.h"

namespace weir {

namespace {

// A name that no foreign page can have been loaded by: localhost, or an address.
bool host_is_own(std::string_view authority) {
  std::string_view host = authority;
  int family = AF_INET;
  if (host.starts_with('[')) {
    const size_t end = host.find(']');
    if (end == std::string_view::npos) return false;
    host = host.substr(1, end - 1);
    family = AF_INET6;
  } else {
    host = host.substr(0, host.find(':'));
  }
  in6_addr unused;
  return host == "localhost" || inet_pton(family, std::string(host).c_str(), &unused) == 1;
}

bool is_loopback(const Address* peer) {
  if (peer == nullptr) return false;
  if (peer->family() == AF_INET) return ntohl(peer->v4.sin_addr.s_addr) >> 24 == 127;
  if (peer->family() != AF_INET6) return false;
  const in6_addr& v6 = peer->v6.sin6_addr;
  return IN6_IS_ADDR_LOOPBACK(&v6) || (IN6_IS_ADDR_V4MAPPED(&v6) && v6.s6_addr[12] == 127);
}

// Looks at every byte, so that the time it takes says nothing about how much was right.
bool carries_token(std::string_view value, std::string_view token) noexcept {
  constexpr std::string_view kScheme = "bearer ";
  if (value.size() != kScheme.size() + token.size()) return false;
  unsigned difference = 0;
  for (size_t i = 0; i < kScheme.size(); ++i) difference |= static_cast<unsigned>((value[i] | 0x20) ^ kScheme[i]);
  for (size_t i = 0; i < token.size(); ++i) difference |= static_cast<unsigned char>(value[kScheme.size() + i] ^ token[i]);
  return difference == 0;
}

}  // namespace

AdminServer::AdminServer(Loop& loop) : loop_(loop), exchanges_(loop) {
  policy_.handler = this;
  policy_.timeouts = {.client_header = std::chrono::seconds(10), .client_body = std::chrono::seconds(10),
                      .stream_idle = std::chrono::seconds(60), .keepalive = std::chrono::seconds(60),
                      .write = std::chrono::seconds(10), .linger = std::chrono::seconds(1)};
  policy_.request_body_max = kAdminBodyBytesMax;
}

AdminServer::~AdminServer() { WEIR_ASSERT(empty()); }

void AdminServer::route(const std::string& method, const std::string& path, AdminHandler handler) {
  routes_[path][method] = std::move(handler);
}

void AdminServer::listen(int fd) {
  acceptors_.push_back(std::make_unique<Acceptor>(loop_, *this, "admin", fd, EngineKind::epoll));
}

// Whoever reaches the port may connect, and what is not bounded here would take the proxy's descriptors. The newest is served: the
// oldest of those that ask nothing goes for it, so that nobody keeps the operator out by holding connections.
bool AdminServer::make_room() noexcept {
  if (open_ < system::kAdminConnectionsMax) return true;
  h1::ServerConn* oldest = nullptr;
  conns_.each([&](h1::ServerConn& conn) {   // the newest comes first
    if (conn.exchange() == nullptr && !conn.closing()) oldest = &conn;
  });
  if (oldest == nullptr) return false;
  oldest->cut(make_fault(What::shutting_down));
  return true;
}

void AdminServer::on_accepted(const Accepted& accepted) noexcept {
  h1::ServerConn* conn = !make_room() ? nullptr :
      pool_.make(exchanges_, *this, policy_, stats_, accepted.fd, EngineKind::epoll, accepted.peer);
  if (conn == nullptr) {
    Socket socket;
    loop_.adopt(socket, accepted.fd, EngineKind::epoll);
    loop_.close(socket, true);
    return;
  }
  conns_.add(*conn);
  ++open_;
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
  --open_;
  pool_.destroy(&conn);
}

void AdminServer::on_request(Exchange& exchange) noexcept {
  const Head& head = exchange.request();
  if (foreign_pages_refused_ && is_loopback(exchange.peer()) && !head.authority.empty() && !host_is_own(head.authority)) {
    AdminCall::respond(exchange, AdminAnswer::error(403, "over a loopback address the Host must be localhost or an IP address"));
    return;
  }
  if (!token_.empty()) {
    if (!host_is_own(head.authority)) {
      AdminCall::respond(exchange, AdminAnswer::error(403, "the admin API answers to localhost or an IP address as its Host only"));
      return;
    }
    const Field* sent = head.find(FieldId::authorization);
    if (sent == nullptr || !carries_token(sent->value_view(), token_)) {
      AdminCall::respond(exchange, AdminAnswer::error(401, "send the admin token: Authorization: Bearer TOKEN"));
      return;
    }
  }
  const auto found = routes_.find(head.path.substr(0, head.path.find('?')));
  if (found == routes_.end()) {
    AdminCall::respond(exchange, AdminAnswer::error(404, "there is nothing at this path"));
    return;
  }
  const std::string method(head.method == Method::head ? "GET" : head.method_text);
  const auto handler = found->second.find(method);
  if (handler == found->second.end()) {
    AdminAnswer no = AdminAnswer::error(405, "this path does not take that method");
    for (const auto& [name, unused] : found->second) no.allow += (no.allow.empty() ? "" : ", ") + name;
    AdminCall::respond(exchange, no);
    return;
  }
  const auto call = std::make_shared<AdminCall>(exchange, handler->second);
  calls_.emplace(&exchange, call);
  call->begin();
}

}  // namespace weir

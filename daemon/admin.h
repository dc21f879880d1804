// AdminServer: the daemon's own small HTTP server (interface: /status, /metrics, /healthz, /readyz ...), on the same HTTP/1
// connections as everything else, on the supervisor's loop and never on a worker's.
// Owner: the supervisor. Thread: its own. Out of descriptors it waits and tries again, as every listener does. Answers are made by
// functions given to route(); an unknown path is 404 and a known path with another method 405, both as JSON with a sentence.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "daemon/acceptor.h"
#include "daemon/admin_call.h"
#include "daemon/conn_list.h"
#include "daemon/system.h"

namespace weir {

class AdminServer final : public h1::ServerConnHost, public AcceptorOwner, public ExchangeHandler {
 public:
  explicit AdminServer(Loop& loop);
  ~AdminServer();
  void route(const std::string& method, const std::string& path, AdminHandler handler);
  // For TCP: each request must carry the bearer token, and its Host must be localhost or an IP address: a browser that was led
  // here by a name of somebody else's (DNS rebinding) sends that name.
  void guard(std::string token) { token_ = std::move(token); }
  // For TCP without a token: over a loopback address no Host but those (none at all will do). Elsewhere scrapers come by name.
  void refuse_foreign_pages() noexcept { foreign_pages_refused_ = true; }
  void listen(int fd);                 // takes a listening descriptor over
  void close() noexcept;               // stops; empty() tells when all is over
  bool empty() const noexcept { return conns_.empty() && acceptors_.empty(); }

 private:
  bool make_room() noexcept;
  void on_accepted(const Accepted& accepted) noexcept override;
  void on_accept_failed(int error) noexcept override;
  void on_acceptor_closed(Acceptor& acceptor) noexcept override;
  void conn_closed(h1::ServerConn& conn) noexcept override;
  void on_request(Exchange& exchange) noexcept override;
  bool on_origin_failed(Exchange&, const Fault&) noexcept override { return false; }
  std::span<const ExtraField> on_response(Exchange&, Head&) noexcept override { return {}; }
  void on_end(Exchange& exchange) noexcept override { calls_.erase(&exchange); }

  Loop& loop_;
  ExchangeContext exchanges_;
  SlotPool<h1::ServerConn> pool_;
  h1::ServerPolicy policy_;
  h1::ServerStats stats_;
  ConnList conns_;
  std::vector<std::unique_ptr<Acceptor>> acceptors_;
  std::map<std::string, std::map<std::string, AdminHandler>, std::less<>> routes_;  // path, method; never changed once it listens
  std::map<const Exchange*, std::shared_ptr<AdminCall>> calls_;
  std::string token_;                                  // empty: whoever reaches the socket may ask
  size_t open_ = 0;                                    // connections, those included that are being closed
  bool foreign_pages_refused_ = false;
  bool closing_ = false;
  TimePoint failed_logged_{};
};

}  // namespace weir

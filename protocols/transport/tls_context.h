// TlsContext: what the TLS connections of one listener (or towards one upstream) have in common: certificates by server name,
// versions, ciphers, groups, ALPN, ticket keys. A counted handle: copies share it, a connection keeps its own while it lives.
// Made by the supervisor's side at start and at reload; after that nobody changes it, and all workers use it.
// Server names (SNI): an exact one, then the wildcard of its first label, then the first certificate. For one name there may be a
// certificate of each key type side by side; the first of a type in the list is the one.
#pragma once

#include <cstdint>
#include <expected>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "protocols/transport/tls_certificate.h"
#include "protocols/transport/tls_tickets.h"

struct ssl_ctx_st;
struct ssl_st;

namespace weir {

enum class TlsClientAuth : uint8_t { none, request, require };   // request: one that is shown must be good

struct TlsServerOptions {
  std::vector<TlsPem> certificates{};        // at least one
  bool tls12 = true;                         // else 1.3 alone
  std::vector<std::string> alpn{};           // what is spoken, best first; empty: it is not negotiated
  TlsTicketKeys* tickets = nullptr;          // null: no resumption
  std::string session_scope{};               // a ticket is good only where this is the same
  TlsClientAuth client_auth = TlsClientAuth::none;
  std::string client_ca{};                   // PEM: who may have signed a client's certificate
  std::string client_crl{};                  // PEM: those that were revoked; empty: none is looked at
};

struct TlsClientOptions {
  std::vector<std::string> alpn{};
  bool verify = true;
  std::string ca{};                          // PEM; empty: the system's roots
};

class TlsContext {
 public:
  TlsContext() noexcept = default;
  TlsContext(const TlsContext& other) noexcept;
  TlsContext(TlsContext&& other) noexcept : context_(std::exchange(other.context_, nullptr)) {}
  TlsContext& operator=(TlsContext other) noexcept {
    std::swap(context_, other.context_);
    return *this;
  }
  ~TlsContext();

  static std::expected<TlsContext, std::string> server(const TlsServerOptions& options);
  static std::expected<TlsContext, std::string> client(const TlsClientOptions& options);

  explicit operator bool() const noexcept { return context_ != nullptr; }
  ssl_st* connection() const noexcept;       // a new one; null: no memory

 private:
  explicit TlsContext(ssl_ctx_st* context) noexcept : context_(context) {}
  ssl_ctx_st* context_ = nullptr;
};

}  // namespace weir

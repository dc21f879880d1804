// TlsCertificate: a certificate chain with its private key, as PEM text, looked into and held against each other.
// Caller: the daemon, at start and at reload, for `weir check` and for the contexts (tls_context.h). Any thread; blocks on nothing.
// The errors are words that follow the file's name: "holds no certificate". It reads no file and keeps no secret.
#pragma once

#include <cstdint>
#include <expected>
#include <string>
#include <string_view>
#include <vector>

namespace weir {

struct TlsPem {
  std::string certificates;   // the server's own first, then those that lead to the root
  std::string key;
};

enum class TlsKeyType : uint8_t { rsa, ecdsa, ed25519 };

struct TlsCertificateFacts {
  std::vector<std::string> names;   // DNS names in lower case ("*.example.com" too) and addresses; without any: the common name
  int64_t not_before = 0, not_after = 0;   // unix seconds
  TlsKeyType key_type = TlsKeyType::rsa;
};

struct TlsPemFault {
  bool key = false;                 // it is about the key, not about the certificates
  std::string text;
};

// Both are read and belong together. An expired certificate is no fault here.
std::expected<TlsCertificateFacts, TlsPemFault> inspect_certificate(const TlsPem& pem);
// The certificates alone.
std::expected<TlsCertificateFacts, std::string> inspect_certificates(std::string_view pem);

bool holds_revocations(std::string_view pem);   // one list or more, none of them broken

// Does a name of a certificate ("example.com", "*.example.com": one label) hold for that host? Both in lower case.
bool certificate_name_holds(std::string_view name, std::string_view host) noexcept;

}  // namespace weir

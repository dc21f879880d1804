// certificates: the files that `tls` names: looked into when a configuration is loaded (and by `weir check`), and made into the
// contexts of the listeners. Reads files, so at start on the main thread, later on the helper thread.
// Guarantee: nothing of a key stays in memory but inside the contexts.
#pragma once

#include <expected>
#include <vector>

#include "config/load.h"
#include "daemon/runtime.h"
#include "protocols/transport/tls_context.h"

namespace weir {

inline constexpr int64_t kExpiryWarningDays = 21;

// Environment::real() that looks into certificates. checking: a key that this user may not read is a warning, since the daemon may
// run as another.
config::Environment certificate_environment(bool checking);

// What there is to say about a certificate's time. now: unix seconds.
std::vector<config::CertificateFault> expiry_faults(const TlsCertificateFacts& facts, int64_t now);

struct CertificateAge {
  std::string file;
  int64_t not_after = 0;               // unix seconds
};

struct LoadedTls {
  std::vector<ServedTls> listeners;    // as the configuration's
  std::vector<CertificateAge> ages;    // each file once
  std::string stamp;                   // of the files, as they were before they were read
};

// All of it, or what is wrong, with its place.
std::expected<LoadedTls, config::Problem> load_tls(const config::Snapshot& config, TlsTicketKeys& tickets);
// Changes with any of the files that `tls` names. Empty: it names none.
std::string stamp_of_files(const config::Snapshot& config);

}  // namespace weir

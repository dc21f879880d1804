// certificates: the files that `tls` names: looked into when a configuration is loaded (and by `weir check`), and made into the
// contexts of the listeners. Reads files, so at start on the main thread, later on the helper thread.
// Guarantee: nothing of a key stays in memory but inside the contexts.
#pragma once

#include <expected>
#include <vector>

#include "config/load.h"
#include "protocols/transport/tls_context.h"

namespace weir {

inline constexpr int64_t kExpiryWarningDays = 21;

// Environment::real() that looks into certificates. checking: a key that this user may not read is a warning, since the daemon may
// run as another.
config::Environment certificate_environment(bool checking);

// What there is to say about a certificate's time. now: unix seconds.
std::vector<config::CertificateFault> expiry_faults(const TlsCertificateFacts& facts, int64_t now);

// The context of each listener, empty for a plain one; or what is wrong, with its place.
std::expected<std::vector<TlsContext>, config::Problem> load_tls(const config::Snapshot& config, TlsTicketKeys& tickets);

}  // namespace weir

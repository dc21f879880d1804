#include "daemon/certificates.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <ctime>

#include "config/describe.h"

namespace weir {

namespace {

constexpr int64_t kDay = 86'400;

std::string date_text(int64_t unix_s) {
  const time_t at = static_cast<time_t>(unix_s);
  tm parts{};
  gmtime_r(&at, &parts);
  char text[32];
  return {text, strftime(text, sizeof text, "%Y-%m-%d %H:%M UTC", &parts)};
}

std::expected<std::string, std::string> read_text(const std::string& path) {
  static const config::Environment files = config::Environment::real();
  auto text = files.read_file(path);
  if (!text) return std::unexpected("cannot be read: " + text.error());
  return text;
}

config::CertificateLook look_into(const std::string& cert, const std::string& key, bool checking) {
  config::CertificateLook look;
  const auto cert_text = read_text(cert), key_text = read_text(key);
  if (!cert_text) look.faults.push_back({false, false, cert_text.error()});
  if (!key_text && key != cert) {
    const bool others = checking && access(key.c_str(), F_OK) == 0 && access(key.c_str(), R_OK) != 0;
    look.faults.push_back({true, others, key_text.error()});
  }
  if (!cert_text) return look;
  if (!key_text) {
    auto facts = inspect_certificates(*cert_text);
    if (!facts) look.faults.push_back({false, false, facts.error()});
    else look.names = std::move(facts->names);
    return look;
  }
  auto facts = inspect_certificate({*cert_text, *key_text});
  if (!facts) {
    look.faults.push_back({facts.error().key, false, facts.error().text});
    return look;
  }
  for (auto& fault : expiry_faults(*facts, time(nullptr))) look.faults.push_back(std::move(fault));
  look.names = std::move(facts->names);
  return look;
}

std::string look_into_pem(const std::string& path, config::PemKind kind) {
  const auto text = read_text(path);
  if (!text) return text.error();
  if (kind == config::PemKind::revocations)
    return holds_revocations(*text) ? "" : "holds no revocation list in PEM form, or a broken one";
  const auto facts = inspect_certificates(*text);
  return facts ? "" : facts.error();
}

std::vector<std::string> alpn_of(const config::Listener& listener) {
  std::vector<std::string> names;
  const auto speaks = [&](config::Protocol protocol) {
    return std::find(listener.protocols.begin(), listener.protocols.end(), protocol) != listener.protocols.end();
  };
  if (speaks(config::Protocol::h2)) names.emplace_back("h2");   // the better one, whatever the order in the file
  if (speaks(config::Protocol::h1)) names.emplace_back("http/1.1");
  return names;
}

// Nothing: `served` is complete.
std::optional<config::Problem> load_listener(const config::Listener& listener, TlsTicketKeys& tickets, ServedTls& served,
                                             std::vector<CertificateAge>& ages) {
  const config::ListenerTls& tls = *listener.tls;
  TlsServerOptions options{.tls12 = tls.min_version == config::TlsVersion::tls12, .alpn = alpn_of(listener), .tickets = &tickets};
  const auto problem = [](const config::Where& where, std::string_view key, const std::string& path, const std::string& text) {
    return config::Problem{where, std::string(key) + ": `" + path + "` " + text};
  };
  for (const config::CertificateFiles& files : tls.certificates) {
    auto cert = read_text(files.cert), key = read_text(files.key);
    if (!cert) return problem(files.where, "cert", files.cert, cert.error());
    if (!key) return problem(files.where, "key", files.key, key.error());
    options.certificates.push_back({std::move(*cert), std::move(*key)});
    const auto facts = inspect_certificate(options.certificates.back());
    if (!facts) {
      const bool key_fault = facts.error().key;
      return problem(files.where, key_fault ? "key" : "cert", key_fault ? files.key : files.cert, facts.error().text);
    }
    for (const config::CertificateFault& fault : expiry_faults(*facts, time(nullptr)))
      if (!fault.warning) return problem(files.where, "cert", files.cert, fault.text);
    served.names.insert(served.names.end(), facts->names.begin(), facts->names.end());
    const auto same = [&](const CertificateAge& age) { return age.file == files.cert; };
    if (std::none_of(ages.begin(), ages.end(), same)) ages.push_back({files.cert, facts->not_after});
  }
  if (!tls.client_ca.empty()) {
    options.client_auth = tls.client_auth == config::ClientAuth::require ? TlsClientAuth::require : TlsClientAuth::request;
    auto ca = read_text(tls.client_ca);
    if (!ca) return problem(listener.where, "client_ca", tls.client_ca, ca.error());
    options.client_ca = std::move(*ca);
  }
  if (!tls.client_crl.empty()) {
    auto crl = read_text(tls.client_crl);
    if (!crl) return problem(listener.where, "client_crl", tls.client_crl, crl.error());
    options.client_crl = std::move(*crl);
  }
  // Whom one set of authorities and revocations let in, another must look at again.
  options.session_scope = config::hash_text(listener.name + '\n' + std::to_string(static_cast<int>(options.client_auth)) +
                                            options.client_ca + '\n' + options.client_crl);
  auto context = TlsContext::server(options);
  if (!context) return config::Problem{listener.where, "tls of listener " + listener.name + ": " + context.error()};
  served.context = std::move(*context);
  return std::nullopt;
}

}  // namespace

std::vector<config::CertificateFault> expiry_faults(const TlsCertificateFacts& facts, int64_t now) {
  if (facts.not_after <= now) return {{false, false, "expired on " + date_text(facts.not_after)}};
  if (facts.not_before > now) return {{false, false, "is not valid before " + date_text(facts.not_before)}};
  const int64_t days = (facts.not_after - now) / kDay;
  if (days >= kExpiryWarningDays) return {};
  return {{false, true, "expires on " + date_text(facts.not_after) + ", in " + std::to_string(days) + " day(s)"}};
}

config::Environment certificate_environment(bool checking) {
  config::Environment environment = config::Environment::real();
  environment.certificate = [checking](const std::string& cert, const std::string& key) { return look_into(cert, key, checking); };
  environment.pem = look_into_pem;
  return environment;
}

std::string stamp_of_files(const config::Snapshot& config) {
  std::string out;
  const auto add = [&](const std::string& path) {
    struct stat status{};
    if (path.empty()) return;
    out += path;
    if (stat(path.c_str(), &status) == 0) {
      for (const int64_t number : {static_cast<int64_t>(status.st_ino), static_cast<int64_t>(status.st_size),
                                   static_cast<int64_t>(status.st_mtim.tv_sec), static_cast<int64_t>(status.st_mtim.tv_nsec)})
        out += ' ' + std::to_string(number);
    }
    out += '\n';
  };
  for (const config::Listener& listener : config.listeners) {
    if (!listener.tls) continue;
    for (const config::CertificateFiles& files : listener.tls->certificates) {
      add(files.cert);
      add(files.key);
    }
    add(listener.tls->client_ca);
    add(listener.tls->client_crl);
  }
  return out;
}

std::expected<LoadedTls, config::Problem> load_tls(const config::Snapshot& config, TlsTicketKeys& tickets) {
  LoadedTls out;
  out.stamp = stamp_of_files(config);
  for (const config::Listener& listener : config.listeners) {
    ServedTls& served = out.listeners.emplace_back();
    if (!listener.tls) continue;
    if (auto failed = load_listener(listener, tickets, served, out.ages)) return std::unexpected(std::move(*failed));
  }
  return out;
}

}  // namespace weir

#include "daemon/certificates.h"

#include <unistd.h>

#include <ctime>

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

std::vector<std::string> alpn_of(const config::Listener& listener) {
  std::vector<std::string> names;
  for (const config::Protocol protocol : listener.protocols)
    if (protocol == config::Protocol::h1) names.emplace_back("http/1.1");
  return names;
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
  return environment;
}

std::expected<std::vector<TlsContext>, config::Problem> load_tls(const config::Snapshot& config, TlsTicketKeys& tickets) {
  std::vector<TlsContext> out;
  for (const config::Listener& listener : config.listeners) {
    if (!listener.tls) {
      out.emplace_back();
      continue;
    }
    TlsServerOptions options{.tls12 = listener.tls->min_version == config::TlsVersion::tls12, .alpn = alpn_of(listener),
                             .tickets = &tickets, .session_scope = listener.name};
    for (const config::CertificateFiles& files : listener.tls->certificates) {
      auto cert = read_text(files.cert), key = read_text(files.key);
      if (!cert) return std::unexpected(config::Problem{files.where, "cert: `" + files.cert + "` " + cert.error()});
      if (!key) return std::unexpected(config::Problem{files.where, "key: `" + files.key + "` " + key.error()});
      options.certificates.push_back({std::move(*cert), std::move(*key)});
    }
    auto context = TlsContext::server(options);
    if (!context)
      return std::unexpected(config::Problem{listener.where, "tls of listener " + listener.name + ": " + context.error()});
    out.push_back(std::move(*context));
  }
  return out;
}

}  // namespace weir

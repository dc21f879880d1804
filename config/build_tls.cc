// `tls` of a listener: the keys, and what the files hold, as far as the environment looks into them.
#include <algorithm>

#include "config/build.h"
#include "config/load.h"
#include "config/source.h"

namespace weir::config {
namespace {

// Relative to the file in which it is written, as `include` is.
std::string path_of(const Draft& draft, const Placed<std::string>& given) {
  if (given.value.starts_with("/")) return given.value;
  return directory_of(draft.report.where(given.mark).file) + given.value;
}

std::optional<CertificateFiles> read_files(Draft& draft, const Fields& fields) {
  const auto file = [&](std::string_view key) -> std::optional<std::string> {
    auto text = fields.text(key);
    if (!text) return std::nullopt;
    if (text->empty()) draft.report.error(fields.mark(key), "`" + std::string(key) + "` is empty");
    return path_of(draft, {std::move(*text), fields.mark(key)});
  };
  auto cert = file("cert");
  if (!cert) return std::nullopt;
  CertificateFiles out{*cert, file("key").value_or(*cert), draft.report.where(fields.mark("cert"))};
  draft.certificates.push_back({draft.snapshot.listeners.size(), out, fields.mark("cert"),
                                fields.written("key") ? fields.mark("key") : fields.mark("cert")});
  return out;
}

std::string read_pem(Draft& draft, const Fields& fields, std::string_view key) {
  auto text = fields.text(key);
  if (!text) return {};
  const Mark mark = fields.mark(key);
  if (text->empty()) draft.report.error(mark, "`" + std::string(key) + "` is empty");
  const std::string path = path_of(draft, {std::move(*text), mark});
  draft.pems.push_back({key, path, key == "client_crl", mark});
  return path;
}

// Some host of the pattern is one that the certificate's name holds for.
bool name_meets(std::string_view name, const HostPattern& host) {
  if (!host.wildcard) {
    if (name == host.name) return true;
    const size_t dot = host.name.find('.');
    return name.starts_with("*.") && dot != std::string::npos && std::string_view(host.name).substr(dot) == name.substr(1);
  }
  return name.ends_with("." + host.name);
}

// The hosts that the routes of a listener name. Nothing where one of them takes any host.
std::vector<const HostPattern*> hosts_of(const Snapshot& snapshot, size_t listener) {
  std::vector<const HostPattern*> out;
  for (const Route& route : snapshot.routes) {
    const bool serves = !route.match || route.match->listeners.empty() ||
                        std::find(route.match->listeners.begin(), route.match->listeners.end(), listener) !=
                            route.match->listeners.end();
    if (!serves) continue;
    if (!route.match || route.match->hosts.empty()) return {};
    for (const HostPattern& host : route.match->hosts) out.push_back(&host);
  }
  return out;
}

}  // namespace

std::optional<ListenerTls> read_tls(Draft& draft, const Fields& listener) {
  const Fields fields = listener.map("tls");
  if (!fields.valid()) return std::nullopt;
  ListenerTls tls;
  tls.min_version = static_cast<TlsVersion>(fields.word("min_version"));
  if (auto single = read_files(draft, fields)) tls.certificates.push_back(std::move(*single));
  else if (fields.written("key")) draft.report.error(fields.mark("key"), "`key` without `cert`");
  if (fields.written("cert") && fields.written("certificates"))
    draft.report.error(fields.mark("certificates"), "`cert` and `certificates` exclude each other");
  const auto items = fields.items("certificates");
  const Node* list = fields.node("certificates");
  if (list != nullptr && list->kind == Node::Kind::sequence && items.empty())
    draft.report.error(list->mark, "`certificates` is an empty list");
  for (const Node* item : items)
    if (auto files = read_files(draft, Fields(item, Level::certificate, draft.report)))
      tls.certificates.push_back(std::move(*files));
  tls.client_ca = read_pem(draft, fields, "client_ca");
  tls.client_crl = read_pem(draft, fields, "client_crl");
  tls.client_auth = static_cast<ClientAuth>(fields.word("client_auth"));
  for (const std::string_view key : {"client_auth", "client_crl"})
    if (fields.written(key) && !fields.written("client_ca"))
      draft.report.error(fields.mark(key), "`" + std::string(key) + "` needs `client_ca` beside it");
  if (!fields.written("cert") && !fields.written("certificates"))
    draft.report.error(listener.mark("tls"), "`tls` needs `cert` and `key`, or `certificates`");
  return tls;
}

void check_certificates(Draft& draft, const Environment& environment) {
  for (const auto& [key, path, revocations, mark] : draft.pems) {
    if (!environment.pem) break;
    const std::string fault = environment.pem(path, revocations ? PemKind::revocations : PemKind::authorities);
    if (!fault.empty()) draft.report.error(mark, std::string(key) + ": " + quote(path) + " " + fault);
  }
  if (!environment.certificate) return;
  for (const auto& [listener, files, cert_mark, key_mark] : draft.certificates) {
    const CertificateLook look = environment.certificate(files.cert, files.key);
    bool sound = true;
    for (const CertificateFault& fault : look.faults) {
      const std::string text = (fault.key ? "key: " + quote(files.key) : "cert: " + quote(files.cert)) + " " + fault.text;
      sound = sound && fault.warning;
      if (fault.warning) draft.report.warning(fault.key ? key_mark : cert_mark, text);
      else draft.report.error(fault.key ? key_mark : cert_mark, text);
    }
    if (!sound || look.names.empty() || listener >= draft.snapshot.listeners.size()) continue;
    const auto hosts = hosts_of(draft.snapshot, listener);
    const bool meets = std::any_of(hosts.begin(), hosts.end(), [&](const HostPattern* host) {
      return std::any_of(look.names.begin(), look.names.end(), [&](const std::string& name) { return name_meets(name, *host); });
    });
    if (hosts.empty() || meets) continue;
    draft.report.warning(cert_mark, "cert: " + quote(files.cert) + " is for " + quote(look.names.front()) +
                                        (look.names.size() > 1 ? " and other names" : "") +
                                        ", and no route of this listener has a host that it covers");
  }
}

}  // namespace weir::config

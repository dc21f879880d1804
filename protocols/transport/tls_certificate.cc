#include "protocols/transport/tls_certificate.h"

#include <arpa/inet.h>
#include <openssl/err.h>
#include <openssl/x509v3.h>

#include <algorithm>
#include <ctime>

#include "protocols/transport/tls_pem.h"

namespace weir {

namespace tls {

namespace {

BioPtr memory_bio(std::string_view text) { return BioPtr(BIO_new_mem_buf(text.data(), static_cast<int>(text.size()))); }

int no_password(char*, int, int, void* asked) {
  *static_cast<bool*>(asked) = true;
  return -1;
}

}  // namespace

namespace {

template <class Ptr, class Read>
std::vector<Ptr> read_all(std::string_view pem, const Read& read) {
  std::vector<Ptr> out;
  const BioPtr bio = memory_bio(pem);
  while (auto* one = read(bio.get(), nullptr, nullptr, nullptr)) out.emplace_back(one);
  const bool at_end = ERR_GET_REASON(ERR_peek_last_error()) == PEM_R_NO_START_LINE;
  ERR_clear_error();
  if (!at_end) out.clear();  // one of them is broken
  return out;
}

}  // namespace

std::vector<X509Ptr> read_certificates(std::string_view pem) { return read_all<X509Ptr>(pem, PEM_read_bio_X509); }

std::vector<CrlPtr> read_revocations(std::string_view pem) { return read_all<CrlPtr>(pem, PEM_read_bio_X509_CRL); }

KeyPtr read_key(std::string_view pem, bool* encrypted) {
  *encrypted = false;
  KeyPtr key(PEM_read_bio_PrivateKey(memory_bio(pem).get(), nullptr, no_password, encrypted));
  ERR_clear_error();
  return key;
}

std::string take_error() {
  const unsigned long code = ERR_peek_last_error();
  const char* reason = ERR_reason_error_string(code);
  ERR_clear_error();
  return reason == nullptr ? "error " + std::to_string(code) : reason;
}

}  // namespace tls

namespace {

std::string lower_name(const unsigned char* text, int size) {
  std::string out(reinterpret_cast<const char*>(text), static_cast<size_t>(size));
  std::transform(out.begin(), out.end(), out.begin(), [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c; });
  return out;
}

std::vector<std::string> names_of(const X509& certificate) {
  std::vector<std::string> names;
  auto* all = static_cast<GENERAL_NAMES*>(X509_get_ext_d2i(&certificate, NID_subject_alt_name, nullptr, nullptr));
  for (int i = 0; i < sk_GENERAL_NAME_num(all); ++i) {
    const GENERAL_NAME* one = sk_GENERAL_NAME_value(all, i);
    if (one->type == GEN_IPADD) {
      char text[INET6_ADDRSTRLEN];
      const int family = ASN1_STRING_length(one->d.iPAddress) == 4 ? AF_INET : AF_INET6;
      if (inet_ntop(family, ASN1_STRING_get0_data(one->d.iPAddress), text, sizeof text) != nullptr) names.emplace_back(text);
    }
    if (one->type != GEN_DNS) continue;
    names.push_back(lower_name(ASN1_STRING_get0_data(one->d.dNSName), ASN1_STRING_length(one->d.dNSName)));
  }
  GENERAL_NAMES_free(all);
  if (!names.empty()) return names;
  const X509_NAME* subject = X509_get_subject_name(&certificate);
  const int at = X509_NAME_get_index_by_NID(subject, NID_commonName, -1);
  if (at < 0) return names;
  const ASN1_STRING* common = X509_NAME_ENTRY_get_data(X509_NAME_get_entry(subject, at));
  names.push_back(lower_name(ASN1_STRING_get0_data(common), ASN1_STRING_length(common)));
  return names;
}

int64_t unix_time(const ASN1_TIME* time) {
  tm parts{};
  return ASN1_TIME_to_tm(time, &parts) == 1 ? static_cast<int64_t>(timegm(&parts)) : 0;
}

std::expected<TlsKeyType, std::string> key_type(const X509& certificate) {
  const EVP_PKEY* key = X509_get0_pubkey(&certificate);
  switch (key == nullptr ? 0 : EVP_PKEY_get_base_id(key)) {
    case EVP_PKEY_RSA:
      if (EVP_PKEY_get_bits(key) < 2048) return std::unexpected("has an RSA key of fewer than 2048 bits");
      return TlsKeyType::rsa;
    case EVP_PKEY_EC: return TlsKeyType::ecdsa;
    case EVP_PKEY_ED25519: return TlsKeyType::ed25519;
    default: return std::unexpected("has a key that is neither RSA nor ECDSA nor Ed25519");
  }
}

std::expected<TlsCertificateFacts, std::string> facts_of(const std::vector<tls::X509Ptr>& chain) {
  if (chain.empty()) return std::unexpected("holds no certificate in PEM form, or a broken one");
  const X509& own = *chain.front();
  const auto type = key_type(own);
  if (!type) return std::unexpected(type.error());
  return TlsCertificateFacts{names_of(own), unix_time(X509_get0_notBefore(&own)), unix_time(X509_get0_notAfter(&own)), *type};
}

}  // namespace

std::expected<TlsCertificateFacts, std::string> inspect_certificates(std::string_view pem) {
  return facts_of(tls::read_certificates(pem));
}

std::expected<TlsCertificateFacts, TlsPemFault> inspect_certificate(const TlsPem& pem) {
  const auto chain = tls::read_certificates(pem.certificates);
  auto facts = facts_of(chain);
  if (!facts) return std::unexpected(TlsPemFault{false, facts.error()});
  bool encrypted = false;
  const auto key = tls::read_key(pem.key, &encrypted);
  if (encrypted)
    return std::unexpected(TlsPemFault{true, "holds a key that is protected by a password; nobody is there to type it"});
  if (key == nullptr) return std::unexpected(TlsPemFault{true, "holds no private key in PEM form"});
  const bool matches = X509_check_private_key(chain.front().get(), key.get()) == 1;
  ERR_clear_error();
  if (!matches) return std::unexpected(TlsPemFault{true, "is the key of another certificate"});
  return *facts;
}

bool holds_revocations(std::string_view pem) { return !tls::read_revocations(pem).empty(); }

bool certificate_name_holds(std::string_view name, std::string_view host) noexcept {
  if (!name.starts_with("*.")) return name == host;
  const size_t dot = host.find('.');
  return dot != std::string_view::npos && dot != 0 && host.substr(dot) == name.substr(1);
}

}  // namespace weir

#include "protocols/transport/tls_context.h"

#include <openssl/err.h>

#include <algorithm>
#include <map>

#include "protocols/transport/tls_pem.h"

namespace weir {

namespace {

// TLS 1.3 as OpenSSL names them; AES-128 first: with the CPU's own AES it is the fastest, and as strong as its certificates.
constexpr const char* kSuites13 = "TLS_AES_128_GCM_SHA256:TLS_AES_256_GCM_SHA384:TLS_CHACHA20_POLY1305_SHA256";
// TLS 1.2: forward secrecy and AEAD only.
constexpr const char* kCiphers12 =
    "ECDHE-ECDSA-AES128-GCM-SHA256:ECDHE-RSA-AES128-GCM-SHA256:ECDHE-ECDSA-AES256-GCM-SHA384:ECDHE-RSA-AES256-GCM-SHA384:"
    "ECDHE-ECDSA-CHACHA20-POLY1305:ECDHE-RSA-CHACHA20-POLY1305";
constexpr const char* kGroups = "X25519MLKEM768:X25519:P-256:P-384";

// What a server's contexts need beside OpenSSL's own: lives as long as the default one does.
struct ServerNames {
  std::string alpn;                                  // in wire form
  std::map<std::string, SSL_CTX*, std::less<>> names;   // exact and "*." names; null: the default context
  std::vector<tls::ContextPtr> others;
};

void free_server(void*, void* server, CRYPTO_EX_DATA*, int, long, void*) { delete static_cast<ServerNames*>(server); }

int server_index() {
  static const int index = SSL_CTX_get_ex_new_index(0, nullptr, nullptr, nullptr, free_server);
  return index;
}

std::string wire_form(const std::vector<std::string>& protocols) {
  std::string out;
  for (const std::string& one : protocols) {
    out += static_cast<char>(one.size());
    out += one;
  }
  return out;
}

// No common protocol ends the handshake (RFC 7301 section 3.2): what follows would be for another server.
int select_alpn(SSL*, const unsigned char** out, unsigned char* size, const unsigned char* in, unsigned in_size, void* arg) {
  const std::string& own = static_cast<const ServerNames*>(arg)->alpn;
  unsigned char* found = nullptr;
  const auto* ours = reinterpret_cast<const unsigned char*>(own.data());
  if (SSL_select_next_proto(&found, size, ours, static_cast<unsigned>(own.size()), in, in_size) != OPENSSL_NPN_NEGOTIATED)
    return SSL_TLSEXT_ERR_ALERT_FATAL;
  *out = found;
  return SSL_TLSEXT_ERR_OK;
}

int select_name(SSL* ssl, int*, void* arg) {
  const char* name = SSL_get_servername(ssl, TLSEXT_NAMETYPE_host_name);
  if (name == nullptr) return SSL_TLSEXT_ERR_NOACK;
  const ServerNames& server = *static_cast<const ServerNames*>(arg);
  char host[256];
  size_t size = 0;
  for (; name[size] != '\0' && size < sizeof host; ++size)
    host[size] = name[size] >= 'A' && name[size] <= 'Z' ? static_cast<char>(name[size] + 32) : name[size];
  std::string_view wanted(host, size);
  if (wanted.ends_with('.')) wanted.remove_suffix(1);
  auto found = server.names.find(wanted);
  const size_t dot = wanted.find('.');
  if (found == server.names.end() && dot != std::string_view::npos && dot > 0) {
    host[dot - 1] = '*';
    found = server.names.find(wanted.substr(dot - 1));
  }
  if (found != server.names.end() && found->second != nullptr && SSL_set_SSL_CTX(ssl, found->second) == nullptr)
    return SSL_TLSEXT_ERR_ALERT_FATAL;
  return SSL_TLSEXT_ERR_OK;
}

tls::ContextPtr make_context(const SSL_METHOD* method, bool tls12) {
  static const bool ready = OPENSSL_init_ssl(OPENSSL_INIT_NO_LOAD_CONFIG, nullptr) == 1;
  tls::ContextPtr context(ready ? SSL_CTX_new(method) : nullptr);
  if (context == nullptr) return nullptr;
  SSL_CTX* c = context.get();
  const bool set = SSL_CTX_set_min_proto_version(c, tls12 ? TLS1_2_VERSION : TLS1_3_VERSION) == 1 &&
                   SSL_CTX_set_ciphersuites(c, kSuites13) == 1 && SSL_CTX_set_cipher_list(c, kCiphers12) == 1 &&
                   SSL_CTX_set1_groups_list(c, kGroups) == 1;
  SSL_CTX_set_options(c, SSL_OP_NO_RENEGOTIATION | SSL_OP_NO_COMPRESSION | SSL_OP_CIPHER_SERVER_PREFERENCE |
                             SSL_OP_PRIORITIZE_CHACHA);
  SSL_CTX_set_mode(c, SSL_MODE_RELEASE_BUFFERS | SSL_MODE_NO_AUTO_CHAIN);
  SSL_CTX_set_session_cache_mode(c, SSL_SESS_CACHE_OFF);
  return set ? std::move(context) : nullptr;
}

std::string set_client_auth(SSL_CTX* c, const TlsServerOptions& options) {
  if (options.client_auth == TlsClientAuth::none) return {};
  const auto authorities = tls::read_certificates(options.client_ca);
  if (authorities.empty()) return "the client_ca file holds no certificate in PEM form, or a broken one";
  X509_STORE* store = SSL_CTX_get_cert_store(c);
  STACK_OF(X509_NAME)* names = sk_X509_NAME_new_null();
  for (const auto& one : authorities) {
    X509_STORE_add_cert(store, one.get());
    sk_X509_NAME_push(names, X509_NAME_dup(X509_get_subject_name(one.get())));
  }
  SSL_CTX_set_client_CA_list(c, names);
  const int strict = options.client_auth == TlsClientAuth::require ? SSL_VERIFY_FAIL_IF_NO_PEER_CERT : 0;
  SSL_CTX_set_verify(c, SSL_VERIFY_PEER | strict, nullptr);
  if (options.client_crl.empty()) return {};
  const auto lists = tls::read_revocations(options.client_crl);
  if (lists.empty()) return "the client_crl file holds no revocation list in PEM form, or a broken one";
  for (const auto& one : lists) X509_STORE_add_crl(store, one.get());
  X509_STORE_set_flags(store, X509_V_FLAG_CRL_CHECK);
  return {};
}

// One context of a server, with its certificates, the first of each key type.
struct Loaded {
  TlsCertificateFacts facts;
  std::vector<tls::X509Ptr> chain;
  tls::KeyPtr key;
};

std::expected<tls::ContextPtr, std::string> make_server_context(const TlsServerOptions& options,
                                                                const std::vector<const Loaded*>& with, ServerNames* server) {
  tls::ContextPtr context = make_context(TLS_server_method(), options.tls12);
  if (context == nullptr) return std::unexpected("TLS cannot be set up: " + tls::take_error());
  SSL_CTX* c = context.get();
  for (const Loaded* one : with) {
    STACK_OF(X509)* rest = sk_X509_new_null();
    for (size_t i = 1; i < one->chain.size(); ++i) sk_X509_push(rest, one->chain[i].get());
    const int used = SSL_CTX_use_cert_and_key(c, one->chain.front().get(), one->key.get(), rest, 1);
    sk_X509_free(rest);
    if (used != 1) return std::unexpected("a certificate cannot be used: " + tls::take_error());
  }
  const size_t scope = std::min<size_t>(options.session_scope.size(), SSL_MAX_SID_CTX_LENGTH);
  SSL_CTX_set_session_id_context(c, reinterpret_cast<const unsigned char*>(options.session_scope.data()),
                                 static_cast<unsigned>(scope));
  SSL_CTX_set_timeout(c, std::chrono::duration_cast<std::chrono::seconds>(kTicketLife).count());
  if (options.tickets != nullptr) {
    options.tickets->use_in(c);
  } else {
    SSL_CTX_set_options(c, SSL_OP_NO_TICKET);
    SSL_CTX_set_num_tickets(c, 0);
  }
  if (!server->alpn.empty()) SSL_CTX_set_alpn_select_cb(c, select_alpn, server);
  if (std::string failed = set_client_auth(c, options); !failed.empty()) return std::unexpected(std::move(failed));
  ERR_clear_error();
  return context;
}

std::vector<const Loaded*> first_of_each_type(const std::vector<const Loaded*>& all) {
  std::vector<const Loaded*> out;
  for (const Loaded* one : all) {
    const auto same = [&](const Loaded* other) { return other->facts.key_type == one->facts.key_type; };
    if (std::none_of(out.begin(), out.end(), same)) out.push_back(one);
  }
  return out;
}

std::expected<std::vector<Loaded>, std::string> load_pairs(const std::vector<TlsPem>& certificates) {
  std::vector<Loaded> out;
  for (const TlsPem& pem : certificates) {
    auto facts = inspect_certificate(pem);
    if (!facts) return std::unexpected((facts.error().key ? "the key file " : "the certificate file ") + facts.error().text);
    bool encrypted = false;
    out.push_back({std::move(*facts), tls::read_certificates(pem.certificates), tls::read_key(pem.key, &encrypted)});
  }
  return out;
}

}  // namespace

TlsContext::TlsContext(const TlsContext& other) noexcept : context_(other.context_) {
  if (context_ != nullptr) SSL_CTX_up_ref(context_);
}

TlsContext::~TlsContext() { SSL_CTX_free(context_); }

ssl_st* TlsContext::connection() const noexcept { return SSL_new(context_); }

std::expected<TlsContext, std::string> TlsContext::server(const TlsServerOptions& options) {
  const auto loaded = load_pairs(options.certificates);
  if (!loaded) return std::unexpected(loaded.error());
  auto server = std::make_unique<ServerNames>();
  server->alpn = wire_form(options.alpn);
  std::map<std::string, std::vector<const Loaded*>> by_name;
  for (const Loaded& one : *loaded)
    for (const std::string& name : one.facts.names) by_name[name].push_back(&one);
  // The default: the first certificate, and those of other key types that hold for the same names.
  std::vector<const Loaded*> all;
  for (const Loaded& one : *loaded)
    if (&one == &loaded->front() || one.facts.names == loaded->front().facts.names) all.push_back(&one);
  const auto first = first_of_each_type(all);
  auto context = make_server_context(options, first, server.get());
  if (!context) return std::unexpected(context.error());
  std::map<std::vector<const Loaded*>, SSL_CTX*> made{{first, nullptr}};
  for (const auto& [name, certificates] : by_name) {
    const auto wanted = first_of_each_type(certificates);
    if (!made.contains(wanted)) {
      auto other = make_server_context(options, wanted, server.get());
      if (!other) return std::unexpected(other.error());
      made[wanted] = other->get();
      server->others.push_back(std::move(*other));
    }
    server->names[name] = made[wanted];
  }
  SSL_CTX_set_tlsext_servername_callback(context->get(), select_name);
  SSL_CTX_set_tlsext_servername_arg(context->get(), server.get());
  if (SSL_CTX_set_ex_data(context->get(), server_index(), server.get()) != 1)
    return std::unexpected("TLS cannot be set up: " + tls::take_error());
  server.release();  // the context has it now
  return TlsContext(context->release());
}

std::expected<TlsContext, std::string> TlsContext::client(const TlsClientOptions& options) {
  tls::ContextPtr context = make_context(TLS_client_method(), true);
  if (context == nullptr) return std::unexpected("TLS cannot be set up: " + tls::take_error());
  SSL_CTX* c = context.get();
  const std::string alpn = wire_form(options.alpn);
  if (!alpn.empty() &&
      SSL_CTX_set_alpn_protos(c, reinterpret_cast<const unsigned char*>(alpn.data()), static_cast<unsigned>(alpn.size())) != 0)
    return std::unexpected("TLS cannot be set up: " + tls::take_error());
  SSL_CTX_set_verify(c, options.verify ? SSL_VERIFY_PEER : SSL_VERIFY_NONE, nullptr);
  if (!options.verify) return TlsContext(context.release());
  if (options.ca.empty()) {
    SSL_CTX_set_default_verify_paths(c);
    ERR_clear_error();
    return TlsContext(context.release());
  }
  const auto roots = tls::read_certificates(options.ca);
  if (roots.empty()) return std::unexpected("the ca file holds no certificate in PEM form, or a broken one");
  for (const auto& root : roots) X509_STORE_add_cert(SSL_CTX_get_cert_store(c), root.get());
  ERR_clear_error();
  return TlsContext(context.release());
}

}  // namespace weir

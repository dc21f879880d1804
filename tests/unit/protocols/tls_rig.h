// What the TLS tests stand on: certificates made on the spot, a wire between two transports that gives as many bytes at a time as
// the test says, and owners that write down what they are told.
#pragma once

#include <openssl/err.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "protocols/transport/tls_transport.h"
#include "tests/unit/protocols/pipe_rig.h"

namespace weir::test {

struct CertificateWish {
  std::vector<std::string> names{"example.com"};
  bool rsa = false;
  long from_s = -3600, to_s = 86400 * 90;
};


inline std::string pem_text(const std::function<void(BIO*)>& write) {
  BIO* bio = BIO_new(BIO_s_mem());
  write(bio);
  char* data = nullptr;
  const long size = BIO_get_mem_data(bio, &data);
  std::string out(data, static_cast<size_t>(size));
  BIO_free(bio);
  return out;
}

// Self-signed, so it is its own CA.
inline TlsPem make_certificate(const CertificateWish& wish = {}) {
  EVP_PKEY* key = wish.rsa ? EVP_RSA_gen(2048) : EVP_EC_gen("P-256");
  X509* x = X509_new();
  X509_set_version(x, 2);
  ASN1_INTEGER_set(X509_get_serialNumber(x), 1);
  X509_gmtime_adj(X509_getm_notBefore(x), wish.from_s);
  X509_gmtime_adj(X509_getm_notAfter(x), wish.to_s);
  X509_set_pubkey(x, key);
  const std::string name = wish.names.empty() ? "made for a test" : wish.names.front();
  const auto* common = reinterpret_cast<const unsigned char*>(name.c_str());
  X509_NAME_add_entry_by_txt(X509_get_subject_name(x), "CN", MBSTRING_ASC, common, -1, -1, 0);
  X509_set_issuer_name(x, X509_get_subject_name(x));
  std::string names;
  for (const std::string& one : wish.names) names += (names.empty() ? "DNS:" : ",DNS:") + one;
  if (!names.empty()) {
    X509_EXTENSION* extension = X509V3_EXT_conf_nid(nullptr, nullptr, NID_subject_alt_name, names.c_str());
    X509_add_ext(x, extension, -1);
    X509_EXTENSION_free(extension);
  }
  X509_sign(x, key, EVP_sha256());
  TlsPem pem{pem_text([&](BIO* b) { PEM_write_bio_X509(b, x); }),
             pem_text([&](BIO* b) { PEM_write_bio_PrivateKey(b, key, nullptr, nullptr, 0, nullptr, nullptr); })};
  X509_free(x);
  EVP_PKEY_free(key);
  return pem;
}

// A list by that self-signed certificate of itself, or of nobody.
inline std::string make_revocations(const TlsPem& by, bool itself) {
  BIO* cert_bio = BIO_new_mem_buf(by.certificates.data(), static_cast<int>(by.certificates.size()));
  BIO* key_bio = BIO_new_mem_buf(by.key.data(), static_cast<int>(by.key.size()));
  X509* x = PEM_read_bio_X509(cert_bio, nullptr, nullptr, nullptr);
  EVP_PKEY* key = PEM_read_bio_PrivateKey(key_bio, nullptr, nullptr, nullptr);
  X509_CRL* list = X509_CRL_new();
  X509_CRL_set_version(list, 1);
  X509_CRL_set_issuer_name(list, X509_get_subject_name(x));
  ASN1_TIME* at = X509_gmtime_adj(nullptr, -60);
  X509_CRL_set1_lastUpdate(list, at);
  X509_gmtime_adj(at, 86400);
  X509_CRL_set1_nextUpdate(list, at);
  if (itself) {
    X509_REVOKED* revoked = X509_REVOKED_new();
    X509_REVOKED_set_serialNumber(revoked, X509_get_serialNumber(x));
    X509_gmtime_adj(at, -30);
    X509_REVOKED_set_revocationDate(revoked, at);
    X509_CRL_add0_revoked(list, revoked);
  }
  X509_CRL_sign(list, key, EVP_sha256());
  const std::string out = pem_text([&](BIO* b) { PEM_write_bio_X509_CRL(b, list); });
  ASN1_TIME_free(at);
  X509_CRL_free(list);
  EVP_PKEY_free(key);
  X509_free(x);
  BIO_free(cert_bio);
  BIO_free(key_bio);
  return out;
}

inline const TlsPem& ecdsa() {
  static const TlsPem made = make_certificate();
  return made;
}
inline const TlsPem& rsa() {
  static const TlsPem made = make_certificate({.rsa = true});
  return made;
}

// One end of a connection in memory. A receive gives at most `piece` bytes, or `first_piece` the first time; so does a send.
class Line final : public Transport {
 public:
  explicit Line(Loop& loop) : loop_(loop) {}
  TransportOwner* owner = nullptr;
  Line* peer = nullptr;
  size_t piece = SIZE_MAX, first_piece = 0;
  std::string inbox;           // sent by the peer, not yet received
  std::string sent;            // all that left here
  bool fin = false;            // the write side is shut
  bool gone = false;           // closed

  void read(uint32_t want) noexcept override { if (!closing_ && !eof_ && want_ == 0) want_ = want; }
  void stop_reading() noexcept override { want_ = 0; }
  bool reading() const noexcept override { return want_ != 0; }
  bool at_eof() const noexcept override { return eof_; }
  Chain& out() noexcept override { return out_; }
  const Chain& out() const noexcept override { return out_; }
  void flush() noexcept override {
    if (!closing_ && !out_.empty()) sending_ = true;
    if (finish_ && out_.empty()) fin = true;
  }
  bool sending() const noexcept override { return sending_; }
  void finish_writing() noexcept override { finish_ = true; flush(); }
  void close(bool) noexcept override { closing_ = true; }
  bool closing() const noexcept override { return closing_; }
  Socket* plain_socket() noexcept override { return nullptr; }
  uint64_t acked_bytes() noexcept override { return 0; }
  void change_engine(EngineKind) noexcept override {}

  bool step() {  // one completion of each kind
    if (gone) return false;
    if (closing_) {
      out_.clear();
      gone = fin = true;
      owner->on_closed();
      return true;
    }
    const bool left = send();
    return receive() || left;
  }

 private:
  bool send() {
    if (!std::exchange(sending_, false)) return false;
    const std::string all = text_of(out_);
    const std::string part = all.substr(0, piece);
    out_.consume(part.size());
    sent += part;
    if (peer != nullptr) peer->inbox += part;
    owner->on_sent(part.size());
    flush();
    return true;
  }
  bool receive() {
    if (want_ == 0 || closing_) return false;
    if (inbox.empty()) {
      if (peer == nullptr || !peer->fin) return false;
      want_ = 0;
      eof_ = true;
      owner->on_eof();
      return true;
    }
    const size_t most = first_piece != 0 ? std::exchange(first_piece, 0) : piece;
    const std::string part = inbox.substr(0, std::min<size_t>(most, want_));
    inbox.erase(0, part.size());
    want_ = 0;
    Chain bytes;
    WEIR_ASSERT(bytes.append_copy(loop_.slabs(), part.data(), part.size()));
    owner->on_bytes(std::move(bytes));
    return true;
  }

  Loop& loop_;
  Chain out_;
  uint32_t want_ = 0;
  bool eof_ = false, sending_ = false, finish_ = false, closing_ = false;
};

// Reads what it can, in pieces of `want`, and keeps it.
struct Owner final : TransportOwner {
  Transport* transport = nullptr;
  uint32_t want = 65536;
  std::string got;
  size_t sent = 0;
  int error = 0, readies = 0, eofs = 0;
  bool closed = false, close_on_error = true;
  void on_bytes(Chain&& bytes) noexcept override {
    WEIR_ASSERT(!bytes.empty() && bytes.bytes() <= want);
    got += text_of(bytes);
    bytes.clear();
    transport->read(want);
  }
  void on_eof() noexcept override { ++eofs; }
  void on_sent(size_t count) noexcept override { sent += count; }
  void on_error(int why, bool) noexcept override {
    error = why;
    if (close_on_error) transport->close(true);
  }
  void on_closed() noexcept override { closed = true; }
  void on_ready() noexcept override { ++readies; }
};

struct End {
  End(Loop& loop, const TlsSetup& setup, TlsTransport::Side side) : line(loop), tls(loop, line, owner, setup, side) {
    line.owner = &tls;
    owner.transport = &tls;
  }
  Line line;
  Owner owner;
  TlsTransport tls;
};

// A server and a client of ours on one loop.
struct TlsPair {
  explicit TlsPair(const TlsServerOptions& server_options, const TlsClientOptions& client_options = {.verify = false}) {
    loop.add_engine(std::make_unique<RelayEngine>());
    auto made = TlsContext::server(server_options);
    if (!made) problem = made.error();
    auto to = TlsContext::client(client_options);
    if (!to) problem = to.error();
    if (!problem.empty()) return;
    server_setup = {.context = *made, .turns = &turns, .stats = &server_stats, .failed = note, .arg = &failures};
    client_setup = {.context = *to, .turns = &turns, .stats = &client_stats, .failed = note, .arg = &failures};
  }
  ~TlsPair() {
    close_all();
    connections.clear();
  }
  static void note(void* arg, const TlsFailed& failed, const TransportOwner&) noexcept {
    static_cast<std::vector<std::string>*>(arg)->push_back(std::string(tls_failure_name(failed.why)) + ": " +
                                                           std::string(failed.text));
  }

  struct Connection {
    Connection(TlsPair& pair, const char* name)
        : server(pair.loop, pair.server_setup, TlsTransport::Side::server),
          client(pair.loop, pair.client_setup, TlsTransport::Side::client) {
      server.owner.want = client.owner.want = pair.want;
      server.line.peer = &client.line;
      client.line.peer = &server.line;
      server.tls.start();
      server.tls.read(server.owner.want);
      client.tls.start(name);
      client.tls.read(client.owner.want);
    }
    End server, client;
  };
  Connection& connect(const char* name = "example.com") {
    connections.push_back(std::make_unique<Connection>(*this, name));
    return *connections.back();
  }
  void write(End& end, std::string_view text) {
    WEIR_ASSERT(end.tls.out().append_copy(loop.slabs(), text.data(), text.size()));
    end.tls.flush();
  }
  bool tick() {
    bool any = loop.tick(Duration::zero()) != 0;
    for (auto& one : connections) {
      any |= one->server.line.step();
      any |= one->client.line.step();
    }
    return any;
  }
  // Until nothing happens any more.
  void settle() {
    for (int quiet = 0; quiet < 3;) quiet = tick() ? 0 : quiet + 1;
  }
  void close_all() {
    for (auto& one : connections) {
      one->server.tls.close(true);
      one->client.tls.close(true);
    }
    settle();
    clock.at += std::chrono::seconds(2);
    settle();
    for (auto& one : connections) WEIR_ASSERT(one->server.owner.closed && one->client.owner.closed);
  }

  ManualClock clock;
  Loop loop{clock, {.slab_bytes_max = size_t{64} << 20, .gather = false}};
  TlsTurns turns{loop};
  uint32_t want = 65536;       // of the owners' reads
  TlsStats server_stats, client_stats;
  TlsSetup server_setup, client_setup;
  std::vector<std::string> failures;
  std::string problem;
  std::vector<std::unique_ptr<Connection>> connections;
};

// The application records on a wire, by their size without what TLS 1.3 with a 16-byte tag adds.
inline std::vector<size_t> records_of(std::string_view wire) {
  std::vector<size_t> out;
  while (wire.size() >= 5) {
    const size_t size = static_cast<size_t>(static_cast<unsigned char>(wire[3])) << 8 | static_cast<unsigned char>(wire[4]);
    if (wire[0] == 23 && size > 17) out.push_back(size - 17);
    wire.remove_prefix(std::min(wire.size(), 5 + size));
  }
  return out;
}

inline std::string pattern(size_t size) {
  std::string out(size, '\0');
  for (size_t i = 0; i < size; ++i) out[i] = static_cast<char>(i * 31 + i / 251);
  return out;
}

}  // namespace weir::test

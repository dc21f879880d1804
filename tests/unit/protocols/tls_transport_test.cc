#include <catch2/catch_test_macros.hpp>

#include "tests/unit/protocols/tls_rig.h"

using namespace weir;
using namespace weir::test;

namespace {

TlsServerOptions plain_server() { return {.certificates = {ecdsa()}, .alpn = {"http/1.1"}}; }

// A client made of OpenSSL alone, for what ours never does.
struct Foreign final : TransportOwner {
  Foreign(Loop& loop, const TlsSetup& setup, const std::function<void(SSL_CTX*)>& change)
      : line(loop), server(loop, setup, TlsTransport::Side::server), context(SSL_CTX_new(TLS_client_method())) {
    line.owner = this;
    line.peer = &server.line;
    server.line.peer = &line;
    if (change) change(context);
    ssl = SSL_new(context);
    SSL_set_bio(ssl, in = BIO_new(BIO_s_mem()), out = BIO_new(BIO_s_mem()));
    SSL_set_connect_state(ssl);
    server.tls.start();
    server.tls.read(server.owner.want);
  }
  ~Foreign() {
    SSL_set_shutdown(ssl, SSL_SENT_SHUTDOWN | SSL_RECEIVED_SHUTDOWN);  // else its session counts as broken
    SSL_free(ssl);
    SSL_CTX_free(context);
  }
  void on_bytes(Chain&& bytes) noexcept override {
    const std::string text = text_of(bytes);
    bytes.clear();
    BIO_write(in, text.data(), static_cast<int>(text.size()));
  }
  void on_eof() noexcept override {}
  void on_sent(size_t) noexcept override {}
  void on_error(int, bool) noexcept override {}
  void on_closed() noexcept override {}

  int shake() {
    const int done = SSL_do_handshake(ssl);
    error = ERR_reason_error_string(ERR_peek_error());
    ERR_clear_error();
    return done;
  }
  void send() {
    char buffer[16384];
    for (int n; (n = BIO_read(out, buffer, sizeof buffer)) > 0;)
      WEIR_ASSERT(line.out().append_copy(*pool, buffer, static_cast<size_t>(n)));
    line.flush();
  }
  void run(Loop& loop, int rounds = 40) {
    pool = &loop.slabs();
    for (int i = 0; i < rounds; ++i) {
      if (SSL_is_init_finished(ssl) == 0) shake();
      send();
      line.read(65536);
      line.step();
      server.line.step();
      loop.tick(Duration::zero());
    }
  }
  void end(Loop& loop, ManualClock& clock) {
    server.tls.close(true);
    run(loop, 4);
    clock.at += std::chrono::seconds(2);
    run(loop, 4);
    WEIR_ASSERT(server.owner.closed);
    line.close(true);
    line.step();
  }
  Line line;
  End server;
  SSL_CTX* context;
  SSL* ssl;
  BIO *in, *out;
  SlabPool* pool = nullptr;
  const char* error = nullptr;
};

// Both directions at once, whatever the pieces.
void exchange(TlsPair& pair, TlsPair::Connection& c, size_t up, size_t down) {
  const std::string request = pattern(up), answer = pattern(down);
  pair.settle();
  pair.write(c.client, request);
  pair.write(c.server, answer);
  pair.settle();
  REQUIRE(c.server.owner.got == request);
  REQUIRE(c.client.owner.got == answer);
  CHECK(c.client.owner.sent == up);
  CHECK(c.server.owner.sent == down);
}

}  // namespace

TEST_CASE("tls: bytes come whole, whatever the pieces", "[tls]") {
  for (const size_t piece : {size_t{1}, size_t{2}, size_t{5}, size_t{6}, size_t{333}, size_t{16384}, SIZE_MAX}) {
    TlsPair pair(plain_server(), {.alpn = {"h2", "http/1.1"}, .verify = false});
    REQUIRE(pair.problem.empty());
    auto& c = pair.connect();
    c.server.line.piece = c.client.line.piece = piece;
    const size_t most = piece < 10 ? 4'000 : 300'000;
    exchange(pair, c, most / 2, most);
    CHECK(c.server.owner.readies == 1);
    CHECK(c.server.tls.alpn() == "http/1.1");
    CHECK(c.client.tls.alpn() == "http/1.1");
    CHECK(c.server.tls.facts().version == "TLSv1.3");
    CHECK(c.server.tls.facts().cipher == "TLS_AES_128_GCM_SHA256");
    CHECK(c.server.tls.facts().server_name == "example.com");
    CHECK(pair.server_stats.full.get() == 1);
  }
}

TEST_CASE("tls: a handshake may be split anywhere", "[tls]") {
  TlsPair pair(plain_server());
  size_t flight = 1;
  for (size_t at = 1; at <= flight; at += 3) {
    auto& c = pair.connect();
    c.server.line.first_piece = c.client.line.first_piece = at;
    pair.settle();
    pair.write(c.client, "ping");
    pair.settle();
    REQUIRE(c.server.owner.got == "ping");
    flight = std::max(c.client.line.sent.size(), c.server.line.sent.size());
    pair.close_all();
    pair.connections.clear();
  }
  CHECK(pair.failures.empty());
}

TEST_CASE("tls: reads give no more than was asked for", "[tls]") {
  TlsPair pair(plain_server());
  pair.want = 700;  // Owner asserts it
  auto& c = pair.connect();
  pair.settle();
  pair.write(c.client, pattern(50'000));
  pair.settle();
  CHECK(c.server.owner.got == pattern(50'000));
}

TEST_CASE("tls: a head and its body are one record, records grow, and are small again after a pause", "[tls]") {
  TlsPair pair(plain_server());
  auto& c = pair.connect();
  pair.settle();
  const auto records_for = [&](size_t head, size_t body) {
    const size_t before = c.server.line.sent.size();
    const std::string one = pattern(head), two = pattern(body);
    Chain second;  // a slab of its own, as an origin's bytes are
    REQUIRE(second.append_copy(pair.loop.slabs(), two.data(), two.size()));
    REQUIRE(c.server.tls.out().append_copy(pair.loop.slabs(), one.data(), one.size()));
    c.server.tls.out().append(std::move(second));
    c.server.tls.flush();
    pair.settle();
    return records_of(std::string_view(c.server.line.sent).substr(before));
  };
  CHECK(records_for(200, 1000) == std::vector<size_t>{1200});
  const auto large = records_for(200, 200'000);
  CHECK(large.front() == 1300);
  CHECK(large.size() < 14 + 200'000 / 16384 + 4);
  CHECK(*std::max_element(large.begin(), large.end()) == 16384);
  CHECK(records_for(200, 16'000).front() == 16'200);
  pair.clock.at += std::chrono::seconds(2);
  pair.settle();
  CHECK(records_for(200, 16'000).front() == 1300);
  CHECK(c.client.owner.got.size() == 1200 + 200'200 + 16'200 + 16'200);
}

TEST_CASE("tls: close_notify ends each direction alone", "[tls]") {
  TlsPair pair(plain_server());
  auto& c = pair.connect();
  pair.settle();
  pair.write(c.client, "the request");
  c.client.tls.finish_writing();
  pair.settle();
  CHECK(c.server.owner.got == "the request");
  CHECK(c.server.owner.eofs == 1);
  CHECK(c.server.tls.at_eof());
  CHECK_FALSE(c.server.tls.truncated());
  pair.write(c.server, "the answer");
  c.server.tls.finish_writing();
  pair.settle();
  CHECK(c.client.owner.got == "the answer");
  CHECK(c.client.owner.eofs == 1);
  CHECK_FALSE(c.client.tls.truncated());
}

TEST_CASE("tls: close says close_notify, a reset does not", "[tls]") {
  for (const bool reset : {false, true}) {
    TlsPair pair(plain_server());
    auto& c = pair.connect();
    pair.settle();
    c.server.tls.close(reset);
    pair.settle();
    CHECK(c.server.owner.closed);
    CHECK(c.client.owner.eofs == 1);
    CHECK(c.client.tls.truncated() == reset);
  }
}

TEST_CASE("tls: what is cut off is told apart from what has ended", "[tls]") {
  TlsPair pair(plain_server());
  auto& c = pair.connect();
  pair.settle();
  pair.write(c.client, "half of it");
  pair.settle();
  c.client.line.fin = true;  // somebody in between
  pair.settle();
  CHECK(c.server.owner.got == "half of it");
  CHECK(c.server.owner.eofs == 1);
  CHECK(c.server.tls.truncated());
  pair.write(c.server, "still heard");  // and the other direction goes on
  pair.settle();
  CHECK(c.client.owner.got == "still heard");
}

TEST_CASE("tls: a record that was changed on its way ends the connection after what came before it", "[tls]") {
  TlsPair pair(plain_server());
  auto& c = pair.connect();
  pair.settle();
  c.server.line.piece = 0;  // hold it
  pair.write(c.client, "first");
  c.client.line.step();
  c.server.line.inbox.back() = static_cast<char>(c.server.line.inbox.back() ^ 1);
  c.server.line.piece = SIZE_MAX;
  pair.settle();
  CHECK(c.server.owner.error == EPROTO);
  CHECK(c.server.owner.got.empty());
  CHECK(c.client.owner.error == EPROTO);  // by the alert
}

TEST_CASE("tls: handshakes that fail say why, to the peer too", "[tls]") {
  SECTION("plain HTTP") {
    TlsPair pair(plain_server());
    auto& c = pair.connect();
    c.client.line.owner = &c.client.owner;  // it does not speak at all
    c.server.line.inbox = "GET / HTTP/1.1\r\nHost: example.com\r\n\r\n";
    pair.settle();
    CHECK(pair.failures == std::vector<std::string>{"not_tls: http request"});
    CHECK(c.server.owner.error == EPROTO);
    c.client.line.owner = &c.client.tls;
  }
  SECTION("no common protocol") {
    TlsPair pair(plain_server(), {.alpn = {"h2"}, .verify = false});
    pair.connect();
    pair.settle();
    CHECK(pair.failures.at(0) == "alpn: no application protocol");
    CHECK(pair.failures.at(1).starts_with("peer_alert: "));
  }
  SECTION("an unknown issuer") {
    TlsPair pair(plain_server(), {.ca = rsa().certificates});
    pair.connect();
    pair.settle();
    CHECK(pair.failures.at(0) == "certificate_unknown_ca: self-signed certificate");
    CHECK(pair.failures.at(1).starts_with("peer_alert: "));
  }
  SECTION("another name") {
    TlsPair pair(plain_server(), {.ca = ecdsa().certificates});
    pair.connect("example.org");
    pair.settle();
    CHECK(pair.failures.at(0) == "server_name: hostname mismatch");
  }
  SECTION("expired") {
    const TlsPem old = make_certificate({.from_s = -7200, .to_s = -3600});
    TlsPair pair({.certificates = {old}}, {.ca = old.certificates});
    pair.connect();
    pair.settle();
    CHECK(pair.failures.at(0) == "certificate_expired: certificate has expired");
  }
  SECTION("nobody there any more") {
    TlsPair pair(plain_server());
    auto& c = pair.connect();
    c.client.line.fin = true;
    c.client.line.peer = nullptr;
    pair.settle();
    CHECK(pair.failures.at(0).starts_with("closed: "));
    CHECK(pair.server_stats.failed[static_cast<size_t>(TlsFailure::closed)].get() == 1);
    c.client.line.peer = &c.server.line;
  }
  SECTION("its owner's time is up") {
    TlsPair pair(plain_server());
    auto& c = pair.connect();
    c.server.tls.close(false);
    pair.settle();
    CHECK(pair.failures.at(0).starts_with("timeout: "));
  }
}

TEST_CASE("tls: with the right root and name the server is believed", "[tls]") {
  TlsPair pair(plain_server(), {.ca = ecdsa().certificates});
  exchange(pair, pair.connect(), 10, 10);
}

TEST_CASE("tls: versions and ciphers", "[tls]") {
  TlsServerOptions options = plain_server();
  const auto outcome = [&](const std::function<void(SSL_CTX*)>& change) {
    TlsPair pair(options);
    Foreign foreign(pair.loop, pair.server_setup, change);
    foreign.run(pair.loop);
    std::string out = foreign.server.tls.ready() ? std::string(foreign.server.tls.facts().version) + " " +
                                                       std::string(foreign.server.tls.facts().cipher)
                                                 : pair.failures.empty() ? "nothing" : pair.failures.front();
    foreign.end(pair.loop, pair.clock);
    return out;
  };
  const auto only12 = [](SSL_CTX* c) { SSL_CTX_set_max_proto_version(c, TLS1_2_VERSION); };
  CHECK(outcome(only12) == "TLSv1.2 ECDHE-ECDSA-AES128-GCM-SHA256");
  CHECK(outcome([&](SSL_CTX* c) {
          only12(c);
          SSL_CTX_set_cipher_list(c, "ECDHE-ECDSA-AES256-SHA");
        }) == "cipher: no shared cipher");
  options.tls12 = false;
  CHECK(outcome(only12) == "version: unsupported protocol");
}

TEST_CASE("tls: the certificate is the one of the name, ECDSA and RSA side by side", "[tls]") {
  const TlsPem wild = make_certificate({.names = {"*.example.net", "deep.example.net"}});
  const TlsPem deep = make_certificate({.names = {"www.example.net"}});
  TlsServerOptions options{.certificates = {ecdsa(), wild, rsa(), deep}};
  const auto served = [&](const char* name, bool want_rsa = false) {
    TlsPair pair(options);
    Foreign foreign(pair.loop, pair.server_setup, [&](SSL_CTX* c) {
      if (want_rsa) SSL_CTX_set1_sigalgs_list(c, "rsa_pss_rsae_sha256");
    });
    if (name != nullptr) SSL_set_tlsext_host_name(foreign.ssl, name);
    foreign.run(pair.loop);
    X509* got = SSL_get1_peer_certificate(foreign.ssl);
    const std::string pem = got == nullptr ? "" : pem_text([&](BIO* b) { PEM_write_bio_X509(b, got); });
    X509_free(got);
    foreign.end(pair.loop, pair.clock);
    return pem;
  };
  CHECK(served("example.com") == ecdsa().certificates);
  CHECK(served("EXAMPLE.com.") == ecdsa().certificates);
  CHECK(served("a.example.net") == wild.certificates);
  CHECK(served("a.b.example.net") == ecdsa().certificates);  // a wildcard is one label; else the default
  CHECK(served("www.example.net") == deep.certificates);
  CHECK(served("deep.example.net") == wild.certificates);
  CHECK(served(nullptr) == ecdsa().certificates);
  CHECK(served("unknown.test") == ecdsa().certificates);
  CHECK(served("example.com", true) == rsa().certificates);
}

TEST_CASE("tls: a ticket is good at every context that has the keys, for as long as its key is kept", "[tls]") {
  TlsTicketKeys keys;
  TlsServerOptions options = plain_server();
  options.tickets = &keys;
  options.session_scope = "a listener";
  SSL_SESSION* session = nullptr;
  const auto resumed = [&](const TlsServerOptions& with) {
    TlsPair pair(with);  // a context of its own each time
    Foreign foreign(pair.loop, pair.server_setup, {});
    if (session != nullptr) SSL_set_session(foreign.ssl, session);
    foreign.run(pair.loop, 20);
    REQUIRE(foreign.server.tls.ready());
    char byte;
    SSL_read(foreign.ssl, &byte, 1);  // takes the tickets in
    ERR_clear_error();
    SSL_SESSION_free(session);
    session = SSL_get1_session(foreign.ssl);
    const bool out = foreign.server.tls.facts().resumed;
    CHECK(pair.server_stats.resumed.get() == (out ? 1 : 0));
    foreign.end(pair.loop, pair.clock);
    return out;
  };
  CHECK_FALSE(resumed(options));
  CHECK(resumed(options));
  keys.rotate();
  keys.rotate();
  CHECK(resumed(options));
  keys.rotate();
  keys.rotate();
  keys.rotate();
  CHECK_FALSE(resumed(options));
  CHECK(resumed(options));
  TlsServerOptions other = options;
  other.session_scope = "another listener";
  CHECK_FALSE(resumed(other));
  SSL_SESSION_free(session);
}

TEST_CASE("tls: clients' certificates", "[tls]") {
  const TlsPem good = make_certificate({.names = {"client.test"}});
  const TlsPem stranger = make_certificate({.names = {"stranger.test"}});
  const TlsPem old = make_certificate({.names = {"old.test"}, .from_s = -7200, .to_s = -3600});
  TlsServerOptions options = plain_server();
  options.client_ca = good.certificates + old.certificates;
  const auto outcome = [&](const TlsPem* shown) {
    TlsPair pair(options);
    REQUIRE(pair.problem.empty());
    Foreign foreign(pair.loop, pair.server_setup, [&](SSL_CTX* c) {
      if (shown == nullptr) return;
      BIO* cert = BIO_new_mem_buf(shown->certificates.data(), static_cast<int>(shown->certificates.size()));
      BIO* key = BIO_new_mem_buf(shown->key.data(), static_cast<int>(shown->key.size()));
      X509* x = PEM_read_bio_X509(cert, nullptr, nullptr, nullptr);
      EVP_PKEY* k = PEM_read_bio_PrivateKey(key, nullptr, nullptr, nullptr);
      SSL_CTX_use_cert_and_key(c, x, k, nullptr, 1);
      X509_free(x);
      EVP_PKEY_free(k);
      BIO_free(cert);
      BIO_free(key);
    });
    foreign.run(pair.loop);
    char byte;
    SSL_read(foreign.ssl, &byte, 1);  // where TLS 1.3 clients hear of it
    const char* heard = ERR_reason_error_string(ERR_peek_error());
    ERR_clear_error();
    const TlsPeerCertificate* peer = foreign.server.tls.facts().peer.get();
    std::string out = peer == nullptr ? "nobody" : peer->subject + " " + peer->san;
    if (peer != nullptr) CHECK(peer->fingerprint.size() == 64);
    if (!foreign.server.tls.ready()) out = pair.failures.at(0) + "; the client heard: " + (heard == nullptr ? "" : heard);
    foreign.end(pair.loop, pair.clock);
    return out;
  };
  const std::string missing = "certificate_missing: peer did not return a certificate; the client heard: ";
  const std::string unknown = "certificate_unknown_ca: self-signed certificate; the client heard: tlsv1 alert unknown ca";
  for (const bool require : {true, false}) {
    options.client_auth = require ? TlsClientAuth::require : TlsClientAuth::request;
    CHECK(outcome(&good) == "CN=client.test DNS:client.test");
    CHECK(outcome(nullptr) == (require ? missing + "tlsv13 alert certificate required" : "nobody"));
    CHECK(outcome(&stranger) == unknown);
    CHECK(outcome(&old) == "certificate_expired: certificate has expired; the client heard: ssl/tls alert certificate expired");
  }
  options.client_crl = make_revocations(good, false);
  CHECK(outcome(&good) == "CN=client.test DNS:client.test");
  options.client_crl = make_revocations(good, true);
  CHECK(outcome(&good) == "certificate_revoked: certificate revoked; the client heard: ssl/tls alert certificate revoked");
  options.client_crl = "nothing";
  CHECK(TlsContext::server(options).error() == "the client_crl file holds no revocation list in PEM form, or a broken one");
}

TEST_CASE("tls: handshakes take turns", "[tls]") {
  TlsPair pair(plain_server());
  pair.turns.per_tick = 2;
  for (int i = 0; i < 10; ++i) pair.connect();
  pair.tick();  // the clients' hellos are made in turns too
  uint64_t before = 0;
  int ticks = 0;
  for (; pair.server_stats.full.get() + pair.client_stats.full.get() < 20 && ticks < 200; ++ticks) {
    pair.clock.at += std::chrono::microseconds(10);
    pair.tick();
    const uint64_t now = pair.server_stats.full.get() + pair.client_stats.full.get();
    CHECK(now - before <= 2);
    before = now;
  }
  CHECK(ticks < 200);
  // One that goes while it waits is forgotten.
  for (int i = 0; i < 5; ++i) pair.connect();
  pair.tick();
  pair.close_all();
}

TEST_CASE("tls: key updates are followed, but not without end", "[tls]") {
  TlsPair pair(plain_server());
  Foreign foreign(pair.loop, pair.server_setup, {});
  foreign.run(pair.loop);
  REQUIRE(foreign.server.tls.ready());
  for (int i = 0; i < 5; ++i) {
    SSL_key_update(foreign.ssl, SSL_KEY_UPDATE_REQUESTED);
    SSL_write(foreign.ssl, "x", 1);
    foreign.run(pair.loop, 3);
  }
  CHECK(foreign.server.owner.got == "xxxxx");
  CHECK(foreign.server.owner.error == 0);
  int updates = 0;
  for (; updates < 10'000 && foreign.server.owner.error == 0; ++updates) {
    SSL_key_update(foreign.ssl, SSL_KEY_UPDATE_NOT_REQUESTED);
    SSL_do_handshake(foreign.ssl);
    foreign.run(pair.loop, 2);
  }
  CHECK(foreign.server.owner.error == EPROTO);
  CHECK(updates > 500);
  foreign.end(pair.loop, pair.clock);
}

TEST_CASE("tls: our own key changes after so many records", "[tls]") {
  TlsPair pair(plain_server());
  pair.server_setup.key_records = 3;
  auto& c = pair.connect();
  exchange(pair, c, 100, 400'000);
}

TEST_CASE("tls: renegotiation is refused", "[tls]") {
  TlsPair pair(plain_server());
  Foreign foreign(pair.loop, pair.server_setup, [](SSL_CTX* c) { SSL_CTX_set_max_proto_version(c, TLS1_2_VERSION); });
  foreign.run(pair.loop);
  REQUIRE(foreign.server.tls.ready());
  SSL_renegotiate(foreign.ssl);
  SSL_do_handshake(foreign.ssl);
  foreign.run(pair.loop);
  SSL_write(foreign.ssl, "x", 1);
  CHECK(pair.server_stats.full.get() == 1);
  ERR_clear_error();
  foreign.end(pair.loop, pair.clock);
}

TEST_CASE("tls: without memory the connection ends, and says so", "[tls]") {
  TlsPair pair(plain_server());
  auto& c = pair.connect();
  pair.settle();
  std::vector<Slab*> all;
  while (Slab* slab = pair.loop.slabs().take()) all.push_back(slab);
  const std::string text = pattern(100);
  SlabPool::unref(*all.back());
  all.pop_back();
  REQUIRE(c.server.tls.out().append_copy(pair.loop.slabs(), text.data(), text.size()));
  c.server.tls.flush();
  pair.loop.tick(Duration::zero());
  CHECK(c.server.owner.error == ENOBUFS);
  for (Slab* slab : all) SlabPool::unref(*slab);
}

#include <catch2/catch_test_macros.hpp>

#include "tests/unit/protocols/tls_rig.h"

using namespace weir;
using namespace weir::test;

TEST_CASE("tls certificate: what it says of itself", "[tls]") {
  const auto facts = inspect_certificate(make_certificate({.names = {"A.example.com", "*.example.com"}}));
  REQUIRE(facts);
  CHECK(facts->names == std::vector<std::string>{"a.example.com", "*.example.com"});
  CHECK(facts->key_type == TlsKeyType::ecdsa);
  CHECK(facts->not_after - facts->not_before == 3600 + 86400 * 90);
  CHECK(inspect_certificate(rsa())->key_type == TlsKeyType::rsa);
  CHECK(inspect_certificate(make_certificate({.names = {}}))->names == std::vector<std::string>{"made for a test"});
}

TEST_CASE("tls certificate: what is wrong with the files", "[tls]") {
  const auto fault = [](const TlsPem& pem) {
    const auto facts = inspect_certificate(pem);
    return facts ? std::string("nothing") : (facts.error().key ? "key " : "certificate ") + facts.error().text;
  };
  CHECK(fault(ecdsa()) == "nothing");
  CHECK(fault({"", ecdsa().key}) == "certificate holds no certificate in PEM form, or a broken one");
  CHECK(fault({ecdsa().certificates.substr(0, 300), ecdsa().key}) == "certificate holds no certificate in PEM form, or a broken one");
  CHECK(fault({ecdsa().certificates, ""}) == "key holds no private key in PEM form");
  CHECK(fault({ecdsa().certificates, rsa().key}) == "key is the key of another certificate");
  CHECK(fault({ecdsa().certificates, make_certificate().key}) == "key is the key of another certificate");
  std::string broken = ecdsa().certificates + ecdsa().certificates;
  broken.replace(broken.size() - 100, 10, "##########");
  CHECK(fault({broken, ecdsa().key}) == "certificate holds no certificate in PEM form, or a broken one");
  CHECK(TlsContext::server({.certificates = {{ecdsa().certificates, rsa().key}}}).error() ==
        "the key file is the key of another certificate");
}

TEST_CASE("tls certificate: a password is not asked for", "[tls]") {
  BIO* from = BIO_new_mem_buf(ecdsa().key.data(), static_cast<int>(ecdsa().key.size()));
  EVP_PKEY* key = PEM_read_bio_PrivateKey(from, nullptr, nullptr, nullptr);
  char password[] = "secret";
  const std::string locked =
      pem_text([&](BIO* b) { PEM_write_bio_PKCS8PrivateKey(b, key, EVP_aes_128_cbc(), password, 6, nullptr, nullptr); });
  EVP_PKEY_free(key);
  BIO_free(from);
  CHECK(inspect_certificate({ecdsa().certificates, locked}).error().text ==
        "holds a key that is protected by a password; nobody is there to type it");
}

TEST_CASE("tls certificate: a name holds for a host", "[tls]") {
  CHECK(certificate_name_holds("example.com", "example.com"));
  CHECK_FALSE(certificate_name_holds("example.com", "www.example.com"));
  CHECK(certificate_name_holds("*.example.com", "www.example.com"));
  CHECK_FALSE(certificate_name_holds("*.example.com", "example.com"));
  CHECK_FALSE(certificate_name_holds("*.example.com", "a.www.example.com"));
  CHECK_FALSE(certificate_name_holds("*.example.com", ".example.com"));
}

// PEM to OpenSSL's objects, owned. Included by the tls_*.cc files of this folder alone. Any thread.
// What is malformed gives an empty result and an empty error queue.
#pragma once

#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <openssl/x509.h>

#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace weir::tls {

template <auto Free>
struct Freer {
  template <class T>
  void operator()(T* object) const noexcept { Free(object); }
};
using BioPtr = std::unique_ptr<BIO, Freer<BIO_free>>;
using X509Ptr = std::unique_ptr<X509, Freer<X509_free>>;
using KeyPtr = std::unique_ptr<EVP_PKEY, Freer<EVP_PKEY_free>>;
using CrlPtr = std::unique_ptr<X509_CRL, Freer<X509_CRL_free>>;
using ContextPtr = std::unique_ptr<SSL_CTX, Freer<SSL_CTX_free>>;

std::vector<X509Ptr> read_certificates(std::string_view pem);
std::vector<CrlPtr> read_revocations(std::string_view pem);
KeyPtr read_key(std::string_view pem, bool* encrypted);
// Of the newest entry of the thread's error queue; the queue is empty afterwards.
std::string take_error();

}  // namespace weir::tls

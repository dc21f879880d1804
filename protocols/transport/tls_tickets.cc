#include "protocols/transport/tls_tickets.h"

#include <openssl/core_names.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/rand.h>
#include <openssl/ssl.h>

#include <cstring>

#include "engines/check.h"

namespace weir {

namespace {

int keys_index() {
  static const int index = SSL_CTX_get_ex_new_index(0, nullptr, nullptr, nullptr, nullptr);
  return index;
}

}  // namespace

TlsTicketKeys::TlsTicketKeys() { rotate(); }

TlsTicketKeys::~TlsTicketKeys() { OPENSSL_cleanse(keys_.data(), sizeof keys_); }

void TlsTicketKeys::rotate() {
  Key fresh;
  WEIR_ASSERT(RAND_bytes(fresh.name.data(), static_cast<int>(fresh.name.size())) == 1);
  WEIR_ASSERT(RAND_priv_bytes(fresh.cipher.data(), static_cast<int>(fresh.cipher.size())) == 1);
  WEIR_ASSERT(RAND_priv_bytes(fresh.mac.data(), static_cast<int>(fresh.mac.size())) == 1);
  const std::lock_guard guard(lock_);
  if (count_ < keys_.size()) ++count_;
  for (size_t i = count_; i-- > 1;) keys_[i] = keys_[i - 1];
  keys_[0] = fresh;
  OPENSSL_cleanse(&fresh, sizeof fresh);
}

int TlsTicketKeys::own(Key& key) {
  const std::lock_guard guard(lock_);
  key = keys_[0];
  return 1;
}

int TlsTicketKeys::find(const unsigned char* name, Key& key) {
  const std::lock_guard guard(lock_);
  for (size_t i = 0; i < count_; ++i) {
    if (memcmp(keys_[i].name.data(), name, keys_[i].name.size()) != 0) continue;
    key = keys_[i];
    return i == 0 ? 1 : 2;
  }
  return 0;
}

void TlsTicketKeys::use_in(ssl_ctx_st* context) {
  SSL_CTX_set_ex_data(context, keys_index(), this);
  SSL_CTX_set_tlsext_ticket_key_evp_cb(context, callback);
}

// As OpenSSL asks: 1 the ticket is good, 2 good but to be replaced, 0 unknown (a full handshake follows), -1 an error.
int TlsTicketKeys::callback(ssl_st* ssl, unsigned char* name, unsigned char* iv, evp_cipher_ctx_st* cipher, evp_mac_ctx_st* mac,
                            int encrypt) noexcept {
  auto* self = static_cast<TlsTicketKeys*>(SSL_CTX_get_ex_data(SSL_get_SSL_CTX(ssl), keys_index()));
  const EVP_CIPHER* aes = EVP_aes_256_cbc();
  if (self == nullptr) return -1;
  Key key;
  int known = encrypt != 0 ? self->own(key) : self->find(name, key);
  if (known == 0) return 0;
  if (encrypt != 0) {
    memcpy(name, key.name.data(), key.name.size());
    if (RAND_bytes(iv, EVP_CIPHER_get_iv_length(aes)) != 1) known = -1;
  }
  char digest[] = "SHA256";
  OSSL_PARAM params[] = {OSSL_PARAM_construct_octet_string(OSSL_MAC_PARAM_KEY, key.mac.data(), key.mac.size()),
                         OSSL_PARAM_construct_utf8_string(OSSL_MAC_PARAM_DIGEST, digest, 0), OSSL_PARAM_construct_end()};
  const auto init = encrypt != 0 ? EVP_EncryptInit_ex : EVP_DecryptInit_ex;
  if (init(cipher, aes, nullptr, key.cipher.data(), iv) != 1 || EVP_MAC_CTX_set_params(mac, params) != 1) known = -1;
  OPENSSL_cleanse(&key, sizeof key);
  return known;
}

}  // namespace weir

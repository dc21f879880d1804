#include "protocols/transport/tls_bio.h"

#include <openssl/bio.h>

#include <algorithm>

namespace weir {

namespace {

TlsWire& wire_of(BIO* bio) noexcept { return *static_cast<TlsWire*>(BIO_get_data(bio)); }

int read_some(BIO* bio, char* to, size_t count, size_t* done) noexcept {
  TlsWire& wire = wire_of(bio);
  BIO_clear_retry_flags(bio);
  *done = wire.in.copy_out(to, 0, count);
  wire.in.consume(*done);
  wire.taken_bytes += *done;
  if (*done != 0) return 1;
  BIO_set_retry_read(bio);  // the end of the connection is the transport's business, not OpenSSL's
  return -1;
}

int write_all(BIO* bio, const char* from, size_t count, size_t* done) noexcept {
  TlsWire& wire = wire_of(bio);
  BIO_clear_retry_flags(bio);
  *done = 0;
  if (!wire.out->append_copy(*wire.slabs, from, count)) {
    wire.out_of_memory = true;
    return -1;  // not 0, which OpenSSL takes for a success that wrote nothing
  }
  *done = count;
  return 1;
}

long control_bio(BIO*, int command, long, void*) noexcept { return command == BIO_CTRL_FLUSH ? 1 : 0; }

int create_bio(BIO* bio) noexcept {
  BIO_set_init(bio, 1);
  return 1;
}

BIO_METHOD* make_bio_method() noexcept {
  BIO_METHOD* method = BIO_meth_new(BIO_get_new_index() | BIO_TYPE_SOURCE_SINK, "chains");
  if (method == nullptr) return nullptr;
  BIO_meth_set_read_ex(method, read_some);
  BIO_meth_set_write_ex(method, write_all);
  BIO_meth_set_ctrl(method, control_bio);
  BIO_meth_set_create(method, create_bio);
  return method;
}

}  // namespace

bio_st* make_tls_bio(TlsWire& wire) noexcept {
  static BIO_METHOD* const method = make_bio_method();
  BIO* bio = method == nullptr ? nullptr : BIO_new(method);
  if (bio != nullptr) BIO_set_data(bio, &wire);
  return bio;
}

}  // namespace weir

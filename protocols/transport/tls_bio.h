// TlsBio: what OpenSSL reads its records from and writes them to: two chains of slices. Nothing is copied that OpenSSL does not
// itself want copied, and writing never asks to be called again: it takes all of a record, or there is no memory, which ends the
// connection. Owner: a TlsTransport, whose TlsWire outlives the BIO. Thread: the loop's own.
#pragma once

#include "engines/chain.h"

struct bio_st;

namespace weir {

struct TlsWire {
  Chain in;                     // records that came and have not been taken
  Chain* out = nullptr;         // where records to be sent are put
  SlabPool* slabs = nullptr;
  size_t taken_bytes = 0;       // of `in`, ever
  bool out_of_memory = false;
};

bio_st* make_tls_bio(TlsWire& wire) noexcept;   // null: no memory

}  // namespace weir

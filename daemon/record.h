// record: what remains of an exchange when it has ended: increments of its worker's counters and, where the access log is on, a
// line in the worker's ring. Caller: Forwarder::on_end, on the worker's thread. It changes nothing of the exchange.
#pragma once

#include "daemon/access_log.h"
#include "daemon/forward.h"

namespace weir {

void record_end(Exchange& exchange, size_t worker, AccessSink* access) noexcept;   // access may be null

}  // namespace weir

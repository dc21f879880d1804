// SimFaults: what goes wrong in the simulated world, as probabilities per attempt. All are 0 by default; a test may change them
// in mid-run. SimScript entries make one named thing fail at a named place, for cases that need order instead of chance.
#pragma once

#include <cstdint>

#include "engines/clock.h"
#include "engines/op.h"

namespace weir {

struct SimFaults {
  double short_recv = 0;        // fewer bytes than there are
  double short_send = 0;        // fewer bytes accepted than there is room for
  double hold_back = 0;         // ready, but the op is served only after up to delay_max
  double delay_completion = 0;  // done, but reported only after up to delay_max (its bytes are already out of the socket)
  double reorder = 0;           // per turn: completions are reported in a random order
  double reset = 0;             // recv or send: the connection is reset under the op
  double broken_pipe = 0;       // send: EPIPE, and the peer is gone
  double accept_emfile = 0;
  double accept_enobufs = 0;
  double recv_enobufs = 0;      // nothing is taken from the socket
  double connect_refused = 0;
  double connect_timeout = 0;   // ETIMEDOUT after connect_timeout_after
  double cancel_race = 0;       // a cancel takes effect only after up to delay_max: the op may succeed meanwhile
  double relay_no_pipe = 0;     // EOPNOTSUPP
  Duration delay_max = std::chrono::milliseconds(2);
  Duration connect_timeout_after = std::chrono::seconds(127);
};

// The next `count` attempts of that kind of op (on that descriptor, or on any where it is -1) end with -error.
struct SimScript {
  OpKind kind;
  int error;
  int fd = -1;
  uint32_t count = 1;
};

}  // namespace weir

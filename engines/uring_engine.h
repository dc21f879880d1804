// The io_uring engine: ops become SQEs, completions come back in batches. Contract: engine.h.
// Owner: a Loop. It may be made on any thread; its ring is bound to the thread of the first turn.
// Receives are one-shot and armed by credit: the kernel picks a buffer only when bytes are there, so an idle one pins
// nothing. Nothing is registered for sockets, so leave() forgets nothing. SQPOLL is never used. Making one waits only
// for locked memory that rings of the same user may still hold, and at most enomem_patience.
#pragma once

#include <climits>
#include <expected>
#include <memory>

#include "engines/engine.h"
#include "engines/slab.h"
#include "engines/stats.h"
#include "engines/uring_probe.h"

namespace weir {

// Written by the engine's thread, read by anyone.
struct UringStats {
  Counter
      cq_overflows;  // turns that found the completion queue overflowed (the kernel keeps the rest: nothing is lost)
  Counter cq_lost;   // completions that the kernel had no memory to keep
  Counter stale;     // completions that met no op of theirs: the backstop of generations; stays 0
  Counter starved_recvs;   // receives that found no buffer and were asked again
  Counter wide_recvs;      // receives into several slabs at once
  Counter accepts_paused;  // times a listener was paused because its accepted connections were not taken fast enough
  Counter again;           // ops put off to the next turn because the kernel took no more
};

struct UringOptions {
  unsigned sq_entries = 512;
  unsigned cq_entries = 4096;
  unsigned buffers = 128;  // a power of two; slabs that the kernel may fill, less in a small pool
  unsigned relay_pipes_max = UINT_MAX;  // see RelayPipes
  unsigned rings = 1;      // that this process will hold: what RLIMIT_MEMLOCK must carry
  Duration enomem_patience = std::chrono::seconds(10);  // 0: never wait; at most 10 s are waited
  const UringProbe* probe = nullptr;                    // nullptr: probe now
  UringStats* stats = nullptr;                          // outlives the engine; nullptr: it counts for itself
};

std::expected<std::unique_ptr<Engine>, UringRefusal> make_uring_engine(SlabPool& pool, const UringOptions& options);

}  // namespace weir

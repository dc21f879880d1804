// Pool: one worker's connections to one server of an upstream, over whatever configurations that name both. Idle ones are reused
// last in, first out, so that those not needed age out.
// Owner: the worker's PoolSet. Thread: the worker's. acquire() never blocks: a new connection is handed out while it connects.
// A pool that no configuration names any more is retired: its idle connections close and it goes when the last one ends.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <utility>

#include "daemon/allowance.h"
#include "protocols/h1/client_conn.h"

namespace weir {

class PoolSet;

class Pool final : public h1::ClientConnHost {
 public:
  Pool(PoolSet& set, ExchangeContext& context, const Address& address, Allowance& allowance) noexcept
      : set_(set), context_(context), address_(address), allowance_(allowance) {
    look_.pool = this;
    look_.coarse = true;
    look_.fire = look_entry;
  }
  ~Pool() {
    context_.loop.forget_timer(look_);
    WEIR_ASSERT(count_ == 0);
  }

  // An idle connection (unless `fresh`) or a new one. nullptr: *error says why (errno; EDQUOT: connections_max).
  h1::ClientConn* acquire(EngineKind engine, bool fresh, h1::ClientStats& stats, int* error) noexcept;
  void want() noexcept;                // another worker's idle connection shall make room
  void limit(uint64_t connections_max) noexcept;   // of the upstream, from now on
  bool close_oldest_idle() noexcept;   // false: there is none
  void close_idle() noexcept;
  const Address& address() const noexcept { return address_; }
  size_t count() const noexcept { return count_; }
  size_t idle() const noexcept { return idle_count_; }
  bool retired = false;
  uint32_t active = 0;    // requests that are with this server now
  uint32_t users = 0;     // configurations that point here, older ones with exchanges included
  uint64_t seen = 0;      // the generation that named it last

 private:
  void conn_idle(h1::ClientConn& conn) noexcept override;
  void conn_closing(h1::ClientConn& conn) noexcept override;
  void conn_closed(h1::ClientConn& conn) noexcept override;
  void unlist(h1::ClientConn& conn) noexcept;
  bool limited() const noexcept { return connections_max_ != UINT64_MAX; }
  void look_soon() noexcept;
  // While connections of a limited upstream are idle: does another worker want their place?
  struct Look : Timer { Pool* pool = nullptr; } look_;
  static void look_entry(Timer& timer) noexcept;

  PoolSet& set_;
  ExchangeContext& context_;
  Address address_;
  Allowance& allowance_;
  uint64_t connections_max_ = UINT64_MAX;
  h1::ClientConn* idle_ = nullptr;
  size_t count_ = 0;
  size_t idle_count_ = 0;
};

// All pools of one worker, by upstream and address: what is counted and limited for an upstream is so for its own connections.
class PoolSet {
 public:
  PoolSet(ExchangeContext& context, size_t worker) noexcept : context_(context), worker_(worker) {
    conns_.charge_to(context.loop.slabs().lease());
  }
  void tell_when_emptied(Pump& pump) noexcept { emptied_ = &pump; }   // a retired pool can go
  Pool& at(const std::string& upstream, const Address& address, Allowance& allowance);   // found or made
  void retire_unseen(uint64_t generation) noexcept;  // and frees those retired before that have emptied since
  size_t retired() const noexcept { return retired_; }
  size_t size() const noexcept { return pools_.size(); }
  void close_idle() noexcept;
  size_t open() const noexcept { return conns_.in_use(); }
  uint64_t growths() const noexcept { return conns_.growths(); }

 private:
  friend class Pool;

  ExchangeContext& context_;
  size_t worker_;
  Pump* emptied_ = nullptr;
  size_t retired_ = 0;
  SlotPool<h1::ClientConn> conns_;
  h1::ClientPolicy policy_;
  std::map<std::pair<std::string, std::string>, std::unique_ptr<Pool>> pools_;
};

}  // namespace weir

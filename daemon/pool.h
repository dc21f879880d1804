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

class Pool final : public h1::ClientConnHost {
 public:
  Pool(ExchangeContext& context, SlotPool<h1::ClientConn>& conns, const Address& address, const h1::ClientPolicy& policy,
       Allowance& allowance) noexcept
      : context_(context), conns_(conns), address_(address), policy_(policy), allowance_(allowance) {
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
  bool close_oldest_idle() noexcept;   // false: there is none
  void close_idle() noexcept;
  const Address& address() const noexcept { return address_; }
  size_t count() const noexcept { return count_; }
  size_t idle() const noexcept { return idle_count_; }
  bool retired = false;
  uint32_t active = 0;    // requests that are with this server now
  uint32_t users = 0;     // configurations that point here, older ones with exchanges included
  uint64_t seen = 0;      // the generation that named it last
  uint64_t connections_max = UINT64_MAX;   // of the upstream

 private:
  void conn_idle(h1::ClientConn& conn) noexcept override;
  void conn_closing(h1::ClientConn& conn) noexcept override;
  void conn_closed(h1::ClientConn& conn) noexcept override;
  void unlist(h1::ClientConn& conn) noexcept;
  bool limited() const noexcept { return connections_max != UINT64_MAX; }
  // While connections of a limited upstream are idle: does another worker want their place?
  struct Look : Timer { Pool* pool = nullptr; } look_;
  static void look_entry(Timer& timer) noexcept;

  ExchangeContext& context_;
  SlotPool<h1::ClientConn>& conns_;
  Address address_;
  const h1::ClientPolicy& policy_;
  Allowance& allowance_;
  h1::ClientConn* idle_ = nullptr;
  size_t count_ = 0;
  size_t idle_count_ = 0;
};

// All pools of one worker, by upstream and address: what is counted and limited for an upstream is so for its own connections.
class PoolSet {
 public:
  PoolSet(ExchangeContext& context) noexcept : context_(context) { conns_.charge_to(context.loop.slabs().lease()); }
  Pool& at(const std::string& upstream, const Address& address, Allowance& allowance);   // found or made
  void retire_unseen(uint64_t generation) noexcept;  // and frees those retired before that have emptied since
  void close_idle() noexcept;
  size_t open() const noexcept { return conns_.in_use(); }
  uint64_t growths() const noexcept { return conns_.growths(); }

 private:
  ExchangeContext& context_;
  SlotPool<h1::ClientConn> conns_;
  h1::ClientPolicy policy_;
  std::map<std::pair<std::string, std::string>, std::unique_ptr<Pool>> pools_;
};

}  // namespace weir

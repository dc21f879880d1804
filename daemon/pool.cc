#include "daemon/pool.h"

#include <cerrno>

namespace weir {

namespace {
constexpr Duration kLookEvery = std::chrono::milliseconds(250);
}

h1::ClientConn* Pool::acquire(EngineKind engine, bool fresh, h1::ClientStats& stats, int* error) noexcept {
  while (!fresh && idle_ != nullptr) {
    h1::ClientConn* conn = idle_;
    unlist(*conn);
    if (conn->clean()) {
      if (limited()) allowance_.withdraw(set_.worker_);
      return conn;
    }
    conn->close();  // the origin has closed it, or said something that nobody asked for
  }
  if (!allowance_.take(connections_max_)) {
    *error = EDQUOT;
    return nullptr;
  }
  allowance_.withdraw(set_.worker_);
  h1::ClientConn* conn = set_.conns_.make(context_, *this, set_.policy_, stats);
  *error = conn == nullptr ? ENOMEM : conn->connect(address_, engine);
  if (*error == 0) {
    ++count_;
    return conn;
  }
  if (conn != nullptr) set_.conns_.destroy(conn);
  allowance_.give_back();
  return nullptr;
}

void Pool::want() noexcept { allowance_.want(set_.worker_, context_.loop.now()); }

void Pool::limit(uint64_t connections_max) noexcept {
  connections_max_ = connections_max;
  if (idle_count_ == 0) return;
  if (limited()) look_soon();
  else context_.loop.clear_timer(look_);
}

void Pool::look_soon() noexcept { context_.loop.set_timer(look_, context_.loop.now() + kLookEvery); }

bool Pool::close_oldest_idle() noexcept {
  if (idle_ == nullptr) return false;
  h1::ClientConn* oldest = idle_;
  while (oldest->next != nullptr) oldest = oldest->next;
  oldest->close();
  return true;
}

void Pool::unlist(h1::ClientConn& conn) noexcept {
  if (!conn.listed) return;
  if (conn.prev != nullptr) conn.prev->next = conn.next;
  else idle_ = conn.next;
  if (conn.next != nullptr) conn.next->prev = conn.prev;
  conn.next = conn.prev = nullptr;
  conn.listed = false;
  if (--idle_count_ == 0 && limited()) context_.loop.clear_timer(look_);
}

void Pool::conn_idle(h1::ClientConn& conn) noexcept {
  if (retired || allowance_.wanted(set_.worker_, context_.loop.now())) {
    conn.close();
    return;
  }
  conn.prev = nullptr;
  conn.next = idle_;
  if (idle_ != nullptr) idle_->prev = &conn;
  idle_ = &conn;
  conn.listed = true;
  if (++idle_count_ == 1 && limited()) look_soon();
}

void Pool::look_entry(Timer& timer) noexcept {
  Pool& self = *static_cast<Look&>(timer).pool;
  if (self.idle_count_ != 0 && self.allowance_.wanted(self.set_.worker_, self.context_.loop.now())) self.close_oldest_idle();
  if (self.idle_count_ != 0) self.look_soon();
}

// From here on it is of no use; that its descriptor is still open for a moment takes no one's place.
void Pool::conn_closing(h1::ClientConn& conn) noexcept {
  unlist(conn);
  allowance_.give_back();
}

void Pool::conn_closed(h1::ClientConn& conn) noexcept {
  --count_;
  set_.conns_.destroy(&conn);
  if (retired && count_ == 0 && set_.emptied_ != nullptr) context_.loop.mark_dirty(*set_.emptied_);
}

void Pool::close_idle() noexcept {
  while (idle_ != nullptr) idle_->close();
}

Pool& PoolSet::at(const std::string& upstream, const Address& address, Allowance& allowance) {
  auto& pool = pools_[{upstream, address.text()}];
  if (pool == nullptr) pool = std::make_unique<Pool>(*this, context_, address, allowance);
  if (pool->retired) --retired_;
  pool->retired = false;
  return *pool;
}

void PoolSet::retire_unseen(uint64_t generation) noexcept {
  for (auto it = pools_.begin(); it != pools_.end();) {
    Pool& pool = *it->second;
    if (pool.seen != generation && !pool.retired) {
      pool.retired = true;
      ++retired_;
      pool.close_idle();
    }
    if (pool.retired && pool.count() == 0 && pool.users == 0) {
      --retired_;
      it = pools_.erase(it);
    } else {
      ++it;
    }
  }
}

void PoolSet::close_idle() noexcept {
  for (auto& [key, pool] : pools_) pool->close_idle();
}

}  // namespace weir

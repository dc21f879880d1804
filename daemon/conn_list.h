// ConnList: the client connections of a Listener, by protocol, or of the AdminServer, linked through themselves: no memory of
// its own.
// Owner: that one. Thread: the loop's own. A connection stands in it from its accept until conn_closed, however it was ended in
// between, so each() may be used to end them.
#pragma once

#include "protocols/h1/server_conn.h"
#include "protocols/h2/server_conn.h"

namespace weir {

template <class Conn>
class ConnListOf {
 public:
  bool empty() const noexcept { return first_ == nullptr; }
  void add(Conn& conn) noexcept {
    conn.prev = nullptr;
    conn.next = first_;
    if (first_ != nullptr) first_->prev = &conn;
    first_ = &conn;
  }
  void remove(Conn& conn) noexcept {
    if (conn.prev != nullptr) conn.prev->next = conn.next;
    else first_ = conn.next;
    if (conn.next != nullptr) conn.next->prev = conn.prev;
  }
  template <class F>
  void each(F&& f) noexcept {
    for (Conn* conn = first_; conn != nullptr; conn = conn->next) f(*conn);
  }

  template <class F>
  void each(F&& f) const noexcept {
    for (const Conn* conn = first_; conn != nullptr; conn = conn->next) f(*conn);
  }

 private:
  Conn* first_ = nullptr;
};

using ConnList = ConnListOf<h1::ServerConn>;
using H2ConnList = ConnListOf<h2::ServerConn>;

}  // namespace weir

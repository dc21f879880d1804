#include "config/snapshot.h"

namespace weir::config {
namespace {

struct TimeoutField {
  std::string_view name;
  Milliseconds Timeouts::*field;
};

// In the order of enum Timeout.
constexpr std::array<TimeoutField, kTimeouts> kFields{{
    {"client_header", &Timeouts::client_header},
    {"client_body", &Timeouts::client_body},
    {"stream_idle", &Timeouts::stream_idle},
    {"keepalive", &Timeouts::keepalive},
    {"write", &Timeouts::write},
    {"connect", &Timeouts::connect},
    {"response", &Timeouts::response},
    {"origin_body", &Timeouts::origin_body},
    {"origin_idle", &Timeouts::origin_idle},
    {"tunnel_idle", &Timeouts::tunnel_idle},
    {"ws_ping", &Timeouts::ws_ping},
    {"ws_pong", &Timeouts::ws_pong},
    {"linger", &Timeouts::linger},
}};

}  // namespace

std::string_view timeout_name(Timeout which) { return kFields.at(static_cast<size_t>(which)).name; }

Milliseconds& Timeouts::at(Timeout which) { return this->*kFields.at(static_cast<size_t>(which)).field; }
Milliseconds Timeouts::at(Timeout which) const { return this->*kFields.at(static_cast<size_t>(which)).field; }

Timeouts TimeoutOverrides::over(Timeouts base) const {
  for (size_t i = 0; i < kTimeouts; ++i) {
    if (set[i]) base.at(static_cast<Timeout>(i)) = *set[i];
  }
  return base;
}

Limits LimitOverrides::over(Limits base) const {
  if (request_head_bytes) base.request_head_bytes = *request_head_bytes;
  if (header_count) base.header_count = *header_count;
  if (request_body_bytes) base.request_body_bytes = *request_body_bytes;
  if (response_head_bytes) base.response_head_bytes = *response_head_bytes;
  return base;
}

bool LimitOverrides::empty() const { return *this == LimitOverrides{}; }
bool UnixAccess::empty() const { return *this == UnixAccess{}; }
bool Rewrite::empty() const { return *this == Rewrite{}; }
bool HeaderEdits::empty() const { return *this == HeaderEdits{}; }

bool TimeoutOverrides::empty() const { return *this == TimeoutOverrides{}; }

Timeouts exchange_timeouts(const Snapshot& snapshot, const Listener& listener, const Upstream* upstream,
                           const Route& route) {
  Timeouts result = listener.own_timeouts.over(snapshot.timeouts);
  if (upstream != nullptr) result = upstream->own_timeouts.over(result);
  return route.own_timeouts.over(result);
}

Limits exchange_limits(const Snapshot& snapshot, const Listener& listener, const Upstream* upstream,
                       const Route& route) {
  Limits result = listener.own_limits.over(snapshot.limits);
  if (upstream != nullptr) result = upstream->own_limits.over(result);
  return route.own_limits.over(result);
}

std::string Where::text() const {
  if (line == 0) return file;
  return file + ":" + std::to_string(line) + ":" + std::to_string(column);
}

std::string Problem::text() const { return where.text() + ": " + message; }

}  // namespace weir::config

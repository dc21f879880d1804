#include "engines/socket.h"

#include <linux/tcp.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>

#include "engines/address.h"
#include "engines/sys.h"

namespace weir {

const char* engine_name(EngineKind kind) noexcept {
  switch (kind) {
    case EngineKind::epoll: return "epoll";
    case EngineKind::uring: return "io_uring";
    case EngineKind::sim: return "sim";
  }
  return "unknown";
}

int open_stream(const Address& to) noexcept {
  const int fd = sys->socket(to.family(), SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  if (fd < 0) return -errno;
  if (!to.is_unix()) {
    const int on = 1;
    const int unsent = kNotSentLowatBytes;
    sys->setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);  // slower without it, not wrong
    sys->setsockopt(fd, IPPROTO_TCP, TCP_NOTSENT_LOWAT, &unsent, sizeof unsent);
  }
  return fd;
}

void close_stream(int fd, bool linger_reset) noexcept {
  if (linger_reset) {
    const linger now = {.l_onoff = 1, .l_linger = 0};
    sys->setsockopt(fd, SOL_SOCKET, SO_LINGER, &now, sizeof now);
  }
  ::close(fd);
}

uint64_t tcp_acked_bytes(int fd) noexcept {
  tcp_info info = {};
  socklen_t length = sizeof info;
  constexpr socklen_t kNeeded = offsetof(tcp_info, tcpi_bytes_acked) + sizeof info.tcpi_bytes_acked;
  if (sys->getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &length) != 0 || length < kNeeded) return 0;
  return info.tcpi_bytes_acked;
}

}  // namespace weir

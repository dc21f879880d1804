#include "daemon/notify.h"

#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <string>

namespace weir::notify {

void send(std::string_view state) {
  const char* path = getenv("NOTIFY_SOCKET");
  if (path == nullptr || (path[0] != '/' && path[0] != '@')) return;
  sockaddr_un to{};
  to.sun_family = AF_UNIX;
  const size_t length = strlen(path);
  if (length >= sizeof to.sun_path) return;
  memcpy(to.sun_path, path, length);
  if (path[0] == '@') to.sun_path[0] = 0;  // abstract
  const int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (fd < 0) return;
  const auto size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + length + (path[0] == '/' ? 1 : 0));
  [[maybe_unused]] const ssize_t sent =
      sendto(fd, state.data(), state.size(), MSG_NOSIGNAL, reinterpret_cast<const sockaddr*>(&to), size);
  ::close(fd);
}

void ready(std::string_view status) { send("READY=1\nSTATUS=" + std::string(status) + "\nMAINPID=" + std::to_string(getpid())); }

void reloading() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  const long long usec = static_cast<long long>(now.tv_sec) * 1'000'000 + now.tv_nsec / 1000;
  send("RELOADING=1\nMONOTONIC_USEC=" + std::to_string(usec) + "\nSTATUS=reloading");
}

void stopping(std::string_view status) { send("STOPPING=1\nSTATUS=" + std::string(status)); }

}  // namespace weir::notify

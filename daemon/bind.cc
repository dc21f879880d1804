#include "daemon/bind.h"

#include <fcntl.h>
#include <grp.h>
#include <netinet/tcp.h>
#include <pwd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <fstream>

#include "engines/address.h"
#include "engines/socket.h"

namespace weir {

namespace {

constexpr int kReceiveBufferBytes = 2 << 20;  // the kernel doubles it for its own bookkeeping
constexpr int kBacklog = 4096;  // the kernel lowers it to net.core.somaxconn

Address any_address(uint16_t port, bool v6) {
  Address address;
  if (v6) {
    address.v6 = {};
    address.v6.sin6_family = AF_INET6;
    address.v6.sin6_port = htons(port);
    address.length = sizeof address.v6;
  } else {
    address.v4 = {};
    address.v4.sin_family = AF_INET;
    address.v4.sin_port = htons(port);
    address.length = sizeof address.v4;
  }
  return address;
}

void set(int fd, int level, int option, int value) { setsockopt(fd, level, option, &value, sizeof value); }

long first_number(const char* path, int skip) {
  std::ifstream file(path);
  long number = 0;
  for (int i = 0; i <= skip; ++i) file >> number;
  return file ? number : 0;
}

// Where the kernel would let an upload's receive buffer grow far beyond what a stalled origin should hold (tcp_rmem), it is
// bounded; but a buffer that we set no longer tunes itself, so only where net.core.rmem_max allows the whole of it.
bool receive_buffer_bound() {
  static const bool bound = first_number("/proc/sys/net/ipv4/tcp_rmem", 2) > 3L * kReceiveBufferBytes &&
                            first_number("/proc/sys/net/core/rmem_max", 0) >= kReceiveBufferBytes;
  return bound;
}

// A socket file that nobody listens on is a leftover of a process that died.
bool stale(const Address& address) {
  struct stat info {};
  if (lstat(address.un.sun_path, &info) != 0 || !S_ISSOCK(info.st_mode)) return false;  // somebody's file: not ours to remove
  const int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (fd < 0) return false;
  const bool refused = connect(fd, &address.any, address.length) != 0 && errno == ECONNREFUSED;
  ::close(fd);
  return refused;
}

// The descriptor, or -errno.
int listen_on(const Address& address, bool dual_stack) {
  const int fd = socket(address.family(), SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  if (fd < 0) return -errno;
  if (!address.is_unix()) {
    set(fd, SOL_SOCKET, SO_REUSEADDR, 1);
    set(fd, SOL_SOCKET, SO_REUSEPORT, 1);
    // Accepted sockets inherit these.
    set(fd, IPPROTO_TCP, TCP_NODELAY, 1);
    set(fd, IPPROTO_TCP, TCP_NOTSENT_LOWAT, kNotSentLowatBytes);
    if (receive_buffer_bound()) set(fd, SOL_SOCKET, SO_RCVBUF, kReceiveBufferBytes);
  }
  if (address.family() == AF_INET6) set(fd, IPPROTO_IPV6, IPV6_V6ONLY, dual_stack ? 0 : 1);
  if (bind(fd, &address.any, address.length) != 0 || listen(fd, kBacklog) != 0) {
    const int error = errno;
    ::close(fd);
    return -error;
  }
  return fd;
}

// With SO_REUSEPORT a second process of the same user could share our port without a word: ask for the port without it first.
int probe_free(const Address& address, bool dual_stack) {
  const int fd = socket(address.family(), SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (fd < 0) return -errno;
  set(fd, SOL_SOCKET, SO_REUSEADDR, 1);
  if (address.family() == AF_INET6) set(fd, IPPROTO_IPV6, IPV6_V6ONLY, dual_stack ? 0 : 1);
  const int result = bind(fd, &address.any, address.length) == 0 ? 0 : -errno;
  ::close(fd);
  return result;
}

std::optional<uint32_t> as_number(const std::string& text) {
  uint32_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

}  // namespace

std::string give_access(const std::string& path, const config::UnixAccess& access) {
  struct stat now {};
  if (lstat(path.c_str(), &now) != 0) return "cannot look at " + path + ": " + strerror(errno);
  uid_t user = now.st_uid;
  gid_t group = now.st_gid;
  if (const auto id = as_number(access.user)) user = *id;
  else if (!access.user.empty()) {
    const passwd* entry = getpwnam(access.user.c_str());
    if (entry == nullptr) return path + ": there is no user " + access.user;
    user = entry->pw_uid;
  }
  if (const auto id = as_number(access.group)) group = *id;
  else if (!access.group.empty()) {
    const struct group* entry = getgrnam(access.group.c_str());
    if (entry == nullptr) return path + ": there is no group " + access.group;
    group = entry->gr_gid;
  }
  if (access.mode && (now.st_mode & 07777) != *access.mode && chmod(path.c_str(), *access.mode) != 0)
    return "cannot set the mode of " + path + ": " + strerror(errno);
  if ((user != now.st_uid || group != now.st_gid) && lchown(path.c_str(), user, group) != 0)
    return "cannot set the owner of " + path + ": " + strerror(errno);
  return {};
}

std::string give_access(const config::Snapshot& config) {
  for (const config::Listener& listener : config.listeners) {
    if (listener.unix_access.empty()) continue;
    for (const config::SocketName& bind : listener.binds) {
      if (!bind.is_unix()) continue;
      if (std::string failed = give_access(bind.unix_path, listener.unix_access); !failed.empty()) return failed;
    }
  }
  return {};
}

bool descriptors_to_spare(size_t count) {
  std::vector<int> fds;
  while (fds.size() < count) {
    const int fd = fcntl(STDERR_FILENO, F_DUPFD_CLOEXEC, 3);
    if (fd < 0) break;
    fds.push_back(fd);
  }
  for (const int fd : fds) ::close(fd);
  return fds.size() == count;
}

BoundSockets::~BoundSockets() { close_all(); }

std::expected<BoundSockets::Bound, std::string> BoundSockets::bind_one(const config::SocketName& name, size_t workers) {
  Bound bound;
  bound.unix_path = name.unix_path;
  const auto fail = [&](int error) {
    close_one(bound, false);
    return std::unexpected("cannot bind " + name.text() + ": " + strerror(error));
  };
  bool dual = name.is_any();
  Address address;
  if (dual) address = any_address(name.port, true);
  else if (const auto parsed = Address::parse(name.text())) address = *parsed;
  else return std::unexpected("cannot bind " + name.text() + ": not an address of this machine's kind");
  if (address.is_unix()) {
    int fd = listen_on(address, false);
    if (fd == -EADDRINUSE && stale(address) && unlink(name.unix_path.c_str()) == 0) fd = listen_on(address, false);
    if (fd < 0) return fail(-fd);
    bound.fds.push_back(fd);
    return bound;
  }
  int free = probe_free(address, dual);
  if (dual && free == -EAFNOSUPPORT) {  // a machine without IPv6
    dual = false;
    address = any_address(name.port, false);
    free = probe_free(address, false);
  }
  if (free < 0) return fail(-free);
  for (size_t worker = 0; worker < workers; ++worker) {
    const int fd = listen_on(address, dual);
    if (fd < 0) return fail(-fd);
    bound.fds.push_back(fd);
  }
  return bound;
}

std::expected<void, std::string> BoundSockets::open(const std::vector<config::SocketName>& names, size_t workers) {
  std::map<std::string, Bound> opened;
  for (const config::SocketName& name : names) {
    if (sockets_.contains(name.text()) || opened.contains(name.text())) continue;
    auto bound = bind_one(name, workers);
    if (!bound) {
      for (auto& [key, one] : opened) close_one(one, true);
      return std::unexpected(bound.error());
    }
    opened.emplace(name.text(), std::move(*bound));
  }
  sockets_.merge(opened);
  return {};
}

int BoundSockets::duplicate(const std::string& name, size_t worker) const {
  const Bound& bound = sockets_.at(name);
  const int fd = fcntl(bound.fds[std::min(worker, bound.fds.size() - 1)], F_DUPFD_CLOEXEC, 3);
  return fd < 0 ? -errno : fd;
}

void BoundSockets::close_one(Bound& bound, bool unlink_path) {
  for (const int fd : bound.fds) ::close(fd);
  bound.fds.clear();
  if (unlink_path && !bound.unix_path.empty()) unlink(bound.unix_path.c_str());
}

void BoundSockets::keep_only(const std::vector<std::string>& names) {
  for (auto it = sockets_.begin(); it != sockets_.end();) {
    if (std::find(names.begin(), names.end(), it->first) != names.end()) {
      ++it;
      continue;
    }
    close_one(it->second, true);
    it = sockets_.erase(it);
  }
}

void BoundSockets::close_all() {
  for (auto& [name, bound] : sockets_) close_one(bound, true);
  sockets_.clear();
}

std::vector<uint64_t> BoundSockets::inodes(const std::string& name) const {
  std::vector<uint64_t> found;
  if (const auto it = sockets_.find(name); it != sockets_.end()) {
    for (const int fd : it->second.fds) {
      struct stat info {};
      if (fstat(fd, &info) == 0) found.push_back(info.st_ino);
    }
  }
  return found;
}

}  // namespace weir

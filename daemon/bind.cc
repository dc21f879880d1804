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
#include <utility>

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
int listen_on(const Address& address, bool dual_stack, const uint32_t* mode) {
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
  // Linux makes the file of a unix socket with the mode that the socket has: it never stands open to more than it should.
  if (mode != nullptr && fchmod(fd, *mode) != 0) {
    const int error = errno;
    ::close(fd);
    return -error;
  }
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

SocketFile::SocketFile(std::string path, int fd) : path_(std::move(path)), fd_(fd) {}
SocketFile::SocketFile(SocketFile&& other) noexcept
    : path_(std::move(other.path_)), fd_(std::exchange(other.fd_, -1)), before_(other.before_) {}
SocketFile::~SocketFile() {
  if (fd_ >= 0) ::close(fd_);
}

std::expected<SocketFile, std::string> SocketFile::open(const std::string& path) {
  SocketFile file(path, ::open(path.c_str(), O_PATH | O_NOFOLLOW | O_CLOEXEC));
  if (file.fd_ < 0 || fstat(file.fd_, &file.before_) != 0)
    return std::unexpected("cannot look at " + path + ": " + strerror(errno));
  if (!S_ISSOCK(file.before_.st_mode)) return std::unexpected(path + " is not the socket any more that was bound there");
  return file;
}

std::string SocketFile::set(uint32_t mode, uint32_t user, uint32_t group) const {
  struct stat now {};
  if (fstat(fd_, &now) != 0) return "cannot look at " + path_ + ": " + strerror(errno);
  if ((user != now.st_uid || group != now.st_gid) && fchownat(fd_, "", user, group, AT_EMPTY_PATH) != 0)
    return "cannot set the owner of " + path_ + ": " + strerror(errno);
  // Linux changes a mode through such a descriptor by this name only.
  const std::string by_descriptor = "/proc/self/fd/" + std::to_string(fd_);
  if ((now.st_mode & 07777) != mode && chmod(by_descriptor.c_str(), mode) != 0)
    return "cannot set the mode of " + path_ + ": " + strerror(errno);
  return {};
}

std::string AccessChange::add(const std::string& path, const config::UnixAccess& access) {
  auto file = SocketFile::open(path);
  if (!file) return file.error();
  uid_t user = file->before().st_uid;
  gid_t group = file->before().st_gid;
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
  const uint32_t mode = access.mode.value_or(file->before().st_mode & 07777);
  steps_.push_back({std::move(*file), mode, user, group});
  return {};
}

std::string AccessChange::run() {
  for (const Step& step : steps_) {
    if (std::string failed = step.file.set(step.mode, step.user, step.group); !failed.empty()) {
      take_back();
      return failed;
    }
  }
  return {};
}

void AccessChange::take_back() {
  for (const Step& step : steps_) {
    const struct stat& before = step.file.before();
    step.file.set(before.st_mode & 07777, before.st_uid, before.st_gid);
  }
  steps_.clear();
}

std::string AccessChange::apply(const std::string& path, const config::UnixAccess& access) {
  if (std::string failed = add(path, access); !failed.empty()) return failed;
  return run();
}

// Everything is looked at before anything is changed.
std::string AccessChange::apply(const config::Snapshot& config) {
  for (const config::Listener& listener : config.listeners) {
    if (listener.unix_access.empty()) continue;
    for (const config::SocketName& bind : listener.binds) {
      if (!bind.is_unix()) continue;
      if (std::string failed = add(bind.unix_path, listener.unix_access); !failed.empty()) return failed;
    }
  }
  return run();
}

std::map<std::string, uint32_t> socket_modes(const config::Snapshot& config) {
  std::map<std::string, uint32_t> modes;
  for (const config::Listener& listener : config.listeners)
    for (const config::SocketName& bind : listener.binds)
      if (bind.is_unix() && listener.unix_access.mode) modes[bind.text()] = *listener.unix_access.mode;
  return modes;
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

std::expected<BoundSockets::Bound, std::string> BoundSockets::bind_one(const config::SocketName& name, size_t workers,
                                                                      const uint32_t* mode) {
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
    int fd = listen_on(address, false, mode);
    if (fd == -EADDRINUSE && stale(address) && unlink(name.unix_path.c_str()) == 0) fd = listen_on(address, false, mode);
    if (fd < 0) return fail(-fd);
    bound.fds.push_back(fd);
    if (struct stat info {}; lstat(name.unix_path.c_str(), &info) == 0) {
      bound.device = info.st_dev;
      bound.inode = info.st_ino;
    }
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
    const int fd = listen_on(address, dual, nullptr);
    if (fd < 0) return fail(-fd);
    bound.fds.push_back(fd);
  }
  return bound;
}

std::expected<void, std::string> BoundSockets::open(const std::vector<config::SocketName>& names, size_t workers,
                                                    const std::map<std::string, uint32_t>& modes) {
  std::map<std::string, Bound> opened;
  for (const config::SocketName& name : names) {
    if (sockets_.contains(name.text()) || opened.contains(name.text())) continue;
    const auto mode = modes.find(name.text());
    auto bound = bind_one(name, workers, mode == modes.end() ? nullptr : &mode->second);
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
  // Only the file that we made: somebody may have removed it and bound another there.
  struct stat now {};
  if (unlink_path && !bound.unix_path.empty() && lstat(bound.unix_path.c_str(), &now) == 0 && now.st_dev == bound.device &&
      now.st_ino == bound.inode)
    unlink(bound.unix_path.c_str());
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

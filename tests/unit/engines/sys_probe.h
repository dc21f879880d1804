// Counts the engines' system calls, and makes chosen ones fail. One at a time; the kernel's table is back when it goes.
#pragma once

#include <cerrno>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "engines/sys.h"

namespace weir {

class SysProbe {
 public:
  SysProbe() {
    active() = this;
    table_ = kKernel;
    table_.recv = [](int fd, void* to, size_t count, int flags) -> ssize_t {
      return active()->fails("recv") ? -1 : kKernel.recv(fd, to, count, flags);
    };
    table_.readv = [](int fd, const iovec* to, int count) -> ssize_t {
      return active()->fails("readv") ? -1 : kKernel.readv(fd, to, count);
    };
    table_.send = [](int fd, const void* from, size_t count, int flags) -> ssize_t {
      return active()->fails("send") ? -1 : kKernel.send(fd, from, count, flags);
    };
    table_.sendmsg = [](int fd, const msghdr* message, int flags) -> ssize_t {
      return active()->fails("sendmsg") ? -1 : kKernel.sendmsg(fd, message, flags);
    };
    table_.accept4 = [](int fd, sockaddr* peer, socklen_t* length, int flags) {
      return active()->fails("accept4") ? -1 : kKernel.accept4(fd, peer, length, flags);
    };
    table_.epoll_ctl = [](int set, int what, int fd, epoll_event* event) {
      return active()->fails(what == EPOLL_CTL_DEL ? "epoll_del" : "epoll_add") ? -1 : kKernel.epoll_ctl(set, what, fd, event);
    };
    table_.epoll_pwait2 = [](int set, epoll_event* events, int max, const timespec* limit) {
      return active()->fails("epoll_pwait2") ? -1 : kKernel.epoll_pwait2(set, events, max, limit);
    };
    table_.epoll_wait = [](int set, epoll_event* events, int max, int ms) {
      return active()->fails(ms == 0 ? "epoll_poll" : "epoll_wait") ? -1 : kKernel.epoll_wait(set, events, max, ms);
    };
    table_.splice = [](int from, int to, size_t count, unsigned flags) -> ssize_t {
      return active()->fails("splice") ? -1 : kKernel.splice(from, to, count, flags);
    };
    table_.pipe2 = [](int fds[2], int flags) { return active()->fails("pipe2") ? -1 : kKernel.pipe2(fds, flags); };
    table_.set_pipe_bytes = [](int fd, int bytes) {
      if (bytes <= active()->pipe_bytes_max) return kKernel.set_pipe_bytes(fd, bytes);
      errno = EPERM;
      return -1;
    };
    table_.get_pipe_bytes = [](int fd) {
      return active()->pipe_bytes_reported != 0 ? active()->pipe_bytes_reported : kKernel.get_pipe_bytes(fd);
    };
    table_.setsockopt = [](int fd, int level, int name, const void* value, socklen_t length) {
      if (level == SOL_SOCKET && name == SO_RCVLOWAT) active()->lowats.push_back(*static_cast<const int*>(value));
      return kKernel.setsockopt(fd, level, name, value, length);
    };
    table_.nanosleep = [](const timespec* how_long, timespec* left) {
      return active()->fails("nanosleep") ? -1 : kKernel.nanosleep(how_long, left);
    };
    sys = &table_;
  }
  ~SysProbe() {
    sys = &kKernel;
    active() = nullptr;
  }
  SysProbe(const SysProbe&) = delete;
  SysProbe& operator=(const SysProbe&) = delete;

  // The next `times` calls of this name fail with this error.
  void fail(const std::string& name, int error, int times = 1) { failing_[name] = {error, times}; }
  int count(const std::string& name) const {
    const auto at = counts_.find(name);
    return at == counts_.end() ? 0 : at->second;
  }
  void reset() { counts_.clear(); }

  int pipe_bytes_max = 1 << 30;
  int pipe_bytes_reported = 0;
  std::vector<int> lowats;

 private:
  static SysProbe*& active() {
    static SysProbe* probe = nullptr;
    return probe;
  }
  bool fails(const char* name) {
    ++counts_[name];
    const auto at = failing_.find(name);
    if (at == failing_.end() || at->second.second == 0) return false;
    --at->second.second;
    errno = at->second.first;
    return true;
  }

  Sys table_{};
  std::map<std::string, int> counts_;
  std::map<std::string, std::pair<int, int>> failing_;
};

}  // namespace weir

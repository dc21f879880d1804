// Sys: the system calls that engines make, as one table, so that a test can make the N-th call fail.
// Owner: the process; the default table is the kernel's. Thread: any; a test puts its own table in place while no loop runs.
// Each entry behaves as the libc function of its name: -1 and errno on failure. Cost: one indirect call, which a libc call
// through the PLT pays anyway. Only engines/ calls through it.
#pragma once

#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include <ctime>

namespace weir {

struct Sys {
  ssize_t (*recv)(int fd, void* to, size_t count, int flags);
  ssize_t (*readv)(int fd, const iovec* to, int count);
  ssize_t (*send)(int fd, const void* from, size_t count, int flags);
  ssize_t (*sendmsg)(int fd, const msghdr* message, int flags);
  int (*accept4)(int fd, sockaddr* peer, socklen_t* length, int flags);
  int (*connect)(int fd, const sockaddr* to, socklen_t length);
  int (*socket)(int family, int type, int protocol);
  int (*setsockopt)(int fd, int level, int name, const void* value, socklen_t length);
  int (*getsockopt)(int fd, int level, int name, void* value, socklen_t* length);
  int (*epoll_ctl)(int epoll_fd, int what, int fd, epoll_event* event);
  int (*epoll_wait)(int epoll_fd, epoll_event* events, int max, int timeout_ms);
  int (*epoll_pwait2)(int epoll_fd, epoll_event* events, int max, const timespec* timeout);  // nullptr: for ever
  ssize_t (*splice)(int from, int to, size_t count, unsigned flags);
  int (*pipe2)(int fds[2], int flags);
  int (*set_pipe_bytes)(int fd, int bytes);  // F_SETPIPE_SZ: the capacity it has now
  int (*get_pipe_bytes)(int fd);             // F_GETPIPE_SZ
  int (*nanosleep)(const timespec* how_long, timespec* left);
};

extern const Sys kKernel;
extern const Sys* sys;  // what engines call: &kKernel unless a test says otherwise

}  // namespace weir

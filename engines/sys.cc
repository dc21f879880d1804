#include "engines/sys.h"

#include <fcntl.h>
#include <unistd.h>

namespace weir {
namespace {

ssize_t splice_fds(int from, int to, size_t count, unsigned flags) {
  return ::splice(from, nullptr, to, nullptr, count, flags);
}
int set_pipe_bytes(int fd, int bytes) { return ::fcntl(fd, F_SETPIPE_SZ, bytes); }
int get_pipe_bytes(int fd) { return ::fcntl(fd, F_GETPIPE_SZ); }
// glibc declares these with a transparent union or without the right qualifiers in C++.
int accept_fd(int fd, sockaddr* peer, socklen_t* length, int flags) { return ::accept4(fd, peer, length, flags); }
int connect_fd(int fd, const sockaddr* to, socklen_t length) { return ::connect(fd, to, length); }
int pwait2(int epoll_fd, epoll_event* events, int max, const timespec* timeout) {
  return ::epoll_pwait2(epoll_fd, events, max, timeout, nullptr);
}

}  // namespace

const Sys kKernel = {
    .recv = ::recv,
    .readv = ::readv,
    .send = ::send,
    .sendmsg = ::sendmsg,
    .accept4 = accept_fd,
    .connect = connect_fd,
    .socket = ::socket,
    .setsockopt = ::setsockopt,
    .getsockopt = ::getsockopt,
    .epoll_ctl = ::epoll_ctl,
    .epoll_wait = ::epoll_wait,
    .epoll_pwait2 = pwait2,
    .splice = splice_fds,
    .pipe2 = ::pipe2,
    .set_pipe_bytes = set_pipe_bytes,
    .get_pipe_bytes = get_pipe_bytes,
    .nanosleep = ::nanosleep,
};

const Sys* sys = &kKernel;

}  // namespace weir

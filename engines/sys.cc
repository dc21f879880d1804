#include "engines/sys.h"

#include <fcntl.h>
#include <sys/syscall.h>
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

// glibc's own of these are cancellation points, and in a process with threads each call pays for that twice. Nobody cancels ours.
ssize_t recv_raw(int fd, void* to, size_t count, int flags) {
  return ::syscall(SYS_recvfrom, fd, to, count, flags, nullptr, nullptr);
}
ssize_t send_raw(int fd, const void* from, size_t count, int flags) {
  return ::syscall(SYS_sendto, fd, from, count, flags, nullptr, 0);
}
ssize_t sendmsg_raw(int fd, const msghdr* message, int flags) { return ::syscall(SYS_sendmsg, fd, message, flags); }
int wait_raw(int epoll_fd, epoll_event* events, int max, int timeout_ms) {
  return static_cast<int>(::syscall(SYS_epoll_pwait, epoll_fd, events, max, timeout_ms, nullptr, 0));
}
int wait2_raw(int epoll_fd, epoll_event* events, int max, const timespec* timeout) {
  return static_cast<int>(::syscall(SYS_epoll_pwait2, epoll_fd, events, max, timeout, nullptr, 0));
}

}  // namespace

const Sys kKernel = {
    .recv = recv_raw,
    .readv = ::readv,
    .send = send_raw,
    .sendmsg = sendmsg_raw,
    .accept4 = accept_fd,
    .connect = connect_fd,
    .socket = ::socket,
    .setsockopt = ::setsockopt,
    .getsockopt = ::getsockopt,
    .epoll_ctl = ::epoll_ctl,
    .epoll_wait = wait_raw,
    .epoll_pwait2 = wait2_raw,
    .splice = splice_fds,
    .pipe2 = ::pipe2,
    .set_pipe_bytes = set_pipe_bytes,
    .get_pipe_bytes = get_pipe_bytes,
    .nanosleep = ::nanosleep,
};

const Sys* sys = &kKernel;

}  // namespace weir

// bench_relay LISTEN_PORT ORIGIN_PORT: the floor of the bench. One thread, epoll, parses nothing: every client connection gets
// an origin connection of its own and bytes go through as they come. What a proxy costs above it is what HTTP costs.
// Loopback only.
#include <arpa/inet.h>
#include <netinet/tcp.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <vector>

namespace {

constexpr size_t kBufferBytes = 256 * 1024;
constexpr int kEvents = 256;

struct Pair;

struct End {
  int fd = -1;
  Pair* pair = nullptr;
  End* other = nullptr;
  std::vector<char> owed;  // read from `other`, not yet taken by this end's peer
  size_t owed_at = 0;
  bool connecting = false;
  bool readable = false;   // edge-triggered: stays true until a short read
  bool hung_up = false;    // the peer's FIN is here, behind data perhaps
  bool at_eof = false;     // nothing more will be read from here
  bool shut = false;       // the write side was ended
};

struct Pair {
  End client, origin;
  bool dead = false;
};

class Relay {
 public:
  Relay(uint16_t listen_port, uint16_t origin_port) : origin_(loopback(origin_port)) {
    epoll_ = epoll_create1(EPOLL_CLOEXEC);
    listener_ = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    const int one = 1;
    setsockopt(listener_, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    const sockaddr_in address = loopback(listen_port);
    if (bind(listener_, reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0 ||
        listen(listener_, 4096) != 0) {
      std::perror("bench_relay: bind");
      std::exit(75);
    }
    epoll_event event{.events = EPOLLIN, .data = {.ptr = nullptr}};
    epoll_ctl(epoll_, EPOLL_CTL_ADD, listener_, &event);
  }

  [[noreturn]] void run() {
    epoll_event events[kEvents];
    for (;;) {
      const int count = epoll_wait(epoll_, events, kEvents, -1);
      for (int i = 0; i < count; ++i) {
        if (events[i].data.ptr == nullptr) {
          accept_all();
        } else {
          serve(*static_cast<End*>(events[i].data.ptr), events[i].events);
        }
      }
      dead_.clear();  // only now: an event of the same batch may name a pair that an earlier one ended
    }
  }

 private:
  static sockaddr_in loopback(uint16_t port) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(port);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    return address;
  }

  void open(End& end, End& other, int fd, Pair& pair) {
    end.fd = fd;
    end.pair = &pair;
    end.other = &other;
    const int one = 1;
    setsockopt(end.fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    epoll_event event{.events = EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET, .data = {.ptr = &end}};
    epoll_ctl(epoll_, EPOLL_CTL_ADD, end.fd, &event);
  }

  void accept_all() {
    for (int i = 0; i < 64; ++i) {
      const int fd = accept4(listener_, nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC);
      if (fd < 0) return;
      const int origin = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
      const auto* address = reinterpret_cast<const sockaddr*>(&origin_);
      if (origin < 0 || (connect(origin, address, sizeof origin_) != 0 && errno != EINPROGRESS)) {
        if (origin >= 0) close(origin);
        close(fd);
        continue;
      }
      auto* pair = new Pair;
      open(pair->client, pair->origin, fd, *pair);
      open(pair->origin, pair->client, origin, *pair);
      pair->origin.connecting = true;
    }
  }

  void serve(End& end, uint32_t events) {
    if (end.pair->dead) return;
    if (events & EPOLLERR) return finish(*end.pair);
    if (events & EPOLLOUT) {
      end.connecting = false;
      if (!flush(end)) return finish(*end.pair);
    }
    if (events & (EPOLLIN | EPOLLRDHUP | EPOLLHUP)) end.readable = true;
    if (events & (EPOLLRDHUP | EPOLLHUP)) end.hung_up = true;
    if (!move(end) || ((events & EPOLLOUT) != 0 && !move(*end.other))) return finish(*end.pair);
    if (end.at_eof && end.other->at_eof && end.owed.empty() && end.other->owed.empty()) finish(*end.pair);
  }

  // Reads from `end` while its other side takes all of it. False: the pair is over.
  bool move(End& end) {
    End& to = *end.other;
    while (end.readable && !end.at_eof && to.owed.empty() && !to.connecting) {
      const ssize_t got = recv(end.fd, buffer_.data(), buffer_.size(), 0);
      if (got < 0) {
        if (errno != EAGAIN) return false;
        end.readable = false;
        return true;
      }
      if (got == 0) {
        end.at_eof = true;
        return end_write(to);
      }
      if (static_cast<size_t>(got) < buffer_.size() && !end.hung_up) end.readable = false;
      const ssize_t sent = send(to.fd, buffer_.data(), static_cast<size_t>(got), MSG_NOSIGNAL);
      if (sent < 0 && errno != EAGAIN) return false;
      const size_t taken = sent < 0 ? 0 : static_cast<size_t>(sent);
      if (taken < static_cast<size_t>(got)) to.owed.assign(buffer_.data() + taken, buffer_.data() + got);
    }
    return true;
  }

  bool flush(End& end) {
    while (end.owed_at < end.owed.size()) {
      const ssize_t sent = send(end.fd, end.owed.data() + end.owed_at, end.owed.size() - end.owed_at, MSG_NOSIGNAL);
      if (sent < 0) return errno == EAGAIN;
      end.owed_at += static_cast<size_t>(sent);
    }
    end.owed.clear();
    end.owed_at = 0;
    return !end.other->at_eof || end_write(end);
  }

  static bool end_write(End& end) {
    if (!end.shut && end.owed.empty()) {
      end.shut = true;
      shutdown(end.fd, SHUT_WR);
    }
    return true;
  }

  void finish(Pair& pair) {
    if (pair.dead) return;
    pair.dead = true;
    close(pair.client.fd);
    close(pair.origin.fd);
    dead_.emplace_back(&pair);
  }

  int epoll_ = -1;
  int listener_ = -1;
  sockaddr_in origin_;
  std::vector<char> buffer_ = std::vector<char>(kBufferBytes);
  std::vector<std::unique_ptr<Pair>> dead_;
};

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) {
    std::fprintf(stderr, "usage: bench_relay LISTEN_PORT ORIGIN_PORT\n");
    return 2;
  }
  signal(SIGPIPE, SIG_IGN);
  Relay(static_cast<uint16_t>(std::atoi(argv[1])), static_cast<uint16_t>(std::atoi(argv[2]))).run();
}

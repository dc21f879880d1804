// A Loop with the io_uring engine and plain sockets of ours at the other ends.
#pragma once

#include <fcntl.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "engines/loop.h"
#include "engines/uring_engine.h"

namespace weir::uring_test {

inline const UringProbe& this_kernel() {
  static const UringProbe probe = probe_uring();
  return probe;
}

class Fd {
 public:
  explicit Fd(int fd = -1) : fd_(fd) {}
  Fd(Fd&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Fd& operator=(Fd&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  ~Fd() { reset(); }
  void reset() {
    if (fd_ >= 0) ::close(std::exchange(fd_, -1));
  }
  int get() const { return fd_; }
  int release() { return std::exchange(fd_, -1); }

 private:
  int fd_;
};

// A listener on loopback TCP.
struct Door {
  Fd fd{::socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0)};
  Address address;
  Door() {
    sockaddr_in any{};
    any.sin_family = AF_INET;
    any.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    ::bind(fd.get(), reinterpret_cast<sockaddr*>(&any), sizeof any);
    ::listen(fd.get(), 4096);
    address.length = sizeof address.v4;
    ::getsockname(fd.get(), &address.any, &address.length);
  }
  Fd dial() const {
    Fd to(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    ::connect(to.get(), &address.any, address.length);
    ::fcntl(to.get(), F_SETFL, O_NONBLOCK);
    return to;
  }
  // A connected pair: ours, and the loop's end.
  std::pair<Fd, Fd> pair() const {
    Fd near = dial();
    int fd = -1;
    while ((fd = ::accept4(this->fd.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC)) < 0) {}
    return {std::move(near), Fd(fd)};
  }
};

struct World {
  explicit World(size_t slab_bytes_max = size_t{64} << 20, const UringProbe* probe = &this_kernel())
      : loop(clock, {.slab_bytes_max = slab_bytes_max, .gather = false}) {
    UringOptions options;
    options.probe = probe;
    options.stats = &stats;
    auto made = make_uring_engine(loop.slabs(), options);
    if (!made) return;
    tier = (*made)->tier();
    loop.add_engine(std::move(*made));
    ready = true;
  }
  // Ticks until done() or until nothing has happened for a second.
  template <class F>
  bool run(F done) {
    for (int quiet = 0; quiet < 100;) {
      if (done()) return true;
      quiet = loop.tick(std::chrono::milliseconds(10)) == 0 ? quiet + 1 : 0;
    }
    return done();
  }
  void ticks(int count) {
    while (count-- > 0) loop.tick(std::chrono::milliseconds(1));
  }

  SystemClock clock;
  UringStats stats;
  Loop loop;
  std::string tier;
  bool ready = false;
};

struct Reader : RecvOp {
  explicit Reader(Socket& s) {
    socket = &s;
    complete = [](Op& op) noexcept {
      auto& self = static_cast<Reader&>(op);
      ++self.count;
      self.slices_last = 0;
      for (auto* node = self.bytes.first(); node != nullptr; node = node->next) ++self.slices_last;
      if (!self.bytes.empty()) {
        const size_t old = self.got.size();
        self.got.resize(old + self.bytes.bytes());
        self.bytes.copy_out(self.got.data() + old, 0, self.bytes.bytes());
      }
      self.bytes.clear();
    };
  }
  std::string got;
  int count = 0;
  int slices_last = 0;
};

struct Writer : SendOp {
  Writer(Socket& s, Chain& from) {
    socket = &s;
    bytes = &from;
    complete = [](Op& op) noexcept {
      auto& self = static_cast<Writer&>(op);
      ++self.count;
      if (op.result > 0) self.bytes->consume(static_cast<size_t>(op.result));
    };
  }
  int count = 0;
};

inline std::string pattern(size_t count) {
  std::string text(count, '\0');
  uint32_t x = 12345;
  for (char& c : text) {
    x = x * 1664525 + 1013904223;
    c = static_cast<char>(x >> 24);
  }
  return text;
}

}  // namespace weir::uring_test

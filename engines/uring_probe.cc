#include "engines/uring_probe.h"

#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "engines/uring_ring.h"

namespace weir {
namespace {

constexpr unsigned kProbeBuffers = 4;
constexpr unsigned kProbeBufferBytes = 1024;

class Fd {
 public:
  Fd() noexcept = default;
  explicit Fd(int fd) noexcept : fd_(fd) {}
  Fd(Fd&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Fd& operator=(Fd&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  ~Fd() {
    if (fd_ >= 0) close(fd_);
  }
  int get() const noexcept { return fd_; }

 private:
  int fd_ = -1;
};

// A listener on loopback TCP, or on an abstract unix socket where a sandbox has no loopback.
struct Listener {
  Fd fd;
  sockaddr_storage address{};
  socklen_t length = 0;

  int open() {
    const int tcp = open(AF_INET);
    return tcp == 0 ? 0 : open(AF_UNIX);
  }
  int open(int family) {
    fd = Fd(socket(family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
    if (fd.get() < 0) return errno;
    sockaddr_in any{};
    any.sin_family = static_cast<sa_family_t>(family);
    any.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    const socklen_t bound = family == AF_INET ? sizeof any : sizeof(sa_family_t);
    if (bind(fd.get(), reinterpret_cast<sockaddr*>(&any), bound) != 0 || listen(fd.get(), 8) != 0) return errno;
    length = sizeof address;
    if (getsockname(fd.get(), reinterpret_cast<sockaddr*>(&address), &length) != 0) return errno;
    return 0;
  }
  Fd dial() const {
    Fd to(socket(address.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0));
    if (to.get() < 0 || ::connect(to.get(), reinterpret_cast<const sockaddr*>(&address), length) != 0) return Fd();
    fcntl(to.get(), F_SETFL, O_NONBLOCK);
    return to;
  }
};

// One pass over all features. Each probe gives 0 or an errno; ETIME when the kernel said yes and then nothing came.
class Probe {
 public:
  explicit Probe(UringProbeHook hook) : hook_(hook) {}
  ~Probe() {
    if (ring_open_) io_uring_queue_exit(&ring_);
    if (buffers_ != nullptr) munmap(buffers_, kProbeBuffers * sizeof(io_uring_buf));
  }

  void run(UringProbe& out) {
    using enum UringFeature;
    int first = 0;
    const auto step = [&](UringFeature feature, int (Probe::*probe)()) {
      int error = hook_ != nullptr ? hook_(feature) : 0;
      if (error == 0) error = first != 0 ? first : (this->*probe)();
      out.errors[static_cast<size_t>(feature)] = error;
      drain();
      return error;
    };
    first = step(ring, &Probe::probe_ring);  // nothing below can be tried without it
    if (first == 0) first = open_sockets();
    step(buffer_ring, &Probe::probe_buffer_ring);
    step(accept, &Probe::probe_accept);
    step(connect, &Probe::probe_connect);
    step(send, &Probe::probe_send);
    step(sendmsg, &Probe::probe_sendmsg);
    step(recv, &Probe::probe_recv);
    step(poll, &Probe::probe_poll);
    step(cancel, &Probe::probe_cancel);
    step(multishot_accept, &Probe::probe_multishot_accept);
    step(multishot_poll, &Probe::probe_multishot_poll);
    step(poll_first, &Probe::probe_poll_first);
    step(wide_recv, &Probe::probe_wide_recv);
    step(min_wait, &Probe::probe_min_wait);
    step(restrictions, &Probe::probe_restrictions);
  }

 private:
  struct Result {
    int res = -ETIME;
    unsigned flags = 0;
  };

  io_uring_sqe* sqe() {
    io_uring_sqe* sqe = io_uring_get_sqe(&ring_);
    sqe->user_data = 0;
    return sqe;
  }
  // Submits and gives the next completion that carries `tag`. At most 100 ms, and 800 ms for all waits of a probe
  // together.
  Result next(uint64_t tag, int wait_ms = 100) {
    for (;;) {
      io_uring_cqe* cqe = nullptr;
      const int ms = std::min(wait_ms, budget_ms_);
      __kernel_timespec until{.tv_sec = 0, .tv_nsec = ms * 1'000'000LL};
      const int rc = io_uring_submit_and_wait_timeout(&ring_, &cqe, 1, &until, nullptr);
      if (rc == -EINTR) continue;
      if (cqe == nullptr) {
        if (rc == -ETIME) budget_ms_ -= ms;
        return {.res = rc < 0 ? rc : -ETIME};
      }
      const Result result{cqe->res, cqe->flags};
      const bool ours = cqe->user_data == tag;
      give_back(*cqe);
      io_uring_cqe_seen(&ring_, cqe);
      if (ours) return result;
    }
  }
  // Submits; true if something with this tag completed at once, as a receive on an empty socket must not.
  bool completed_at_once(uint64_t tag, Result& result) {
    io_uring_submit_and_get_events(&ring_);
    io_uring_cqe* cqe = nullptr;
    if (io_uring_peek_cqe(&ring_, &cqe) != 0 || cqe->user_data != tag) return false;
    result = {cqe->res, cqe->flags};
    give_back(*cqe);
    io_uring_cqe_seen(&ring_, cqe);
    return true;
  }
  void give_back(const io_uring_cqe& cqe) {
    if ((cqe.flags & IORING_CQE_F_BUFFER) == 0 || buffers_ == nullptr) return;
    add_buffer(cqe.flags >> IORING_CQE_BUFFER_SHIFT);
  }
  void add_buffer(unsigned id) {
    io_uring_buf_ring_add(buffers_, bytes_.data() + id * kProbeBufferBytes, kProbeBufferBytes,
                          static_cast<uint16_t>(id), kProbeBuffers - 1, 0);
    io_uring_buf_ring_advance(buffers_, 1);
  }
  // Between two probes: whatever is still armed is cancelled, whatever still waits in the sockets is dropped.
  void drain() {
    if (!ring_open_) return;
    for (uint64_t tag = 1; tag < tag_; ++tag) {
      io_uring_prep_cancel64(sqe(), tag, 0);
      io_uring_submit_and_get_events(&ring_);
      for (io_uring_cqe* cqe = nullptr; io_uring_peek_cqe(&ring_, &cqe) == 0; io_uring_cqe_seen(&ring_, cqe))
        give_back(*cqe);
    }
    tag_ = 1;
    char rest[256];
    while (near_.get() >= 0 && ::recv(near_.get(), rest, sizeof rest, MSG_DONTWAIT) > 0) {}
    while (far_.get() >= 0 && ::recv(far_.get(), rest, sizeof rest, MSG_DONTWAIT) > 0) {}
    for (int fd; listener_.fd.get() >= 0 && (fd = ::accept(listener_.fd.get(), nullptr, nullptr)) >= 0;) close(fd);
  }

  int probe_ring() {
    io_uring_params params{};
    params.flags = kUringSetupFlags;
    params.cq_entries = 32;
    const int rc = io_uring_queue_init_params(16, &ring_, &params);
    if (rc < 0) return -rc;
    ring_open_ = true;
    return (params.features & kUringNeededFeatures) == kUringNeededFeatures ? 0 : EOPNOTSUPP;
  }
  int open_sockets() {
    if (const int error = listener_.open(); error != 0) return error;
    near_ = listener_.dial();
    if (near_.get() < 0) return ECONNREFUSED;
    far_ = Fd(accept4(listener_.fd.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
    return far_.get() < 0 ? errno : 0;
  }
  int probe_buffer_ring() {
    void* memory =
        mmap(nullptr, kProbeBuffers * sizeof(io_uring_buf), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) return errno;
    io_uring_buf_reg reg{};
    reg.ring_addr = reinterpret_cast<uint64_t>(memory);
    reg.ring_entries = kProbeBuffers;
    const int rc = io_uring_register_buf_ring(&ring_, &reg, 0);
    if (rc < 0) {
      munmap(memory, kProbeBuffers * sizeof(io_uring_buf));
      return -rc;
    }
    buffers_ = static_cast<io_uring_buf_ring*>(memory);
    io_uring_buf_ring_init(buffers_);
    for (unsigned i = 0; i < kProbeBuffers; ++i) add_buffer(i);
    return 0;
  }
  int probe_accept() {
    sockaddr_storage peer{};
    socklen_t length = sizeof peer;
    io_uring_sqe* s = sqe();
    io_uring_prep_accept(s, listener_.fd.get(), reinterpret_cast<sockaddr*>(&peer), &length,
                         SOCK_NONBLOCK | SOCK_CLOEXEC);
    const uint64_t tag = s->user_data = tag_++;
    Result r;
    if (completed_at_once(tag, r)) return r.res < 0 ? -r.res : EPROTO;
    const Fd to = listener_.dial();
    r = next(tag);
    if (r.res < 0) return -r.res;
    const Fd from(r.res);
    return peer.ss_family == listener_.address.ss_family ? 0 : EPROTO;
  }
  int probe_connect() {
    const Fd to(socket(listener_.address.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
    io_uring_sqe* s = sqe();
    io_uring_prep_connect(s, to.get(), reinterpret_cast<sockaddr*>(&listener_.address), listener_.length);
    const uint64_t tag = s->user_data = tag_++;
    return -next(tag).res;
  }
  int probe_send() {
    io_uring_sqe* s = sqe();
    io_uring_prep_send(s, near_.get(), "weir", 4, MSG_NOSIGNAL);
    const uint64_t tag = s->user_data = tag_++;
    return expect(next(tag).res, 4);
  }
  int probe_sendmsg() {
    iovec parts[2] = {{const_cast<char*>("we"), 2}, {const_cast<char*>("ir!"), 3}};
    msghdr message{};
    message.msg_iov = parts;
    message.msg_iovlen = 2;
    io_uring_sqe* s = sqe();
    io_uring_prep_sendmsg(s, near_.get(), &message, MSG_NOSIGNAL);
    const uint64_t tag = s->user_data = tag_++;
    return expect(next(tag).res, 5);
  }
  // What the engine relies on: an idle receive waits on a non-blocking socket, holds no buffer, and keeps to its
  // length.
  int receive(unsigned flags) {
    io_uring_sqe* s = sqe();
    io_uring_prep_recv(s, far_.get(), nullptr, 3, 0);
    s->flags |= IOSQE_BUFFER_SELECT;
    s->buf_group = 0;
    s->ioprio |= static_cast<uint16_t>(flags);
    const uint64_t tag = s->user_data = tag_++;
    Result r;
    if (completed_at_once(tag, r)) return r.res < 0 ? -r.res : EPROTO;
    if (::send(near_.get(), "weir", 4, MSG_NOSIGNAL) != 4) return errno;
    r = next(tag);
    if (r.res >= 0 && (r.flags & IORING_CQE_F_BUFFER) == 0) return EPROTO;
    return expect(r.res, 3);
  }
  int probe_recv() { return buffers_ == nullptr ? EOPNOTSUPP : receive(0); }
  int probe_poll_first() { return buffers_ == nullptr ? EOPNOTSUPP : receive(IORING_RECVSEND_POLL_FIRST); }
  int probe_wide_recv() {
    char a[2], b[8];
    iovec parts[2] = {{a, sizeof a}, {b, sizeof b}};
    msghdr message{};
    message.msg_iov = parts;
    message.msg_iovlen = 2;
    for (const int want : {-EAGAIN, 4}) {  // nothing there: an answer at once; then four bytes over two parts
      if (want > 0 && ::send(near_.get(), "weir", 4, MSG_NOSIGNAL) != 4) return errno;
      io_uring_sqe* s = sqe();
      io_uring_prep_recvmsg(s, far_.get(), &message, MSG_DONTWAIT);
      const uint64_t tag = s->user_data = tag_++;
      const Result r = next(tag);
      if (r.res != want) return r.res < 0 ? -r.res : EPROTO;
    }
    return 0;
  }
  int probe_poll() {
    io_uring_sqe* s = sqe();
    io_uring_prep_poll_add(s, far_.get(), POLLIN);
    const uint64_t tag = s->user_data = tag_++;
    if (::send(near_.get(), "w", 1, MSG_NOSIGNAL) != 1) return errno;
    const Result r = next(tag);
    return r.res < 0 ? -r.res : (r.res & POLLIN) != 0 ? 0 : EPROTO;
  }
  int probe_cancel() {
    io_uring_sqe* s = sqe();
    io_uring_prep_poll_add(s, far_.get(), POLLIN);
    const uint64_t tag = s->user_data = tag_++;
    io_uring_prep_cancel64(sqe(), tag, 0);
    const Result r = next(tag);
    return r.res == -ECANCELED ? 0 : r.res < 0 ? -r.res : EPROTO;
  }
  int probe_multishot_accept() {
    io_uring_sqe* s = sqe();
    io_uring_prep_multishot_accept(s, listener_.fd.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC);
    const uint64_t tag = s->user_data = tag_++;
    for (int i = 0; i < 2; ++i) {
      const Fd to = listener_.dial();
      const Result r = next(tag);
      if (r.res < 0) return -r.res;
      const Fd from(r.res);
      if ((r.flags & IORING_CQE_F_MORE) == 0) return EPROTO;
    }
    return 0;
  }
  int probe_multishot_poll() {
    const Fd event(eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC));
    io_uring_sqe* s = sqe();
    io_uring_prep_poll_multishot(s, event.get(), POLLIN);
    const uint64_t tag = s->user_data = tag_++;
    for (int i = 0; i < 2; ++i) {
      io_uring_submit(&ring_);
      eventfd_write(event.get(), 1);
      const Result r = next(tag);
      if (r.res < 0) return -r.res;
      if ((r.flags & IORING_CQE_F_MORE) == 0) return EPROTO;
      eventfd_t value = 0;
      eventfd_read(event.get(), &value);
    }
    return 0;
  }
  // One completion where two are asked for: the call must come back after the minimum and not at the end of the
  // timeout.
  int probe_min_wait() {
    if ((ring_.features & IORING_FEAT_MIN_TIMEOUT) == 0) return EOPNOTSUPP;
    io_uring_prep_nop(sqe());
    io_uring_cqe* cqe = nullptr;
    __kernel_timespec until{.tv_sec = 0, .tv_nsec = 100'000'000};
    const int rc = io_uring_submit_and_wait_min_timeout(&ring_, &cqe, 2, &until, 100, nullptr);
    return rc < 0 ? -rc : cqe == nullptr ? ETIME : 0;
  }
  // A ring of its own: it refuses what is not listed and still does what is.
  int probe_restrictions() {
    io_uring ring{};
    io_uring_params params{};
    params.flags = kUringSetupFlags | IORING_SETUP_R_DISABLED;
    params.cq_entries = 8;
    int rc = io_uring_queue_init_params(4, &ring, &params);
    if (rc < 0) return -rc;
    rc = uring_restrict(ring);
    if (rc == 0) rc = io_uring_enable_rings(&ring);
    int nop = 0, poll = 0;
    if (rc >= 0) {
      io_uring_sqe* s = io_uring_get_sqe(&ring);
      io_uring_prep_nop(s);
      s->user_data = 1;
      s = io_uring_get_sqe(&ring);
      io_uring_prep_poll_add(s, near_.get(), POLLOUT);
      s->user_data = 2;
      io_uring_submit_and_get_events(&ring);
      for (io_uring_cqe* cqe = nullptr; io_uring_peek_cqe(&ring, &cqe) == 0; io_uring_cqe_seen(&ring, cqe)) {
        (cqe->user_data == 1 ? nop : poll) = cqe->res;
      }
    }
    io_uring_queue_exit(&ring);
    if (rc < 0) return -rc;
    return nop == -EACCES && poll > 0 ? 0 : EPROTO;
  }

  static int expect(int res, int want) { return res == want ? 0 : res < 0 ? -res : EPROTO; }

  UringProbeHook hook_;
  io_uring ring_{};
  bool ring_open_ = false;
  int budget_ms_ = 800;
  uint64_t tag_ = 1;
  Listener listener_;
  Fd near_, far_;
  io_uring_buf_ring* buffers_ = nullptr;
  std::array<char, kProbeBuffers * kProbeBufferBytes> bytes_{};
};

}  // namespace

const char* uring_feature_name(UringFeature feature) noexcept {
  static constexpr std::array<const char*, kUringFeatures> kNames = {
      "ring",   "buffer ring",      "accept",         "connect",    "recv",      "send",     "sendmsg",     "poll",
      "cancel", "multishot accept", "multishot poll", "poll-first", "wide recv", "min-wait", "restrictions"};
  return kNames[static_cast<size_t>(feature)];
}

std::string UringProbe::missing() const {
  std::string text;
  for (int i = 0; i < kUringFeatures; ++i) {
    if (errors[static_cast<size_t>(i)] == 0) continue;
    if (!text.empty()) text += ", ";
    text += uring_feature_name(static_cast<UringFeature>(i)) + std::string(" (") +
            std::strerror(errors[static_cast<size_t>(i)]) + ")";
  }
  return text;
}

UringProbe probe_uring(UringProbeHook hook) {
  UringProbe out;
  {
    Probe probe(hook);
    probe.run(out);
  }
  for (int i = 0; i < kUringRequired; ++i) {
    if (out.errors[static_cast<size_t>(i)] == 0) continue;
    RefusalFacts facts = RefusalFacts::read();
    facts.error = out.errors[static_cast<size_t>(i)];
    facts.step =
        i == 0 ? "io_uring_setup" : std::string("probe of ") + uring_feature_name(static_cast<UringFeature>(i));
    facts.need_each_bytes = uring_ring_bytes(16, 32, kProbeBuffers);
    out.refusal = explain_refusal(facts);
    break;
  }
  return out;
}

}  // namespace weir

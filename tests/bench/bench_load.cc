// bench_load PORT PATH RATE CONNECTIONS SECONDS SAMPLES_FILE: an open-loop HTTP/1.1 client on loopback. Request i is due at
// start + i / RATE, whatever became of those before it; its latency counts from that instant, also when it had to wait for a
// connection, so a server that stalls cannot hide it. Nothing is anchored anew after a stall. What is never answered is counted.
// SAMPLES_FILE gets one uint32 a request, in order: tenths of a microsecond, or 4294967295 where no good answer came.
// The last line of its output is the summary as JSON. Sample storage is touched before the first request. One thread, epoll.
#include <arpa/inet.h>
#include <netinet/tcp.h>
#include <strings.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <deque>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace {

constexpr uint32_t kNever = UINT32_MAX;
constexpr int64_t kGraceNs = 5'000'000'000;   // for answers, after the last request was due
constexpr int64_t kLeadNs = 50'000'000;

int64_t now_ns() {
  timespec t{};
  clock_gettime(CLOCK_MONOTONIC, &t);
  return t.tv_sec * 1'000'000'000 + t.tv_nsec;
}

struct Conn {
  int fd = -1;
  bool busy = false;
  uint64_t request = 0;
  int64_t free_since = 0;
  std::string head;          // of the answer, until it is whole
  bool in_body = false;
  uint64_t body_left = 0;
  bool good = false;         // its status
  bool last = false;         // "connection: close"
};

struct Counts {
  uint64_t answered = 0, status = 0, broken = 0, connect = 0, late = 0;
  int64_t late_max_ns = 0;
};

class Load {
 public:
  Load(uint16_t port, const std::string& path, uint64_t rate, size_t connections, uint64_t seconds)
      : port_(port), rate_(rate), total_(rate * seconds), conns_(connections), samples_(total_, kNever) {
    request_ = "GET " + path + " HTTP/1.1\r\nHost: 127.0.0.1:" + std::to_string(port) + "\r\n\r\n";
    epoll_ = epoll_create1(EPOLL_CLOEXEC);
    buffer_.resize(256 << 10);
    for (Conn& conn : conns_) open(conn);
  }

  void run() {
    start_ = now_ns() + kLeadNs;
    const int64_t give_up = due(total_ - 1) + kGraceNs;
    for (Conn& conn : conns_) conn.free_since = start_;
    while (over_ < total_) {
      const int64_t now = now_ns();
      if (now >= give_up) break;
      send_due(now);
      wait(std::min(next_ < total_ && !free_.empty() ? due(next_) : give_up, give_up));
    }
  }

  bool save(const char* file) const {
    FILE* out = std::fopen(file, "wb");
    if (out == nullptr) return false;
    const bool whole = std::fwrite(samples_.data(), sizeof(uint32_t), samples_.size(), out) == samples_.size();
    return std::fclose(out) == 0 && whole;
  }

  void report() {
    std::vector<uint32_t> sorted = samples_;
    std::sort(sorted.begin(), sorted.end());
    const auto above = [&](uint32_t tenths) { return static_cast<unsigned long long>(sorted.end() - std::upper_bound(sorted.begin(), sorted.end(), tenths)); };
    const auto percentile = [&](double p) -> std::string {
      const auto at = static_cast<size_t>(static_cast<double>(sorted.size()) * p / 100);
      const uint32_t value = sorted[std::min(at, sorted.size() - 1)];
      char text[32];
      std::snprintf(text, sizeof text, "%.1f", value / 10.0);
      return value == kNever ? "null" : text;
    };
    const bool enough = samples_.size() >= 100'000;   // 100 samples beyond it
    std::printf("{\"scheduled\": %llu, \"answered\": %llu, \"unanswered\": %llu, \"status\": %llu, \"broken\": %llu, \"connect\": %llu, "
                "\"p50_us\": %s, \"p90_us\": %s, \"p99_us\": %s, \"p999_us\": %s, "
                "\"over_1ms\": %llu, \"over_10ms\": %llu, \"over_100ms\": %llu, \"late_over_1ms\": %llu, \"late_max_us\": %.1f}\n",
                static_cast<unsigned long long>(total_), static_cast<unsigned long long>(counts_.answered),
                static_cast<unsigned long long>(total_ - over_), static_cast<unsigned long long>(counts_.status),
                static_cast<unsigned long long>(counts_.broken), static_cast<unsigned long long>(counts_.connect),
                percentile(50).c_str(), percentile(90).c_str(), percentile(99).c_str(),
                enough ? percentile(99.9).c_str() : "null", above(10'000), above(100'000), above(1'000'000),
                static_cast<unsigned long long>(counts_.late), static_cast<double>(counts_.late_max_ns) / 1e3);
  }

 private:
  int64_t due(uint64_t request) const {
    return start_ + static_cast<int64_t>(static_cast<unsigned __int128>(request) * 1'000'000'000 / rate_);
  }

  void open(Conn& conn) {
    sockaddr_in to{};
    to.sin_family = AF_INET;
    to.sin_port = htons(port_);
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    conn.fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (conn.fd < 0 || connect(conn.fd, reinterpret_cast<const sockaddr*>(&to), sizeof to) != 0) {
      ++counts_.connect;   // this connection stays away for the rest of the run
      if (conn.fd >= 0) close(conn.fd);
      conn.fd = -1;
      return;
    }
    const int one = 1;
    setsockopt(conn.fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    epoll_event event{.events = EPOLLIN, .data = {.ptr = &conn}};
    epoll_ctl(epoll_, EPOLL_CTL_ADD, conn.fd, &event);
    conn.busy = conn.in_body = false;
    conn.head.clear();
    conn.free_since = now_ns();
    free_.push_back(&conn);
  }

  void send_due(int64_t now) {
    while (next_ < total_ && !free_.empty() && due(next_) <= now) {
      Conn& conn = *free_.front();
      free_.pop_front();
      const int64_t at = due(next_);
      if (conn.free_since <= at && now - at > 1'000'000) ++counts_.late;   // that is this client's own delay
      if (conn.free_since <= at) counts_.late_max_ns = std::max(counts_.late_max_ns, now - at);
      conn.request = next_++;
      conn.busy = true;
      if (send(conn.fd, request_.data(), request_.size(), MSG_NOSIGNAL) != static_cast<ssize_t>(request_.size())) broke(conn);
    }
  }

  void wait(int64_t until) {
    const int64_t left = std::max<int64_t>(until - now_ns(), 0);
    const timespec timeout{.tv_sec = left / 1'000'000'000, .tv_nsec = left % 1'000'000'000};
    epoll_event events[256];
    const int count = epoll_pwait2(epoll_, events, 256, &timeout, nullptr);
    for (int i = 0; i < count; ++i) readable(*static_cast<Conn*>(events[i].data.ptr));
  }

  void readable(Conn& conn) {
    if (conn.fd < 0) return;
    const ssize_t n = recv(conn.fd, buffer_.data(), buffer_.size(), MSG_DONTWAIT);
    if (n < 0 && (errno == EAGAIN || errno == EINTR)) return;
    if (n <= 0 || !conn.busy) return broke(conn);
    std::string_view bytes(buffer_.data(), static_cast<size_t>(n));
    if (!conn.in_body) {
      conn.head.append(bytes);
      const size_t end = conn.head.find("\r\n\r\n");
      if (end == std::string::npos) return;
      bytes.remove_prefix(bytes.size() - (conn.head.size() - end - 4));
      conn.head.resize(end + 2);
      if (!read_head(conn)) return broke(conn);
    }
    if (bytes.size() > conn.body_left) return broke(conn);
    conn.body_left -= bytes.size();
    if (conn.body_left == 0) answered(conn);
  }

  // Content-Length only: what the origin of a bench sends is known.
  static bool read_head(Conn& conn) {
    const std::string& head = conn.head;
    conn.good = head.size() > 12 && head.compare(0, 5, "HTTP/") == 0 && head[9] == '2';
    conn.in_body = true;
    conn.last = false;
    bool length = false;
    for (size_t at = head.find("\r\n"); at + 2 < head.size(); at = head.find("\r\n", at + 2)) {
      const char* line = head.c_str() + at + 2;
      if (strncasecmp(line, "content-length:", 15) == 0) {
        conn.body_left = std::strtoull(line + 15, nullptr, 10);
        length = true;
      }
      if (strncasecmp(line, "connection: close", 17) == 0) conn.last = true;
    }
    return length;
  }

  void answered(Conn& conn) {
    const int64_t now = now_ns();
    ++over_;
    if (conn.good) {
      ++counts_.answered;
      samples_[conn.request] = static_cast<uint32_t>(std::min<int64_t>((now - due(conn.request)) / 100, kNever - 1));
    } else {
      ++counts_.status;
    }
    conn.busy = conn.in_body = false;
    conn.head.clear();
    conn.free_since = now;
    if (conn.last) {
      close(conn.fd);
      open(conn);
    } else {
      free_.push_back(&conn);
    }
  }

  void broke(Conn& conn) {
    ++counts_.broken;
    if (conn.busy) ++over_;
    else std::erase(free_, &conn);
    close(conn.fd);
    open(conn);
  }

  uint16_t port_;
  uint64_t rate_, total_;
  std::string request_;
  std::vector<Conn> conns_;
  std::vector<uint32_t> samples_;
  std::deque<Conn*> free_;
  std::string buffer_;
  Counts counts_;
  int epoll_ = -1;
  int64_t start_ = 0;
  uint64_t next_ = 0;    // the request that is to go out next
  uint64_t over_ = 0;    // answered or failed
};

}  // namespace

int main(int argc, char** argv) {
  const auto number = [&](int at) { return std::strtoull(argv[at], nullptr, 10); };
  if (argc != 7 || number(1) == 0 || number(1) > 65535 || number(3) == 0 || number(4) == 0 || number(5) == 0) {
    std::fprintf(stderr, "usage: bench_load PORT PATH RATE CONNECTIONS SECONDS SAMPLES_FILE\n");
    return 64;
  }
  std::signal(SIGPIPE, SIG_IGN);
  prctl(PR_SET_TIMERSLACK, 1);
  Load load(static_cast<uint16_t>(number(1)), argv[2], number(3), number(4), number(5));
  load.run();
  if (!load.save(argv[6])) {
    std::perror("bench_load: samples");
    return 74;
  }
  load.report();
  return 0;
}

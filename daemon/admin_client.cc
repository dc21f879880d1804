#include "daemon/admin_client.h"

#include <strings.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>

namespace weir {

namespace {

constexpr size_t kAnswerBytesMax = size_t{64} << 20;

class Connection {
 public:
  Connection(const Address& to, std::chrono::milliseconds patience)
      : deadline_(Clock::now() + patience), fd_(socket(to.family(), SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    limit(SO_SNDTIMEO);   // holds for connect(2) too: a daemon that is stopped fills its queue
    if (fd_ < 0 || connect(fd_, &to.any, to.length) != 0) error_ = errno;
  }
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;
  ~Connection() {
    if (fd_ >= 0) ::close(fd_);
  }
  int error() const { return error_; }
  bool too_late() const { return Clock::now() >= deadline_; }
  bool put(std::string_view text) {
    while (!text.empty()) {
      limit(SO_SNDTIMEO);
      const ssize_t sent = send(fd_, text.data(), text.size(), MSG_NOSIGNAL);
      if (sent < 0 && errno == EINTR) continue;
      if (sent <= 0) return false;
      text.remove_prefix(static_cast<size_t>(sent));
    }
    return true;
  }
  bool all(std::string& out) {   // until the other side closes
    char piece[16384];
    while (out.size() < kAnswerBytesMax && !too_late()) {
      limit(SO_RCVTIMEO);
      const ssize_t got = recv(fd_, piece, sizeof piece, 0);
      if (got < 0 && errno == EINTR) continue;
      if (got <= 0) return got == 0;
      out.append(piece, static_cast<size_t>(got));
    }
    return false;
  }

 private:
  using Clock = std::chrono::steady_clock;
  void limit(int option) {   // to what is left
    const auto left = std::max<int64_t>(1, std::chrono::duration_cast<std::chrono::microseconds>(deadline_ - Clock::now()).count());
    const timeval time{.tv_sec = left / 1'000'000, .tv_usec = left % 1'000'000};
    setsockopt(fd_, SOL_SOCKET, option, &time, sizeof time);
  }

  const Clock::time_point deadline_;
  int fd_;
  int error_ = 0;
};

// The value of a field, looked for by its lower-case name.
std::string_view field(std::string_view head, std::string_view name) {
  for (size_t at = head.find("\r\n"); at != std::string_view::npos; at = head.find("\r\n", at + 2)) {
    const std::string_view line = head.substr(at + 2, head.find("\r\n", at + 2) - at - 2);
    if (line.size() <= name.size() || line[name.size()] != ':') continue;
    if (strncasecmp(line.data(), name.data(), name.size()) != 0) continue;
    const std::string_view value = line.substr(name.size() + 1);
    return value.substr(std::min(value.find_first_not_of(' '), value.size()));
  }
  return {};
}

bool number(std::string_view text, size_t& out) {
  return std::from_chars(text.data(), text.data() + text.size(), out).ec == std::errc();
}

bool read_answer(const std::string& text, AdminResponse& out) {
  const size_t end = text.find("\r\n\r\n");
  if (end == std::string::npos || !text.starts_with("HTTP/1.1 ")) return false;
  size_t status = 0, length = 0;
  const std::string_view head(text.data(), end);
  if (!number(head.substr(9), status) || !number(field(head, "content-length"), length)) return false;
  if (text.size() - end - 4 < length) return false;
  out.status = static_cast<int>(status);
  out.body = text.substr(end + 4, length);
  return true;
}

}  // namespace

std::expected<AdminResponse, std::string> ask_admin(const AdminEndpoint& to, const std::string& method, const std::string& path,
                                                    const std::string& body, std::chrono::milliseconds patience) {
  const std::string no_answer = to.name + ": no answer within " + std::to_string(patience.count()) + " ms";
  Connection connection(to.address, patience);
  if (connection.error() == EAGAIN || connection.error() == EINPROGRESS) return std::unexpected(no_answer);
  if (connection.error() != 0) return std::unexpected(to.name + ": " + strerror(connection.error()));
  std::string request = method + ' ' + path + " HTTP/1.1\r\nHost: " + (to.address.is_unix() ? "localhost" : to.address.text()) +
                        "\r\nConnection: close\r\n";
  if (!to.token.empty()) request += "Authorization: Bearer " + to.token + "\r\n";
  if (!body.empty()) request += "Content-Type: application/json\r\nContent-Length: " + std::to_string(body.size()) + "\r\n";
  std::string text;
  AdminResponse answer;
  const bool sent = connection.put(request + "\r\n" + body);
  const bool whole = sent && connection.all(text);
  if (read_answer(text, answer)) return answer;
  if (connection.too_late()) return std::unexpected(no_answer);
  return std::unexpected(to.name + (whole ? ": what answers there is no Weir" : ": the answer broke off"));
}

bool admin_reachable(const AdminEndpoint& to, std::chrono::milliseconds patience) {
  const int error = Connection(to.address, patience).error();
  return error == 0 || error == EAGAIN || error == EINPROGRESS;
}

}  // namespace weir

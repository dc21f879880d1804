#include "daemon/access_log.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <ctime>

#include "daemon/json.h"

namespace weir {

namespace {

void append_number(std::string& out, uint64_t number) {
  char digits[20];
  size_t at = sizeof digits;
  do {
    digits[--at] = static_cast<char>('0' + number % 10);
    number /= 10;
  } while (number != 0);
  out.append(digits + at, sizeof digits - at);
}

void append_ms(std::string& out, int64_t us) {
  append_number(out, static_cast<uint64_t>(us / 1000));
  const auto part = static_cast<unsigned>(us % 1000);
  const char text[4] = {'.', static_cast<char>('0' + part / 100), static_cast<char>('0' + part / 10 % 10),
                        static_cast<char>('0' + part % 10)};
  out.append(text, sizeof text);
}

void append_time(std::string& out, int64_t unix_ms, const char* form) {
  const time_t seconds = static_cast<time_t>(unix_ms / 1000);
  tm parts{};
  gmtime_r(&seconds, &parts);
  char text[48];
  out.append(text, strftime(text, sizeof text, form, &parts));
}

// What stands between quotes in the combined format: quotes, backslashes and control bytes as \xHH.
void append_quoted(std::string& out, std::string_view text) {
  static constexpr char kHex[] = "0123456789abcdef";
  out += '"';
  if (text.empty()) out += '-';
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte < 0x20 || byte >= 0x7f || c == '"' || c == '\\') {
      out += "\\x";
      out += kHex[byte >> 4];
      out += kHex[byte & 15];
    } else {
      out += c;
    }
  }
  out += '"';
}

}  // namespace

void append_access_json(std::string& out, const AccessEntry& entry) {
  const auto text = [&](const char* key, std::string_view value) {
    out += ",\"";
    out += key;
    out += "\":";
    json::append_string(out, value);
  };
  const auto number = [&](const char* key, uint64_t value) {
    out += ",\"";
    out += key;
    out += "\":";
    append_number(out, value);
  };
  out += "{\"ts\":\"";
  append_time(out, entry.unix_ms, "%Y-%m-%dT%H:%M:%S");
  const auto ms = static_cast<unsigned>(entry.unix_ms % 1000);
  const char part[5] = {'.', static_cast<char>('0' + ms / 100), static_cast<char>('0' + ms / 10 % 10),
                        static_cast<char>('0' + ms % 10), 'Z'};
  out.append(part, sizeof part);
  out += '"';
  text("listener", entry.listener);
  text("protocol", entry.protocol);
  text("client_ip", entry.client_ip);
  text("peer_ip", entry.client_ip);
  text("method", entry.method);
  text("host", entry.host);
  text("path", entry.path);
  number("status", entry.status);
  text("scheme", entry.scheme);
  text("user_agent", entry.user_agent);
  number("bytes_in", entry.bytes_in);
  number("bytes_out", entry.bytes_out);
  out += ",\"duration_ms\":";
  append_ms(out, entry.duration_us);
  text("route", entry.route);
  text("upstream", entry.upstream);
  text("origin", entry.origin);
  out += entry.reused ? ",\"reused\":true" : ",\"reused\":false";
  number("attempts", entry.attempts);
  text("end", entry.end);
  text("error", entry.error);
  number("generation", entry.generation);
  text("engine", entry.engine);
  out += "}\n";
}

void append_access_combined(std::string& out, const AccessEntry& entry) {
  out += entry.client_ip.empty() ? std::string_view("-") : entry.client_ip;
  out += " - - [";
  append_time(out, entry.unix_ms, "%d/%b/%Y:%H:%M:%S +0000");
  out += "] ";
  std::string line(entry.method);
  line += ' ';
  line += entry.path;
  line += " HTTP/1.1";
  append_quoted(out, entry.method.empty() ? std::string_view() : std::string_view(line));
  out += ' ';
  append_number(out, entry.status);
  out += ' ';
  append_number(out, entry.bytes_out);
  out += ' ';
  append_quoted(out, entry.referer);
  out += ' ';
  append_quoted(out, entry.user_agent);
  out += '\n';
}

AccessRing::AccessRing(size_t bytes) : bytes_(new char[bytes]), mask_(bytes - 1) {}

bool AccessRing::put(std::string_view line) noexcept {
  const uint64_t head = head_.load(std::memory_order_relaxed);
  if (mask_ + 1 - (head - tail_.load(std::memory_order_acquire)) < line.size()) {
    dropped_.store(dropped_.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
    return false;
  }
  const size_t at = head & mask_;
  const size_t first = std::min(line.size(), mask_ + 1 - at);
  memcpy(bytes_.get() + at, line.data(), first);
  memcpy(bytes_.get(), line.data() + first, line.size() - first);
  head_.store(head + line.size(), std::memory_order_release);
  return true;
}

void AccessRing::take(std::string& out) {
  const uint64_t tail = tail_.load(std::memory_order_relaxed);
  const uint64_t head = head_.load(std::memory_order_acquire);
  const size_t count = head - tail;
  const size_t at = tail & mask_;
  const size_t first = std::min(count, mask_ + 1 - at);
  out.append(bytes_.get() + at, first);
  out.append(bytes_.get(), count - first);
  tail_.store(head, std::memory_order_release);
}

void AccessSink::write(const AccessEntry& entry) {
  line.clear();
  if (format.load(std::memory_order_relaxed) == config::AccessFormat::json) append_access_json(line, entry);
  else append_access_combined(line, entry);
  ring.put(line);
}

AccessLog::AccessLog(size_t workers) {
  for (size_t i = 0; i < workers; ++i) sinks_.push_back(std::make_unique<AccessSink>());
}

AccessLog::~AccessLog() {
  {
    const std::lock_guard guard(lock_);
    stopping_ = true;
  }
  wake_.notify_one();
  if (thread_.joinable()) thread_.join();
  if (fd_ > STDERR_FILENO) ::close(fd_);
}

std::string AccessLog::configure(const std::optional<config::AccessLog>& wanted) {
  int fd = -1;
  if (wanted) {
    if (wanted->path == "stdout") fd = STDOUT_FILENO;
    else if (wanted->path == "stderr") fd = STDERR_FILENO;
    else fd = open(wanted->path.c_str(), O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0640);
    if (fd < 0) return "access log " + wanted->path + ": " + strerror(errno);
  }
  {
    const std::lock_guard guard(lock_);
    if (fd_ > STDERR_FILENO) ::close(fd_);
    fd_ = fd;
    path_ = wanted ? wanted->path : std::string();
  }
  for (auto& sink : sinks_) {
    if (wanted) sink->format.store(wanted->format, std::memory_order_relaxed);
    sink->on.store(wanted.has_value(), std::memory_order_relaxed);
  }
  if (wanted && !thread_.joinable()) thread_ = std::thread([this] { run(); });
  return {};
}

std::string AccessLog::reopen() {
  const std::lock_guard guard(lock_);
  if (path_.empty() || path_ == "stdout" || path_ == "stderr") return {};
  const int fd = open(path_.c_str(), O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0640);
  if (fd < 0) return "access log " + path_ + ": " + strerror(errno);
  ::close(fd_);
  fd_ = fd;
  return {};
}

uint64_t AccessLog::dropped() const {
  uint64_t total = 0;
  for (const auto& sink : sinks_) total += sink->ring.dropped();
  return total;
}

void AccessLog::drain() {
  batch_.clear();
  for (auto& sink : sinks_) sink->ring.take(batch_);
  std::string_view left = batch_;
  while (!left.empty() && fd_ >= 0) {
    const ssize_t wrote = ::write(fd_, left.data(), left.size());
    if (wrote < 0 && errno == EINTR) continue;
    if (wrote <= 0) break;  // a full disk: these lines are lost, the next ones are tried
    left.remove_prefix(static_cast<size_t>(wrote));
  }
}

void AccessLog::run() {
  pthread_setname_np(pthread_self(), "weir-access");
  std::unique_lock guard(lock_);
  while (!stopping_) {
    wake_.wait_for(guard, std::chrono::milliseconds(50));
    drain();
  }
  drain();
}

}  // namespace weir

#include "daemon/access_log.h"

#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <utility>

#include "daemon/json.h"
#include "daemon/log.h"

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

void append_thousandths(std::string& out, unsigned part) {
  const char text[4] = {'.', static_cast<char>('0' + part / 100), static_cast<char>('0' + part / 10 % 10),
                        static_cast<char>('0' + part % 10)};
  out.append(text, sizeof text);
}

void append_ms(std::string& out, int64_t us) {
  append_number(out, static_cast<uint64_t>(us / 1000));
  append_thousandths(out, static_cast<unsigned>(us % 1000));
}

const char* version_text(Version version) noexcept {
  switch (version) {
    case Version::http10: return "HTTP/1.0";
    case Version::http11: return "HTTP/1.1";
    case Version::http2: return "HTTP/2.0";
    case Version::http3: return "HTTP/3.0";
  }
  return "HTTP/1.1";
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

struct TraceIds {
  std::string_view trace_id, span_id;   // empty: the field is malformed
};

// W3C Trace Context section 3.2: version "-" trace-id "-" parent-id "-" flags, in lower-case hex, no id all zero.
TraceIds trace_ids(std::string_view field) noexcept {
  if (field.size() < 55 || field.substr(0, 2) == "ff" || (field.size() > 55 && (field.substr(0, 2) == "00" || field[55] != '-')))
    return {};
  for (size_t i = 0; i < 55; ++i) {
    const bool dash = i == 2 || i == 35 || i == 52;
    const bool hex = (field[i] >= '0' && field[i] <= '9') || (field[i] >= 'a' && field[i] <= 'f');
    if (dash ? field[i] != '-' : !hex) return {};
  }
  const TraceIds ids{field.substr(3, 32), field.substr(36, 16)};
  const auto zero = [](std::string_view id) { return id.find_first_not_of('0') == std::string_view::npos; };
  return zero(ids.trace_id) || zero(ids.span_id) ? TraceIds() : ids;
}

}  // namespace

void append_access_json(std::string& out, const AccessEntry& entry) {
  const auto name = [&](const char* key) {
    out += ",\"";
    out += key;
    out += "\":";
  };
  const auto text = [&](const char* key, std::string_view value) {
    if (value.empty()) return;
    name(key);
    json::append_string(out, value);
  };
  const auto number = [&](const char* key, uint64_t value) {
    name(key);
    append_number(out, value);
  };
  const auto ms = [&](const char* key, int64_t us) {
    if (us < 0) return;
    name(key);
    append_ms(out, us);
  };
  out += "{\"ts\":\"";
  append_time(out, entry.unix_ms, "%Y-%m-%dT%H:%M:%S");
  append_thousandths(out, static_cast<unsigned>(entry.unix_ms % 1000));
  out += "Z\"";
  text("request_id", entry.request_id);
  if (const TraceIds trace = trace_ids(entry.traceparent); !trace.trace_id.empty()) {
    text("trace_id", trace.trace_id);
    text("span_id", trace.span_id);
  }
  text("listener", entry.listener);
  text("protocol", entry.protocol);
  text("client_ip", entry.client_ip);
  text("peer_ip", entry.peer_ip);
  text("method", entry.method);
  text("host", entry.host);
  text("path", entry.path);
  if (entry.status != 0) number("status", entry.status);
  text("scheme", entry.scheme);
  text("tls_version", entry.tls_version);
  text("tls_cipher", entry.tls_cipher);
  text("tls_server_name", entry.tls_server_name);
  text("user_agent", entry.user_agent);
  number("bytes_in", entry.bytes_in);
  number("bytes_out", entry.bytes_out);
  ms("duration_ms", entry.duration_us);
  ms("connect_ms", entry.connect_us);
  ms("first_byte_ms", entry.first_byte_us);
  if (entry.stall_client_us > 0) ms("stall_client_ms", entry.stall_client_us);
  if (entry.stall_origin_us > 0) ms("stall_origin_ms", entry.stall_origin_us);
  text("route", entry.route);
  text("upstream", entry.upstream);
  if (!entry.origin.empty()) {
    text("origin", entry.origin);
    out += entry.reused ? ",\"reused\":true" : ",\"reused\":false";
    number("attempts", entry.attempts);
  }
  text("end", entry.end);
  text("error", entry.error);
  number("generation", entry.generation);
  text("engine", entry.engine);
  out += "}\n";
}

// As nginx's `combined`: what reads that reads this. 499, also nginx's, stands for "no answer was sent, the client left".
void append_access_combined(std::string& out, const AccessEntry& entry) {
  out += entry.client_ip.empty() ? std::string_view("-") : entry.client_ip;
  out += " - - [";
  append_time(out, entry.unix_ms, "%d/%b/%Y:%H:%M:%S +0000");
  out += "] ";
  std::string line;
  if (!entry.method.empty()) {
    line = entry.method;
    line += ' ';
    line += entry.path;
    line += ' ';
    line += version_text(entry.version);
  }
  append_quoted(out, line);
  out += ' ';
  append_number(out, entry.status != 0 ? entry.status : entry.client_left ? 499u : 500u);
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

struct AccessLog::File {
  File(int descriptor, std::string name) : fd(descriptor), path(std::move(name)) {}
  File(const File&) = delete;
  File& operator=(const File&) = delete;
  ~File() {
    if (fd > STDERR_FILENO) ::close(fd);
  }
  int fd;
  std::string path;
  bool torn = false;                               // it ends in the middle of a line (the writer's note)
};

namespace {

constexpr auto kLookEvery = std::chrono::milliseconds(50);
constexpr auto kSayEvery = std::chrono::seconds(10);
constexpr int kFullPatience = 20;                  // looks, for a descriptor that would block

// -1: errno says why. A pipe without a reader is refused: to open it would wait for one.
int open_log(const std::string& path) {
  if (path == "stdout") return STDOUT_FILENO;
  if (path == "stderr") return STDERR_FILENO;
  const int fd = open(path.c_str(), O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC | O_NONBLOCK, 0640);
  if (fd >= 0) fcntl(fd, F_SETFL, O_APPEND);
  return fd;
}

// Returns the error that ended it, or 0; `left` is what was not written.
int write_out(int fd, std::string_view& left) {
  for (int waits = 0; !left.empty();) {
    const ssize_t wrote = ::write(fd, left.data(), left.size());
    if (wrote > 0) {
      left.remove_prefix(static_cast<size_t>(wrote));
    } else if (wrote < 0 && errno == EAGAIN && ++waits <= kFullPatience) {
      pollfd ready{fd, POLLOUT, 0};
      poll(&ready, 1, static_cast<int>(kLookEvery.count()));
    } else if (wrote == 0 || errno != EINTR) {
      return wrote == 0 ? ENOSPC : errno;
    }
  }
  return 0;
}

}  // namespace

AccessLog::AccessLog(size_t workers) {
  for (size_t i = 0; i < workers; ++i) shared_->sinks.push_back(std::make_unique<AccessSink>());
}

AccessLog::~AccessLog() { close(); }

bool AccessLog::close(std::chrono::milliseconds patience) {
  if (!thread_.joinable()) return true;
  std::unique_lock guard(shared_->lock);
  shared_->stopping = true;
  shared_->wake.notify_all();
  const bool ended = shared_->wake.wait_for(guard, patience, [this] { return shared_->ended; });
  guard.unlock();
  if (ended) {
    thread_.join();
  } else {
    log::warn("the access log takes nothing; its last lines are lost", {{"path", path_}});
    thread_.detach();
  }
  return ended;
}

std::string AccessLog::configure(const std::optional<config::AccessLog>& wanted) {
  std::shared_ptr<File> file;
  if (wanted) {
    const int fd = open_log(wanted->path);
    if (fd < 0) return "access log " + wanted->path + ": " + strerror(errno);
    file = std::make_shared<File>(fd, wanted->path);
  }
  path_ = wanted ? wanted->path : std::string();
  {
    const std::lock_guard guard(shared_->lock);
    shared_->file.swap(file);
  }
  for (auto& sink : shared_->sinks) {
    if (wanted) sink->format.store(wanted->format, std::memory_order_relaxed);
    sink->on.store(wanted.has_value(), std::memory_order_relaxed);
  }
  if (wanted && !thread_.joinable()) thread_ = std::thread([shared = shared_] { run(*shared); });
  return {};
}

std::string AccessLog::reopen() {
  if (path_.empty() || path_ == "stdout" || path_ == "stderr") return {};
  std::shared_ptr<File> file;  // before the lock, so that the old one is closed after it
  const std::lock_guard guard(shared_->lock);
  const int fd = open_log(path_);
  if (fd < 0) return "access log " + path_ + ": " + strerror(errno);
  file = std::make_shared<File>(fd, path_);
  shared_->file.swap(file);
  return {};
}

uint64_t AccessLog::dropped() const {
  uint64_t total = shared_->lost.load(std::memory_order_relaxed);
  for (const auto& sink : shared_->sinks) total += sink->ring.dropped();
  return total;
}

// The lock is held to look and never to write: whoever changes the file does not wait for the disk.
void AccessLog::run(Shared& shared) {
  pthread_setname_np(pthread_self(), "weir-access");
  std::string batch;
  uint64_t unsaid = 0;
  auto said = std::chrono::steady_clock::time_point::min();
  for (bool last = false; !last;) {
    batch.clear();
    std::shared_ptr<File> file;
    {
      std::unique_lock guard(shared.lock);
      shared.wake.wait_for(guard, kLookEvery, [&] { return shared.stopping; });
      last = shared.stopping;
      file = shared.file;
      if (file != nullptr && file->torn) batch += '\n';
      for (auto& sink : shared.sinks) sink->ring.take(batch);
    }
    if (file == nullptr || batch.size() <= size_t{file->torn}) continue;
    std::string_view left = batch;
    const int error = write_out(file->fd, left);
    if (left.size() < batch.size()) file->torn = batch[batch.size() - left.size() - 1] != '\n';
    if (error == 0) continue;
    auto count = static_cast<uint64_t>(std::count(left.begin(), left.end(), '\n'));
    if (left.front() == '\n') --count;  // that is the end of a line that was torn, and counted, before
    shared.lost.fetch_add(count, std::memory_order_relaxed);
    unsaid += count;
    const auto now = std::chrono::steady_clock::now();
    if (said != std::chrono::steady_clock::time_point::min() && now < said + kSayEvery) continue;
    said = now;
    log::warn("access log lines are lost", {{"path", file->path},
                                            {"error", strerror(error)},
                                            {"count", std::to_string(std::exchange(unsaid, 0))}});
  }
  const std::lock_guard guard(shared.lock);
  shared.ended = true;
  shared.wake.notify_all();
}

}  // namespace weir

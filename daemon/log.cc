#include "daemon/log.h"

#include <spdlog/async.h>
#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/spdlog.h>

#include <array>
#include <atomic>
#include <cstdio>
#include <ctime>
#include <future>
#include <memory>
#include <mutex>
#include <shared_mutex>
#include <thread>
#include <utility>

#include "daemon/json.h"

namespace weir::log {

namespace {

constexpr size_t kQueueLines = 8192;

std::shared_ptr<spdlog::async_logger> logger;   // set by start(), before there are other threads, and never again
std::shared_mutex gate;   // held while a line is handed over, so that stop() never pulls the writer away from under it
bool stopped = false;     // under the gate
std::atomic<Level> threshold{Level::info};
std::atomic<Format> shape{Format::text};

constexpr std::array<const char*, 4> kNames = {"DEBUG", "INFO", "WARN", "ERROR"};
constexpr std::array<spdlog::level::level_enum, 4> kLevels = {spdlog::level::debug, spdlog::level::info, spdlog::level::warn,
                                                              spdlog::level::err};

std::string timestamp() {
  timespec now{};
  clock_gettime(CLOCK_REALTIME, &now);
  tm parts{};
  gmtime_r(&now.tv_sec, &parts);
  char text[40];
  const size_t count = strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%S", &parts);
  snprintf(text + count, sizeof text - count, ".%03ldZ", now.tv_nsec / 1'000'000);
  return text;
}

// A value that could be taken for several fields, or is empty, is quoted.
void append_value(std::string& line, const std::string& value) {
  bool plain = !value.empty();
  for (const char c : value)
    if (c <= ' ' || c == '"' || c == '=' || c == 0x7f) plain = false;
  if (plain) line += value;
  else json::append_string(line, value);
}

std::string render(Level level, std::string_view message, std::initializer_list<Field> fields) {
  std::string line;
  if (shape.load(std::memory_order_relaxed) == Format::json) {
    line = "{\"ts\":\"" + timestamp() + "\",\"level\":\"" + kNames[static_cast<size_t>(level)] + "\",\"msg\":";
    json::append_string(line, message);
    for (const Field& field : fields) {
      line += ',';
      json::append_string(line, field.key);
      line += ':';
      json::append_string(line, field.value);
    }
    line += '}';
    return line;
  }
  line = timestamp() + " " + kNames[static_cast<size_t>(level)] + " ";
  line += message;
  for (const Field& field : fields) {
    line += ' ';
    line += field.key;
    line += '=';
    append_value(line, field.value);
  }
  return line;
}

}  // namespace

void start(Level level, Format format) {
  set(level, format);
  if (logger != nullptr) return;
  spdlog::init_thread_pool(kQueueLines, 1);
  logger = std::make_shared<spdlog::async_logger>("weir", std::make_shared<spdlog::sinks::stderr_sink_mt>(),
                                                  spdlog::thread_pool(), spdlog::async_overflow_policy::overrun_oldest);
  logger->set_pattern("%v");
  logger->set_level(spdlog::level::debug);
  logger->flush_on(spdlog::level::debug);
}

void set(Level level, Format format) {
  threshold.store(level, std::memory_order_relaxed);
  shape.store(format, std::memory_order_relaxed);
}

bool enabled(Level level) noexcept { return level >= threshold.load(std::memory_order_relaxed); }

void write(Level level, std::string_view message, std::initializer_list<Field> fields) {
  const std::shared_lock guard(gate);
  if (stopped) return;
  const std::string line = render(level, message, fields);
  if (logger != nullptr) logger->log(kLevels[static_cast<size_t>(level)], line);
  else fprintf(stderr, "%s\n", line.c_str());
}

bool stop(std::chrono::milliseconds patience) {
  {
    const std::unique_lock guard(gate);
    if (logger == nullptr || std::exchange(stopped, true)) return true;
  }
  std::promise<void> ended;
  std::future<void> end = ended.get_future();
  std::thread([ended = std::move(ended)]() mutable {
    logger->flush();
    spdlog::shutdown();  // joins the writer
    ended.set_value();
  }).detach();
  return end.wait_for(patience) == std::future_status::ready;
}

}  // namespace weir::log

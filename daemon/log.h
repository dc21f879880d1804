// The daemon's log: one line an event, to stderr (which systemd puts into the journal). The only place that knows spdlog.
// Callers: any thread, at start, reload, drain and failure; never per request and never on the data path.
// write() hands the line to a writer thread and does not wait for it; when that thread falls behind the oldest lines are
// dropped and counted. Fields are appended as key=value (text) or as members (json).
#pragma once

#include <chrono>
#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>

namespace weir::log {

enum class Level : uint8_t { debug, info, warn, error };
enum class Format : uint8_t { text, json };

struct Field {
  std::string_view key;
  std::string value;
};

void start(Level level, Format format);   // before it: lines go to stderr as they are
void set(Level level, Format format);     // at reload
// Writes what is left; lines that come after it are dropped, so other threads may still run. False: stderr takes nothing (a pipe
// that nobody reads) and the writer is left behind; the process must end by _exit.
bool stop(std::chrono::milliseconds patience = std::chrono::seconds(2));
bool enabled(Level level) noexcept;
void write(Level level, std::string_view message, std::initializer_list<Field> fields = {});

inline void debug(std::string_view m, std::initializer_list<Field> f = {}) { if (enabled(Level::debug)) write(Level::debug, m, f); }
inline void info(std::string_view m, std::initializer_list<Field> f = {}) { if (enabled(Level::info)) write(Level::info, m, f); }
inline void warn(std::string_view m, std::initializer_list<Field> f = {}) { if (enabled(Level::warn)) write(Level::warn, m, f); }
inline void error(std::string_view m, std::initializer_list<Field> f = {}) { if (enabled(Level::error)) write(Level::error, m, f); }

}  // namespace weir::log

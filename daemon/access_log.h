// The access log: one line a request, JSON or the combined format, off unless configured. Workers put lines into a ring each; one
// thread takes them out and writes them. A slow disk costs counted lines, never a request's time: a full ring drops the line, and
// what the disk refuses is counted too.
// Owner: the supervisor; rings live as long as the process. put() is for the ring's one worker; everything else for the
// supervisor's thread, which never waits for a write: one that does not return (a pipe that nobody reads) is left behind at the
// end. The writer looks every 50 ms. Authorization and Cookie are never logged.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "config/snapshot.h"
#include "protocols/exchange/head.h"

namespace weir {

// What is known of a request when it has ended. Views live during the call. What is empty, 0 or negative here because there is
// nothing to say stays out of the line.
struct AccessEntry {
  int64_t unix_ms = 0;
  std::string_view listener, client_ip, peer_ip, method, host, path, scheme, user_agent, referer;
  std::string_view tls_version, tls_cipher, tls_server_name;   // empty: the connection was plain
  std::string_view request_id, traceparent, route, upstream, origin, end, error;
  Version version = Version::http11;
  uint16_t status = 0;                    // 0: no answer was sent
  bool client_left = false;               // it ended by the client's fault
  uint64_t bytes_in = 0, bytes_out = 0;   // bodies
  int64_t duration_us = 0, connect_us = -1, first_byte_us = -1;
  int64_t stall_client_us = 0, stall_origin_us = 0;
  uint32_t attempts = 0;
  bool reused = false;
  uint64_t generation = 0;
  const char* engine = "";
  const char* protocol = "h1";
};

// Appends one line with its newline.
void append_access_json(std::string& out, const AccessEntry& entry);
void append_access_combined(std::string& out, const AccessEntry& entry);

// One writer, one reader, whole lines.
class AccessRing {
 public:
  explicit AccessRing(size_t bytes);               // a power of two
  bool put(std::string_view line) noexcept;        // false: full, counted
  void take(std::string& out);                     // all that is there
  uint64_t dropped() const noexcept { return dropped_.load(std::memory_order_relaxed); }

 private:
  std::unique_ptr<char[]> bytes_;
  size_t mask_;
  alignas(64) std::atomic<uint64_t> head_{0};      // written so far
  alignas(64) std::atomic<uint64_t> tail_{0};      // taken so far
  std::atomic<uint64_t> dropped_{0};
};

// A worker's end of it.
struct AccessSink {
  AccessRing ring{size_t{1} << 20};
  std::atomic<bool> on{false};
  std::atomic<config::AccessFormat> format{config::AccessFormat::json};
  std::string line;                                // the worker's scratch
  void write(const AccessEntry& entry);            // the worker's thread
};

class AccessLog {
 public:
  explicit AccessLog(size_t workers);
  ~AccessLog();                                    // close()
  AccessSink& sink(size_t worker) { return *shared_->sinks[worker]; }
  // Empty text, or why the file cannot be opened (then nothing changes). nullopt: off.
  std::string configure(const std::optional<config::AccessLog>& wanted);
  std::string reopen();                            // USR1
  // Writes what is left. False: the writer is stuck and is left behind with its lines; the process must end by _exit.
  bool close(std::chrono::milliseconds patience = std::chrono::seconds(2));
  uint64_t dropped() const;                        // lines that are not in the file

 private:
  struct File;                                     // a descriptor, closed by the last one who uses it
  struct Shared {                                  // what the writer needs, and keeps when it is left behind
    std::vector<std::unique_ptr<AccessSink>> sinks;
    std::mutex lock;
    std::condition_variable wake;
    std::shared_ptr<File> file;                    // under the lock, as the next two
    bool stopping = false;
    bool ended = false;
    std::atomic<uint64_t> lost{0};                 // lines that the writer took and could not write
  };
  static void run(Shared& shared);

  std::shared_ptr<Shared> shared_ = std::make_shared<Shared>();
  std::string path_;
  std::thread thread_;
};

}  // namespace weir

// What the daemon counts, by worker: plain counters that a worker writes and the admin thread reads (engines/stats.h).
// Owner: StatsRegistry, on the supervisor's thread. Blocks are made when a configuration is compiled, found again by name at the
// next one, and never freed while the process lives, so a worker's pointer is always good. Labels are names from the config.
#pragma once

#include <array>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "daemon/allowance.h"
#include "protocols/h1/client_conn.h"
#include "protocols/h1/server_conn.h"
#include "protocols/h2/server_conn.h"

namespace weir {

// Answers by class: index 1..5 for 1xx..5xx; 0: no answer was sent.
using ClassCounters = std::array<Counter, 6>;
inline size_t code_class(uint16_t status) noexcept { return status >= 100 && status < 600 ? status / 100u : 0u; }

// What a client spoke, as an index and as a label.
inline constexpr size_t kClientProtocols = 2;
inline size_t client_protocol(Version version) noexcept { return version == Version::http2 ? 1 : 0; }
inline constexpr std::array<const char*, kClientProtocols> kClientProtocolNames = {"h1", "h2"};

enum class RefusedCause : uint8_t { limit, no_descriptor, no_memory, memory, other };   // memory: the budget (limits.memory)
inline constexpr int kRefusedCauses = 5;
const char* refused_name(RefusedCause cause) noexcept;

struct ListenerStats {
  h1::ServerStats server;
  TlsStats tls;
  h2::ServerStats h2;
  std::array<Counter, kRefusedCauses> refused;
  std::array<ClassCounters, kClientProtocols> unrouted;   // answers to requests that no route took, malformed ones included
  std::array<Histogram, kClientProtocols> durations;      // of every exchange, from its whole request head on
  std::array<Counter, size_t(What::kCount)> errors;  // exchanges that ended with a fault, by its cause
};

struct RouteStats {
  std::array<ClassCounters, kClientProtocols> answers;
};

struct UpstreamStats {
  h1::ClientStats client;
  Counter retries_connect, retries_reused;
};

struct OriginStats {
  ClassCounters answers;
};

// Of one worker and the memory budget.
struct MemoryStats {
  Counter ended;        // exchanges and unfinished heads that were ended to make room
  Counter trimmed;      // bytes of free buffers given back to the kernel
};

// One kind of block under one key, for each worker. The blocks of a key stand together, each in cache lines of its own.
template <class T>
class StatsFamily {
 public:
  T& at(const std::string& key, size_t worker) { return *blocks(key, worker + 1)[worker]; }
  // Those of the first `workers` of them.
  std::span<T* const> blocks(const std::string& key, size_t workers) {
    Row& row = rows_[key];
    if (row.blocks.size() < workers) {
      const size_t more = workers - row.blocks.size();
      row.memory.push_back(std::make_unique<Block[]>(more));
      row.blocks.reserve(workers);
      for (size_t i = 0; i < more; ++i) row.blocks.push_back(&row.memory.back()[i].value);
    }
    return std::span<T* const>(row.blocks).first(workers);
  }
  template <class F>
  void each(F&& f) const {  // f(key, worker, block)
    for (const auto& [key, row] : rows_)
      for (size_t worker = 0; worker < row.blocks.size(); ++worker) f(key, worker, *row.blocks[worker]);
  }
  template <class F>
  uint64_t sum(const std::string& key, F&& f) const {
    uint64_t total = 0;
    if (const auto it = rows_.find(key); it != rows_.end())
      for (const T* block : it->second.blocks) total += f(*block);
    return total;
  }
  std::vector<std::string> keys() const {
    std::vector<std::string> names;
    for (const auto& [key, row] : rows_) names.push_back(key);
    return names;
  }

 private:
  struct alignas(64) Block {
    T value;
  };
  struct Row {
    std::vector<std::unique_ptr<Block[]>> memory;  // one, and one more each time that there are more workers
    std::vector<T*> blocks;                        // by worker
  };
  std::map<std::string, Row> rows_;
};

struct StatsRegistry {
  StatsFamily<ListenerStats> listeners;   // by listener name
  StatsFamily<RouteStats> routes;         // by listener name + '\n' + route name
  StatsFamily<UpstreamStats> upstreams;   // by upstream name
  StatsFamily<OriginStats> origins;       // by upstream name + '\n' + server as configured

  Allowance& allowance(const std::string& upstream) {
    auto& one = allowances[upstream];
    if (one == nullptr) one = std::make_unique<Allowance>();
    return *one;
  }
  std::map<std::string, std::unique_ptr<Allowance>> allowances;
};

}  // namespace weir

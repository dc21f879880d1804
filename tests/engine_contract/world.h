// World: one Loop with the engine under test, and whatever stands at the other ends of its sockets: plain non-blocking sockets on
// loopback for the kernel's engines, SimPeers for the simulated one. The cases see no difference.
// Waiting is bounded by progress: run() gives up after kIdleTicksMax ticks in which nothing at all happened.
#pragma once

#include <array>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "engines/loop.h"
#include "engines/sim_network.h"
#include "tests/engine_contract/checkers.h"

namespace weir::contract {

enum class Kind : uint8_t {
  epoll,
  uring,
  both,        // epoll and io_uring in one loop; sockets get one and the other in turn
  sim,
  sim_faulty,  // with short reads and writes, delays, late and reordered completions, cancels that come late
};
const char* kind_name(Kind kind);
std::vector<Kind> all_kinds();
std::vector<Kind> kernel_kinds();
SimFaults harmless_faults();

// The far end of a connection. Counts are bytes, 0 (recv: end of file), or -errno (-EAGAIN: nothing now).
class Peer {
 public:
  virtual ~Peer() = default;
  virtual int64_t send(std::string_view bytes) = 0;
  virtual int64_t recv(char* to, size_t count) = 0;
  virtual void finish() = 0;             // half-close
  virtual void reset() = 0;
  virtual void close() = 0;
  // Together they say: reads all that there is now; true when something came.
  bool drain(std::string* into);
  bool ended = false;                    // drain saw end of file
  int error = 0;                         // drain saw this errno
};

class PeerListener {
 public:
  virtual ~PeerListener() = default;
  virtual std::unique_ptr<Peer> accept() = 0;   // or null
  Address address;
};

class World {
 public:
  struct Options {
    size_t slab_bytes_max = size_t{64} << 20;
    bool gather = false;
    bool small_buffers = false;          // as small as the kernel allows, in both directions
    bool block_when_idle = false;
    uint64_t seed = 1;
    std::function<std::unique_ptr<Engine>(std::unique_ptr<Engine>)> wrap{};   // around the engine; for controls
  };
  World(Kind kind, const Options& options);
  explicit World(Kind kind) : World(kind, Options{}) {}
  ~World();

  Loop& loop() { return *loop_; }
  Kind kind() const { return kind_; }
  EngineKind engine();                                   // for the next socket
  bool simulated() const { return network_ != nullptr; }
  SimNetwork& network() { return *network_; }
  Ledger& ledger() { return ledger_; }

  std::unique_ptr<Peer> pair(Socket& socket);            // connected; the near end adopted
  Address listen(Socket& socket, bool unix_socket = false);
  std::unique_ptr<Peer> connect(const Address& to);      // it may still be on its way
  std::unique_ptr<PeerListener> serve(bool unix_socket = false);
  Address nobody();                                      // an address where connects are refused

  void submit(Op& op);
  void cancel(Op& op) { loop_->cancel(op); }
  // Ticks until done(). Whatever done() does for the peers counts as progress only through the loop.
  static constexpr uint32_t kIdleTicksMax = 4000;
  bool run(const std::function<bool()>& done);
  void ticks(uint32_t count);                            // that many, not waiting long in any
  void close(Socket& socket, bool linger_reset = false); // shutdown, wait, close
  // At a case's end: "" when each op completed once, nothing is in flight, and all memory is back.
  std::string verdict();

 private:
  void warm_up();
  int real_listen(Address& address, bool unix_socket);

  Kind kind_;
  Options options_;
  SystemClock clock_;
  std::unique_ptr<SimNetwork> network_;
  std::unique_ptr<Loop> loop_;
  Ledger ledger_;
  size_t slabs_base_ = 0;
  uint32_t turns_ = 0;
  uint16_t sim_ports_ = 8000;
  std::string directory_;
  std::vector<int> held_;                                // descriptors that keep addresses taken
};

// The engine of that kind, made as the daemon would.
std::unique_ptr<Engine> make_engine(Loop& loop, EngineKind kind, SimNetwork* network);

// A connection of ours that reads all the time and writes what it is told.
struct Conn {
  explicit Conn(World& w, std::string name = "conn", uint64_t in_seed = 0);
  struct Recv : RecvOp { Conn* conn = nullptr; } recv;
  struct Send : SendOp { Conn* conn = nullptr; } send;

  void read(uint32_t want);                              // one recv; again by itself while reading
  void write(std::string_view bytes);
  void close(bool linger_reset = false) {
    world.close(socket, linger_reset);
    out.clear();                                         // what was not sent will not be
  }

  World& world;
  Socket socket;
  Chain out;
  StreamCheck check;
  bool checking;                                         // else what came is kept in `got`
  bool reading = false;                                  // submits the next recv by itself
  uint32_t want = 65536;
  std::string got;
  uint64_t received = 0, sent = 0;
  uint32_t recvs = 0, sends = 0;                         // completions
  std::array<uint32_t, kEngineKinds> served{};           // and by which engine
  bool ended = false;
  int recv_error = 0, send_error = 0;
  std::function<void(Conn&)> on_recv;                    // after each recv with bytes

 private:
  static void received_some(Op& op) noexcept;
  static void sent_some(Op& op) noexcept;
};

}  // namespace weir::contract

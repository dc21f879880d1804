// EpollEngine: readiness that behaves as completion. What is submitted is tried at the start of the next turn; what would block
// is parked in its socket and tried again when epoll says so. Edge-triggered, one epoll_ctl in a descriptor's life.
// Owner: a Loop. Thread: the loop's own. A recv is tried only while the socket is believed readable; a short read ends the
// belief, and nothing is read just because something was sent (docs/engines.md says what each of these saves).
// A recv that finds the pool at its limit stays parked and is tried again at the start of each turn in which a slab is free:
// slabs come back only from this thread's own callbacks, between two turns, so nobody spins for them.
#pragma once

#include <sys/epoll.h>

#include <array>
#include <climits>
#include <expected>
#include <memory>
#include <vector>

#include "engines/engine.h"
#include "engines/relay_pipes.h"
#include "engines/slab.h"

namespace weir {

class EpollEngine final : public Engine {
 public:
  static constexpr int kEventsMax = 512;       // a turn; the kernel keeps the others for the next one
  static constexpr unsigned kRecvSlabsMax = 16;
  static constexpr uint32_t kQuietEvents = 4;  // fewer in a turn: the next one may do without asking for more

  EpollEngine(SlabPool& pool, int epoll_fd, bool has_pwait2, unsigned relay_pipes_max) noexcept;
  ~EpollEngine() override;

  EngineKind kind() const noexcept override { return EngineKind::epoll; }
  Turn turn(OpList& submitted, OpList& cancelled, OpList& completed, const Wait& wait) noexcept override;
  int open(const Address& to) noexcept override;
  void shutdown(Socket& socket, ShutdownHow how) noexcept override;
  void close(Socket& socket, bool linger_reset) noexcept override;
  void leave(Socket& socket) noexcept override;
  uint64_t acked_bytes(const Socket& socket) noexcept override;
  void relay_quiet(RelayOp& op) noexcept override;
  void set_wake(int eventfd) noexcept override;
  int watchable_fd() const noexcept override { return epoll_fd_; }
  std::string tier() const override;

 private:
  // Each tries an op and either finishes it or parks it.
  void start(Op& op) noexcept;
  void try_accept(AcceptOp& op) noexcept;
  void try_recv(RecvOp& op) noexcept;
  void try_recv_large(RecvOp& op) noexcept;
  void try_send(SendOp& op) noexcept;
  void start_connect(ConnectOp& op) noexcept;
  void finish_connect(ConnectOp& op) noexcept;
  void start_relay(RelayOp& op) noexcept;
  void step_relay(RelayOp& op) noexcept;

  unsigned take_slabs(uint32_t want) noexcept;
  static ssize_t read_into(int fd, Slab& slab, uint32_t want) noexcept;
  ssize_t read_into_slabs(int fd, unsigned count, uint32_t want) noexcept;
  static void deliver(RecvOp& op, Slab& slab, uint32_t got) noexcept;
  void end_recv(RecvOp& op, ssize_t got, size_t capacity) noexcept;
  void starve(RecvOp& op) noexcept;

  void park_reader(Op& op) noexcept;
  void park_writer(Op& op) noexcept;
  int register_socket(Socket& socket) noexcept;    // 0 or -errno
  void unpark(Op& op) noexcept;
  void end(Op& op, int32_t result) noexcept;       // out of its parking place, onto the completed list
  void cancel_op(Op& op) noexcept;
  void run_later(Op& op) noexcept {
    op.queued = true;
    runnable_.push_back(&op);
  }
  void run_again() noexcept;
  static Socket* socket_of(const epoll_event& event) noexcept;
  void serve(const epoll_event& event, Turn& turn) noexcept;
  void serve_reader(Op& op) noexcept;
  void serve_writer(Op& op, uint32_t events) noexcept;
  int collect(Duration timeout) noexcept;
  void gather(Duration how_long) noexcept;

  SlabPool& pool_;
  RelayPipes pipes_;
  OpList* completed_ = nullptr;                    // of the turn that runs
  const int epoll_fd_;
  bool tuned_ = false;                             // timer slack of the thread is set
  const bool has_pwait2_;                          // of the kernel; tier() may be asked on any thread
  bool quiet_ = false;                         // the last turn asked, and little came
  unsigned recv_slabs_ = 1;                        // how many the next large read takes: as many as the last one filled, and more
  std::vector<Op*> runnable_;                      // accepts and relays that stopped at their bound
  std::vector<Op*> runnable_now_;
  std::vector<Op*> starved_;                       // recvs that found no slab
  std::vector<Op*> starved_now_;
  std::array<Slab*, kRecvSlabsMax> slabs_{};
  std::array<epoll_event, kEventsMax> events_{};
};

// The error is an errno. `relay_pipes_max`: see RelayPipes.
std::expected<std::unique_ptr<Engine>, int> make_epoll_engine(SlabPool& pool, unsigned relay_pipes_max = UINT_MAX);

}  // namespace weir

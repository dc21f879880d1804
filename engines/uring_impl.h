// The io_uring engine's own parts, for engines/uring_*.cc only. Its contract is in uring_engine.h.
// uring_engine.cc: the turn and what comes out of the kernel; uring_submit.cc: what goes in, and cancels;
// uring_accept.cc: listeners; uring_relay.cc: relays.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "engines/relay.h"
#include "engines/uring_buffers.h"
#include "engines/uring_engine.h"
#include "engines/uring_ring.h"

namespace weir::uring {

inline constexpr unsigned kWideSlabs = 16;     // most slabs of one receive: 256 KiB
inline constexpr size_t kAcceptBacklog = 256;  // accepted and not yet delivered: above this the listener pauses

// user_data: what a completion is about, 12 bits of generation, and a pointer. A late completion whose generation has
// passed meets nobody.
enum class Kind : uint8_t { ack, op, wide, relay_ready, relay_gone, accept, wake, foreign };
inline constexpr int kPointerBits = 48;
inline constexpr uint16_t kGenerationMask = 0xfff;

inline uint64_t cookie(Kind kind, const void* what = nullptr, uint16_t generation = 0) noexcept {
  const auto pointer = reinterpret_cast<uint64_t>(what);
  WEIR_DEBUG_ASSERT(pointer >> kPointerBits == 0);
  return uint64_t{static_cast<uint8_t>(kind)} << 60 |
         static_cast<uint64_t>(generation & kGenerationMask) << kPointerBits | pointer;
}
inline Kind kind_of(uint64_t data) noexcept { return static_cast<Kind>(data >> 60); }
inline uint16_t generation_of(uint64_t data) noexcept { return data >> kPointerBits & kGenerationMask; }
template <class T>
T* pointer_of(uint64_t data) noexcept {
  return reinterpret_cast<T*>(data & ((uint64_t{1} << kPointerBits) - 1));
}

inline uint64_t cookie_of(Kind kind, const Op& op) noexcept { return cookie(kind, &op, op.socket->generation); }

// What the kernel is doing for one AcceptOp. Slots stay where they are and are used again, with another generation.
struct AcceptSlot {
  AcceptOp* op = nullptr;  // nullptr: free
  uint16_t generation = 0;
  bool armed = false;     // the kernel has it
  bool stopping = false;  // a cancel is on its way: to pause, or because the owner asked
  int32_t end = 0;        // how it ends once the backlog is delivered; 0: goes on
  Address peer;           // one-shot accepts only
  std::vector<Accepted> backlog;
  size_t delivered = 0;  // of the backlog
  size_t waiting() const noexcept { return backlog.size() - delivered; }
};

class UringEngine final : public Engine {
 public:
  UringEngine(SlabPool& pool, const UringOptions& options, const UringProbe& probe)
      : pool_(pool), probe_(probe), buffers_(pool), stats_(options.stats != nullptr ? *options.stats : own_stats_),
        pipes_(pool.lease(), options.relay_pipes_max) {
    // What a burst may need, so that the data path does not allocate.
    starved_.reserve(256);
    again_.reserve(256);
    pending_cancels_.reserve(64);
    ready_relays_.reserve(64);
  }
  ~UringEngine() override {
    ring_.close();
    buffers_.detach();
    for (const auto& slot : accepts_) {
      for (size_t i = slot->delivered; i < slot->backlog.size(); ++i) ::close(slot->backlog[i].fd);
    }
  }

  int create(const UringOptions& options, std::string& step);  // 0 or -errno, and in which step

  EngineKind kind() const noexcept override { return EngineKind::uring; }
  Turn turn(OpList& submitted, OpList& cancelled, OpList& completed, const Wait& wait) noexcept override;
  int open(const Address& to) noexcept override { return open_stream(to); }
  void shutdown(Socket& socket, ShutdownHow how) noexcept override {
    ::shutdown(socket.fd, how == ShutdownHow::write ? SHUT_WR : SHUT_RDWR);
  }
  void close(Socket& socket, bool linger_reset) noexcept override { close_stream(socket.fd, linger_reset); }
  void leave(Socket& socket) noexcept override { socket.more_to_read = true; }
  uint64_t acked_bytes(const Socket& socket) noexcept override { return tcp_acked_bytes(socket.fd); }
  // Lowering the mark makes the kernel look at the socket again, and so at the poll that waits on it.
  void relay_quiet(RelayOp& op) noexcept override { relay_lower(op); }
  void set_wake(int eventfd) noexcept override { wake_.fd = eventfd; }
  void watch(int fd) noexcept override { foreign_.fd = fd; }
  std::string tier() const override;

 private:
  struct Watch {
    int fd = -1;
    bool armed = false;
  };

  bool has(UringFeature feature) const noexcept { return probe_.has(feature); }
  void start() noexcept;
  void arm(Watch& watch, Kind kind) noexcept;
  void take(Op& op) noexcept;
  bool try_prepare(Op& op) noexcept;  // false: the kernel takes no more now
  void prepare(Op& op) noexcept;
  bool prepare_recv(RecvOp& op) noexcept;
  bool prepare_wide(RecvOp& op, bool& full) noexcept;
  bool prepare_send(SendOp& op) noexcept;
  bool prepare_connect(ConnectOp& op) noexcept;
  void retry_parked() noexcept;
  void cancel(Op& op) noexcept;
  void cancel_cookie(uint64_t data) noexcept;
  bool try_cancel(uint64_t data) noexcept;
  void retry_cancels() noexcept;
  void complete(Op& op, int32_t result) noexcept;

  void on_completion(uint64_t data, int32_t res, unsigned flags) noexcept;
  void on_op(Op& op, int32_t res, unsigned flags) noexcept;
  void on_recv(RecvOp& op, int32_t res, unsigned flags) noexcept;
  void on_wide(RecvOp& op, int32_t res, unsigned flags) noexcept;
  void drop_buffer(unsigned flags) noexcept;
  template <class T>
  T* live(uint64_t data) noexcept;

  AcceptSlot* slot_of(const Op& op) noexcept;
  void start_accept(AcceptOp& op) noexcept;
  void arm_accept(AcceptSlot& slot) noexcept;
  void stop_accept(AcceptSlot& slot) noexcept;
  void on_accept(AcceptSlot& slot, int32_t res, unsigned flags) noexcept;
  void accepts_after_reap() noexcept;
  bool deliver(AcceptSlot& slot) noexcept;

  void step_relay(RelayOp& op) noexcept;
  bool poll_for(RelayOp& op, Kind kind, int fd, short events, bool multishot) noexcept;
  void finish_relay(RelayOp& op) noexcept;
  static bool relay_ended(const RelayOp& op) noexcept;
  void cancel_relay(RelayOp& op) noexcept;
  void on_relay(RelayOp& op, Kind kind, int result, unsigned flags) noexcept;
  void end_with_socket_error(RelayOp& op) noexcept;
  void run_relays() noexcept;

  SlabPool& pool_;
  UringProbe probe_;
  UringRing ring_;
  UringBuffers buffers_;
  UringStats own_stats_;
  UringStats& stats_;
  bool restricted_ = false;
  bool started_ = false;
  Watch wake_, foreign_;
  std::vector<std::unique_ptr<AcceptSlot>> accepts_;
  bool accepts_pending_ = false;  // some slot has something to deliver, or wants arming
  std::vector<RecvOp*> starved_;  // no buffer was to be had; in order
  std::vector<Op*> again_;        // no room in the kernel's queues
  // Likewise; nothing else goes in before them, so that none meets a later life of its op.
  std::vector<uint64_t> pending_cancels_;
  std::vector<RelayOp*> ready_relays_;
  std::vector<RelayOp*> running_relays_;
  RelayPipes pipes_;
  OpList* completed_ = nullptr;  // during a turn
  Turn turn_;
};

}  // namespace weir::uring

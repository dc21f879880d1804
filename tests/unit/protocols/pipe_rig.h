// What the pipe tests stand on: a clock that only the test moves, an engine in which only relays exist and the test plays the
// kernel, and a stream whose both halves are in the test's hands.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "engines/loop.h"
#include "protocols/exchange/pipe.h"

namespace weir::test {

class ManualClock final : public Clock {
 public:
  TimePoint now() noexcept override { return at; }
  TimePoint at{std::chrono::hours(1)};
};

class RelayEngine final : public Engine {
 public:
  EngineKind kind() const noexcept override { return EngineKind::sim; }
  Turn turn(OpList& submitted, OpList& cancelled, OpList& completed, const Wait&) noexcept override {
    while (Op* op = cancelled.pop()) {
      std::erase(relays, op);
      ++cancels;
      finish(*op, -ECANCELED, completed);
    }
    while (Op* op = submitted.pop()) {
      if (op->cancel_asked || refuse) {
        finish(*op, op->cancel_asked ? -ECANCELED : -EOPNOTSUPP, completed);
      } else {
        keep(*op);
        relays.push_back(static_cast<RelayOp*>(op));
      }
    }
    for (auto [op, result] : std::exchange(ready, {})) {
      std::erase(relays, op);
      finish(*op, result, completed);
    }
    return {};
  }
  int open(const Address&) noexcept override { return -ENOSYS; }
  void shutdown(Socket&, ShutdownHow) noexcept override {}
  void close(Socket&, bool) noexcept override {}
  void leave(Socket&) noexcept override {}
  uint64_t acked_bytes(const Socket&) noexcept override { return 0; }
  void relay_quiet(RelayOp&) noexcept override {}
  void set_wake(int) noexcept override {}
  std::string tier() const override { return "test"; }

  std::vector<RelayOp*> relays;                     // in flight
  std::vector<std::pair<RelayOp*, int>> ready;      // to complete in the next turn
  bool refuse = false;                              // no kernel pipes to be had
  int cancels = 0;
};

struct Rig : Pipe::Owner {
  Rig() : loop(clock, {.slab_bytes_max = size_t{64} << 20, .gather = false}) {
    auto own = std::make_unique<RelayEngine>();
    engine = own.get();
    loop.add_engine(std::move(own));
  }
  void tick() { loop.tick(Duration::zero()); }
  Chain bytes(std::string_view text) {
    Chain chain;
    WEIR_ASSERT(chain.append_copy(loop.slabs(), text.data(), text.size()));
    return chain;
  }
  void pipe_finished(Pipe&) noexcept override { ++finished; }
  void pipe_failed(Pipe&, const Fault& fault) noexcept override { failures.push_back(fault.what); }
  void pipe_idle(Pipe&) noexcept override { ++idles; }

  ManualClock clock;
  Loop loop;
  RelayEngine* engine;
  PipeStats stats;
  int finished = 0, idles = 0;
  std::vector<What> failures;
};

inline std::string text_of(const Chain& chain) {
  std::string out(chain.bytes(), '\0');
  chain.copy_out(out.data(), 0, out.size());
  return out;
}

struct TestStream : Stream {
  // source half
  uint64_t told = 0;
  int grants = 0;
  bool live_source = true;
  void grant(uint64_t total) noexcept override {
    WEIR_ASSERT(total >= told);
    told = total;
    ++grants;
  }
  // sink half
  size_t space = SIZE_MAX;
  bool live_sink = true;
  int ends = 0;
  const Head* trailers = nullptr;
  std::string got;
  size_t room() const noexcept override { return space; }
  void send_body(Chain&& bytes) noexcept override {
    WEIR_ASSERT(ends == 0 && bytes.bytes() > 0 && bytes.bytes() <= space);
    if (space != SIZE_MAX) space -= bytes.bytes();
    got += text_of(bytes);
    Chain gone(std::move(bytes));
  }
  void send_end(const Head* with) noexcept override {
    ++ends;
    trailers = with;
  }
  void send_head(const Head&, std::span<const ExtraField>) noexcept override {}
  void abort(const Fault&) noexcept override {}
  void detach() noexcept override {}
  bool source_live() const noexcept override { return live_source; }
  bool sink_live() const noexcept override { return live_sink; }

  // relay
  Socket socket;
  bool may_relay = false;      // source: nothing buffered; target: nothing queued
  bool soon = false;           // target: queued bytes are being sent
  uint64_t left = 0;
  int begun = 0, progress = 0, ended = 0;
  uint64_t moved = 0;
  int error = 0;
  void (*on_relay_end)(TestStream&) = nullptr;
  Socket* relay_source(uint64_t* out_left) noexcept override {
    *out_left = left;
    return may_relay ? &socket : nullptr;
  }
  Socket* relay_target() noexcept override { return may_relay ? &socket : nullptr; }
  bool relay_target_soon() const noexcept override { return soon; }
  void relay_begin(bool) noexcept override { ++begun; }
  void relay_progress(bool) noexcept override { ++progress; }
  void relay_end(bool, uint64_t bytes_moved, int with_error) noexcept override {
    ++ended;
    moved = bytes_moved;
    error = with_error;
    if (on_relay_end != nullptr) on_relay_end(*this);
  }
};

}  // namespace weir::test

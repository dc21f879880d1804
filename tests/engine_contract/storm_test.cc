// Everything at once, by seed: reads, writes, relays, cancels, half-closes, resets, closes and descriptors used again,
// on sockets that change engine. What arrives is checked byte by byte; then all must end and come back.
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators_range.hpp>

#include <deque>

#include "engines/sim_random.h"
#include "tests/engine_contract/world.h"

namespace weir::contract {

namespace {

// Two connections: `a` is read, written and cancelled at random; now and then what comes in on `a` is relayed to `b`.
class Pair {
 public:
  Pair(World& world, SimRandom& random, uint64_t seed)
      : world_(world), random_(random), a_(world, "storm", seed), b_(world), pattern_(seed), out_(seed + 1),
        far_check_(world.ledger(), seed + 1, "storm out") {
    far_a_ = world.pair(a_.socket);
    far_b_ = world.pair(b_.socket);
    relay_.pair = this;
    relay_.complete = [](Op& op) noexcept { static_cast<RelayWith&>(op).pair->relay_ended(); };
  }

  void step() {
    switch (random_.below(12)) {
      case 0: case 1: feed(); break;
      case 2: case 3: read(); break;
      case 4: case 5: write(); break;
      case 6: world_.cancel(a_.recv); break;
      case 7: cancel_send(); break;
      case 8: start_relay(); break;
      case 9: if (random_.below(4) == 0) world_.cancel(relay_); break;
      case 10: drain(); break;
      case 11: if (random_.below(40) == 0) end(); break;
    }
    flip();
  }
  bool over() { return ending_ && a_.socket.in_flight == 0 && b_.socket.in_flight == 0; }
  void close() {
    if (!ending_) end();
    drain();
    a_.close(random_.below(2) == 0);
    b_.close(random_.below(2) == 0);
  }
  uint64_t moved() const { return a_.received + far_check_.count() + relayed_; }

 private:
  struct RelayWith : RelayOp { Pair* pair = nullptr; } relay_;
  bool relaying() const { return !relay_.idle(); }

  void feed() {
    const int64_t n = far_a_->send(pattern_.bytes(fed_, 1 + random_.below(60'000)));
    if (n > 0) fed_ += static_cast<uint64_t>(n);
  }
  void read() {
    if (ending_ || !a_.recv.idle() || relaying()) return;
    a_.recv_error = 0;
    a_.read(1 + static_cast<uint32_t>(random_.below(40'000)));
  }
  void write() {
    if (ending_ || written_ > a_.sent + 200'000) return;
    const size_t count = 1 + random_.below(20'000);
    a_.send_error = 0;
    a_.write(out_.bytes(written_, count));
    written_ += count;
  }
  void cancel_send() {
    if (random_.below(3) == 0) world_.cancel(a_.send);
    else if (!ending_ && a_.send.idle() && !a_.out.empty()) a_.send_error = 0, world_.submit(a_.send);
  }
  // Only while no recv has the source; what it takes is skipped by the check of what is read.
  void start_relay() {
    if (ending_ || relaying() || !a_.recv.idle() || lost_) return;
    relay_.socket = &a_.socket;
    relay_.to = &b_.socket;
    relay_.want = 1 + random_.below(3'000'000);
    relay_.moved_in = relay_.moved_out = 0;
    runs_.push_back({a_.check.count(), 0});
    world_.submit(relay_);
  }
  void relay_ended() {
    world_.ledger().completed(relay_);
    a_.check.skip(relay_.moved_in);
    runs_.back().moved = relay_.moved_out;
    lost_ = relay_.moved_in > relay_.moved_out;            // what the pipe held is lost with it
  }
  // What came out at b, against the stretches of the stream that the relays took.
  void check_relayed(std::string_view bytes) {
    while (!bytes.empty()) {
      if (runs_.empty()) return world_.ledger().wrong("relay: bytes from nowhere");
      Run& run = runs_.front();
      const bool last = runs_.size() == 1 && relaying();
      const uint64_t moved = last ? relay_.moved_out : run.moved;
      const size_t count = std::min<uint64_t>(bytes.size(), moved - run.seen);
      if (pattern_.mismatch(run.from + run.seen, bytes.substr(0, count)) != std::string_view::npos) {
        world_.ledger().wrong("relay: wrong bytes");
      }
      bytes.remove_prefix(count);
      run.seen += count;
      relayed_ += count;
      if (!bytes.empty()) runs_.pop_front();
      else break;
    }
  }
  void drain() {
    std::string bytes;
    far_a_->drain(&bytes);
    far_check_.feed(bytes);
    bytes.clear();
    far_b_->drain(&bytes);
    check_relayed(bytes);
  }
  void flip() {
    if (world_.kind() != Kind::both) return;
    for (Conn* conn : {&a_, &b_}) {
      if (random_.below(6) == 0) conn->socket.engine = random_.below(2) == 0 ? EngineKind::epoll : EngineKind::uring;
    }
  }
  void end() {
    ending_ = true;
    if (random_.below(3) == 0) far_a_->reset();
    else if (random_.below(2) == 0) far_a_->finish();
    if (random_.below(3) == 0) far_b_->reset();
    for (Conn* conn : {&a_, &b_}) {
      if (conn->socket.fd >= 0) world_.loop().shutdown(conn->socket, ShutdownHow::both);
    }
  }

  World& world_;
  SimRandom& random_;
  struct Run {
    uint64_t from, moved, seen = 0;  // where in the stream it began; how much came out; seen
  };
  Conn a_, b_;
  Pattern pattern_, out_;
  StreamCheck far_check_;
  std::deque<Run> runs_;
  std::unique_ptr<Peer> far_a_, far_b_;
  uint64_t fed_ = 0, written_ = 0, relayed_ = 0;
  bool ending_ = false, lost_ = false;
};

}  // namespace

TEST_CASE("a storm of everything at once ends with all bytes right and all things back", "[engine][A8][E7]") {
  const Kind kind = GENERATE(from_range(all_kinds()));
  const uint64_t seed = GENERATE(uint64_t{1}, uint64_t{2}, uint64_t{3});
  CAPTURE(kind_name(kind), seed);
  World world(kind, {.slab_bytes_max = 256u << 20, .gather = seed == 2, .small_buffers = seed == 3, .seed = seed});
  SimRandom random(seed);
  std::vector<std::unique_ptr<Pair>> pairs(24);
  uint64_t lives = 0, moved = 0;
  uint64_t seeds = seed * 1'000'000;
  for (uint64_t round = 0; round < 1500; ++round) {
    auto& pair = pairs[random.below(pairs.size())];
    if (pair == nullptr) pair = std::make_unique<Pair>(world, random, seeds += 2);
    for (int i = 0; i < 6; ++i) pair->step();
    if (random.below(2) == 0) world.loop().tick(Duration(0));
    if (world.simulated() && random.below(4) == 0) world.loop().tick(std::chrono::microseconds(100));
    if (pair->over()) {
      moved += pair->moved();
      pair->close();
      pair.reset();
      ++lives;
    }
  }
  for (auto& pair : pairs) {
    if (pair == nullptr) continue;
    pair->close();
    moved += pair->moved();
    pair.reset();
  }
  CHECK(lives >= 3);
  CHECK(moved > 1'000'000);
  CHECK(world.verdict() == "");
}

}  // namespace weir::contract

// Controls: an engine with one thing broken must not pass. Each breach is one that the suite's checkers exist for; the
// same scenario on the whole engine passes. It runs in a child, because some breaches stop at an assertion of the loop.
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators_range.hpp>

#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/engine_contract/acceptor.h"

namespace weir::contract {

namespace {

enum class Breach : uint8_t {
  none,
  completes_twice,
  loses_a_completion,
  drops_a_byte,
  repeats_a_byte,
  mixes_connections,   // two connections get each other's bytes
  says_more_than_came,
  pins_a_slab,
  sends_nothing,       // a send that completes with 0
  sends_part_twice,    // says that less was accepted than was
  misses_a_readiness,  // an op is never looked at again
  spins,               // wakes though there is nothing
  misses_end_of_file,
  accepts_too_many,
  forgets_the_last,    // accept: final completions never come
};
constexpr Breach kBreaches[] = {
    Breach::completes_twice, Breach::loses_a_completion, Breach::drops_a_byte,     Breach::repeats_a_byte,
    Breach::mixes_connections, Breach::says_more_than_came, Breach::pins_a_slab,   Breach::sends_nothing,
    Breach::sends_part_twice, Breach::misses_a_readiness, Breach::spins,           Breach::misses_end_of_file,
    Breach::accepts_too_many, Breach::forgets_the_last,
};

class BrokenEngine final : public Engine {
 public:
  BrokenEngine(std::unique_ptr<Engine> whole, Breach breach, const bool* armed)
      : whole_(std::move(whole)), breach_(breach), armed_(armed) {}
  EngineKind kind() const noexcept override { return whole_->kind(); }
  Turn turn(OpList& submitted, OpList& cancelled, OpList& completed, const Wait& wait) noexcept override {
    Wait how = wait;
    const Duration brief = std::chrono::milliseconds(1);
    if (*armed_ && breach_ == Breach::spins) how.timeout = std::min(wait.timeout, brief);
    if (*armed_ && breach_ == Breach::misses_a_readiness && ++turns_ > 50) forget_one(submitted);
    OpList done;
    const Turn turn = whole_->turn(submitted, cancelled, done, how);
    if (again_ != nullptr) completed.push(*std::exchange(again_, nullptr));
    while (Op* op = done.pop()) {
      if (!*armed_ || !spoil(*op)) completed.push(*op);
    }
    return turn;
  }
  int open(const Address& to) noexcept override { return whole_->open(to); }
  void shutdown(Socket& socket, ShutdownHow how) noexcept override { whole_->shutdown(socket, how); }
  void close(Socket& socket, bool linger_reset) noexcept override { whole_->close(socket, linger_reset); }
  void leave(Socket& socket) noexcept override { whole_->leave(socket); }
  uint64_t acked_bytes(const Socket& socket) noexcept override { return whole_->acked_bytes(socket); }
  void relay_quiet(RelayOp& op) noexcept override { whole_->relay_quiet(op); }
  void set_wake(int eventfd) noexcept override { whole_->set_wake(eventfd); }
  std::string tier() const override { return "broken"; }

 private:
  void forget_one(OpList& submitted) {
    Op* op = submitted.pop();
    if (op != nullptr) turns_ = 0;
  }

  // True: the op is kept back.
  bool spoil(Op& op) {
    if (op.kind == OpKind::recv) return spoil_recv(static_cast<RecvOp&>(op));
    if (op.kind == OpKind::send && op.result > 1 && ++sends_ == 5) {
      if (breach_ == Breach::sends_nothing) op.result = 0;
      if (breach_ == Breach::sends_part_twice) op.result -= 1;
    }
    if (op.kind == OpKind::accept) {
      auto& accept = static_cast<AcceptOp&>(op);
      if (breach_ == Breach::forgets_the_last && !accept.more) return true;
      if (breach_ == Breach::accepts_too_many && accept.result > 0) accept.result += 64;
    }
    return false;
  }
  bool spoil_recv(RecvOp& op) {
    if (op.result == 0) return breach_ == Breach::misses_end_of_file;
    if (op.result < 10 || ++recvs_ != 20) return false;
    switch (breach_) {
      case Breach::completes_twice:
        again_ = &op;
        return false;
      case Breach::loses_a_completion:
        op.bytes.clear();
        return true;
      case Breach::drops_a_byte:
        op.bytes.consume(1);
        op.result -= 1;
        return false;
      case Breach::repeats_a_byte:
        op.bytes.append(op.bytes.front().share(0, 1));
        op.result += 1;
        return false;
      case Breach::says_more_than_came:
        op.result += 1;
        return false;
      case Breach::pins_a_slab:
        pinned_ = op.bytes.front().share();
        return false;
      case Breach::mixes_connections:
        if (other_ == nullptr) {                      // waits for a second one
          other_ = &op;
          recvs_ = 19;
          return true;
        }
        std::swap(op.bytes, other_->bytes);
        std::swap(op.result, other_->result);
        again_ = other_;
        return false;
      default:
        return false;
    }
  }

  std::unique_ptr<Engine> whole_;
  Breach breach_;
  const bool* armed_;
  Op* again_ = nullptr;
  RecvOp* other_ = nullptr;
  Slice pinned_;
  uint32_t recvs_ = 0, sends_ = 0, turns_ = 0;
};

// What the suite does all over, in small. "": passed.
std::string scenario(Breach breach, Kind kind) {
  bool armed = false;
  World::Options options;
  options.wrap = [&](std::unique_ptr<Engine> engine) {
    return std::make_unique<BrokenEngine>(std::move(engine), breach, &armed);
  };
  World world(kind, options);
  armed = true;
  std::string problems;
  Acceptor acceptor(world);
  acceptor.start();
  auto visitor = world.connect(acceptor.address);
  if (!world.run([&] { return acceptor.sockets.size() == 1; })) problems += "nobody was accepted\n";
  std::vector<std::unique_ptr<Conn>> conns;
  std::vector<std::unique_ptr<Peer>> peers;
  std::vector<std::unique_ptr<StreamCheck>> checks;
  constexpr uint64_t kConns = 4, kTotal = 50'000, kStep = 500;
  for (uint64_t i = 0; i < kConns; ++i) {
    conns.push_back(std::make_unique<Conn>(world, "in", i + 1));
    peers.push_back(world.pair(conns.back()->socket));
    checks.push_back(std::make_unique<StreamCheck>(world.ledger(), i + 101, "out"));
    conns.back()->reading = true;
    conns.back()->read(5000);
  }
  for (uint64_t at = 0; at < kTotal; at += kStep) {
    for (uint64_t i = 0; i < kConns; ++i) {
      peers[i]->send(Pattern(i + 1).bytes(at, kStep));
      conns[i]->write(Pattern(i + 101).bytes(at, kStep));
    }
    const bool moved = world.run([&] {
      bool all = true;
      for (uint64_t i = 0; i < kConns; ++i) {
        std::string bytes;
        peers[i]->drain(&bytes);
        checks[i]->feed(bytes);
        all = all && conns[i]->received >= at + kStep && checks[i]->count() >= at + kStep;
      }
      return all;
    });
    if (!moved) {
      problems += "no progress\n";
      break;
    }
  }
  for (auto& peer : peers) peer->finish();
  const auto all_ended = [&] { return std::all_of(conns.begin(), conns.end(), [](auto& c) { return c->ended; }); };
  if (!world.run(all_ended)) problems += "no end\n";
  struct : Timer { bool fired = false; } timer;
  timer.fire = [](Timer& t) noexcept { static_cast<decltype(timer)&>(t).fired = true; };
  world.loop().set_timer(timer, world.loop().now() + std::chrono::milliseconds(100));
  const uint64_t before = world.loop().stats().ticks.get();
  while (!timer.fired) world.loop().tick(kForever);
  if (world.loop().stats().ticks.get() - before > 8) problems += "it spins\n";
  for (auto& conn : conns) conn->close();
  acceptor.close();
  return problems + world.verdict();
}

// Whether the scenario passes in a child of ours.
bool passes(Breach breach, Kind kind) {
  const pid_t child = fork();
  if (child == 0) {
    const int null = ::open("/dev/null", O_WRONLY);
    dup2(null, 1);
    dup2(null, 2);
    signal(SIGABRT, SIG_DFL);
    signal(SIGSEGV, SIG_DFL);
    alarm(120);
    bool ok = false;
    try {
      ok = scenario(breach, kind).empty();
    } catch (const std::exception&) {
    }
    _exit(ok ? 0 : 1);
  }
  int status = 0;
  waitpid(child, &status, 0);
  return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

}  // namespace

TEST_CASE("an engine with one thing broken does not pass", "[engine][X3]") {
  const Breach breach = GENERATE(from_range(kBreaches));
  CAPTURE(static_cast<int>(breach));
  CHECK_FALSE(passes(breach, Kind::sim));
}

TEST_CASE("the scenario of the controls passes on whole engines", "[engine][X3]") {
  const Kind kind = GENERATE(Kind::epoll, Kind::uring, Kind::sim, Kind::sim_faulty);
  CAPTURE(kind_name(kind));
  CHECK(scenario(Breach::none, kind) == "");
  CHECK(passes(Breach::none, kind));
}

TEST_CASE("the ledger notices what no engine can be made to do", "[engine][X3]") {
  Socket socket;
  socket.fd = 3;
  RecvOp op;
  op.socket = &socket;
  Ledger ledger;
  SECTION("a completion into its caller") {
    ledger.submitting(op);
    ledger.completed(op);
    CHECK(ledger.text() == "recv completed into its caller\n");
  }
  SECTION("a completion after the close") {
    ledger.submitting(op);
    ledger.submitted(op);
    socket.fd = -1;
    ledger.completed(op);
    CHECK(ledger.text() == "recv completed after its socket was closed\n");
  }
  SECTION("a second completion") {
    ledger.submitting(op);
    ledger.submitted(op);
    ledger.completed(op);
    CHECK(ledger.clean());
    ledger.completed(op);
    CHECK(ledger.text() == "recv completed twice\n");
  }
  SECTION("an op that never completes") {
    ledger.submitting(op);
    ledger.submitted(op);
    CHECK(ledger.outstanding() == 1);
  }
}

TEST_CASE("the pattern tells any wrong byte at any offset", "[engine][X3]") {
  const Pattern pattern(5), other(6);
  for (uint64_t at : {0u, 1u, 7u, 8u, 1000u}) {
    std::string bytes = pattern.bytes(at, 100);
    CHECK(pattern.mismatch(at, bytes) == std::string::npos);
    CHECK(pattern.mismatch(at + 1, bytes) != std::string::npos);
    CHECK(other.mismatch(at, bytes) != std::string::npos);
    for (size_t i = 0; i < bytes.size(); ++i) {
      bytes[i] = static_cast<char>(bytes[i] ^ 1);
      CHECK(pattern.mismatch(at, bytes) == i);
      bytes[i] = static_cast<char>(bytes[i] ^ 1);
    }
  }
}

}  // namespace weir::contract

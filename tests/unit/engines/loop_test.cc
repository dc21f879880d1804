// The loop over a made-up engine and clock: order of a tick, time, cancels, stalls, gathering.
#include "engines/loop.h"

#include <catch2/catch_test_macros.hpp>
#include <string>
#include <vector>

using namespace weir;
using namespace std::chrono_literals;

namespace {

struct HandClock final : Clock {
  TimePoint time = TimePoint(1000s);
  int readings = 0;
  TimePoint now() noexcept override {
    ++readings;
    return time;
  }
  TimePoint coarse_now() noexcept override { return time; }
  Duration cpu{0};
  Duration cpu_now() noexcept override { return cpu; }
};

// Sleeps by moving the clock. Keeps what it is given until the test finishes it.
struct HandEngine final : Engine {
  explicit HandEngine(HandClock& c, EngineKind k = EngineKind::sim) : clock(c), kind_(k) {}
  HandClock& clock;
  EngineKind kind_;
  std::vector<Op*> kept;
  std::vector<std::pair<Op*, int32_t>> to_finish;
  std::vector<Op*> seen_cancels;
  std::vector<Wait> waits;
  std::vector<std::string> log;
  Turn next{};
  Duration extra{0};  // how much longer than allowed a turn takes
  int wake_fd = -1;
  int watched = -1;
  int closes = 0;
  int leaves = 0;
  int quiets = 0;

  EngineKind kind() const noexcept override { return kind_; }
  Turn turn(OpList& submitted, OpList& cancelled, OpList& completed, const Wait& wait) noexcept override {
    waits.push_back(wait);
    while (Op* op = cancelled.pop()) {
      seen_cancels.push_back(op);
      std::erase(kept, op);
      finish(*op, -ECANCELED, completed);
    }
    while (Op* op = submitted.pop()) {
      if (op->cancel_asked) {
        finish(*op, -ECANCELED, completed);
      } else {
        keep(*op);
        kept.push_back(op);
      }
    }
    for (auto [op, result] : to_finish) {
      std::erase(kept, op);
      finish(*op, result, completed);
    }
    to_finish.clear();
    if (completed.empty() && wait.timeout != kForever) clock.time += wait.timeout;
    clock.time += extra;
    return std::exchange(next, Turn{});
  }
  int open(const Address&) noexcept override { return 1000; }
  void shutdown(Socket&, ShutdownHow) noexcept override {}
  void close(Socket&, bool) noexcept override { ++closes; }
  void leave(Socket& socket) noexcept override {
    ++leaves;
    socket.registered = false;
  }
  uint64_t acked_bytes(const Socket&) noexcept override { return 0; }
  void relay_quiet(RelayOp& op) noexcept override {
    ++quiets;
    op.lowat_set = false;
  }
  void set_wake(int fd) noexcept override { wake_fd = fd; }
  void watch(int fd) noexcept override { watched = fd; }
  int watchable_fd() const noexcept override { return 77; }
  std::string tier() const override { return "made up"; }
};

struct LoopBench {
  HandClock clock;
  Loop loop{clock, {.slab_bytes_max = 1 << 20, .gather = true}};
  HandEngine* engine;
  explicit LoopBench(EngineKind kind = EngineKind::sim) {
    auto made = std::make_unique<HandEngine>(clock, kind);
    engine = made.get();
    loop.add_engine(std::move(made));
  }
};

struct HandRecv : RecvOp {
  std::vector<int32_t> results;
  bool again = false;
  Loop* loop = nullptr;
  explicit HandRecv(Socket& s) {
    socket = &s;
    want = 1;
    complete = [](Op& op) noexcept {
      auto& self = static_cast<HandRecv&>(op);
      self.results.push_back(op.result);
      if (self.again) self.loop->submit(self);
    };
  }
};

struct TestTimer : Timer {
  int fired = 0;
  TimePoint at{};
  Loop* loop = nullptr;
  explicit TestTimer(Loop& l) : loop(&l) {
    fire = [](Timer& timer) noexcept {
      auto& self = static_cast<TestTimer&>(timer);
      ++self.fired;
      self.at = self.loop->now();
    };
  }
};

}  // namespace

TEST_CASE("submit never completes into its caller, and each op completes once") {
  LoopBench b;
  Socket socket;
  b.loop.adopt(socket, 5, EngineKind::sim);
  HandRecv op(socket);
  b.loop.submit(op);
  CHECK(op.results.empty());
  CHECK(op.state == OpState::submitted);
  CHECK(socket.in_flight == 1);
  CHECK(b.loop.ops_in_flight() == 1);
  b.loop.tick(0ms);
  CHECK(op.state == OpState::in_engine);
  b.engine->to_finish = {{&op, 7}};
  CHECK(b.loop.tick(0ms) == 1);
  CHECK(op.results == std::vector<int32_t>{7});
  CHECK(op.idle());
  CHECK(socket.in_flight == 0);
  CHECK(b.loop.ops_in_flight() == 0);
  CHECK(b.loop.tick(0ms) == 0);
  // It may be submitted anew from its own callback, and that is for the next turn.
  op.again = true;
  op.loop = &b.loop;
  b.loop.submit(op);
  b.loop.tick(0ms);
  b.engine->to_finish = {{&op, 8}};
  b.loop.tick(0ms);
  CHECK(op.results == std::vector<int32_t>{7, 8});
  CHECK(op.state == OpState::submitted);
  op.again = false;
  b.loop.cancel(op);
  b.loop.tick(0ms);
  CHECK(op.results.back() == -ECANCELED);
}

TEST_CASE("cancel is a hint: once, whatever the op's state, and without effect on an idle op") {
  LoopBench b;
  Socket socket;
  b.loop.adopt(socket, 5, EngineKind::sim);
  HandRecv op(socket);
  b.loop.cancel(op);
  b.loop.submit(op);
  b.loop.cancel(op);
  b.loop.cancel(op);
  b.loop.tick(0ms);
  CHECK(op.results == std::vector<int32_t>{-ECANCELED});
  CHECK(b.engine->seen_cancels.empty());
  b.loop.submit(op);
  b.loop.tick(0ms);
  b.loop.cancel(op);
  b.loop.cancel(op);
  CHECK(op.results.size() == 1);
  b.loop.tick(0ms);
  CHECK(op.results == std::vector<int32_t>{-ECANCELED, -ECANCELED});
  CHECK(b.engine->seen_cancels.size() == 1);
}

TEST_CASE("a cancel by the callback of another completion of the same tick comes too late") {
  LoopBench b;
  Socket one, two;
  b.loop.adopt(one, 5, EngineKind::sim);
  b.loop.adopt(two, 6, EngineKind::sim);
  HandRecv second(two);
  struct Canceller : HandRecv {
    using HandRecv::HandRecv;
    Op* victim = nullptr;
  } first(one);
  first.victim = &second;
  first.loop = &b.loop;
  first.complete = [](Op& op) noexcept {
    auto& self = static_cast<Canceller&>(op);
    self.loop->cancel(*self.victim);
  };
  b.loop.submit(first);
  b.loop.submit(second);
  b.loop.tick(0ms);
  b.engine->to_finish = {{&first, 1}, {&second, 2}};
  b.loop.tick(0ms);
  CHECK(second.results == std::vector<int32_t>{2});
  b.loop.tick(0ms);
  CHECK(b.engine->seen_cancels.empty());
  b.loop.submit(second);
  CHECK_FALSE(second.cancel_asked);  // the late cancel does not hit its next life
  b.loop.cancel(second);
  b.loop.tick(0ms);
}

TEST_CASE("an accept completes many times, and a cancel between two completions is not lost") {
  LoopBench b;
  Socket listener, other;
  b.loop.adopt(listener, 5, EngineKind::sim);
  b.loop.adopt(other, 6, EngineKind::sim);
  struct TestAccept : AcceptOp {
    std::vector<int32_t> results;
  } accept;
  accept.socket = &listener;
  accept.complete = [](Op& op) noexcept { static_cast<TestAccept&>(op).results.push_back(op.result); };
  struct Canceller : HandRecv {
    using HandRecv::HandRecv;
    Op* victim = nullptr;
  } recv(other);
  recv.victim = &accept;
  recv.loop = &b.loop;
  recv.complete = [](Op& op) noexcept {
    auto& self = static_cast<Canceller&>(op);
    self.loop->cancel(*self.victim);
  };
  b.loop.submit(accept);
  b.loop.submit(recv);
  b.loop.tick(0ms);
  accept.more = true;
  b.engine->to_finish = {{&accept, 3}};
  b.loop.tick(0ms);
  CHECK(accept.state == OpState::in_engine);
  CHECK(listener.in_flight == 1);
  b.engine->to_finish = {{&recv, 1}, {&accept, 2}};  // the cancel finds it on the completed list
  b.loop.tick(0ms);
  CHECK(accept.results == std::vector<int32_t>{3, 2});
  accept.more = false;  // what an engine does when it ends one
  b.loop.tick(0ms);
  CHECK(b.engine->seen_cancels == std::vector<Op*>{&accept});
  CHECK(accept.results == std::vector<int32_t>{3, 2, -ECANCELED});
  CHECK(accept.idle());
  CHECK(listener.in_flight == 0);
}

TEST_CASE("a tick runs completions, timers, pumps, mailbox and frees in this order") {
  LoopBench b;
  std::string order;
  Socket socket;
  b.loop.adopt(socket, 5, EngineKind::sim);
  struct Scene {
    Loop* loop;
    std::string* order;
    struct P : Pump { Scene* scene; } pump;
    struct M : Message { Scene* scene; } message;
    struct S : Slot { Scene* scene; } slot;
    struct T : Timer { Scene* scene; } timer;
    struct R : RecvOp { Scene* scene; } recv;
  } s;
  s.loop = &b.loop;
  s.order = &order;
  s.pump.scene = s.message.scene = s.slot.scene = s.timer.scene = s.recv.scene = &s;
  s.recv.socket = &socket;
  s.recv.complete = [](Op& op) noexcept {
    Scene& scene = *static_cast<Scene::R&>(op).scene;
    *scene.order += 'c';
    scene.loop->free_later(scene.slot);
    scene.loop->mark_dirty(scene.pump);
    scene.loop->mark_dirty(scene.pump);
  };
  s.pump.pump = [](Pump& p) noexcept { *static_cast<Scene::P&>(p).scene->order += 'p'; };
  s.message.run = [](Message& m) noexcept { *static_cast<Scene::M&>(m).scene->order += 'm'; };
  s.slot.release = [](Slot& x) noexcept { *static_cast<Scene::S&>(x).scene->order += 'f'; };
  s.timer.fire = [](Timer& t) noexcept { *static_cast<Scene::T&>(t).scene->order += 't'; };
  b.loop.submit(s.recv);
  b.loop.tick(0ms);
  b.loop.set_timer(s.timer, b.loop.now());
  b.clock.time += 20ms;
  b.loop.mailbox().push(s.message);
  b.engine->to_finish = {{&s.recv, 1}};
  b.loop.tick();
  CHECK(order == "ctpmf");
}

TEST_CASE("deadlines fire on an idle worker, in time", "[E12]") {
  LoopBench b;
  TestTimer timer(b.loop);
  b.loop.tick(0ms);
  for (const Duration span : {Duration(1ms), Duration(30ms), Duration(999ms), Duration(1h)}) {
    const TimePoint due = b.clock.time + span;
    timer.fired = 0;
    b.loop.set_timer(timer, due);
    int ticks = 0;
    while (timer.fired == 0 && ticks < 3) {
      b.loop.tick();
      ++ticks;
    }
    CHECK(ticks == 1);
    CHECK(timer.fired == 1);
    CHECK(timer.at >= due);
    CHECK(timer.at - due <= 50ms);
  }
}

TEST_CASE("a wait ends for the caller's limit, pending work and stop") {
  LoopBench b;
  b.loop.tick(5ms);
  CHECK(b.engine->waits.back().timeout == 5ms);
  Pump pump;
  pump.pump = [](Pump&) noexcept {};
  b.loop.mark_dirty(pump);
  b.loop.tick();
  CHECK(b.engine->waits.back().timeout == 0ms);
  b.loop.tick();
  CHECK(b.engine->waits.back().timeout == kForever);
  b.loop.stop();
  b.loop.run();  // returns at once
  b.loop.tick();
  CHECK(b.engine->waits.back().timeout == 0ms);
}

TEST_CASE("a tick reads the clock twice") {
  LoopBench b;
  b.loop.tick(0ms);
  b.clock.readings = 0;
  for (int i = 0; i < 10; ++i) b.loop.tick(1ms);
  CHECK(b.clock.readings == 20);
}

TEST_CASE("two pumps that mark each other do not stop the loop") {
  LoopBench b;
  struct Ping : Pump {
    Loop* loop = nullptr;
    Pump* other = nullptr;
    int runs = 0;
  } one, two;
  one.loop = two.loop = &b.loop;
  one.other = &two;
  two.other = &one;
  one.pump = two.pump = [](Pump& pump) noexcept {
    auto& self = static_cast<Ping&>(pump);
    ++self.runs;
    self.loop->mark_dirty(*self.other);
  };
  b.loop.mark_dirty(one);
  b.loop.tick();
  CHECK(one.runs > 0);
  b.loop.forget_dirty(one);
  b.loop.forget_dirty(two);
  CHECK(b.loop.tick(0ms) == 0);
}

TEST_CASE("a dirty pump can be forgotten from any place in the list") {
  for (int victim = 0; victim < 3; ++victim) {
    LoopBench b;
    struct Counted : Pump {
      int runs = 0;
    } pumps[4];
    for (Counted& pump : pumps) {
      pump.pump = [](Pump& p) noexcept { ++static_cast<Counted&>(p).runs; };
      if (&pump != &pumps[3]) b.loop.mark_dirty(pump);
    }
    b.loop.forget_dirty(pumps[victim]);
    b.loop.mark_dirty(pumps[3]);
    CHECK(b.loop.tick(0ms) == 3);
    for (int i = 0; i < 4; ++i) CHECK(pumps[i].runs == (i == victim ? 0 : 1));
  }
}

TEST_CASE("a tick above 10 ms is counted with the phase that took most of it", "[E11]") {
  LoopBench b;
  const auto stalls = [&b](Phase phase) { return b.loop.stats().stalls[static_cast<size_t>(phase)].get(); };
  const auto all = [&b] {
    uint64_t sum = 0;
    for (const Counter& counter : b.loop.stats().stalls) sum += counter.get();
    return sum;
  };
  struct Slow : Pump, Message, Timer, Slot, RecvOp {
    HandClock* clock = nullptr;
    Duration pump_takes{0}, message_takes{0}, timer_takes{0}, slot_takes{0}, recv_takes{0};
  } slow;
  slow.clock = &b.clock;
  slow.Pump::pump = [](Pump& p) noexcept { static_cast<Slow&>(p).clock->time += static_cast<Slow&>(p).pump_takes; };
  slow.run = [](Message& m) noexcept { static_cast<Slow&>(m).clock->time += static_cast<Slow&>(m).message_takes; };
  slow.fire = [](Timer& t) noexcept { static_cast<Slow&>(t).clock->time += static_cast<Slow&>(t).timer_takes; };
  slow.release = [](Slot& s) noexcept { static_cast<Slow&>(s).clock->time += static_cast<Slow&>(s).slot_takes; };
  slow.complete = [](Op& o) noexcept {
    auto& self = static_cast<Slow&>(static_cast<RecvOp&>(o));
    self.clock->time += self.recv_takes;
  };
  Socket socket;
  b.loop.adopt(socket, 5, EngineKind::sim);
  slow.socket = &socket;
  const auto one_tick = [&] {
    b.loop.submit(slow);
    b.loop.tick(0ms);
    b.engine->to_finish = {{&slow, 1}};
    b.clock.time += 8ms;
    b.loop.set_timer(slow, b.clock.time - 8ms);
    b.loop.mark_dirty(slow);
    b.loop.mailbox().push(slow);
    b.loop.free_later(slow);
    b.loop.tick();
    slow.pump_takes = slow.message_takes = slow.timer_takes = slow.slot_takes = slow.recv_takes = Duration(0);
  };
  slow.recv_takes = 9ms;
  one_tick();
  CHECK(all() == 0);
  slow.recv_takes = 11ms;
  one_tick();
  CHECK(stalls(Phase::completions) == 1);
  slow.timer_takes = 11ms;
  one_tick();
  CHECK(stalls(Phase::timers) == 1);
  slow.recv_takes = 4ms;
  slow.pump_takes = 7ms;  // neither alone
  one_tick();
  CHECK(stalls(Phase::pump) == 1);
  slow.message_takes = 11ms;
  one_tick();
  CHECK(stalls(Phase::mailbox) == 1);
  slow.slot_takes = 11ms;
  one_tick();
  CHECK(stalls(Phase::frees) == 1);
  CHECK(all() == 5);
  b.engine->extra = 11ms;
  b.loop.tick(100ms);  // slept 111 instead of 100
  CHECK(stalls(Phase::engine) == 1);
  b.engine->extra = 0ms;
  b.clock.time += 1h;  // time between two ticks is the caller's
  b.loop.tick(0ms);
  CHECK(all() == 6);
}

// Windows of ticks of 64 events; an event costs so many ns in windows that gather and in those that do not. Returns how many of the
// last 32 windows gathered.
int play(GatherPolicy& policy, int gathering_ns, int plain_ns, uint32_t events = 64) {
  int gathered = 0;
  for (int window = 0; window < 96; ++window) {
    if (window >= 64) gathered += policy.gathering();
    int64_t counted = 0;
    while (!policy.window_full()) {
      policy.tick_ended(events);
      counted += events;
    }
    policy.window_ended(Duration(counted * (policy.gathering() ? gathering_ns : plain_ns)));
  }
  return gathered;
}

TEST_CASE("gathering is kept where it takes less CPU, and given up where it takes more") {
  GatherPolicy policy;
  CHECK_FALSE(policy.gathering());
  CHECK(play(policy, 50, 100) >= 28);
  CHECK(play(policy, 50, 50) >= 28);      // no difference: no change
  CHECK(play(policy, 98, 100) >= 28);
  CHECK(play(policy, 100, 50) <= 4);
  CHECK(play(policy, 100, 100) <= 4);
  CHECK(play(policy, 98, 100) <= 4);      // within the noise
  GatherPolicy quiet;
  CHECK(play(quiet, 1, 100, 7) == 0);     // ticks too small to gather after are no reason for a trial
}

TEST_CASE("one lucky window changes nothing") {
  GatherPolicy policy;
  int trials = 0;
  for (int window = 0; window < 200; ++window) {
    while (!policy.window_full()) policy.tick_ended(64);
    const bool trial = policy.gathering();
    const bool lucky = trial && trials++ % 2 == 0;
    policy.window_ended(Duration(4096 * (lucky ? 50 : 100)));
  }
  CHECK(trials > 10);
  CHECK(trials < 50);                     // it never went over: then it would gather in most windows
}

TEST_CASE("gathering follows the load") {
  struct Row {
    std::vector<uint32_t> events;
    bool gathers;
    uint32_t at_least, at_most;
  };
  const Row rows[] = {
      {{1, 1, 1, 1}, false, 0, 0},
      {{7, 7, 7, 7, 7}, false, 0, 0},
      {{8}, true, 2, 2},
      {std::vector<uint32_t>(20, 8), true, 5, 6},
      {std::vector<uint32_t>(50, 20), true, 12, 15},
      {std::vector<uint32_t>(50, 500), true, 32, 32},
      {{500, 500, 500, 500, 500, 8}, true, 6, 6},   // never more than just came
      {{64, 64, 64, 64, 64, 64, 1}, false, 0, 0},   // a small tick ends it at once
      {{64, 64, 64, 64, 0}, false, 0, 0},
  };
  for (const Row& row : rows) {
    GatherPolicy policy;
    CHECK(policy.advice().gather == 0us);
    play(policy, 50, 100);
    for (int i = 0; i < 200; ++i) policy.tick_ended(0);
    for (uint32_t events : row.events) policy.tick_ended(events);
    const auto advice = policy.advice();
    INFO("after " << row.events.size() << " ticks");
    CHECK((advice.gather > Duration(0)) == row.gathers);
    CHECK(advice.events >= row.at_least);
    CHECK(advice.events <= row.at_most);
    if (row.gathers) CHECK(advice.gather == 50us);
  }
}

TEST_CASE("the loop gathers before waiting, never before work that is due") {
  LoopBench b;
  for (int tick = 0; tick < 64 * 64; ++tick) {  // here a tick that gathered costs half: the policy finds that out
    b.engine->next.events = 64;
    b.loop.tick(1s);
    b.clock.cpu += b.engine->waits.back().gather > 0us ? 32us : 64us;
  }
  CHECK(b.engine->waits.back().gather == 50us);
  CHECK(b.loop.stats().gathers.get() > 0);
  b.engine->next.events = 10;
  b.loop.tick(0ms);
  CHECK(b.engine->waits.back().gather == 0us);
  b.loop.tick(1s);
  CHECK(b.engine->waits.back().gather == 50us);
  b.loop.tick(1s);  // the last one had no event
  CHECK(b.engine->waits.back().gather == 0us);
}

TEST_CASE("with both engines the ring waits, and epoll is looked at before and after") {
  HandClock clock;
  Loop loop(clock, {.slab_bytes_max = 1 << 20, .gather = false});
  auto e = std::make_unique<HandEngine>(clock, EngineKind::epoll);
  auto r = std::make_unique<HandEngine>(clock, EngineKind::uring);
  HandEngine& epoll = *e;
  HandEngine& ring = *r;
  loop.add_engine(std::move(e));
  loop.add_engine(std::move(r));
  loop.tick(3ms);
  CHECK(ring.watched == 77);
  CHECK(ring.wake_fd >= 0);
  CHECK(epoll.wake_fd == -1);
  CHECK(epoll.waits.size() == 1);
  CHECK(epoll.waits[0].timeout == 0ms);
  CHECK(ring.waits[0].timeout == 3ms);
  ring.next.foreign_ready = true;
  loop.tick(3ms);
  CHECK(epoll.waits.size() == 3);
  CHECK(epoll.waits[2].timeout == 0ms);
  // What epoll completed, or has to go on with, keeps the ring from sleeping.
  epoll.next.runnable = true;
  loop.tick(3ms);
  CHECK(ring.waits.back().timeout == 0ms);
  Socket socket;
  loop.adopt(socket, 5, EngineKind::epoll);
  HandRecv op(socket);
  loop.submit(op);
  loop.tick(3ms);
  epoll.to_finish = {{&op, 1}};
  loop.tick(3ms);
  CHECK(ring.waits.back().timeout == 0ms);
  CHECK(op.results.size() == 1);
}

TEST_CASE("a socket that changes engine leaves the epoll set when nothing of it is parked there", "[A8]") {
  HandClock clock;
  Loop loop(clock, {.slab_bytes_max = 1 << 20, .gather = false});
  auto e = std::make_unique<HandEngine>(clock, EngineKind::epoll);
  auto r = std::make_unique<HandEngine>(clock, EngineKind::uring);
  HandEngine& epoll = *e;
  HandEngine& ring = *r;
  loop.add_engine(std::move(e));
  loop.add_engine(std::move(r));
  Socket socket;
  loop.adopt(socket, 5, EngineKind::epoll);
  HandRecv recv(socket);
  struct TestSend : SendOp {
    int done = 0;
  } send;
  send.socket = &socket;
  send.complete = [](Op& op) noexcept { ++static_cast<TestSend&>(op).done; };
  loop.submit(send);
  loop.tick(0ms);
  socket.registered = true;
  socket.writer = &send;
  socket.engine = EngineKind::uring;
  loop.submit(recv);
  loop.tick(0ms);
  CHECK(recv.engine == EngineKind::uring);
  CHECK(ring.kept == std::vector<Op*>{&recv});
  CHECK(epoll.leaves == 0);  // the send is still there
  socket.writer = nullptr;
  epoll.to_finish = {{&send, 1}};
  loop.tick(0ms);
  CHECK(send.done == 1);
  loop.submit(send);
  loop.tick(0ms);
  CHECK(epoll.leaves == 1);
  CHECK(send.engine == EngineKind::uring);
}

TEST_CASE("a socket that is closed before its next op reached the other engine leaves the epoll set first", "[A8]") {
  HandClock clock;
  Loop loop(clock, {.slab_bytes_max = 1 << 20, .gather = false});
  auto e = std::make_unique<HandEngine>(clock, EngineKind::epoll);
  auto r = std::make_unique<HandEngine>(clock, EngineKind::uring);
  HandEngine& epoll = *e;
  HandEngine& ring = *r;
  loop.add_engine(std::move(e));
  loop.add_engine(std::move(r));
  loop.tick(0ms);
  for (const bool changed : {true, false}) {
    Socket socket;
    loop.adopt(socket, 5, EngineKind::epoll);
    socket.registered = true;
    if (changed) socket.engine = EngineKind::uring;
    loop.close(socket);
    CHECK(epoll.leaves == 1);   // an engine takes its own sockets out as it closes them
    CHECK(ring.closes == 1);
    CHECK(epoll.closes == (changed ? 0 : 1));
  }
}

TEST_CASE("every adopt and every close gives a socket another generation", "[E7]") {
  LoopBench b;
  Socket socket;
  uint16_t before = socket.generation;
  for (int i = 0; i < 1000; ++i) {
    b.loop.adopt(socket, 5, EngineKind::sim);
    CHECK(socket.generation != before);
    before = socket.generation;
    b.loop.close(socket);
    CHECK(socket.generation != before);
    CHECK(socket.fd == -1);
    socket = Socket();  // its slot was built anew
  }
  CHECK(b.engine->closes == 1000);
}

TEST_CASE("a relay that goes quiet loses its low-water mark within 100 ms") {
  LoopBench b;
  Socket from, to;
  b.loop.adopt(from, 5, EngineKind::sim);
  b.loop.adopt(to, 6, EngineKind::sim);
  RelayOp relay;
  relay.socket = &from;
  relay.to = &to;
  relay.want = 1 << 30;
  relay.complete = [](Op&) noexcept {};
  b.loop.submit(relay);
  CHECK(from.in_flight == 1);
  CHECK(to.in_flight == 1);
  const TimePoint end = b.clock.time + 1s;
  while (b.clock.time < end) {
    relay.lowat_set = true;
    relay.moved_in += 1000;
    b.loop.tick(10ms);
  }
  CHECK(b.engine->quiets == 0);
  const TimePoint quiet_since = b.clock.time;
  while (b.engine->quiets == 0 && b.clock.time < quiet_since + 1s) b.loop.tick(10ms);
  CHECK(b.clock.time - quiet_since <= 104ms);
  CHECK(b.engine->quiets == 1);
  b.engine->to_finish = {{&relay, 0}};
  b.loop.tick(0ms);
  CHECK(from.in_flight == 0);
  CHECK(to.in_flight == 0);
  b.loop.tick(100ms);
  b.loop.tick();  // no relay: nothing is watched any more
  CHECK(b.engine->waits.back().timeout == kForever);
}

TEST_CASE("pool figures reach the statistics") {
  LoopBench b;
  Slab* slab = b.loop.slabs().take();
  b.loop.tick(0ms);
  CHECK(b.loop.stats().slabs_in_use.get() == 1);
  CHECK(b.loop.slabs().committed() == kSlabsPerSegment);
  CHECK(b.loop.stats().pool_growths.get() == 1);
  SlabPool::unref(*slab);
}

// Relays: large plain bodies that move inside the kernel. The test plays the kernel.
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <string>

#include "tests/unit/protocols/pipe_rig.h"

using namespace weir;
using namespace weir::test;

namespace {

struct RelayRig : Rig {
  TestStream source, sink;
  Pipe pipe;

  explicit RelayRig(uint64_t left = 1u << 20) {
    rig_socket(source.socket, 100);
    rig_socket(sink.socket, 101);
    source.may_relay = sink.may_relay = true;
    source.left = left;
    pipe.open(loop, *this, &source, &sink, {}, stats);
    source.in = &pipe;
    sink.out = &pipe;
  }
  ~RelayRig() {
    pipe.close();
    tick();
    tick();
    loop.close(source.socket);
    loop.close(sink.socket);
  }
  void rig_socket(Socket& socket, int fd) { loop.adopt(socket, fd, EngineKind::sim); }
  RelayOp& op() {
    WEIR_ASSERT(engine->relays.size() == 1);
    return *engine->relays[0];
  }
  void complete(int result) {
    engine->ready.push_back({&op(), result});
    tick();
  }
};

}  // namespace

TEST_CASE("a large plain body goes by relay, and its counters are the pipe's", "[pipe][relay]") {
  RelayRig rig;
  rig.tick();
  CHECK(rig.pipe.relaying());
  CHECK(rig.source.grants == 0);          // its receive is not armed: the kernel reads
  CHECK(rig.source.begun == 1);
  CHECK(rig.sink.begun == 1);
  rig.tick();
  CHECK(rig.op().want == 1u << 20);
  CHECK(rig.op().socket == &rig.source.socket);
  CHECK(rig.op().to == &rig.sink.socket);

  rig.op().moved_in = 300'000;
  rig.op().moved_out = 200'000;
  CHECK(rig.pipe.delivered() == 300'000);  // a deadline that asks sees progress at once, pumped or not
  CHECK(rig.pipe.consumed() == 200'000);
  rig.pipe.touch();
  rig.tick();
  CHECK(rig.source.progress == 1);
  CHECK(rig.sink.progress == 1);
  rig.pipe.touch();
  rig.tick();
  CHECK(rig.source.progress == 1);         // no bytes, no progress
  CHECK(rig.sink.progress == 1);
  CHECK(rig.pipe.granted() >= rig.pipe.delivered());

  rig.op().moved_in = rig.op().moved_out = 1u << 20;
  rig.source.on_relay_end = [](TestStream& stream) { stream.in->end(nullptr); };
  rig.complete(0);
  CHECK_FALSE(rig.pipe.relaying());
  CHECK(rig.source.ended == 1);
  CHECK(rig.sink.ended == 1);
  CHECK(rig.source.moved == 1u << 20);
  CHECK(rig.sink.moved == 1u << 20);
  CHECK(rig.source.error == 0);
  CHECK(rig.sink.error == 0);
  CHECK(rig.sink.ends == 1);
  CHECK(rig.finished == 1);
  CHECK(rig.stats.relays.get() == 1);
  CHECK(rig.stats.relay_bytes.get() == 1u << 20);
  CHECK(rig.pipe.consumed() == 1u << 20);
}

TEST_CASE("a small rest, a busy end or a switched-off relay is copied", "[pipe][relay]") {
  SECTION("under the minimum") {
    RelayRig rig(kRelayMin - 1);
    rig.tick();
    CHECK_FALSE(rig.pipe.relaying());
    CHECK(rig.source.told == rig.pipe.granted());
    rig.source.left = kRelayMin;
    rig.pipe.touch();
    rig.tick();
    CHECK(rig.pipe.relaying());
  }
  SECTION("the sink cannot") {
    RelayRig rig;
    rig.sink.may_relay = false;
    rig.tick();
    CHECK_FALSE(rig.pipe.relaying());
    CHECK(rig.source.begun == 0);
  }
  SECTION("bytes are held: they go first") {
    RelayRig rig;
    rig.sink.space = 0;
    rig.pipe.deliver(rig.bytes("first"));
    rig.tick();
    CHECK_FALSE(rig.pipe.relaying());
    rig.sink.space = 100;
    rig.pipe.touch();
    rig.tick();
    CHECK(rig.sink.got == "first");
    CHECK(rig.pipe.relaying());
  }
}

TEST_CASE("while the target still sends its queue the source is claimed and reads nothing", "[pipe][relay]") {
  RelayRig rig;
  rig.sink.may_relay = false;
  rig.sink.soon = true;
  rig.tick();
  CHECK(rig.pipe.relaying());
  CHECK(rig.source.begun == 1);
  CHECK(rig.sink.begun == 0);
  CHECK(rig.source.grants == 0);
  rig.pipe.touch();
  rig.tick();
  CHECK(rig.source.begun == 1);
  SECTION("the queue is sent: the relay runs") {
    rig.sink.may_relay = true;
    rig.pipe.touch();
    rig.tick();
    rig.tick();
    CHECK(rig.source.begun == 1);
    CHECK(rig.sink.begun == 1);
    CHECK(rig.op().want == 1u << 20);
  }
  SECTION("it will not be: the source reads again") {
    rig.sink.soon = false;
    rig.pipe.touch();
    rig.tick();
    CHECK_FALSE(rig.pipe.relaying());
    CHECK(rig.source.ended == 1);
    CHECK(rig.source.moved == 0);
    CHECK(rig.source.told == rig.pipe.granted());
    CHECK(rig.sink.ended == 0);
  }
  SECTION("the pipe is closed: the source hears that it ended") {
    rig.pipe.close();
    CHECK(rig.source.ended == 1);
    CHECK(rig.source.error == ECANCELED);
    CHECK(rig.idles == 0);
  }
  SECTION("the sink leaves") {
    rig.pipe.detach_sink();
    CHECK(rig.source.ended == 1);
    rig.tick();
    CHECK(rig.source.told == rig.pipe.granted());
  }
}

TEST_CASE("without kernel pipes the body is copied, for good", "[pipe][relay]") {
  RelayRig rig;
  rig.engine->refuse = true;
  rig.tick();
  rig.tick();
  CHECK_FALSE(rig.pipe.relaying());
  CHECK(rig.stats.relay_fallbacks.get() == 1);
  CHECK(rig.source.error == 0);
  CHECK(rig.source.told == rig.pipe.granted());
  rig.engine->refuse = false;
  rig.pipe.touch();
  rig.tick();
  CHECK_FALSE(rig.pipe.relaying());
  rig.pipe.deliver(rig.bytes("by copy"));
  rig.tick();
  CHECK(rig.sink.got == "by copy");
}

TEST_CASE("a relay that breaks tells each side what it needs to know", "[pipe][relay]") {
  RelayRig rig;
  rig.tick();
  rig.tick();
  rig.op().moved_in = 5000;
  SECTION("early end of file: the source knows that it is short") {
    rig.op().moved_out = 5000;
    rig.complete(0);
    CHECK(rig.source.moved == 5000);
    CHECK(rig.source.error == 0);
    CHECK(rig.sink.error == 0);
    CHECK(rig.source.told == kPipeCapMin);   // what follows is for the source to say; meanwhile it may read
  }
  SECTION("the source failed, all that came was passed on") {
    rig.op().moved_out = 5000;
    rig.complete(-ECONNRESET);
    CHECK(rig.source.error == ECONNRESET);
    CHECK(rig.sink.error == 0);
  }
  SECTION("the target failed, nothing was lost on the way") {
    rig.op().moved_out = 5000;
    rig.op().target_failed = true;
    rig.complete(-EPIPE);
    CHECK(rig.source.error == 0);
    CHECK_FALSE(rig.pipe.lost());
    CHECK(rig.sink.error == EPIPE);
  }
  SECTION("the target failed with bytes on the way: they are lost, but its own failure is not held against the source") {
    rig.op().moved_out = 4000;
    rig.op().target_failed = true;
    rig.complete(-EPIPE);
    CHECK(rig.source.error == 0);
    CHECK(rig.pipe.lost());
    CHECK(rig.sink.error == EPIPE);
    CHECK(rig.sink.moved == 4000);
  }
  SECTION("the source failed with bytes on the way: the sink's message has a hole") {
    rig.op().moved_out = 4000;
    rig.complete(-ECONNRESET);
    CHECK(rig.source.error == ECONNRESET);
    CHECK(rig.sink.error == ECONNRESET);
  }
  CHECK_FALSE(rig.pipe.relaying());
  CHECK(rig.source.ended == 1);
  CHECK(rig.sink.ended == 1);
}

TEST_CASE("close cancels a running relay; both streams hear its end, then the owner", "[pipe][relay]") {
  RelayRig rig;
  rig.tick();
  SECTION("in the engine") { rig.tick(); }
  SECTION("just submitted") {}
  rig.pipe.close();
  CHECK_FALSE(rig.pipe.idle());
  CHECK_FALSE(rig.pipe.opened());
  CHECK(rig.source.ended == 0);
  rig.pipe.close();
  rig.tick();
  rig.tick();
  CHECK(rig.pipe.idle());
  CHECK(rig.source.ended == 1);
  CHECK(rig.sink.ended == 1);
  CHECK(rig.source.error == ECANCELED);
  CHECK(rig.idles == 1);
  CHECK(rig.finished == 0);
}

TEST_CASE("a stream may close the pipe from within relay_end", "[pipe][relay]") {
  RelayRig rig;
  rig.tick();
  rig.tick();
  rig.sink.on_relay_end = [](TestStream& stream) { stream.out->close(); };
  rig.op().target_failed = true;
  rig.complete(-ECONNRESET);
  CHECK(rig.sink.ended == 1);
  CHECK(rig.source.ended == 1);   // still told
  CHECK(rig.idles == 0);          // close() found it idle
  CHECK(rig.pipe.idle());
}

TEST_CASE("the sink may leave while a relay runs; another goes on only if no byte was moved", "[pipe][relay]") {
  RelayRig rig;
  TestStream other;
  rig.tick();
  rig.tick();
  rig.op().moved_in = rig.op().moved_out = 0;
  const bool moved = GENERATE_COPY(false, true);
  if (moved) rig.op().moved_in = rig.op().moved_out = 10;
  rig.pipe.detach_sink();
  rig.pipe.attach_sink(other);
  rig.tick();
  rig.tick();
  CHECK(rig.engine->cancels == 1);
  CHECK(rig.sink.ended == 1);
  CHECK(rig.source.ended == 1);
  CHECK(other.ended == 0);
  CHECK(rig.failures.size() == (moved ? 1u : 0u));
}

TEST_CASE("a source that read nothing during a relay hears its grant again afterwards", "[pipe][relay]") {
  RelayRig rig;
  rig.sink.may_relay = false;
  rig.tick();
  CHECK(rig.source.grants == 1);
  SECTION("a claim that came to nothing") {
    rig.sink.soon = true;
    rig.pipe.touch();
    rig.tick();
    CHECK(rig.pipe.relaying());
    rig.sink.soon = false;
    rig.pipe.touch();
    rig.tick();
  }
  SECTION("a relay that was refused") {
    rig.sink.may_relay = true;
    rig.engine->refuse = true;
    rig.pipe.touch();
    rig.tick();
    rig.tick();
    CHECK(rig.stats.relay_fallbacks.get() == 1);
  }
  CHECK_FALSE(rig.pipe.relaying());
  CHECK(rig.source.grants == 2);
  CHECK(rig.source.told == rig.pipe.granted());
}

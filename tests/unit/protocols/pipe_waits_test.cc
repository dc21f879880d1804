// For whom a body waited, and how long: what the access log's stall times are made of.
#include <catch2/catch_test_macros.hpp>

#include "tests/unit/protocols/pipe_rig.h"

using namespace weir;
using namespace weir::test;
using std::chrono::milliseconds;

namespace {

constexpr PipeLimits kCopied{.cap_min = 4 * kSlabBytes, .cap_max = 4 * kSlabBytes, .relay = false};

void pass(Rig& rig, Pipe& pipe, int ms) {
  rig.clock.at += milliseconds(ms);
  pipe.touch();
  rig.tick();
}

}  // namespace

TEST_CASE("a pipe tells how long it waited for each end", "[pipe]") {
  Rig rig;
  TestStream source, sink;
  Pipe pipe;
  pipe.open(rig.loop, rig, &source, &sink, kCopied, rig.stats);
  rig.tick();
  pass(rig, pipe, 30);
  pipe.deliver(rig.bytes("abc"));            // taken in the tick in which they come: the source is waited for on both sides of it
  pass(rig, pipe, 10);
  sink.space = 1;
  pipe.deliver(rig.bytes("def"));
  rig.tick();
  pass(rig, pipe, 200);                      // two bytes wait for room
  sink.space = SIZE_MAX;
  pass(rig, pipe, 5);
  pass(rig, pipe, 7);                        // and again for the source
  pipe.end(nullptr);
  rig.tick();
  CHECK(rig.finished == 1);
  CHECK(sink.got == "abcdef");
  CHECK(pipe.waited_for_sink() == milliseconds(205));
  CHECK(pipe.waited_for_source() == milliseconds(47));
  rig.clock.at += milliseconds(1000);        // an ended one waits for nobody
  pipe.close();
  CHECK(pipe.waited_for_sink() == milliseconds(205));
  CHECK(pipe.waited_for_source() == milliseconds(47));
}

TEST_CASE("a pipe that is closed while it waits counts up to then; without a sink it waits for none", "[pipe]") {
  Rig rig;
  TestStream source, sink;
  Pipe pipe;
  pipe.open(rig.loop, rig, &source, nullptr, kCopied, rig.stats);
  pipe.deliver(rig.bytes("abc"));
  rig.tick();
  pass(rig, pipe, 500);                      // where it is to go is not decided yet
  sink.space = 0;
  pipe.attach_sink(sink);
  rig.tick();
  rig.clock.at += milliseconds(20);
  rig.tick();
  pipe.close();
  CHECK(pipe.waited_for_sink() == milliseconds(20));
  CHECK(pipe.waited_for_source() == milliseconds(0));
}

#include "protocols/exchange/pipe.h"

#include <catch2/catch_test_macros.hpp>
#include <memory>
#include <string>

#include "tests/unit/protocols/pipe_rig.h"

using namespace weir;
using namespace weir::test;

namespace {

constexpr PipeLimits kPlain{.cap_min = 4 * kSlabBytes, .cap_max = 4 * kSlabBytes, .relay = false};
constexpr uint64_t kCap = 4 * kSlabBytes;

// Bytes that tell where they stand.
std::string pattern(size_t from, size_t count) {
  std::string text(count, '\0');
  for (size_t i = 0; i < count; ++i) text[i] = static_cast<char>('a' + (from + i) * 7 % 26 + ((from + i) / 1021 % 2));
  return text;
}

}  // namespace

TEST_CASE("a pipe moves bytes in order, tells the end once, and grants absolute numbers", "[pipe][M3]") {
  Rig rig;
  TestStream source, sink;
  Pipe pipe;
  pipe.open(rig.loop, rig, &source, &sink, kPlain, rig.stats);
  CHECK(pipe.granted() == kCap);
  rig.tick();
  CHECK(source.told == kCap);

  pipe.deliver(rig.bytes("hello "));
  CHECK(sink.got.empty());           // deliver only marks: it calls nobody
  pipe.deliver(rig.bytes("world"));
  rig.tick();
  CHECK(sink.got == "hello world");
  CHECK(source.told == kCap);        // eleven bytes are not worth a window update
  auto trailers = std::make_unique<Head>();
  pipe.end(trailers.get());
  CHECK(sink.ends == 0);
  rig.tick();
  CHECK(sink.ends == 1);
  CHECK(sink.trailers == trailers.get());
  CHECK(rig.finished == 1);
  pipe.touch();
  rig.tick();
  CHECK(sink.ends == 1);
  CHECK(rig.finished == 1);
  CHECK(rig.stats.audits_failed.get() == 0);
  pipe.close();
  CHECK(pipe.idle());
}

TEST_CASE("a stalled sink stops the source at the cap, and every byte comes out in order afterwards", "[pipe][M3]") {
  Rig rig;
  TestStream source, sink;
  Pipe pipe;
  sink.space = 0;
  pipe.open(rig.loop, rig, &source, &sink, kPlain, rig.stats);
  rig.tick();
  std::string sent;
  // The source gives what it may, in pieces of every size, small ones too: what is held stays under the cap and a slab or two.
  size_t piece = 1;
  size_t most = 0;
  const size_t total = 700'000;
  while (sent.size() < total) {
    while (sent.size() < total && pipe.delivered() < source.told) {
      const size_t count = std::min<size_t>({piece, total - sent.size(), source.told - pipe.delivered()});
      const std::string text = pattern(sent.size(), count);
      sent += text;
      pipe.deliver(rig.bytes(text));
      piece = piece % 9973 * 3 + 1;
    }
    rig.tick();
    most = std::max(most, rig.loop.slabs().in_use() * kSlabBytes);
    REQUIRE(pipe.held() <= kCap);
    REQUIRE(pipe.delivered() <= pipe.granted());
    if (pipe.delivered() == source.told) {
      REQUIRE(pipe.held() > 0);   // somebody is owed something
      sink.space = 12'345;        // room comes in sizes that fit nothing
      pipe.touch();
      rig.tick();
    }
  }
  pipe.end(nullptr);
  sink.space = SIZE_MAX;
  pipe.touch();
  rig.tick();
  CHECK(sink.got == sent);
  CHECK(sink.ends == 1);
  CHECK(most <= 4 * kCap);        // slices of a quarter slab and more may pin a slab each
  CHECK(rig.stats.audits_failed.get() == 0);
  pipe.close();
  rig.tick();
  CHECK(rig.loop.slabs().in_use() == 0);
}

TEST_CASE("pieces of one byte do not pin slabs", "[pipe][M3]") {
  Rig rig;
  TestStream source, sink;
  Pipe pipe;
  sink.space = 0;
  pipe.open(rig.loop, rig, &source, &sink, kPlain, rig.stats);
  std::string all;
  for (int i = 0; i < 3000; ++i) {
    const std::string text = pattern(all.size(), 5);
    all += text;
    pipe.deliver(rig.bytes(text));
  }
  CHECK(rig.loop.slabs().in_use() <= 3);
  sink.space = SIZE_MAX;
  pipe.touch();
  rig.tick();
  CHECK(sink.got == all);
  pipe.close();
}

TEST_CASE("the pump is idempotent: doubled and spurious events change nothing", "[pipe][X4]") {
  Rig rig;
  TestStream source, sink;
  Pipe pipe;
  sink.space = 10;
  pipe.open(rig.loop, rig, &source, &sink, kPlain, rig.stats);
  pipe.deliver(rig.bytes("0123456789abcdef"));
  for (int i = 0; i < 5; ++i) {
    pipe.run_pump();
    pipe.touch();
    rig.tick();
    CHECK(sink.got == "0123456789");
    CHECK(pipe.consumed() == 10);
    CHECK(source.told == pipe.granted());
  }
  pipe.close();
}

TEST_CASE("the grant goes out in halves of the cap, and to a drained pipe in full", "[pipe]") {
  Rig rig;
  TestStream source, sink;
  Pipe pipe;
  sink.space = 0;
  pipe.open(rig.loop, rig, &source, &sink, kPlain, rig.stats);
  for (int i = 0; i < 4; ++i) {
    pipe.deliver(rig.bytes(std::string(kSlabBytes, 'x')));
    rig.tick();
  }
  CHECK(source.told == kCap);
  sink.space = kSlabBytes;
  pipe.touch();
  rig.tick();
  CHECK(source.told == kCap);                       // a quarter is free
  sink.space = kSlabBytes;
  pipe.touch();
  rig.tick();
  CHECK(source.told == kCap + 2 * kSlabBytes);      // half
  sink.space = 2 * kSlabBytes;
  pipe.touch();
  rig.tick();
  CHECK(source.told == 2 * kCap);
  pipe.close();
}

TEST_CASE("what came before the sink is kept, and another sink goes on where the first left", "[pipe]") {
  Rig rig;
  TestStream source, first, second;
  Pipe pipe;
  pipe.open(rig.loop, rig, &source, nullptr, kPlain, rig.stats);
  pipe.deliver(rig.bytes("abc"));
  rig.tick();
  CHECK(pipe.held() == 3);
  pipe.detach_sink();              // the first origin refused: nothing was taken
  pipe.attach_sink(first);
  first.space = 0;
  rig.tick();
  pipe.detach_sink();
  pipe.deliver(rig.bytes("def"));
  pipe.end(nullptr);
  rig.tick();
  CHECK(rig.finished == 0);
  pipe.attach_sink(second);
  rig.tick();
  CHECK(first.got.empty());
  CHECK(second.got == "abcdef");
  CHECK(second.ends == 1);
  CHECK(rig.finished == 1);
  pipe.close();
}

TEST_CASE("a local answer needs no source; a source may leave after its end", "[pipe]") {
  Rig rig;
  TestStream source, sink;
  Pipe local;
  local.open(rig.loop, rig, nullptr, &sink, kPlain, rig.stats);
  local.deliver(rig.bytes(std::string(3 * kCap, 'z')));   // the owner's own bytes are not a peer's: no grant binds them
  local.end(nullptr);
  rig.tick();
  CHECK(sink.got.size() == 3 * kCap);
  CHECK(rig.finished == 1);
  local.close();

  TestStream slow;
  slow.space = 1;
  Pipe pipe;
  pipe.open(rig.loop, rig, &source, &slow, kPlain, rig.stats);
  pipe.deliver(rig.bytes("xyz"));
  pipe.end(nullptr);
  rig.tick();
  const int grants = source.grants;
  for (int i = 0; i < 3; ++i) {
    slow.space = 1;
    pipe.touch();
    rig.tick();
  }
  CHECK(slow.got == "xyz");
  CHECK(slow.ends == 1);
  CHECK(source.grants == grants);
  pipe.close();
}

TEST_CASE("near the memory budget the cap falls; what was granted stays granted", "[pipe]") {
  Rig rig;
  TestStream source, sink;
  Pipe pipe;
  sink.space = 0;
  pipe.open(rig.loop, rig, &source, &sink, kPlain, rig.stats);
  rig.tick();
  pipe.limit_cap(1000);            // never below a slab: a cap of nothing would be a wedge
  CHECK(pipe.cap() == kSlabBytes);
  pipe.deliver(rig.bytes(std::string(kCap, 'x')));
  rig.tick();
  CHECK(source.told == kCap);
  for (size_t left = kCap; left > 0; left -= kSlabBytes) {
    CHECK(source.told == kCap);    // with a slab or more held the small cap is full
    sink.space = kSlabBytes;
    pipe.touch();
    rig.tick();
  }
  CHECK(source.told == kCap + kSlabBytes);
  pipe.close();
}

TEST_CASE("close drops what is held, at any moment, and the pipe can be opened anew", "[pipe]") {
  Rig rig;
  TestStream source, sink;
  auto pipe = std::make_unique<Pipe>();
  CHECK_FALSE(pipe->opened());
  pipe->close();
  for (int round = 0; round < 3; ++round) {
    sink.space = 0;
    pipe->open(rig.loop, rig, &source, &sink, kPlain, rig.stats);
    source.told = 0;
    pipe->deliver(rig.bytes("never seen"));
    if (round == 1) rig.tick();
    pipe->close();
    CHECK_FALSE(pipe->opened());
    CHECK(pipe->held() == 0);
    rig.tick();                    // a mark that is still set finds a closed pipe
  }
  pipe->open(rig.loop, rig, &source, &sink, kPlain, rig.stats);
  pipe.reset();                    // dirty: the loop forgets it
  rig.tick();
  CHECK(sink.got.empty());
  CHECK(rig.finished == 0);
  CHECK(rig.loop.slabs().in_use() == 0);
}

namespace {

struct Waits {
  bool source = true, sink = true, live_source = true, live_sink = true;
  size_t bytes = 0;
  bool has_source() const { return source; }
  bool has_sink() const { return sink; }
  size_t held() const { return bytes; }
  bool source_live() const { return live_source; }
  bool sink_live() const { return live_sink; }
};

}  // namespace

TEST_CASE("the audit knows who must be owed something", "[pipe][audit]") {
  PipeState state;
  state.begin(100, 100);
  Waits waits;
  CHECK(somebody_is_owed(state, waits));
  waits.live_source = false;                       // granted, and nobody receives
  CHECK_FALSE(somebody_is_owed(state, waits));
  state.delivered = state.granted;                 // all came; held: the sink is owed room
  waits.bytes = 100;
  CHECK(somebody_is_owed(state, waits));
  waits.live_sink = false;
  CHECK_FALSE(somebody_is_owed(state, waits));
  waits.sink = false;                              // no sink yet: the owner's business
  CHECK(somebody_is_owed(state, waits));
  waits.sink = true;
  waits.bytes = 0;                                 // nothing granted, nothing held
  waits.live_sink = waits.live_source = true;
  CHECK_FALSE(somebody_is_owed(state, waits));
  state.ended = true;
  CHECK(somebody_is_owed(state, waits));
}

#ifdef NDEBUG
TEST_CASE("a failed audit counts and asks the owner to end the exchange (release builds)", "[pipe][audit]") {
  Rig rig;
  TestStream source, sink;
  Pipe pipe;
  source.live_source = false;
  pipe.open(rig.loop, rig, &source, &sink, kPlain, rig.stats);
  rig.tick();
  CHECK(rig.stats.audits_failed.get() == 1);
  REQUIRE(rig.failures.size() == 1);
  CHECK(rig.failures[0] == What::internal);
  pipe.close();
}
#endif

namespace {

// Has body bytes already (they came with the head), and gives them as soon as it may.
struct ReadySource : TestStream {
  explicit ReadySource(Rig& with) : rig(with) { live_source = false; }
  void grant(uint64_t total) noexcept override {
    TestStream::grant(total);
    if (in->ended()) return;
    in->deliver(rig.bytes("at once"));
    in->end(nullptr);
  }
  Rig& rig;
};

}  // namespace

TEST_CASE("a source may answer a grant with bytes: the same tick takes them on", "[pipe]") {
  Rig rig;
  ReadySource source(rig);
  TestStream sink;
  sink.live_sink = false;          // nothing is queued there: an audit before the next pump would see nobody at work
  Pipe pipe;
  source.in = &pipe;
  pipe.open(rig.loop, rig, &source, &sink, kPlain, rig.stats);
  rig.tick();
  CHECK(sink.got == "at once");
  CHECK(sink.ends == 1);
  CHECK(rig.stats.audits_failed.get() == 0);
  pipe.close();
}

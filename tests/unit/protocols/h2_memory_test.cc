// Stream and Pipe under HTTP/2: a client session back to back with a server session, each stream's two bodies through real pipes.
// Nothing here has a clock: a wedge is a round in which nothing moves.
#include <catch2/catch_test_macros.hpp>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "tests/unit/protocols/h2_memory.h"
#include "tests/unit/protocols/pipe_rig.h"

using namespace weir;
using namespace weir::test;

namespace {

char byte_at(uint32_t seed, uint64_t at) { return static_cast<char>((at * 131 + at / 251 + seed * 17) & 0xff); }

// Makes a body: pieces of mixed sizes, never beyond its grant.
struct Maker : TestStream {
  uint64_t made = 0, total = 0;
  uint32_t seed = 0;
  bool ended_ = false;
  Head* with = nullptr;

  bool step(Rig& rig, std::mt19937& random) {
    bool moved = false;
    while (in != nullptr && in->opened() && !ended_) {
      if (made == total) {
        in->end(with);
        return ended_ = true;
      }
      static constexpr size_t kSizes[] = {1, 9, 700, 4096, 16384, 16385, 40'000};
      const uint64_t count = std::min<uint64_t>({kSizes[random() % 7], total - made, told - made});
      if (count == 0) break;
      std::string text(count, '\0');
      for (size_t i = 0; i < count; ++i) text[i] = byte_at(seed, made + i);
      made += count;
      in->deliver(rig.bytes(text));
      moved = true;
    }
    return moved;
  }
};

// Takes a body and compares it, byte by byte.
struct Taker : TestStream {
  uint64_t taken = 0;
  uint32_t seed = 0;
  bool right = true;
  bool stalled = false;
  size_t room() const noexcept override { return stalled ? 0 : 50'000; }
  void send_body(Chain&& bytes) noexcept override {
    const std::string text = text_of(bytes);
    Chain gone(std::move(bytes));
    for (size_t i = 0; i < text.size(); ++i) right = right && text[i] == byte_at(seed, taken + i);
    taken += text.size();
  }
};

// One request: maker -> pipe -> client stream -> h2 -> server stream -> pipe -> taker, and the same backwards.
struct Case {
  Maker up_maker, down_maker;
  Taker up_taker, down_taker;
  Pipe up_near, up_far, down_near, down_far;
  H2Stream* client = nullptr;
  H2Stream* server = nullptr;
  bool done() const { return up_taker.ends == 1 && down_taker.ends == 1; }
  void close() {
    for (Pipe* pipe : {&up_near, &up_far, &down_near, &down_far}) pipe->close();
  }
};

struct Both {
  Rig rig;
  H2Conn client{rig.loop, false}, server{rig.loop, true};
  std::vector<std::unique_ptr<Case>> cases;
  std::mt19937 random{7};
  PipeLimits limits{.cap_min = kStreamWindow, .cap_max = kStreamWindow, .relay = false};
  size_t wire = 64u << 10;
  uint64_t served = 0;

  Both() {
    server.context = client.context = this;
    server.on_stream = [](H2Conn&, H2Stream& stream, void* self) { static_cast<Both*>(self)->serve(stream); };
    const auto closed = [](H2Conn&, H2Stream& stream, void* self) {
      if (stream.close_code == 0) return;
      for (auto& one : static_cast<Both*>(self)->cases) {   // the exchange's part: a reset ends both directions
        if (&stream == one->client) {
          one->up_near.close();
          one->down_near.close();
        }
        if (&stream == one->server) {
          one->up_far.close();
          one->down_far.close();
        }
      }
    };
    server.on_closed = closed;
    client.on_closed = closed;
    exchange();   // SETTINGS
    exchange();   // and their ACKs: from here on the initial windows hold
  }
  ~Both() {
    for (auto& one : cases) one->close();
    rig.tick();
  }

  Case& start(uint64_t up, uint64_t down) {
    Case& one = *cases.emplace_back(std::make_unique<Case>());
    const auto seed = static_cast<uint32_t>(cases.size());
    one.up_maker.seed = one.up_taker.seed = seed;
    one.down_maker.seed = one.down_taker.seed = seed + 1000;
    one.up_maker.total = up;
    one.down_maker.total = down;
    one.client = &client.open();
    join(one.up_near, one.up_maker, *one.client);
    join(one.down_near, *one.client, one.down_taker);
    return one;
  }
  // Streams reach the server in the order in which they were opened.
  void serve(H2Stream& stream) {
    Case& one = *cases[served++];
    one.server = &stream;
    auto head = std::make_unique<Head>();
    head->status = 200;
    stream.send_head(*head, {});
    join(one.up_far, stream, one.up_taker);
    join(one.down_far, one.down_maker, stream);
  }
  void join(Pipe& pipe, Stream& source, Stream& sink) {
    pipe.open(rig.loop, rig, &source, &sink, limits, rig.stats);
    source.in = &pipe;
    sink.out = &pipe;
  }
  // What each session has to say reaches the other, cut anywhere.
  bool exchange() {
    const std::string there = client.output(wire), back = server.output(wire);
    cut(server, there);
    cut(client, back);
    return !there.empty() || !back.empty();
  }
  void cut(H2Conn& to, std::string_view bytes) {
    while (!bytes.empty()) {
      const size_t count = std::min<size_t>(bytes.size(), 1 + random() % 30'000);
      to.input(bytes.substr(0, count));
      bytes.remove_prefix(count);
    }
  }
  bool step() {
    bool moved = false;
    for (auto& one : cases) {
      moved = one->up_maker.step(rig, random) || moved;
      moved = one->down_maker.step(rig, random) || moved;
    }
    rig.tick();
    moved = exchange() || moved;
    rig.tick();
    for (auto& one : cases) check_windows(*one);
    return moved;
  }
  void run() {
    while (step()) {}
  }
  // What nghttp2 lets a peer send is what the pipe has granted and not yet received.
  void check_windows(const Case& one) {
    if (one.server != nullptr && !one.server->closed && one.up_far.opened() && !one.up_far.ended()) {
      const int32_t window = nghttp2_session_get_stream_local_window_size(server.session(), one.server->id());
      WEIR_ASSERT(window == static_cast<int64_t>(one.server->told - one.server->received));
      WEIR_ASSERT(one.server->told <= one.up_far.granted() && one.server->received == one.up_far.delivered());
    }
    if (!one.client->closed && one.down_near.opened() && !one.down_near.ended()) {
      const int32_t window = nghttp2_session_get_stream_local_window_size(client.session(), one.client->id());
      WEIR_ASSERT(window == static_cast<int64_t>(one.client->told - one.client->received));
    }
  }
  void check_clean() {
    CHECK(rig.stats.audits_failed.get() == 0);
    CHECK(rig.failures.empty());
    // All connection credit came back: what nobody read included.
    CHECK(nghttp2_session_get_local_window_size(server.session()) >= static_cast<int32_t>(kConnWindow / 2));
    CHECK(nghttp2_session_get_effective_local_window_size(server.session()) == static_cast<int32_t>(kConnWindow));
  }
};

void check_done(const Case& one) {
  CHECK(one.done());
  CHECK(one.up_taker.right);
  CHECK(one.down_taker.right);
  CHECK(one.up_taker.taken == one.up_maker.total);
  CHECK(one.down_taker.taken == one.down_maker.total);
  CHECK(one.up_far.consumed() == one.up_maker.total);
  CHECK(one.down_near.consumed() == one.down_maker.total);
}

}  // namespace

TEST_CASE("h2: bodies of several MiB both ways at once, byte-exact", "[pipe][h2]") {
  Both both;
  Case& one = both.start(5'000'003, 7'000'001);
  Case& two = both.start(0, 0);                    // empty bodies end too
  both.run();
  check_done(one);
  check_done(two);
  both.check_clean();
  CHECK(one.client->closed);
  CHECK(one.client->close_code == 0);
  // Window updates are worth their packet: about one for each half of the cap.
  CHECK(both.server.window_updates <= 5'000'003 / (kStreamWindow / 2) + 2);
  CHECK(both.client.window_updates <= 7'000'001 / (kStreamWindow / 2) + 2);
}

TEST_CASE("h2: a hundred streams, one never read: the others finish, it holds its cap and no more", "[pipe][h2][M3]") {
  Both both;
  for (int i = 0; i < 100; ++i) both.start(300'000 + static_cast<uint64_t>(i), 200'000);
  Case& stuck = *both.cases[42];
  stuck.up_taker.stalled = stuck.down_taker.stalled = true;
  both.run();
  for (auto& one : both.cases)
    if (one.get() != &stuck) check_done(*one);
  CHECK(both.server.streams.size() == 100);
  CHECK_FALSE(stuck.done());
  for (const Pipe* pipe : {&stuck.up_far, &stuck.down_near}) {
    CHECK(pipe->delivered() == pipe->granted());
    CHECK(pipe->held() == kStreamWindow);
    CHECK(pipe->consumed() == 0);
  }
  // Both its windows are exhausted, as the sender sees it; the connection's is not.
  CHECK(nghttp2_session_get_stream_remote_window_size(both.client.session(), stuck.client->id()) == 0);
  CHECK(nghttp2_session_get_stream_remote_window_size(both.server.session(), stuck.server->id()) == 0);
  CHECK(nghttp2_session_get_remote_window_size(both.client.session()) > 0);
  CHECK(stuck.client->queued() == kQueueBytes);

  stuck.up_taker.stalled = stuck.down_taker.stalled = false;
  stuck.up_far.touch();
  stuck.down_near.touch();
  both.run();
  check_done(stuck);
  both.check_clean();
}

TEST_CASE("h2: windows run dry again and again, and nothing is lost", "[pipe][h2][X3]") {
  Both both;
  std::vector<Case*> all;
  for (int i = 0; i < 5; ++i) all.push_back(&both.start(400'000, 400'000));
  uint64_t rounds = 0;
  for (bool more = true; more; ++rounds) {
    for (Case* one : all) one->up_taker.stalled = one->down_taker.stalled = true;
    both.run();                                    // everything that can move has moved: all is exhausted
    more = false;
    for (Case* one : all) {
      more = more || !one->done();
      one->up_taker.stalled = one->down_taker.stalled = false;
      one->up_far.touch();
      one->down_near.touch();
    }
    both.rig.tick();                               // the takers drain once
    REQUIRE(rounds < 100);
  }
  CHECK(rounds >= 5);
  for (Case* one : all) check_done(*one);
  both.check_clean();
}

TEST_CASE("h2: trailers travel behind both bodies", "[pipe][h2]") {
  Both both;
  Case& one = both.start(100'000, 0);
  auto up = std::make_unique<Head>(), down = std::make_unique<Head>();
  up->add(FieldId::other, "x-checksum", "abc");
  up->add(FieldId::connection, "connection", "close");
  up->fields[1].hop = true;
  down->add(FieldId::other, "grpc-status", "0");
  one.up_maker.with = up.get();
  one.down_maker.with = down.get();
  both.run();
  check_done(one);
  REQUIRE(one.up_taker.trailers != nullptr);
  REQUIRE(one.up_taker.trailers->field_count == 1);
  CHECK(one.up_taker.trailers->fields[0].name_view() == "x-checksum");
  CHECK(one.up_taker.trailers->fields[0].value_view() == "abc");
  REQUIRE(one.down_taker.trailers != nullptr);
  CHECK(one.down_taker.trailers->fields[0].value_view() == "0");
  both.check_clean();
}

TEST_CASE("h2: a reset in mid-body ends its stream, and leaks no credit", "[pipe][h2]") {
  Both both;
  Case& bystander = both.start(2'000'000, 2'000'000);
  for (int round = 0; round < 200; ++round) {
    Case& one = both.start(1'000'000, 1'000'000);
    one.up_taker.stalled = round % 2 == 0;
    for (int i = 0; i < 3; ++i) both.step();
    REQUIRE(one.server != nullptr);
    REQUIRE_FALSE(one.done());
    Stream& side = round % 3 == 0 ? static_cast<Stream&>(*one.server) : *one.client;
    side.abort(make_fault(What::client_reset));
    both.step();
  }
  both.run();
  check_done(bystander);
  CHECK(both.client.resets_seen == 200);
  CHECK(both.server.resets_seen == 200);
  for (auto& one : both.cases)
    if (one.get() != &bystander) CHECK_FALSE(one->done());
  both.check_clean();
  for (auto& one : both.cases) one->close();
  both.rig.tick();
}

TEST_CASE("h2: a long way makes the cap grow beyond the first window, and the peer is told", "[pipe][h2][tuning]") {
  Both both;
  both.limits.cap_max = 512u << 10;
  nghttp2_session_set_local_window_size(both.server.session(), NGHTTP2_FLAG_NONE, 0, 8 << 20);
  Case& one = both.start(30'000'000, 0);
  uint32_t cap = 0;
  int64_t window = 0;
  for (int rounds = 0; !one.done(); ++rounds) {
    REQUIRE(rounds < 1000);
    std::string there;
    for (bool more = true; more;) {                // all that the window lets through is on its way
      more = one.up_maker.step(both.rig, both.random);
      both.rig.tick();
      const std::string bytes = both.client.output(8u << 20);
      there += bytes;
      more = more || !bytes.empty();
    }
    both.rig.clock.at += std::chrono::milliseconds(50);
    both.rig.tick();
    both.cut(both.server, there);
    one.down_maker.step(both.rig, both.random);
    both.rig.tick();
    both.check_windows(one);
    cap = std::max(cap, one.up_far.cap());
    if (!one.server->closed)
      window = std::max<int64_t>(window, nghttp2_session_get_stream_local_window_size(both.server.session(), one.server->id()));
    both.cut(both.client, both.server.output(8u << 20));
  }
  check_done(one);
  CHECK(cap == 512u << 10);
  CHECK(window > 256 << 10);
  CHECK(both.rig.stats.audits_failed.get() == 0);
}

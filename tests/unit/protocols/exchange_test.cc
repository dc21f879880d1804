// Exchange: what it decides before anyone is asked, and what a broken request body leads to.
#include "protocols/exchange/exchange.h"

#include <catch2/catch_test_macros.hpp>
#include <functional>
#include <string>
#include <vector>

#include "tests/unit/protocols/pipe_rig.h"

using namespace weir;
using namespace weir::test;

namespace {

struct Peer : TestStream {
  void send_head(const Head& head, std::span<const ExtraField>) noexcept override { heads.push_back(head.status); }
  void abort(const Fault& fault) noexcept override { aborted.push_back(fault.what); }
  void detach() noexcept override { ++detached; }
  std::vector<int> heads;      // statuses; 0 for a request
  std::vector<What> aborted;
  int detached = 0;
};

struct World : Rig, ExchangeHandler {
  World() : context(loop), exchange(context.exchanges.make(context, *this, client, nullptr)) {
    client.may_relay = origin.may_relay = true;
    client.left = 1u << 20;
    loop.adopt(client.socket, 3, EngineKind::sim);
    loop.adopt(origin.socket, 4, EngineKind::sim);
  }
  ~World() {
    if (!over) exchange->client_failed(make_fault(What::client_reset), false);
    for (int i = 0; i < 3; ++i) tick();
  }
  void on_request(Exchange& e) noexcept override {
    path = e.request().path;
    ++asked;
    e.connect(origin, {});
  }
  bool on_origin_failed(Exchange& e, const Fault&) noexcept override {
    ++failures_seen;
    if (retry_at == nullptr) return false;
    e.connect(*retry_at, {});
    return true;
  }
  std::span<const ExtraField> on_response(Exchange&, Head&) noexcept override { return {}; }
  void on_end(Exchange& e) noexcept override {
    over = true;
    ended_with = e.fault().what;
  }
  void upload() {  // a large body; the relay has it
    exchange->request().body = BodyKind::length;
    exchange->request().content_length = client.left;
    exchange->request().path = "/";
    exchange->start();
    for (int i = 0; i < 3 && engine->relays.empty(); ++i) tick();
    REQUIRE(engine->relays.size() == 1);
  }
  RelayOp& relay() { return *engine->relays.at(0); }
  void relay_ends(int result) {
    engine->ready.push_back({engine->relays.at(0), result});
    for (int i = 0; i < 3; ++i) tick();
  }

  Peer client, origin, other;
  Peer* retry_at = nullptr;
  ExchangeContext context;
  Exchange* exchange;
  int asked = 0, failures_seen = 0;
  bool over = false;
  What ended_with = What::none;
  std::string path;
};

}  // namespace

TEST_CASE("a request whose body went into a relay cannot go to another origin: the client is told", "[exchange]") {
  World world;
  world.upload();
  world.relay().moved_in = 10;
  world.retry_at = &world.other;
  world.exchange->origin_failed(make_fault(What::connect_timeout));  // before the relay has ended
  CHECK(world.failures_seen == 1);
  for (int i = 0; i < 4; ++i) world.tick();
  CHECK(world.client.heads == std::vector<int>{502});
  CHECK(world.client.aborted.empty());
  CHECK(world.client.detached == 1);
  CHECK(world.other.aborted == std::vector<What>{What::origin_write_failed});
  CHECK(world.over);
  CHECK(world.ended_with == What::origin_write_failed);
}

TEST_CASE("where a relay's bytes are lost nobody is asked to try again", "[exchange]") {
  World world;
  world.upload();
  world.relay().moved_in = 10;
  world.relay().target_failed = true;
  world.retry_at = &world.other;
  world.relay_ends(-EPIPE);
  CHECK_FALSE(world.over);  // the origin may still answer
  world.exchange->origin_failed(make_fault(What::origin_closed));
  CHECK(world.failures_seen == 0);
  CHECK(world.other.heads.empty());
  for (int i = 0; i < 3; ++i) world.tick();
  CHECK(world.client.heads == std::vector<int>{502});
  CHECK(world.ended_with == What::origin_closed);
}

TEST_CASE("an answer that comes after the relay of its request broke is passed on", "[exchange][H6]") {
  World world;
  world.upload();
  world.relay().moved_in = 10;
  world.relay().target_failed = true;
  world.relay_ends(-EPIPE);
  Head answer;
  answer.status = 413;
  world.exchange->response_head(answer);
  CHECK(world.client.heads == std::vector<int>{413});
  CHECK(world.client.aborted.empty());
  CHECK(world.over);
}

TEST_CASE("a target that is refused, and an upgrade that is not offered, reach no handler", "[exchange][H9][H10]") {
  World world;
  Head& request = world.exchange->request();
  char path[] = "/a%2fb";
  int status = 0;
  SECTION("bad path") {
    request.path = path;
    status = 400;
  }
  SECTION("other protocol") {
    request.path = "/";
    request.upgrade = Upgrade::other;
    status = 501;
  }
  world.exchange->start();
  for (int i = 0; i < 3; ++i) world.tick();
  CHECK(world.asked == 0);
  CHECK(world.client.heads == std::vector<int>{status});
  CHECK(world.over);
}

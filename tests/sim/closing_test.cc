// How a connection ends: what the kernel is asked for, and what is not asked.
#include <catch2/catch_test_macros.hpp>

#include <utility>

#include "tests/sim/proxy.h"
#include "tests/sim/wrapped_engine.h"

namespace weir::simtest {
namespace {

struct Asked {
  int shutdowns = 0;
  int ends_received = 0;  // receives that brought an end of file
};

class CountingEngine final : public WrappedEngine {
 public:
  CountingEngine(std::unique_ptr<Engine> inner, Asked& asked) : WrappedEngine(std::move(inner)), asked_(asked) {}
  Turn turn(OpList& submitted, OpList& cancelled, OpList& completed, const Wait& wait) noexcept override {
    const Turn turn = WrappedEngine::turn(submitted, cancelled, completed, wait);
    for (const Op* op = completed.front(); op != nullptr; op = op->next)
      asked_.ends_received += op->kind == OpKind::recv && op->result == 0 ? 1 : 0;
    return turn;
  }
  void shutdown(Socket& socket, ShutdownHow how) noexcept override {
    ++asked_.shutdowns;
    WrappedEngine::shutdown(socket, how);
  }

 private:
  Asked& asked_;
};

Proxy::Options counting(Asked& asked) {
  Proxy::Options options;
  options.wrap_engine = [&asked](std::unique_ptr<Engine> inner) {
    return std::make_unique<CountingEngine>(std::move(inner), asked);
  };
  return options;
}

}  // namespace

// The receive that watches for the client's end is taken back when the answer is complete: neither that end nor the close costs a
// call then.
TEST_CASE("a client that asked for the end costs no receive of its own end and no shutdown") {
  Asked asked;
  Proxy proxy(counting(asked));
  proxy.origin();
  for (int i = 0; i < 20; ++i) {
    Client& client = proxy.client();
    client.get("/", "Connection: close\r\n");
    REQUIRE(proxy.run([&] { return client.closed(); }));
    REQUIRE(client.in.complete() == 1);
    REQUIRE(client.last().body == "hello");
  }
  CHECK(asked.shutdowns == 0);
  CHECK(asked.ends_received == 0);
  CHECK(proxy.verdict() == "");
}

TEST_CASE("an idle connection is closed by the cancellation of its receive, without a shutdown") {
  Asked asked;
  Proxy::Options options = counting(asked);
  options.timeouts = "keepalive: 1s";
  Proxy proxy(options);
  proxy.origin();
  Client& client = proxy.client();
  client.get();
  REQUIRE(proxy.run([&] { return client.closed(); }));
  CHECK(client.in.complete() == 1);
  CHECK(asked.shutdowns == 0);
  CHECK(proxy.verdict() == "");
}

// A send that waits for its peer is not taken back by a cancellation alone.
TEST_CASE("a client that does not read is cut by a shutdown") {
  Asked asked;
  Proxy::Options options = counting(asked);
  options.timeouts = "write: 2s";
  Proxy proxy(options);
  proxy.origin().on_request = [](Origin::Conn& conn, Message&) { conn.answer(std::string(4u << 20, 'x')); };
  Client& client = proxy.client();
  client.peer.allow(0);
  client.get();
  REQUIRE(proxy.run([&] { return proxy.timeouts(h1::ServerTimeoutKind::write) == 1; }));
  proxy.run_for(std::chrono::seconds(1));
  CHECK(asked.shutdowns >= 1);
  CHECK(proxy.verdict() == "");
}

}  // namespace weir::simtest

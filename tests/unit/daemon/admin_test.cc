// The admin server on a real socket: that it comes back when descriptors had run out.
#include <catch2/catch_test_macros.hpp>

#include <sys/socket.h>
#include <unistd.h>

#include <cstring>

#include "daemon/admin.h"
#include "daemon/log.h"
#include "engines/epoll_engine.h"
#include "tests/unit/engines/sys_probe.h"

namespace weir {
namespace {

using namespace std::chrono_literals;

struct Admin {
  SystemClock clock;
  Loop loop{clock, {.slab_bytes_max = 16 << 20, .gather = false}};
  std::unique_ptr<AdminServer> server;
  Address address = *Address::parse("127.0.0.1:0");

  Admin() {
    log::set(log::Level::error, log::Format::text);
    auto engine = make_epoll_engine(loop.slabs());
    REQUIRE(engine.has_value());
    loop.add_engine(std::move(*engine));
    const int fd = ::socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    REQUIRE(::bind(fd, &address.any, address.length) == 0);
    REQUIRE(::listen(fd, 16) == 0);
    REQUIRE(::getsockname(fd, &address.any, &address.length) == 0);
    server = std::make_unique<AdminServer>(loop);
    server->route("GET", "/healthz", [](const AdminRequest&, const AdminReply& reply) { reply({200, "text/plain", "ok\n", {}}); });
    server->listen(fd);
  }
  ~Admin() {
    server->close();
    CHECK(until([&] { return server->empty(); }));
  }
  template <class Done>
  bool until(Done&& done) {
    for (int i = 0; i < 2000 && !done(); ++i) loop.tick(5ms);
    return done();
  }
  // The answer to one GET; empty when none comes.
  std::string ask(const std::string& path, const std::string& host = "a", const std::string& more = "") {
    const int fd = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    REQUIRE(::connect(fd, &address.any, address.length) == 0);
    const std::string request = "GET " + path + " HTTP/1.1\r\nHost: " + host + "\r\n" + more + "Connection: close\r\n\r\n";
    REQUIRE(::send(fd, request.data(), request.size(), MSG_NOSIGNAL) == static_cast<ssize_t>(request.size()));
    std::string got;
    until([&] {
      char piece[512];
      const ssize_t count = ::recv(fd, piece, sizeof piece, MSG_DONTWAIT);
      if (count > 0) got.append(piece, static_cast<size_t>(count));
      return count == 0 || (count < 0 && errno != EAGAIN);
    });
    ::close(fd);
    return got;
  }
};

}  // namespace

TEST_CASE("the admin server answers again after descriptors had run out", "[E8]") {
  SysProbe probe;
  Admin admin;
  CHECK(admin.ask("/healthz").starts_with("HTTP/1.1 200"));
  probe.fail("accept4", EMFILE, 2);
  CHECK(admin.ask("/healthz").starts_with("HTTP/1.1 200"));
  CHECK(admin.ask("/nothing").starts_with("HTTP/1.1 404"));
}

TEST_CASE("a guarded admin server answers to its own hosts and to the token only") {
  Admin admin;
  admin.server->guard("s3cret");
  const std::string right = "Authorization: Bearer s3cret\r\n";
  for (const char* host : {"localhost", "localhost:9000", "127.0.0.1:9000", "192.0.2.7", "[::1]:9000", "[::1]"}) {
    INFO(host);
    CHECK(admin.ask("/healthz", host, right).starts_with("HTTP/1.1 200"));
  }
  CHECK(admin.ask("/healthz", "localhost", "authorization: bearer s3cret\r\n").starts_with("HTTP/1.1 200"));
  for (const char* host : {"evil.example", "localhost.evil.example", "127.0.0.1.evil.example:9000", "unix", "unix:9000"}) {
    INFO(host);
    CHECK(admin.ask("/healthz", host, right).starts_with("HTTP/1.1 403"));
  }
  for (const char* wrong : {"", "Authorization: Bearer s3cre\r\n", "Authorization: Bearer s3crets\r\n", "Authorization: Bearer S3cret\r\n",
                            "Authorization: Basic s3cret\r\n", "Authorization: Bearer \r\n", "X-Token: s3cret\r\n"}) {
    INFO(wrong);
    const std::string answer = admin.ask("/healthz", "localhost", wrong);
    CHECK(answer.starts_with("HTTP/1.1 401"));
    CHECK(answer.find("www-authenticate: Bearer") != std::string::npos);
    CHECK(admin.ask("/nothing", "localhost", wrong).starts_with("HTTP/1.1 401"));   // what there is is told to nobody
  }
}

TEST_CASE("an unguarded server refuses what a foreign page on this machine could send") {
  Admin admin;
  CHECK(admin.ask("/healthz", "evil.example").starts_with("HTTP/1.1 200"));
  admin.server->refuse_foreign_pages();
  for (const char* host : {"localhost:9145", "127.0.0.1", "[::1]:9145", "192.0.2.7:9145"}) {
    INFO(host);
    CHECK(admin.ask("/healthz", host).starts_with("HTTP/1.1 200"));
  }
  for (const char* host : {"evil.example", "evil.example:9145", "unix"}) {
    INFO(host);
    CHECK(admin.ask("/healthz", host).starts_with("HTTP/1.1 403"));
  }
}

TEST_CASE("the admin server holds a bounded number of connections, and serves the newest") {
  Admin admin;
  constexpr size_t kMost = system::kAdminConnectionsMax;
  std::vector<int> fds;
  const auto another = [&](const char* text) {
    fds.push_back(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    REQUIRE(::connect(fds.back(), &admin.address.any, admin.address.length) == 0);
    REQUIRE(::send(fds.back(), text, strlen(text), MSG_NOSIGNAL) >= 0);
    for (int i = 0; i < 5; ++i) admin.loop.tick(5ms);
  };
  const auto open = [&] {
    size_t count = 0;
    for (const int fd : fds) {
      char byte;
      if (::recv(fd, &byte, 1, MSG_DONTWAIT | MSG_PEEK) < 0 && errno == EAGAIN) ++count;
    }
    return count;
  };
  // A request that is asked and not answered yet; then connections that say nothing, or half a head.
  AdminReply late;
  admin.server->route("GET", "/slow", [&](const AdminRequest&, const AdminReply& reply) { late = reply; });
  another("GET /slow HTTP/1.1\r\nHost: a\r\n\r\n");
  REQUIRE(late);
  for (size_t i = 0; i < 2 * kMost; ++i) another(i % 2 == 0 ? "" : "GET /slow HTTP/1.1\r\n");
  CHECK(open() == kMost);
  CHECK(admin.ask("/healthz").starts_with("HTTP/1.1 200"));
  late({200, "text/plain", "late\n", {}});
  for (int i = 0; i < 5; ++i) admin.loop.tick(5ms);
  char answer[12];
  CHECK(::recv(fds[0], answer, sizeof answer, MSG_DONTWAIT) == sizeof answer);
  CHECK(std::string_view(answer, sizeof answer) == "HTTP/1.1 200");
  for (const int fd : fds) ::close(fd);
}

TEST_CASE("closing the admin server ends what is open, and what is still queued") {
  Admin admin;
  int fds[2];
  for (int& fd : fds) {
    fd = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    REQUIRE(::connect(fd, &admin.address.any, admin.address.length) == 0);
    if (&fd == &fds[0]) admin.loop.tick(5ms);
  }
  admin.server->close();
  CHECK(admin.until([&] { return admin.server->empty(); }));
  for (const int fd : fds) {
    char byte;
    CHECK(::recv(fd, &byte, 1, 0) <= 0);
    ::close(fd);
  }
}

}  // namespace weir

// What the admin API does without a daemon: parameters, redaction; and what the command line makes of an answer.
#include <catch2/catch_test_macros.hpp>

#include <sys/socket.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <thread>
#include <utility>

#include "daemon/admin_api.h"
#include "daemon/commands.h"

using namespace weir;

TEST_CASE("admin: parameters of a query", "[admin]") {
  AdminRequest request;
  request.query = "a=1&b=x%20y%2&c&&a=2&d=p+q";
  CHECK(request.parameter("a") == "1");
  CHECK(request.parameter("b") == "x y%2");
  CHECK(request.parameter("c").empty());
  CHECK(request.parameter("d") == "p q");
  CHECK(request.parameter("e").empty());
  CHECK(request.unknown_parameter({"a", "b", "c", "d"}).empty());
  CHECK(request.unknown_parameter({"a", "c", "d"}) == "b");
}

TEST_CASE("admin: an error is JSON with a sentence", "[admin]") {
  const AdminAnswer answer = AdminAnswer::error(404, "there is no \"x\"");
  CHECK(answer.status == 404);
  CHECK(answer.body == "{\"error\":\"there is no \\\"x\\\"\"}\n");
}

TEST_CASE("admin: a token is the one line of its file", "[admin]") {
  char name[] = "/tmp/weir-token-XXXXXX";
  const int fd = mkstemp(name);
  REQUIRE(fd >= 0);
  ::close(fd);
  const auto with = [&](const std::string& text) {
    std::ofstream(name) << text;
    return read_token(name);
  };
  CHECK(with("abc123\n").value() == "abc123");
  CHECK(with("abc123").value() == "abc123");
  CHECK(with("abc123\r\nmore\n").value() == "abc123");
  for (const char* bad : {"", "\n", "a b\n", "a\tb\n", "\xc3\xa9\n"}) {
    INFO(bad);
    REQUIRE_FALSE(with(bad));
    CHECK(with(bad).error().find(name) != std::string::npos);
  }
  unlink(name);
  CHECK_FALSE(read_token(name));
}

namespace {

// A socket that is listened on, and what a daemon of another kind does with it.
struct Listening {
  std::string folder;
  AdminEndpoint endpoint;
  int fd;
  explicit Listening(int backlog) {
    char name[] = "/tmp/weir-listening-XXXXXX";
    folder = mkdtemp(name);
    endpoint.name = "unix:" + folder + "/s";
    endpoint.address = *Address::parse(endpoint.name);
    fd = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    REQUIRE(::bind(fd, &endpoint.address.any, endpoint.address.length) == 0);
    REQUIRE(::listen(fd, backlog) == 0);
  }
  ~Listening() {
    ::close(fd);
    std::filesystem::remove_all(folder);
  }
};

}  // namespace

TEST_CASE("whoever asks the daemon waits for so long and no longer", "[admin]") {
  using namespace std::chrono_literals;
  SECTION("nobody accepts, and the queue is full") {
    Listening stopped(0);
    const int queued = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    REQUIRE(::connect(queued, &stopped.endpoint.address.any, stopped.endpoint.address.length) == 0);
    CHECK(admin_reachable(stopped.endpoint, 20ms));
    const auto answer = ask_admin(stopped.endpoint, "GET", "/status", {}, 20ms);
    REQUIRE_FALSE(answer);
    CHECK(answer.error() == stopped.endpoint.name + ": no answer within 20 ms");
    ::close(queued);
  }
  SECTION("the answer comes byte by byte, and never ends") {
    Listening slow(4);
    std::thread other([&] {
      const int fd = ::accept(slow.fd, nullptr, nullptr);
      for (std::string piece = "HTTP/1.1 200 OK\r\nX: "; ::send(fd, piece.data(), piece.size(), MSG_NOSIGNAL) > 0; piece = "x")
        std::this_thread::sleep_for(2ms);
      ::close(fd);
    });
    const auto answer = ask_admin(slow.endpoint, "GET", "/status", {}, 30ms);
    REQUIRE_FALSE(answer);
    CHECK(answer.error() == slow.endpoint.name + ": no answer within 30 ms");
    other.join();
  }
  SECTION("nobody listens") {
    Listening gone(4);
    ::close(std::exchange(gone.fd, -1));
    CHECK_FALSE(admin_reachable(gone.endpoint, 1s));
    CHECK(ask_admin(gone.endpoint, "GET", "/status", {}, 1s).error() == gone.endpoint.name + ": Connection refused");
  }
}

TEST_CASE("status: the table for people", "[admin]") {
  const std::string status =
      R"({"version":"0.1.0","commit":"abc","pid":42,"stage":"serving","ready":true,"started":1000,"config_file":"/etc/w.yaml",)"
      R"("workers":2,"config":{"hash":"h","generation":3,"last_reload_success":true},)"
      R"("listeners":[{"name":"web","engine":"epoll","connections":5,"binds":[{"bind":":80"},{"bind":":81"}]}],)"
      R"("must_stay_zero":{"weir_x_total":0}})";
  const std::string upstreams = R"({"upstreams":[{"name":"app","connections":2,"servers":[)"
                                R"({"address":"10.0.0.5:80","weight":1,"answers":{"2xx":7,"3xx":0,"4xx":1,"5xx":0}}]}]})";
  CHECK(status_text(status, upstreams, 1000 + 90'061) ==
        "weir 0.1.0 (abc), pid 42, serving, up 1 d 1 h, 2 worker(s)\n"
        "/etc/w.yaml, generation 3, hash h\n\n"
        "LISTENER  BIND     ENGINE  CONNECTIONS\n"
        "web       :80,:81  epoll   5\n\n"
        "UPSTREAM  SERVER       WEIGHT  2XX  3XX  4XX  5XX  CONNECTIONS\n"
        "app       10.0.0.5:80  1       7    0    1    0    2\n");
  CHECK(status_text("nonsense", "", 0).empty());
  const std::string bug = status_text(R"({"stage":"refusing","must_stay_zero":{"weir_x_total":1}})", "", 0);
  CHECK(bug.find("refusing") != std::string::npos);
  CHECK(bug.find("weir_x_total is 1: a bug of Weir's") != std::string::npos);
}

// What systemd hears, on a socket of the test's own.
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <catch2/catch_test_macros.hpp>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <string>

#include "daemon/notify.h"

namespace weir {
namespace {

// An abstract or named datagram socket, and $NOTIFY_SOCKET that says so.
class Manager {
 public:
  explicit Manager(const std::string& path) : path_(path) {
    fd_ = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    sockaddr_un to{};
    to.sun_family = AF_UNIX;
    memcpy(to.sun_path, path.data(), path.size());
    if (path[0] == '@') to.sun_path[0] = 0;
    const size_t size = offsetof(sockaddr_un, sun_path) + path.size() + (path[0] == '/' ? 1 : 0);
    REQUIRE(bind(fd_, reinterpret_cast<const sockaddr*>(&to), static_cast<socklen_t>(size)) == 0);
    setenv("NOTIFY_SOCKET", path.c_str(), 1);
  }
  ~Manager() {
    unsetenv("NOTIFY_SOCKET");
    ::close(fd_);
    if (path_[0] == '/') unlink(path_.c_str());
  }
  std::string heard() {                       // "" where nothing was said
    char text[4096];
    const ssize_t n = recv(fd_, text, sizeof text, 0);
    return {text, n > 0 ? static_cast<size_t>(n) : 0};
  }

 private:
  std::string path_;
  int fd_;
};

std::string own_path(const char* kind) { return kind + ("weir-notify-" + std::to_string(getpid())); }

long long monotonic_usec() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<long long>(now.tv_sec) * 1'000'000 + now.tv_nsec / 1000;
}

}  // namespace

TEST_CASE("ready, reloading and stopping, as sd_notify(3) has them") {
  for (const char* kind : {"/tmp/", "@"}) {
    CAPTURE(kind);
    Manager manager(own_path(kind));
    notify::ready("serving 2 listeners");
    CHECK(manager.heard() == "READY=1\nSTATUS=serving 2 listeners\nMAINPID=" + std::to_string(getpid()));
    const long long before = monotonic_usec();
    notify::reloading();
    const long long after = monotonic_usec();
    const std::string heard = manager.heard();
    const std::string start = "RELOADING=1\nMONOTONIC_USEC=";
    REQUIRE(heard.starts_with(start));
    const long long said = std::stoll(heard.substr(start.size()));
    CHECK(said >= before);
    CHECK(said <= after);
    CHECK(heard.ends_with("\nSTATUS=reloading"));
    notify::stopping("draining");
    CHECK(manager.heard() == "STOPPING=1\nSTATUS=draining");
    CHECK(manager.heard().empty());
  }
}

TEST_CASE("without a manager, or with one that is gone, nothing happens") {
  unsetenv("NOTIFY_SOCKET");
  notify::ready("x");
  setenv("NOTIFY_SOCKET", "", 1);
  notify::ready("x");
  setenv("NOTIFY_SOCKET", "relative", 1);
  notify::ready("x");
  setenv("NOTIFY_SOCKET", ("/tmp/" + std::string(200, 'x')).c_str(), 1);
  notify::ready("x");
  setenv("NOTIFY_SOCKET", "/tmp/weir-nobody-listens-here", 1);
  notify::ready("x");
  unsetenv("NOTIFY_SOCKET");
  Manager manager(own_path("@"));
  CHECK(manager.heard().empty());
}

TEST_CASE("a manager that does not read delays nobody") {
  Manager manager(own_path("@"));
  for (int i = 0; i < 10'000; ++i) notify::send("STATUS=" + std::to_string(i));
  CHECK(manager.heard() == "STATUS=0");
}

}  // namespace weir

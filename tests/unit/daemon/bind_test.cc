// Listening sockets: what is bound, what is refused and why, and that a duplicate is the same socket.
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <catch2/catch_test_macros.hpp>
#include <filesystem>

#include "daemon/bind.h"
#include "engines/address.h"

namespace weir {
namespace {

using config::SocketName;

class SocketFolder {
 public:
  SocketFolder() {
    char name[] = "/tmp/weir-bind-XXXXXX";
    path_ = mkdtemp(name);
  }
  ~SocketFolder() { std::filesystem::remove_all(path_); }
  SocketName socket(const std::string& name) const { return {.host = {}, .port = 0, .unix_path = path_ + "/" + name}; }

 private:
  std::string path_;
};

SocketName tcp(uint16_t port) { return {.host = "127.0.0.1", .port = port, .unix_path = {}}; }

// A port that somebody else listens on.
struct Taken {
  Taken() {
    fd = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    Address address = *Address::parse("127.0.0.1:0");
    REQUIRE(::bind(fd, &address.any, address.length) == 0);
    REQUIRE(::listen(fd, 1) == 0);
    REQUIRE(getsockname(fd, &address.any, &address.length) == 0);
    port = address.port();
  }
  ~Taken() { ::close(fd); }
  int fd;
  uint16_t port = 0;
};

uint16_t free_port() { return Taken().port; }

uint64_t inode(int fd) {
  struct stat info {};
  REQUIRE(fstat(fd, &info) == 0);
  return info.st_ino;
}

unsigned file_mode(const SocketName& name) {
  struct stat info {};
  REQUIRE(lstat(name.unix_path.c_str(), &info) == 0);
  return info.st_mode & 07777;
}

bool connects(const SocketName& name) {
  const Address address = *Address::parse(name.text());
  const int fd = ::socket(address.family(), SOCK_STREAM | SOCK_CLOEXEC, 0);
  const bool well = connect(fd, &address.any, address.length) == 0;
  ::close(fd);
  return well;
}

}  // namespace

TEST_CASE("a port that is taken: a sentence with the address and the reason") {
  const Taken taken;
  BoundSockets bound;
  const SocketName name = tcp(taken.port);
  const auto result = bound.open({name}, 1);
  REQUIRE_FALSE(result);
  CHECK(result.error().starts_with("cannot bind " + name.text() + ": Address already in use"));
  CHECK_FALSE(bound.has(name.text()));
}

TEST_CASE("one that cannot be bound takes back the others of the same call") {
  const Taken taken;
  const SocketFolder folder;
  const SocketName other = folder.socket("a");
  BoundSockets bound;
  CHECK_FALSE(bound.open({other, tcp(taken.port)}, 1));
  CHECK_FALSE(bound.has(other.text()));
  CHECK_FALSE(std::filesystem::exists(other.unix_path));
}

TEST_CASE("a second process of the same user does not share a port unawares") {
  const SocketName name = tcp(free_port());
  BoundSockets first, second;
  REQUIRE(first.open({name}, 2));
  const auto result = second.open({name}, 2);
  REQUIRE_FALSE(result);
  CHECK(result.error().find("Address already in use") != std::string::npos);
}

TEST_CASE("one TCP socket for each worker; a unix socket is shared; a duplicate is the same socket") {
  const SocketFolder folder;
  const SocketName name = tcp(free_port()), path = folder.socket("s");
  BoundSockets bound;
  REQUIRE(bound.open({name, path}, 3));
  const auto inodes = bound.inodes(name.text());
  REQUIRE(inodes.size() == 3);
  CHECK(bound.inodes(path.text()).size() == 1);
  for (size_t worker = 0; worker < 3; ++worker) {
    const int fd = bound.duplicate(name.text(), worker);
    REQUIRE(fd >= 0);
    CHECK(inode(fd) == inodes[worker]);
    ::close(fd);
    const int shared = bound.duplicate(path.text(), worker);
    CHECK(inode(shared) == bound.inodes(path.text())[0]);
    ::close(shared);
  }
  REQUIRE(bound.open({name, path}, 3));   // again, as a reload does: what stands stays
  CHECK(bound.inodes(name.text()) == inodes);
  CHECK(connects(name));
  CHECK(connects(path));
}

TEST_CASE("keep_only closes what is not named, and a duplicate outlives it") {
  const SocketFolder folder;
  const SocketName a = folder.socket("a"), b = folder.socket("b");
  BoundSockets bound;
  REQUIRE(bound.open({a, b}, 1));
  const int kept = bound.duplicate(b.text(), 0);
  bound.keep_only({a.text()});
  CHECK(bound.has(a.text()));
  CHECK_FALSE(bound.has(b.text()));
  CHECK(connects(a));
  CHECK_FALSE(std::filesystem::exists(b.unix_path));
  int accepts = 0;
  socklen_t size = sizeof accepts;
  CHECK(getsockopt(kept, SOL_SOCKET, SO_ACCEPTCONN, &accepts, &size) == 0);
  CHECK(accepts == 1);
  ::close(kept);
  bound.close_all();
  CHECK_FALSE(std::filesystem::exists(a.unix_path));
}

TEST_CASE("a socket file left by a dead process is replaced; one in use and one that is no socket are not") {
  const SocketFolder folder;
  const SocketName name = folder.socket("s");
  const Address address = *Address::parse(name.text());
  {
    const int dead = ::socket(AF_UNIX, SOCK_STREAM, 0);
    REQUIRE(::bind(dead, &address.any, address.length) == 0);
    ::close(dead);
    REQUIRE(std::filesystem::exists(name.unix_path));
    BoundSockets bound;
    REQUIRE(bound.open({name}, 1));
    CHECK(connects(name));
  }
  CHECK_FALSE(std::filesystem::exists(name.unix_path));
  BoundSockets first, second;
  REQUIRE(first.open({name}, 1));
  CHECK_FALSE(second.open({name}, 1));
  CHECK(connects(name));
  const SocketName file = folder.socket("file");
  fclose(fopen(file.unix_path.c_str(), "w"));
  CHECK_FALSE(second.open({file}, 1));
  CHECK(std::filesystem::exists(file.unix_path));
}

TEST_CASE("a unix socket gets the mode and the owner that its listener asks for") {
  const SocketFolder folder;
  const auto give_access = [](const config::Snapshot& asked) { return AccessChange().apply(asked); };
  config::Snapshot config;
  config.listeners.resize(1);
  config.listeners[0].binds = {folder.socket("a.sock")};
  config.listeners[0].unix_access.mode = uint16_t{0620};
  config.listeners[0].unix_access.user = std::to_string(geteuid());
  BoundSockets sockets;
  REQUIRE(sockets.open(config.listeners[0].binds, 1));
  CHECK(give_access(config) == "");
  struct stat info {};
  REQUIRE(stat(folder.socket("a.sock").unix_path.c_str(), &info) == 0);
  CHECK((info.st_mode & 07777) == 0620);
  CHECK(info.st_uid == geteuid());
  config.listeners[0].unix_access.group = "no-such-group-here";
  CHECK(give_access(config) == folder.socket("a.sock").unix_path + ": there is no group no-such-group-here");
  config.listeners[0].unix_access = {};
  config.listeners[0].unix_access.user = "no-such-user-here";
  CHECK(give_access(config) == folder.socket("a.sock").unix_path + ": there is no user no-such-user-here");
  config.listeners[0].binds = {folder.socket("never.sock")};
  CHECK(give_access(config).starts_with("cannot look at "));
  config.listeners[0].unix_access = {};   // nothing is asked for
  CHECK(give_access(config) == "");
}

TEST_CASE("access is given to all sockets or to none, and can be taken back") {
  const SocketFolder folder;
  config::Snapshot config;
  config.listeners.resize(2);
  for (size_t i : {0u, 1u}) {
    config.listeners[i].binds = {folder.socket(i == 0 ? "a.sock" : "b.sock")};
    config.listeners[i].unix_access.mode = uint16_t{0600};
  }
  BoundSockets sockets;
  REQUIRE(sockets.open({config.listeners[0].binds[0], config.listeners[1].binds[0]}, 1, socket_modes(config)));
  const auto mode = [&](size_t i) { return file_mode(config.listeners[i].binds[0]); };
  CHECK(mode(0) == 0600);
  for (size_t i : {0u, 1u}) config.listeners[i].unix_access.mode = uint16_t{0666};
  config.listeners[1].unix_access.group = "no-such-group-here";
  CHECK(AccessChange().apply(config).find("no group no-such-group-here") != std::string::npos);
  CHECK(mode(0) == 0600);
  config.listeners[1].unix_access.group.clear();
  AccessChange change;
  CHECK(change.apply(config) == "");
  CHECK(mode(0) == 0666);
  CHECK(mode(1) == 0666);
  change.take_back();
  CHECK(mode(0) == 0600);
  CHECK(mode(1) == 0600);
  if (geteuid() == 0) return;   // root may give files away
  config.listeners[1].unix_access.user = "0";
  CHECK(AccessChange().apply(config).starts_with("cannot set the owner of "));
  CHECK(mode(0) == 0600);
}

TEST_CASE("a file that was put in the place of a socket keeps its mode, and stays when the socket goes") {
  const SocketFolder folder;
  const SocketName name = folder.socket("s"), victim = folder.socket("victim"), other = folder.socket("other");
  fclose(fopen(victim.unix_path.c_str(), "w"));
  REQUIRE(chmod(victim.unix_path.c_str(), 0600) == 0);
  BoundSockets sockets;
  REQUIRE(sockets.open({name}, 1));
  std::filesystem::remove(name.unix_path);
  config::UnixAccess open_to_all;
  open_to_all.mode = uint16_t{0777};
  SECTION("a symlink") {
    std::filesystem::create_symlink(victim.unix_path, name.unix_path);
    CHECK(AccessChange().apply(name.unix_path, open_to_all) == name.unix_path + " is not the socket any more that was bound there");
  }
  SECTION("a hard link") {
    std::filesystem::create_hard_link(victim.unix_path, name.unix_path);
    CHECK(AccessChange().apply(name.unix_path, open_to_all) == name.unix_path + " is not the socket any more that was bound there");
  }
  SECTION("another process's socket") {
    BoundSockets second;
    REQUIRE(second.open({name}, 1));
    sockets.close_all();
    CHECK(connects(name));
  }
  CHECK(file_mode(victim) == 0600);
  sockets.close_all();
}

TEST_CASE("a unix socket never stands open to more than its mode, not even before it is given access") {
  const SocketFolder folder;
  const SocketName name = folder.socket("s");
  const mode_t before = umask(0);
  BoundSockets sockets;
  const bool opened = sockets.open({name}, 1, {{name.text(), 0600}}).has_value();
  umask(before);
  REQUIRE(opened);
  CHECK(file_mode(name) == 0600);
}

}  // namespace weir

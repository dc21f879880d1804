// The access log's writer: what it cannot write is counted, and nobody waits for it.
#include <catch2/catch_test_macros.hpp>

#include <fcntl.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <future>
#include <thread>

#include "daemon/access_log.h"
#include "daemon/log.h"

namespace weir {
namespace {

using namespace std::chrono_literals;

struct Folder {
  std::string path;
  Folder() {
    char name[] = "/tmp/weir-access-XXXXXX";
    path = mkdtemp(name);
    log::set(log::Level::error, log::Format::text);
  }
  ~Folder() {
    unlink(file().c_str());
    rmdir(path.c_str());
  }
  std::string file() const { return path + "/log"; }
};

config::AccessLog to(const std::string& path) {
  config::AccessLog wanted;
  wanted.path = path;
  return wanted;
}

// Progress ends it; the bound only keeps a broken writer from hanging the test.
template <class Done>
bool until(Done&& done) {
  for (int i = 0; i < 2000 && !done(); ++i) std::this_thread::sleep_for(5ms);
  return done();
}

void write_line(AccessLog& log, std::string_view path) {
  AccessEntry entry;
  entry.method = "GET";
  entry.path = path;
  log.sink(0).write(entry);
}

// A pipe that somebody holds and nobody reads.
struct StuckPipe {
  int reader = -1;
  explicit StuckPipe(const std::string& path) {
    REQUIRE(mkfifo(path.c_str(), 0600) == 0);
    reader = open(path.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    REQUIRE(reader >= 0);
    REQUIRE(fcntl(reader, F_SETPIPE_SZ, 4096) == 4096);
  }
  ~StuckPipe() { ::close(reader); }  // a write that hangs in it ends with EPIPE
  bool full() const {
    int bytes = 0;
    return ioctl(reader, FIONREAD, &bytes) == 0 && bytes == 4096;
  }
};

}  // namespace

TEST_CASE("lines that a full disk refuses are counted") {
  Folder folder;
  AccessLog log(1);
  REQUIRE(log.configure(to("/dev/full")).empty());
  for (int i = 0; i < 3; ++i) write_line(log, "/x");
  CHECK(until([&] { return log.dropped() == 3; }));
  CHECK(log.close());
  CHECK(log.dropped() == 3);
}

TEST_CASE("a line that was torn by a full disk spoils no later one") {
  signal(SIGXFSZ, SIG_IGN);
  Folder folder;
  AccessLog log(1);
  REQUIRE(log.configure(to(folder.file())).empty());
  rlimit before{};
  REQUIRE(getrlimit(RLIMIT_FSIZE, &before) == 0);
  rlimit small = before;
  small.rlim_cur = 50;
  REQUIRE(setrlimit(RLIMIT_FSIZE, &small) == 0);
  write_line(log, "/torn");
  const bool counted = until([&] { return log.dropped() == 1; });
  REQUIRE(setrlimit(RLIMIT_FSIZE, &before) == 0);
  CHECK(counted);
  write_line(log, "/whole");
  CHECK(log.close());
  CHECK(log.dropped() == 1);
  std::ifstream file(folder.file());
  std::string torn, whole, more;
  std::getline(file, torn);
  std::getline(file, whole);
  CHECK(torn.size() == 50);
  CHECK(whole.starts_with("{\"ts\":"));
  CHECK(whole.find("\"/whole\"") != std::string::npos);
  CHECK_FALSE(std::getline(file, more));
}

TEST_CASE("a writer that hangs in a write holds up neither reopening, nor a new configuration, nor the end") {
  signal(SIGPIPE, SIG_IGN);
  Folder folder;
  auto log = std::make_unique<AccessLog>(1);
  auto pipe = std::make_unique<StuckPipe>(folder.file());
  REQUIRE(log->configure(to(folder.file())).empty());
  const std::string path(2000, 'x');
  for (int i = 0; i < 5; ++i) write_line(*log, path);
  REQUIRE(until([&] { return pipe->full(); }));
  std::this_thread::sleep_for(20ms);   // into its next write
  auto rest = std::async(std::launch::async, [&] {
    const bool reopened = log->reopen().empty();
    return reopened && log->configure(to("/dev/null")).empty() && !log->close(50ms);
  });
  const bool in_time = rest.wait_for(20s) == std::future_status::ready;
  CHECK(in_time);
  pipe.reset();                        // lets go of whoever hangs
  CHECK((rest.get() || !in_time));
}

TEST_CASE("a pipe without a reader is refused instead of waited for") {
  Folder folder;
  REQUIRE(mkfifo(folder.file().c_str(), 0600) == 0);
  AccessLog log(1);
  auto refused = std::async(std::launch::async, [&] { return log.configure(to(folder.file())); });
  const bool in_time = refused.wait_for(20s) == std::future_status::ready;
  CHECK(in_time);
  const int release = open(folder.file().c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC);
  CHECK(refused.get().starts_with("access log " + folder.file() + ": "));
  ::close(release);
}

}  // namespace weir

// What the machine says, and names that need no look-up.
#include <sys/resource.h>
#include <unistd.h>

#include <catch2/catch_test_macros.hpp>

#include "daemon/resolve.h"
#include "daemon/system.h"

namespace weir {

TEST_CASE("CPUs, memory and descriptors are within what there is") {
  CHECK(system::usable_cpus() >= 1);
  CHECK(system::usable_cpus() <= static_cast<uint32_t>(sysconf(_SC_NPROCESSORS_CONF)));
  const uint64_t machine = static_cast<uint64_t>(sysconf(_SC_PHYS_PAGES)) * static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
  CHECK(system::usable_memory_bytes() > 0);
  CHECK(system::usable_memory_bytes() <= machine);
  rlimit before{};
  REQUIRE(getrlimit(RLIMIT_NOFILE, &before) == 0);
  CHECK(system::raise_descriptor_limit() == before.rlim_max);
  rlimit after{};
  REQUIRE(getrlimit(RLIMIT_NOFILE, &after) == 0);
  CHECK(after.rlim_cur == before.rlim_max);
  setrlimit(RLIMIT_NOFILE, &before);
}

TEST_CASE("a user that does not exist is named") {
  const auto result = system::become("no-such-user-here");
  REQUIRE_FALSE(result);
  CHECK(result.error() == "user no-such-user-here: there is no such user");
}

TEST_CASE("literals resolve to themselves, without a look-up") {
  const auto only = [](const config::SocketName& name) {
    const auto found = resolve(name);
    return found.size() == 1 ? found[0].text() : "";
  };
  CHECK(only({.host = "127.0.0.1", .port = 80, .unix_path = {}}) == "127.0.0.1:80");
  CHECK(only({.host = "::1", .port = 8080, .unix_path = {}}) == "[::1]:8080");
  CHECK(only({.host = {}, .port = 0, .unix_path = "/run/a.sock"}) == "unix:/run/a.sock");
}

}  // namespace weir

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

TEST_CASE("descriptors are shared out so that connections, their origins and relay pipes fit together", "[E13]") {
  for (const uint64_t descriptors : {64u, 100u, 256u, 1024u, 20000u, 1048576u}) {
    for (const size_t workers : {1u, 2u, 16u}) {
      for (const uint64_t wished : {1u, 100u, 65536u, 100000000u}) {
        CAPTURE(descriptors, workers, wished);
        const auto share = system::share_descriptors(descriptors, workers, wished);
        CHECK(share.connections <= wished);
        CHECK(share.connections >= 1);
        CHECK(2 * share.connections + 2 * share.relay_pipes + std::min<uint64_t>(descriptors / 4, 64 + 2 * system::kAdminConnectionsMax) <= descriptors);
        CHECK(share.relay_pipes > 0);
      }
    }
  }
  CHECK(system::share_descriptors(1048576, 2, 65536).connections == 65536);   // where there is room the wish is granted
  CHECK(system::share_descriptors(4, 1, 65536).connections == 8);             // a floor, however little there is
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

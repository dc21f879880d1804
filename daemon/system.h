// What the machine gives us: CPUs, memory, descriptors, and the user to become. Called at start, on the main thread.
// Errors are sentences for the log. It changes only this process.
#pragma once

#include <cstdint>
#include <expected>
#include <string>

namespace weir::system {

uint32_t usable_cpus();            // affinity and the cgroup's CPU quota, whichever is less; at least 1
uint64_t usable_memory_bytes();    // the cgroup's limit or the machine's, whichever is less
uint64_t raise_descriptor_limit(); // soft RLIMIT_NOFILE up to hard; returns it
inline constexpr size_t kAdminConnectionsMax = 32;   // of the admin server, and of that for metrics
// What so many descriptors carry: two for each client connection (its own and the origin's), two for each relay pipe, and some kept
// back for everything else, /healthz included.
struct DescriptorShare {
  uint64_t connections = 0;        // at most what was wished
  uint64_t relay_pipes = 0;        // in all
};
DescriptorShare share_descriptors(uint64_t descriptors, size_t workers, uint64_t connections_wished);
bool is_root();
std::expected<void, std::string> become(const std::string& user);   // groups, gid, uid; for good

}  // namespace weir::system

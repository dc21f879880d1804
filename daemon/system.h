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
bool is_root();
std::expected<void, std::string> become(const std::string& user);   // groups, gid, uid; for good

}  // namespace weir::system

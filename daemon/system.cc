#include "daemon/system.h"

#include <grp.h>
#include <pwd.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <sstream>
#include <vector>

namespace weir::system {

namespace {

// The cgroup v2 folders from this process's own up to the root: a limit anywhere on the way holds.
std::vector<std::string> cgroup_folders() {
  std::vector<std::string> folders;
  std::ifstream self("/proc/self/cgroup");
  std::string line;
  while (std::getline(self, line)) {
    if (!line.starts_with("0::")) continue;
    std::string path = line.substr(3);
    for (;;) {
      folders.push_back("/sys/fs/cgroup" + (path == "/" ? std::string() : path));
      if (path.empty() || path == "/") break;
      path.resize(path.rfind('/'));
    }
  }
  return folders;
}

std::string read_line(const std::string& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

}  // namespace

uint32_t usable_cpus() {
  uint32_t cpus = 1;
  cpu_set_t set;
  if (sched_getaffinity(0, sizeof set, &set) == 0) cpus = static_cast<uint32_t>(CPU_COUNT(&set));
  for (const std::string& folder : cgroup_folders()) {
    std::istringstream text(read_line(folder + "/cpu.max"));
    std::string quota;
    double period = 0;
    if (!(text >> quota >> period) || quota == "max" || period <= 0) continue;
    const auto whole = static_cast<uint32_t>(std::max(1.0, std::stod(quota) / period + 0.5));
    cpus = std::min(cpus, whole);
  }
  return std::max(cpus, 1u);
}

uint64_t usable_memory_bytes() {
  uint64_t bytes = static_cast<uint64_t>(sysconf(_SC_PHYS_PAGES)) * static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
  for (const std::string& folder : cgroup_folders()) {
    const std::string text = read_line(folder + "/memory.max");
    if (text.empty() || text == "max") continue;
    bytes = std::min<uint64_t>(bytes, std::stoull(text));
  }
  return bytes;
}

uint64_t raise_descriptor_limit() {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return 1024;
  limit.rlim_cur = limit.rlim_max;
  if (setrlimit(RLIMIT_NOFILE, &limit) != 0) getrlimit(RLIMIT_NOFILE, &limit);
  return limit.rlim_cur;
}

DescriptorShare share_descriptors(uint64_t descriptors, size_t workers, uint64_t connections_wished) {
  const uint64_t spare = std::min<uint64_t>(descriptors / 4, 64 + 2 * kAdminConnectionsMax + workers * 16);
  const uint64_t pairs = (descriptors - spare) / 2;
  DescriptorShare share;
  share.connections = std::min(connections_wished, std::max<uint64_t>(pairs - pairs / 8, 8));
  share.relay_pipes = pairs - std::min(pairs, share.connections);
  return share;
}

bool is_root() { return geteuid() == 0; }

std::expected<void, std::string> become(const std::string& user) {
  errno = 0;
  const passwd* entry = getpwnam(user.c_str());
  if (entry == nullptr) return std::unexpected("user " + user + ": " + (errno != 0 ? strerror(errno) : "there is no such user"));
  if (entry->pw_uid == geteuid()) return {};
  if (initgroups(user.c_str(), entry->pw_gid) != 0 || setgid(entry->pw_gid) != 0 || setuid(entry->pw_uid) != 0)
    return std::unexpected("cannot become user " + user + ": " + strerror(errno));
  return {};
}

}  // namespace weir::system

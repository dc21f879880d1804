#include <sys/resource.h>
#include <sys/utsname.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <utility>

#include "engines/uring_probe.h"

namespace weir {
namespace {

std::string kib(uint64_t bytes) { return std::to_string((bytes + 1023) / 1024) + " KiB"; }

std::string because(const RefusalFacts& facts) {
  return " (" + facts.step + ": " + std::strerror(facts.error) + ", errno " + std::to_string(facts.error) + ")";
}

constexpr const char* kOtherwise = ", or choose engine: epoll";
constexpr const char* kRaiseMemlock = "raise it (LimitMEMLOCK= in the unit, ulimit -l)";

UringRefusal refusal(const RefusalFacts& facts, UringCause cause, std::string text) {
  return {cause, facts.error, "io_uring " + std::move(text) + because(facts)};
}

UringRefusal explain_memory(const RefusalFacts& facts) {
  const uint64_t need = facts.need_each_bytes * facts.rings;
  const std::string wants = "needs " + kib(need) + " of locked memory for " + std::to_string(facts.rings) +
                            (facts.rings == 1 ? " worker" : " workers");
  const std::string limit = kib(facts.memlock_bytes);
  switch (judge_memlock(facts)) {
    case MemlockVerdict::not_memlock: break;
    case MemlockVerdict::never:
      return refusal(facts, UringCause::memlock,
                     wants + " and RLIMIT_MEMLOCK allows " + limit + ": " + kRaiseMemlock + " to at least " +
                         kib(need) + kOtherwise);
    case MemlockVerdict::perhaps_later:
      return refusal(facts, UringCause::memlock,
                     wants + ", and of the " + limit +
                         " that RLIMIT_MEMLOCK allows to all processes of this user too " +
                         "much is in use: end the others or " + kRaiseMemlock + kOtherwise);
  }
  return refusal(facts, UringCause::memory, wants + " and the kernel had none to give: free memory" + kOtherwise);
}

}  // namespace

RefusalFacts RefusalFacts::read() {
  RefusalFacts facts;
  rlimit limit{};
  getrlimit(RLIMIT_MEMLOCK, &limit);
  facts.memlock_bytes = limit.rlim_cur == RLIM_INFINITY ? UINT64_MAX : limit.rlim_cur;
  getrlimit(RLIMIT_NOFILE, &limit);
  facts.descriptors = limit.rlim_cur;
  facts.sysctl_disabled = -1;
  if (std::ifstream file("/proc/sys/kernel/io_uring_disabled"); file) file >> facts.sysctl_disabled;
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (line.starts_with("Seccomp:")) facts.seccomp = static_cast<int>(std::strtol(line.c_str() + 8, nullptr, 10));
    constexpr int kCapIpcLock = 14;
    if (line.starts_with("CapEff:"))
      facts.ipc_lock = (std::strtoull(line.c_str() + 7, nullptr, 16) >> kCapIpcLock & 1) != 0;
  }
  utsname name{};
  if (uname(&name) == 0) facts.kernel = name.release;
  return facts;
}

MemlockVerdict judge_memlock(const RefusalFacts& facts) noexcept {
  if (facts.ipc_lock || facts.memlock_bytes == UINT64_MAX) return MemlockVerdict::not_memlock;
  return facts.need_each_bytes * facts.rings > facts.memlock_bytes ? MemlockVerdict::never
                                                                   : MemlockVerdict::perhaps_later;
}

UringRefusal explain_refusal(const RefusalFacts& facts) {
  const auto refuse = [&](UringCause cause, std::string text) { return refusal(facts, cause, std::move(text)); };
  switch (facts.error) {
    case ENOMEM: return explain_memory(facts);
    case EMFILE:
    case ENFILE:
      return refuse(UringCause::descriptors, "needs a descriptor for each worker and RLIMIT_NOFILE (" +
                                                 std::to_string(facts.descriptors) +
                                                 ") or the system's table is full: raise LimitNOFILE=" + kOtherwise);
    case EPERM:
    case EACCES:
      if (facts.sysctl_disabled > 0) {
        return refuse(UringCause::sysctl,
                      "is switched off by sysctl kernel.io_uring_disabled = " + std::to_string(facts.sysctl_disabled) +
                          (facts.sysctl_disabled == 1 ? ": set it to 0 or add weir's group as kernel.io_uring_group"
                                                      : ": set it to 0") +
                          kOtherwise);
      }
      if (facts.seccomp != 0) {
        return refuse(
            UringCause::seccomp,
            std::string("is forbidden by a seccomp filter: allow io_uring_setup, io_uring_enter and "
                        "io_uring_register (SystemCallFilter=@io-event in the unit, or the container's profile)") +
                kOtherwise);
      }
      return refuse(UringCause::kernel,
                    std::string("is forbidden by a security module of the kernel: allow it there") + kOtherwise);
    case ENOSYS:
      if (facts.seccomp != 0) {
        return refuse(UringCause::seccomp,
                      std::string("is hidden by a seccomp filter or not built into this kernel: allow io_uring_setup, "
                                  "io_uring_enter and io_uring_register") +
                          kOtherwise);
      }
      return refuse(UringCause::kernel,
                    "is not built into this kernel (" + facts.kernel + "): use one with CONFIG_IO_URING" + kOtherwise);
    default: break;
  }
  return refuse(UringCause::kernel,
                "of this kernel (" + facts.kernel + ") lacks what weir needs: use Linux 6.1 or later" + kOtherwise);
}

}  // namespace weir

// What this kernel's io_uring can do for us, found by doing it once (never by version number), and why it cannot be
// used. Callers: start-up (probe once, hand the result to every engine), the uring engine. Thread: any; the probe uses
// loopback sockets of its own, leaves nothing behind, and returns within 1 s whatever the kernel does. A failed
// optional feature is switched off alone and its errno kept; a failed required one makes `refusal`. explain_refusal and
// judge_memlock are pure, so that a table can test them.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>

namespace weir {

enum class UringFeature : uint8_t {
  // Without these there is no engine.
  ring,
  buffer_ring,
  accept,
  connect,
  recv,
  send,
  sendmsg,
  poll,
  cancel,
  // Without these it does the same with more work.
  multishot_accept,
  multishot_poll,
  poll_first,
  wide_recv,
  min_wait,
  restrictions,
};
inline constexpr int kUringFeatures = 15;
inline constexpr int kUringRequired = 9;
const char* uring_feature_name(UringFeature feature) noexcept;

enum class UringCause : uint8_t { memlock, memory, descriptors, sysctl, seccomp, kernel };

struct UringRefusal {
  UringCause cause;
  int error;         // errno
  std::string text;  // one plain sentence: limit, need, remedy
};

// What explains a failed step. read() fills in all but error, step and need.
struct RefusalFacts {
  int error = 0;
  std::string step;              // "io_uring_setup", or "probe of NAME"
  uint64_t need_each_bytes = 0;  // locked memory of one ring
  uint32_t rings = 1;            // that this process will hold
  uint64_t memlock_bytes = 0;    // soft RLIMIT_MEMLOCK; UINT64_MAX: unlimited
  uint64_t descriptors = 0;      // soft RLIMIT_NOFILE
  bool ipc_lock = false;         // CAP_IPC_LOCK: locked memory is not counted
  int sysctl_disabled = 0;       // kernel.io_uring_disabled; -1: there is no such file
  int seccomp = 0;               // 2: a filter is in force
  std::string kernel;            // uname -r
  static RefusalFacts read();
};

// Of an ENOMEM: whether RLIMIT_MEMLOCK is the reason and whether waiting can help.
enum class MemlockVerdict : uint8_t {
  not_memlock,    // the limit does not apply to us: memory is short
  never,          // the limit is below the need: no wait helps
  perhaps_later,  // the limit could carry it: rings that this user just closed may still be counted
};
MemlockVerdict judge_memlock(const RefusalFacts& facts) noexcept;
UringRefusal explain_refusal(const RefusalFacts& facts);

struct UringProbe {
  std::array<int, kUringFeatures> errors{};  // 0: works; else why not
  std::optional<UringRefusal> refusal;
  bool has(UringFeature feature) const noexcept { return errors[static_cast<size_t>(feature)] == 0; }
  std::string missing() const;  // "min-wait (Invalid argument), ..."; empty when all is there
};

// Test hook: an errno other than 0 makes that feature's probe fail with it.
using UringProbeHook = int (*)(UringFeature) noexcept;
UringProbe probe_uring(UringProbeHook hook = nullptr);

}  // namespace weir

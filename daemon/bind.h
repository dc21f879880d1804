// The listening sockets of the process: bound once, one per worker (SO_REUSEPORT) for TCP, one shared for unix paths. Workers get
// duplicates, so that a reload, a change of listener or of worker never closes what clients may be queued on.
// Owner: the supervisor. Thread: its own. Errors are sentences that name the address and the reason.
#pragma once

#include <expected>
#include <map>
#include <string>
#include <vector>

#include "config/snapshot.h"

namespace weir {

// Gives the files of its unix sockets the mode and the owner that the configuration asks for; "" or why not. Who has dropped his
// rights can do it for files of his own only; what is as it should be is left alone.
std::string give_access(const config::Snapshot& config);
std::string give_access(const std::string& path, const config::UnixAccess& access);
bool descriptors_to_spare(size_t count);   // whether so many more could be opened now

class BoundSockets {
 public:
  ~BoundSockets();
  // Binds what is not bound yet, for `workers` workers. On an error nothing that this call opened stays open.
  std::expected<void, std::string> open(const std::vector<config::SocketName>& names, size_t workers);
  // A new descriptor for the same listening socket; the caller's to close. -errno on failure.
  int duplicate(const std::string& name, size_t worker) const;
  bool has(const std::string& name) const { return sockets_.contains(name); }
  // Closes what is not named here (the duplicates live on until their workers have served what was queued).
  void keep_only(const std::vector<std::string>& names);
  void close_all();
  std::vector<uint64_t> inodes(const std::string& name) const;

 private:
  struct Bound {
    std::vector<int> fds;
    std::string unix_path;
  };
  static std::expected<Bound, std::string> bind_one(const config::SocketName& name, size_t workers);
  static void close_one(Bound& bound, bool unlink_path);
  std::map<std::string, Bound> sockets_;
};

}  // namespace weir

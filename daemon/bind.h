// The listening sockets of the process: bound once, one per worker (SO_REUSEPORT) for TCP, one shared for unix paths. Workers get
// duplicates, so that a reload, a change of listener or of worker never closes what clients may be queued on.
// Owner: the supervisor. Thread: its own. Errors are sentences that name the address and the reason.
#pragma once

#include <sys/stat.h>

#include <expected>
#include <map>
#include <string>
#include <vector>

#include "config/snapshot.h"

namespace weir {

// The file of a bound unix socket, held, so that whoever may write its folder cannot put another in its place meanwhile.
class SocketFile {
 public:
  static std::expected<SocketFile, std::string> open(const std::string& path);   // no symlinks, nothing but a socket
  SocketFile(SocketFile&& other) noexcept;
  SocketFile& operator=(SocketFile&&) = delete;
  ~SocketFile();
  const struct stat& before() const noexcept { return before_; }                 // as it was when it was opened
  std::string set(uint32_t mode, uint32_t user, uint32_t group) const;           // "" or why not; what fits is left alone

 private:
  SocketFile(std::string path, int fd);
  std::string path_;
  int fd_;
  struct stat before_ {};
};

// Gives the files of unix sockets the mode and the owner that a configuration asks for: all of them, or none. Who has dropped
// his rights can do it for files of his own only; what is as it should be is left alone.
class AccessChange {
 public:
  std::string apply(const config::Snapshot& config);                                   // "" or why not
  std::string apply(const std::string& path, const config::UnixAccess& access);
  void take_back();                                                                    // what apply() changed
 private:
  struct Step {
    SocketFile file;
    uint32_t mode, user, group;
  };
  std::string add(const std::string& path, const config::UnixAccess& access);
  std::string run();
  std::vector<Step> steps_;
};
// The modes that a configuration asks for, by the text of the bind.
std::map<std::string, uint32_t> socket_modes(const config::Snapshot& config);
bool descriptors_to_spare(size_t count);   // whether so many more could be opened now

class BoundSockets {
 public:
  ~BoundSockets();
  // Binds what is not bound yet, for `workers` workers. On an error nothing that this call opened stays open.
  // `mode`: of the files of unix sockets, from their first moment (less what the umask takes).
  std::expected<void, std::string> open(const std::vector<config::SocketName>& names, size_t workers,
                                        const std::map<std::string, uint32_t>& modes = {});
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
    dev_t device = 0;                                    // of the file at unix_path: another's is not removed
    ino_t inode = 0;
  };
  static std::expected<Bound, std::string> bind_one(const config::SocketName& name, size_t workers, const uint32_t* mode);
  static void close_one(Bound& bound, bool unlink_path);
  std::map<std::string, Bound> sockets_;
};

}  // namespace weir

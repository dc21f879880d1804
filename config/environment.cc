// The real environment: variables, files, glob(3).
#include <fcntl.h>
#include <glob.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <memory>

#include "config/load.h"
#include "config/source.h"

namespace weir::config {
namespace {

std::string reason(int error) {
  switch (error) {
    case ENOENT: return "no such file";
    case EACCES: return "no permission to read it";
    case EISDIR: return "it is a directory";
    default: return std::strerror(error);
  }
}

std::optional<std::string> get_variable(const std::string& name) {
  const char* value = std::getenv(name.c_str());
  return value != nullptr ? std::optional<std::string>(value) : std::nullopt;
}

std::expected<std::string, std::string> read_whole(const std::string& path) {
  // A pipe or a device is none of ours; O_NONBLOCK so that opening one does not wait.
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0) return std::unexpected(reason(errno));
  const std::unique_ptr<const int, decltype([](const int* open_fd) { close(*open_fd); })> closer(&fd);
  struct stat status;
  if (fstat(fd, &status) != 0) return std::unexpected(reason(errno));
  if (S_ISDIR(status.st_mode)) return std::unexpected(reason(EISDIR));
  if (!S_ISREG(status.st_mode)) return std::unexpected("it is no regular file");
  std::string text;
  char buffer[65536];
  while (text.size() <= kFileBytesMax) {
    const ssize_t count = read(fd, buffer, sizeof buffer);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return std::unexpected(reason(errno));
    if (count == 0) break;
    text.append(buffer, static_cast<size_t>(count));
  }
  return text;
}

std::vector<std::string> paths_of(const std::string& pattern) {
  glob_t found{};
  std::vector<std::string> out;
  if (glob(pattern.c_str(), 0, nullptr, &found) == 0) out.assign(found.gl_pathv, found.gl_pathv + found.gl_pathc);
  globfree(&found);
  std::sort(out.begin(), out.end());   // by bytes, whatever the locale says
  return out;
}

}  // namespace

Environment Environment::real() { return {get_variable, read_whole, paths_of, {}, {}}; }

}  // namespace weir::config

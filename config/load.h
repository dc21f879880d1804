// load: YAML text in, a Snapshot or all of its problems out. The one door of config/; no exception leaves it.
// Caller: the daemon at start, at reload (off the data path) and for `weir check`; tests with their own Environment.
// Guarantees: pure but for the Environment's hooks; every problem that can be found is reported, in file and line
// order; nothing is looked up, bound or created; the same text and environment give the same snapshot and hash.
#pragma once

#include <expected>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "config/snapshot.h"

namespace weir::config {

// What an environment says about a certificate and its key.
struct CertificateFault {
  bool key = false;                // it is about the key's file
  bool warning = false;
  std::string text;                // follows the file's name: "expired on 2026-11-30"
};
struct CertificateLook {
  std::vector<std::string> names;  // in lower case
  std::vector<CertificateFault> faults;
};

enum class PemKind : uint8_t { authorities, revocations };

// What load() may see of the world outside.
struct Environment {
  std::function<std::optional<std::string>(const std::string& name)> variable;
  // The file's text, or why not, in words ("no such file").
  std::function<std::expected<std::string, std::string>(const std::string& path)> read_file;
  // The paths that a glob pattern stands for, sorted by file name. None is no error when the pattern has a wildcard.
  std::function<std::vector<std::string>(const std::string& pattern)> glob;

  // Looks into them. None: they are not looked into.
  std::function<CertificateLook(const std::string& cert, const std::string& key)> certificate{};
  // What is wrong with a PEM file, in words that follow its name, or "". None: they are not looked into.
  std::function<std::string(const std::string& path, PemKind kind)> pem{};

  static Environment real();   // getenv, the file system, glob(3); certificates are not looked into
};

struct Problems {
  std::vector<Problem> list;       // never empty when load() failed
  std::string text() const;        // one a line, each line ends with "\n"
};

using LoadResult = std::expected<Snapshot, Problems>;

LoadResult load(const std::string& path, const Environment& environment) noexcept;
// `name` stands in for the path: in messages, and as the place that `include` is relative to.
LoadResult load_text(std::string_view text, const std::string& name, const Environment& environment) noexcept;

}  // namespace weir::config

// What the tests of config/ share: an environment made of maps, so that no test depends on the machine's.
#pragma once

#include <fnmatch.h>

#include <map>
#include <string>
#include <string_view>

#include "config/load.h"

namespace weir::config {

struct FakeWorld {
  std::map<std::string, std::string> variables;
  std::map<std::string, std::string> files;

  Environment environment() const {
    return {[this](const std::string& name) -> std::optional<std::string> {
              auto at = variables.find(name);
              return at == variables.end() ? std::nullopt : std::optional(at->second);
            },
            [this](const std::string& path) -> std::expected<std::string, std::string> {
              auto at = files.find(path);
              if (at == files.end()) return std::unexpected("no such file");
              return at->second;
            },
            [this](const std::string& pattern) {
              std::vector<std::string> found;
              for (const auto& file : files) {
                if (fnmatch(pattern.c_str(), file.first.c_str(), FNM_PATHNAME) == 0) found.push_back(file.first);
              }
              return found;
            }};
  }
};

// The problems of a text named "t.yaml", "" when there are none.
inline std::string problems_of(std::string_view text, const FakeWorld& world = {}) {
  auto result = load_text(text, "t.yaml", world.environment());
  return result ? "" : result.error().text();
}

// The snapshot of a text that must be right.
inline Snapshot snapshot_of(std::string_view text, const FakeWorld& world = {}) {
  auto result = load_text(text, "t.yaml", world.environment());
  if (!result) throw std::runtime_error(result.error().text());
  return std::move(*result);
}

// A right configuration around the lines under test: one listener, one route, one upstream.
inline const std::string kListener = "version: 1\nlisteners:\n  - bind: \":80\"\n";
inline const std::string kUpstream = "upstreams:\n  a: {servers: [\"127.0.0.1:81\"]}\n";

}  // namespace weir::config

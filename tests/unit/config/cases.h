// Tables of mistakes: text in, the exact messages with their places out.
#pragma once

#include <catch2/catch_test_macros.hpp>

#include <algorithm>
#include <string>
#include <vector>

#include "tests/unit/config/support.h"

namespace weir::config {

struct Case {
  std::string text;
  std::string problems;   // each of its lines follows "t.yaml:"
};

inline void check(const std::vector<Case>& cases) {
  for (const Case& one : cases) {
    CAPTURE(one.text);
    std::string expected;
    for (size_t from = 0; from < one.problems.size();) {
      const size_t end = std::min(one.problems.find('\n', from), one.problems.size());
      expected += "t.yaml:" + one.problems.substr(from, end - from) + "\n";
      from = end + 1;
    }
    CHECK(problems_of(one.text) == expected);
  }
}

// Line 4 and on, under the listener.
inline Case top(const std::string& lines, const std::string& problems) { return {kListener + lines, problems}; }
inline Case listener(const std::string& lines, const std::string& problems) { return {kListener + lines, problems}; }
// Line 7 and on.
inline Case routes(const std::string& lines, const std::string& problems) {
  return {kListener + kUpstream + "routes:\n" + lines, problems};
}
inline Case match(const std::string& inside, const std::string& problems) {
  return routes("  - {to: a, match: {" + inside + "}}\n", problems);
}
inline Case upstreams(const std::string& lines, const std::string& problems) {
  return {kListener + "upstreams:\n" + lines, problems};
}
inline Case servers(const std::string& list, const std::string& problems) {
  return upstreams("  a: {servers: " + list + "}\n", problems);
}
inline Case binding(const std::string& text, const std::string& problems) {
  return {"version: 1\nlisteners:\n  - bind: " + text + "\n", problems};
}

}  // namespace weir::config

// Document: a configuration text as a plain tree in which every value knows where it stands, and the list of problems
// that grows while it is read. Owner: one load() call. What reads YAML and what interprets it meet only here.
// Guarantee: a mapping has no key twice (the first one stays, the second is a problem).
#pragma once

#include <cstdint>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "config/snapshot.h"

namespace weir::config {

struct Mark {
  uint32_t file = 0;    // index into Report's files
  uint32_t line = 0;    // 1-based; 0: the file as a whole
  uint32_t column = 0;  // 1-based
  auto operator<=>(const Mark&) const = default;
};

struct Entry;

struct Node {
  enum class Kind : uint8_t { null, scalar, sequence, mapping };
  Kind kind = Kind::null;
  bool quoted = false;    // a scalar in quotes or a block scalar: text, whatever it looks like
  bool broken = false;    // its problem has been reported: say nothing more about it
  Mark mark;
  std::string text;
  std::vector<Node> items;
  std::vector<Entry> entries;

  const Entry* find(std::string_view key) const;
  Entry* find(std::string_view key);
};

struct Entry {
  std::string key;
  Mark mark;
  Node value;
};

size_t count_nodes(const Node& node);

class Report {
 public:
  uint32_t add_file(const std::string& name);
  const std::vector<std::string>& files() const { return files_; }
  void error(Mark mark, std::string message) { errors_.emplace(mark, std::move(message)); }
  void warning(Mark mark, std::string message) { warnings_.emplace(mark, std::move(message)); }
  size_t error_count() const { return errors_.size(); }
  Where where(Mark mark) const;
  std::string text(Mark mark) const { return where(mark).text(); }
  std::vector<Problem> errors() const { return list(errors_); }      // by file, line, column; none twice
  std::vector<Problem> warnings() const { return list(warnings_); }

 private:
  using Set = std::set<std::pair<Mark, std::string>>;
  std::vector<Problem> list(const Set& set) const;
  std::vector<std::string> files_;
  Set errors_;
  Set warnings_;
};

}  // namespace weir::config

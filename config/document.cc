#include "config/document.h"

#include <algorithm>

namespace weir::config {

const Entry* Node::find(std::string_view key) const {
  auto at = std::find_if(entries.begin(), entries.end(), [&](const Entry& entry) { return entry.key == key; });
  return at == entries.end() ? nullptr : &*at;
}

Entry* Node::find(std::string_view key) { return const_cast<Entry*>(std::as_const(*this).find(key)); }

size_t count_nodes(const Node& node) {
  size_t count = 1;
  for (const Node& item : node.items) count += count_nodes(item);
  for (const Entry& entry : node.entries) count += count_nodes(entry.value);
  return count;
}

uint32_t Report::add_file(const std::string& name) {
  files_.push_back(name);
  return static_cast<uint32_t>(files_.size() - 1);
}

Where Report::where(Mark mark) const { return {files_.at(mark.file), mark.line, mark.column}; }

std::vector<Problem> Report::list(const Set& set) const {
  std::vector<Problem> out;
  out.reserve(set.size());
  for (const auto& [mark, message] : set) out.push_back({where(mark), message});
  return out;
}

}  // namespace weir::config

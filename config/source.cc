#include "config/source.h"

#include <algorithm>

#include "config/fields.h"
#include "config/schema.h"
#include "config/yaml_reader.h"

namespace weir::config {
namespace {

bool is_name(std::string_view name) {
  const auto letter = [](char c) { return c == '_' || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); };
  return !name.empty() && letter(name.front()) &&
         std::all_of(name.begin(), name.end(), [&](char c) { return letter(c) || (c >= '0' && c <= '9'); });
}

// `${NAME}`, `${NAME:-default}`; `$${` stands for `${`. A value is taken as it is: neither YAML nor expanded again.
void expand_text(Node& node, const Environment& environment, Report& report) {
  std::string out;
  size_t from = 0;
  for (size_t at; (at = node.text.find("${", from)) != std::string::npos;) {
    if (at > from && node.text[at - 1] == '$') {
      out.append(node.text, from, at - from - 1).append("${");
      from = at + 2;
      continue;
    }
    out.append(node.text, from, at - from);
    const size_t end = node.text.find('}', at);
    const std::string inside = node.text.substr(at + 2, std::min(end, node.text.size()) - at - 2);
    const size_t dash = inside.find(":-");
    const std::string name = inside.substr(0, dash);
    node.broken = true;
    if (end == std::string::npos) {
      report.error(node.mark, "`${` without its `}` (`$${` stands for a plain `${`)");
      return;
    }
    if (!is_name(name)) {
      report.error(node.mark, "`${" + inside + "}` names no variable (`$${` stands for a plain `${`)");
      return;
    }
    const auto value = environment.variable(name);
    if (dash == std::string::npos && !value) {
      report.error(node.mark, "the environment variable `" + name + "` is not set; `${" + name +
                                  ":-default}` would give it a default");
      return;
    }
    node.broken = false;
    const bool use_default = dash != std::string::npos && (!value || value->empty());
    out += use_default ? inside.substr(dash + 2) : *value;
    from = end + 1;
  }
  node.text = out.append(node.text, from);
  node.quoted = false;   // quotes around `${PORT}` are there for YAML's sake; the value may be a number
}

void expand(Node& node, const Environment& environment, Report& report) {
  if (node.kind == Node::Kind::scalar && node.text.find("${") != std::string::npos) {
    expand_text(node, environment, report);
  }
  for (Node& item : node.items) expand(item, environment, report);
  for (Entry& entry : node.entries) expand(entry.value, environment, report);
}

std::optional<Node> read_one(std::string_view text, uint32_t file, const Environment& environment, Report& report) {
  if (text.size() > kFileBytesMax) {
    report.error({file, 0, 0}, "is larger than " + size_text(kFileBytesMax) + ": this is no configuration");
    return std::nullopt;
  }
  auto node = read_yaml(text, file, report);
  if (!node) return std::nullopt;
  if (node->kind != Node::Kind::mapping) {
    report.error(node->mark, "the file must be a mapping that begins with `version: 1`, not " +
                                 std::string(kind_name(*node)));
    return std::nullopt;
  }
  expand(*node, environment, report);
  return node;
}

class Includer {
 public:
  Includer(Node& main, const Environment& environment, Report& report)
      : main_(main), environment_(environment), report_(report) {}

  bool run() {
    const Entry* given = main_.find("include");
    if (given == nullptr || given->value.broken || given->value.kind == Node::Kind::null) return true;
    const std::string directory = directory_of(report_.files().front());
    for (const auto& [pattern, mark] : texts_of(given->value, *find_row(Level::top, "include"), report_)) {
      const std::string full = pattern.starts_with("/") ? pattern : directory + pattern;
      const bool wild = pattern.find_first_of("*?[") != std::string::npos;
      const auto paths = wild ? environment_.glob(full) : std::vector<std::string>{full};
      for (const std::string& path : paths) include(path, mark);
    }
    return good_;
  }

 private:
  void include(const std::string& path, Mark mark) {
    const auto& files = report_.files();
    if (std::find(files.begin(), files.end(), path) != files.end()) {
      report_.error(mark, "`" + path + (path == files.front() ? "` includes itself" : "` is included twice"));
      return;
    }
    if (files.size() == kFilesMax) {
      report_.error(mark, "more than " + std::to_string(kFilesMax) + " files");
      good_ = false;
      return;
    }
    auto text = environment_.read_file(path);
    if (!text) {
      report_.error(mark, "cannot read `" + path + "`: " + text.error());
      good_ = false;
      return;
    }
    const uint32_t file = report_.add_file(path);
    auto node = read_one(*text, file, environment_, report_);
    if (!node) good_ = false;
    else for (Entry& entry : node->entries) take(std::move(entry));
  }

  void take(Entry&& entry) {
    if (entry.key == "include") {
      report_.error(entry.mark, "only the main file includes others");
      return;
    }
    Entry* present = main_.find(entry.key);
    if (present == nullptr) {
      main_.entries.push_back(std::move(entry));
      return;
    }
    if (entry.key.starts_with("x-")) return;
    if (entry.key == "version" && entry.value.text == present->value.text) return;
    const Row* row = find_row(Level::top, entry.key);
    const Node::Kind kind = entry.value.kind;
    const bool same = kind == present->value.kind;
    if (same && kind == Node::Kind::sequence && row != nullptr && row->type == Type::maps) {
      for (Node& item : entry.value.items) present->value.items.push_back(std::move(item));
    } else if (same && kind == Node::Kind::mapping && row != nullptr) {
      for (Entry& inner : entry.value.entries) merge_key(present->value, std::move(inner));
    } else {
      twice(entry, *present);
    }
  }

  void merge_key(Node& into, Entry&& entry) {
    if (const Entry* present = into.find(entry.key)) twice(entry, *present);
    else into.entries.push_back(std::move(entry));
  }

  void twice(const Entry& entry, const Entry& first) {
    report_.error(entry.mark, "`" + entry.key + "` is given twice; the first one is at " + report_.text(first.mark));
  }

  Node& main_;
  const Environment& environment_;
  Report& report_;
  bool good_ = true;
};

}  // namespace

std::string directory_of(const std::string& path) {
  const size_t slash = path.rfind('/');
  return slash == std::string::npos ? "" : path.substr(0, slash + 1);
}

std::optional<Node> read_source(std::string_view text, uint32_t file, const Environment& environment, Report& report) {
  auto main = read_one(text, file, environment, report);
  if (!main || !Includer(*main, environment, report).run()) return std::nullopt;
  return main;
}

}  // namespace weir::config

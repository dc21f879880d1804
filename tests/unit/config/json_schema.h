// A validator for the part of JSON Schema that schema_json() uses, over the reader's own tree (JSON is YAML).
#pragma once

#include <algorithm>
#include <string>

#include "config/document.h"
#include "config/path_regex.h"
#include "config/yaml_reader.h"

namespace weir::config {

// A tree without the problems; throws when there is one.
inline Node tree_of(std::string_view text) {
  Report report;
  report.add_file("t.yaml");
  auto tree = read_yaml(text, 0, report);
  if (!tree || report.error_count() > 0) throw std::runtime_error("no YAML");
  return std::move(*tree);
}

class JsonSchema {
 public:
  explicit JsonSchema(std::string_view text) : root_(tree_of(text)) {}

  bool takes(const Node& value) const { return takes(root_, value); }
  const Node& root() const { return root_; }

 private:
  static bool is_integer(const Node& value) {
    const std::string digits = value.text.starts_with('-') ? value.text.substr(1) : value.text;
    return value.kind == Node::Kind::scalar && !value.quoted && !digits.empty() &&
           digits.find_first_not_of("0123456789") == digits.npos;
  }
  static bool is_boolean(const Node& value) {
    return value.kind == Node::Kind::scalar && !value.quoted && (value.text == "true" || value.text == "false");
  }
  static bool has_type(const Node& value, const std::string& type) {
    if (type == "object") return value.kind == Node::Kind::mapping;
    if (type == "array") return value.kind == Node::Kind::sequence;
    if (value.kind != Node::Kind::scalar) return false;
    if (type == "integer" || type == "number") return is_integer(value);
    if (type == "boolean") return is_boolean(value);
    return type == "string" && !is_integer(value) && !is_boolean(value);
  }
  static bool same(const Node& a, const Node& b) {
    return a.text == b.text && is_integer(a) == is_integer(b) && is_boolean(a) == is_boolean(b) && a.kind == b.kind;
  }

  const Node& referenced(const std::string& reference) const {
    return root_.find("$defs")->value.find(reference.substr(std::string("#/$defs/").size()))->value;
  }

  bool takes(const Node& schema, const Node& value) const {
    if (schema.kind == Node::Kind::scalar) return schema.text == "true";
    return std::all_of(schema.entries.begin(), schema.entries.end(),
                       [&](const Entry& entry) { return keyword(schema, entry.key, entry.value, value); });
  }

  bool keyword(const Node& schema, const std::string& key, const Node& rule, const Node& value) const {
    const auto all = [](const auto& list, auto holds) { return std::all_of(list.begin(), list.end(), holds); };
    const auto fits = [&](const Node& one) { return takes(one, value); };
    const auto& items = rule.items;
    if (key == "$ref") return takes(referenced(rule.text), value);
    if (key == "anyOf") return std::any_of(items.begin(), items.end(), fits);
    if (key == "oneOf") return std::count_if(items.begin(), items.end(), fits) == 1;
    if (key == "not") return !takes(rule, value);
    if (key == "const") return same(rule, value);
    if (key == "enum") return std::any_of(items.begin(), items.end(), [&](const Node& one) { return same(one, value); });
    if (key == "type" && rule.kind == Node::Kind::scalar) return has_type(value, rule.text);
    if (key == "type") return std::any_of(items.begin(), items.end(), [&](const Node& t) { return has_type(value, t.text); });
    if (key == "pattern") return !has_type(value, "string") || PathRegex::compile(rule.text).value().matches(value.text);
    if (key == "minimum") return !is_integer(value) || std::stold(value.text) >= std::stold(rule.text);
    if (key == "maximum") return !is_integer(value) || std::stold(value.text) <= std::stold(rule.text);
    if (key == "minItems") return value.kind != Node::Kind::sequence || value.items.size() >= std::stoul(rule.text);
    if (key == "items") return all(value.items, [&](const Node& item) { return takes(rule, item); });
    if (key == "required") {
      return all(items, [&](const Node& name) { return value.find(name.text) != nullptr; });
    }
    if (key == "properties") {
      return all(value.entries, [&](const Entry& entry) {
        const Entry* known = rule.find(entry.key);
        return known == nullptr || takes(known->value, entry.value);
      });
    }
    if (key == "additionalProperties") return others_fit(schema, rule, value);
    if (key == "$schema" || key == "title" || key == "description" || key == "$defs" || key == "patternProperties") return true;
    throw std::runtime_error("a keyword that this validator does not know: " + key);
  }

  bool others_fit(const Node& schema, const Node& rule, const Node& value) const {
    const Entry* known = schema.find("properties");
    const Entry* patterns = schema.find("patternProperties");
    return std::all_of(value.entries.begin(), value.entries.end(), [&](const Entry& entry) {
      if (known != nullptr && known->value.find(entry.key) != nullptr) return true;
      if (patterns != nullptr && entry.key.starts_with("x-")) return true;
      return takes(rule, entry.value);
    });
  }

  Node root_;
};

}  // namespace weir::config

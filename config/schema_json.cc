#include "config/schema_json.h"

#include <algorithm>

#include "config/json_writer.h"
#include "config/schema.h"
#include "config/values.h"

namespace weir::config {
namespace {

bool is_number(std::string_view word) { return parse_count(word).has_value(); }

class Writer {
 public:
  std::string write() {
    json_.open('{');
    json_.pair("$schema", "https://json-schema.org/draft/2020-12/schema");
    json_.pair("title", "The configuration of Weir, version 1");
    json_.pair("$ref", "#/$defs/top");
    json_.key("$defs");
    json_.open('{');
    for (size_t i = 1; i < kLevels; ++i) level(static_cast<Level>(i));
    json_.key("variable");   // a value that the environment gives: any text
    json_.open('{');
    json_.pair("type", "string");
    json_.pair("pattern", "\\$\\{");
    json_.close('}');
    json_.close('}');
    json_.close('}');
    return json_.take();
  }

 private:
  void level(Level level) {
    json_.key(level_name(level));
    json_.open('{');
    json_.pair("type", "object");
    json_.key("properties");
    json_.open('{');
    for (const Row& row : schema()) {
      if (row.level == level) property(row);
    }
    json_.close('}');
    if (level == Level::top) anchors();
    json_.key("additionalProperties");
    json_.boolean(false);
    required(level);
    if (level == Level::route) one_action();
    json_.close('}');
  }

  // Keys that begin with "x-" are places for YAML anchors.
  void anchors() {
    json_.key("patternProperties");
    json_.open('{');
    json_.flag("^x-", true);
    json_.close('}');
  }

  void required(Level level) {
    std::vector<std::string_view> keys;
    for (const Row& row : schema()) {
      if (row.level == level && row.need == Need::required) keys.push_back(row.key);
    }
    if (keys.empty()) return;
    if (level == Level::top) {   // all but `version` may come from an included file
      json_.key("anyOf");
      json_.open('[');
      list_of_required({"include"});
      list_of_required(keys);
      json_.close(']');
      keys = {"version"};
    }
    json_.key("required");
    texts(keys);
  }

  void list_of_required(const std::vector<std::string_view>& keys) {
    json_.open('{');
    json_.key("required");
    texts(keys);
    json_.close('}');
  }

  void one_action() {
    json_.key("oneOf");
    json_.open('[');
    for (std::string_view action : split_words(actions())) list_of_required({action});
    json_.close(']');
  }

  void texts(const std::vector<std::string_view>& list) {
    json_.open('[');
    for (std::string_view text : list) json_.text(text);
    json_.close(']');
  }

  void property(const Row& row) {
    json_.key(row.key);
    json_.open('{');
    if (row.need == Need::later) {
      json_.pair("description", std::string(row.doc) + " Not supported by this version yet.");
      later(row);
    } else {
      json_.pair("description", row.doc);
      json_.key("anyOf");
      json_.open('[');
      forms(row);
      json_.close(']');
    }
    json_.close('}');
  }

  // What asks for what is so anyway is right: `proxy_protocol: none`.
  void later(const Row& row) {
    if (!says_what_is_so(row)) {
      json_.key("not");
      json_.open('{');
      json_.close('}');
    } else if (row.type == Type::boolean) {
      json_.flag("const", row.fallback == "true");
    } else {
      json_.pair("const", row.fallback);
    }
  }

  void forms(const Row& row) {
    switch (row.type) {
      case Type::boolean: simple("boolean"); return variable();
      case Type::count: return count(row);
      case Type::size: return with_unit(row, "^[0-9]+(B|KiB|MiB|GiB|TiB)$");
      case Type::duration: return with_unit(row, "^[0-9]+(ms|s|m|h|d)$");
      case Type::word: word(row); return variable();
      case Type::words: return words(row);
      case Type::text: return scalar();
      case Type::bind: case Type::server: return simple("string");
      case Type::texts: case Type::binds: case Type::networks:
        scalar();
        return array(row, [this] { scalar(); });
      case Type::map: return reference(level_name(row.child));
      case Type::maps: return array(row, [&] { reference(level_name(row.child)); });
      case Type::text_or_maps:
        scalar();
        return array(row, [&] { reference(level_name(row.child)); });
      case Type::texts_or_maps:
        return array(row, [&] {
          scalar();
          reference(level_name(row.child));
        });
      case Type::size_or_map:
        reference(level_name(row.child));
        return with_unit(row, "^[0-9]+(B|KiB|MiB|GiB|TiB)$");
      case Type::named_maps: return object([&] { reference(level_name(row.child)); });
      case Type::named_texts: return object([this] { scalar(); });
      case Type::any: return;   // only keys of later versions have it
    }
  }

  void simple(std::string_view type) {
    json_.open('{');
    json_.pair("type", type);
    json_.close('}');
  }

  // A text may look like a number or a boolean: the reader takes it as it stands.
  void scalar() {
    json_.open('{');
    json_.key("type");
    texts({"string", "number", "boolean"});
    json_.close('}');
  }

  void reference(std::string_view name) {
    json_.open('{');
    json_.pair("$ref", "#/$defs/" + std::string(name));
    json_.close('}');
  }

  void variable() { reference("variable"); }

  void word(const Row& row) {
    if (row.words.empty()) return;
    json_.open('{');
    json_.key("enum");
    json_.open('[');
    for (std::string_view one : split_words(row.words)) {
      if (is_number(one)) json_.number(parse_count(one).value());
      json_.text(one);
    }
    json_.close(']');
    json_.close('}');
  }

  void words(const Row& row) {
    array(row, [&] {
      word(row);
      variable();
    });
  }

  void count(const Row& row) {
    json_.open('{');
    json_.pair("type", "integer");
    json_.pair("minimum", row.min);
    if (row.max != 0) json_.pair("maximum", row.max);
    json_.close('}');
    word(row);
    variable();
  }

  void with_unit(const Row& row, std::string_view pattern) {
    json_.open('{');
    json_.pair("type", "string");
    json_.pair("pattern", pattern);
    json_.close('}');
    word(row);
    variable();
  }

  template <class Items>
  void array(const Row& row, Items items) {
    json_.open('{');
    json_.pair("type", "array");
    // The lists of the top may be empty where they are not required; a list of something else is left out instead.
    const bool may_be_empty = row.may_be_empty || row.fallback == "[]";
    if (!may_be_empty) json_.pair("minItems", uint64_t{1});
    json_.key("items");
    any_of(items);
    json_.close('}');
  }

  template <class Values>
  void object(Values values) {
    json_.open('{');
    json_.pair("type", "object");
    json_.key("additionalProperties");
    any_of(values);
    json_.close('}');
  }

  template <class Forms>
  void any_of(Forms forms) {
    json_.open('{');
    json_.key("anyOf");
    json_.open('[');
    forms();
    json_.close(']');
    json_.close('}');
  }

  JsonWriter json_;
};

}  // namespace

std::string schema_json() { return Writer().write(); }

}  // namespace weir::config

#include "config/fields.h"

#include <stdexcept>

namespace weir::config {
namespace {

std::string list_words(std::string_view words) {
  std::string out;
  const auto all = split_words(words);
  for (size_t i = 0; i < all.size(); ++i) {
    out += (i == 0 ? "" : i + 1 == all.size() ? " or " : ", ") + quote(all[i]);
  }
  return out;
}

std::string_view form(Type type) {
  switch (type) {
    case Type::boolean: return "`true` or `false`";
    case Type::count: return "a whole number";
    case Type::size: return "a size such as `64KiB`";
    case Type::duration: return "a time such as `30s`";
    case Type::word: return "a word";
    case Type::words: return "a list (`[a, b]`)";
    case Type::text: return "text";
    case Type::texts: return "text or a list of texts";
    case Type::bind: return "an address";
    case Type::binds: return "an address or a list of addresses";
    case Type::server: return "an address with port";
    case Type::networks: return "an address, a network, or a list of them";
    case Type::maps: return "a list of mappings (`- key: value`)";
    case Type::text_or_maps: return "a name, or a list of mappings";
    case Type::texts_or_maps: return "a list";
    case Type::size_or_map: return "a size such as `64KiB`, or a mapping";
    case Type::map: case Type::named_maps: case Type::named_texts: case Type::any: break;
  }
  return "a mapping (`key: value`)";
}

void wrong_form(const Node& node, const Row& row, Report& report) {
  std::string message = quote(row.key) + " must be " + std::string(form(row.type));
  if (!row.words.empty() && row.type != Type::words) message += " or " + list_words(row.words);
  report.error(node.mark, message + ", not " + std::string(kind_name(node)));
}

void wrong_value(const Node& node, const Row& row, const std::string& why, Report& report) {
  report.error(node.mark, std::string(row.key) + ": " + quote(node.text) + " " + why);
}

std::string amount(const Row& row, uint64_t value) {
  return row.type == Type::count ? std::to_string(value) : size_text(value);
}

// A table's default is our own text: it must read.
Node default_node(const Row& row) {
  Node node;
  node.kind = Node::Kind::scalar;
  node.text = row.fallback;
  return node;
}

bool has_default(const Row& row) { return !row.fallback.empty() && row.fallback.front() != '('; }

}  // namespace

std::string_view kind_name(const Node& node) {
  switch (node.kind) {
    case Node::Kind::null: return "nothing";
    case Node::Kind::scalar: return "text";
    case Node::Kind::sequence: return "a list";
    case Node::Kind::mapping: break;
  }
  return "a mapping";
}

std::optional<std::string> text_of(const Node& node, std::string_view what, Report& report) {
  if (node.broken) return std::nullopt;
  if (node.kind == Node::Kind::null) report.error(node.mark, std::string(what) + " has no value");
  else if (node.kind != Node::Kind::scalar) {
    report.error(node.mark, std::string(what) + " must be text, not " + std::string(kind_name(node)));
  } else if (node.text.empty()) report.error(node.mark, std::string(what) + " is empty");
  else if (has_control(node.text)) report.error(node.mark, std::string(what) + " contains a control character");
  else return node.text;
  return std::nullopt;
}

std::vector<Placed<std::string>> texts_of(const Node& node, const Row& row, Report& report) {
  std::vector<Placed<std::string>> out;
  if (node.broken) return out;
  if (node.kind == Node::Kind::mapping) {
    wrong_form(node, row, report);
  } else if (node.kind == Node::Kind::scalar) {
    if (auto value = text_of(node, quote(row.key), report)) out.push_back({*value, node.mark});
  } else if (node.kind == Node::Kind::sequence) {
    if (node.items.empty() && !row.may_be_empty) report.error(node.mark, quote(row.key) + " is an empty list");
    for (const Node& item : node.items) {
      if (auto value = text_of(item, "an entry of " + quote(row.key), report)) out.push_back({*value, item.mark});
    }
  }
  return out;
}

std::optional<uint64_t> number_of(const Node& node, const Row& row, Report& report) {
  if (node.broken) return std::nullopt;
  if (node.kind != Node::Kind::scalar) {
    wrong_form(node, row, report);
    return std::nullopt;
  }
  for (std::string_view word : split_words(row.words)) {
    if (node.text == word) return word == "unlimited" ? kUnlimited : 0;
  }
  if (node.quoted && row.type == Type::count) {
    report.error(node.mark, std::string(row.key) + ": a number stands without quotes: `" + node.text + "`");
    return std::nullopt;
  }
  auto value = row.type == Type::count ? parse_count(node.text) : parse_size(node.text);
  if (!value) {
    const std::string or_word = row.words.empty() ? "" : " (or " + list_words(row.words) + ")";
    wrong_value(node, row, value.error() + or_word, report);
    return std::nullopt;
  }
  if (*value < row.min) wrong_value(node, row, "is too small: at least " + amount(row, row.min), report);
  else if (row.max != 0 && *value > row.max) {
    wrong_value(node, row, "is too large: at most " + amount(row, row.max), report);
  } else return *value;
  return std::nullopt;
}

Fields::Fields(const Node* map, Level level, Report& report) : map_(map), level_(level), report_(report) {
  if (map_ == nullptr) return;
  if (map_->kind != Node::Kind::mapping) {
    if (!map_->broken) {
      report_.error(map_->mark, "a mapping (`key: value`) must stand here, not " + std::string(kind_name(*map_)));
    }
    map_ = nullptr;
    return;
  }
  std::string hints;
  for (const Entry& entry : map_->entries) {
    const Row* known = find_row(level, entry.key);
    if (known == nullptr) {
      if (level == Level::top && entry.key.starts_with("x-")) continue;   // a place for anchors
      const std::string hint = key_hint(level, entry.key);
      hints += hint;
      report_.error(entry.mark, "unknown key " + quote(entry.key) + " " + std::string(level_phrase(level)) + hint);
    } else if (known->need == Need::later) {
      check_later(entry, *known);
    } else if (entry.value.kind == Node::Kind::null && !entry.value.broken) {
      report_.error(entry.mark, quote(entry.key) + " has no value");
    }
  }
  for (const Row& required : schema()) {
    if (required.level != level || required.need != Need::required || written(required.key)) continue;
    if (hints.find(quote(required.key)) != std::string::npos) continue;   // misspelt: one mistake, one problem
    report_.error(map_->mark, quote(required.key) + " is missing " + std::string(level_phrase(level)));
  }
}

// What such a key could ask for that is so anyway is no error: `proxy_protocol: none`.
void Fields::check_later(const Entry& entry, const Row& row) const {
  const Node& value = entry.value;
  if (value.broken) return;
  if (value.kind == Node::Kind::scalar && says_what_is_so(row)) {
    if (row.type == Type::boolean) {
      auto wanted = parse_boolean(value.text);
      if (wanted && value.text == row.fallback) return;
      if (!wanted) return wrong_value(value, row, wanted.error(), report_);
    } else if (value.text == row.fallback) {
      return;
    }
  }
  report_.error(entry.mark, quote(entry.key) + " is not supported by this version yet");
}

const Row& Fields::row(std::string_view key) const {
  const Row* found = find_row(level_, key);
  if (found == nullptr) throw std::logic_error("no row for " + std::string(key));
  return *found;
}

const Node* Fields::node(std::string_view key) const {
  const Entry* entry = map_ != nullptr ? map_->find(key) : nullptr;
  if (entry == nullptr || entry->value.broken || entry->value.kind == Node::Kind::null) return nullptr;
  const Row* known = find_row(level_, key);
  return known != nullptr && known->need == Need::later ? nullptr : &entry->value;
}

bool Fields::has(std::string_view key) const { return find_row(level_, key) != nullptr && node(key) != nullptr; }

Mark Fields::mark(std::string_view key) const {
  const Entry* entry = map_ != nullptr ? map_->find(key) : nullptr;
  return entry != nullptr ? entry->value.mark : mark();
}

bool Fields::boolean(std::string_view key) const {
  const Row& r = row(key);
  const bool fallback = r.fallback == "true";
  const Node* given = node(key);
  if (given == nullptr) return fallback;
  if (given->kind != Node::Kind::scalar) {
    wrong_form(*given, r, report_);
    return fallback;
  }
  auto value = given->quoted ? Parsed<bool>(std::unexpected("is text; a boolean stands without quotes"))
                             : parse_boolean(given->text);
  if (!value) wrong_value(*given, r, value.error(), report_);
  return value.value_or(fallback);
}

std::optional<uint64_t> Fields::number(std::string_view key) const {
  const Row& r = row(key);
  if (const Node* given = node(key)) {
    if (auto value = number_of(*given, r, report_)) return value;
  }
  return has_default(r) ? number_of(default_node(r), r, report_) : std::nullopt;
}

std::optional<Milliseconds> Fields::duration(std::string_view key) const {
  const Row& r = row(key);
  if (const Node* given = node(key)) {
    if (given->kind != Node::Kind::scalar) {
      wrong_form(*given, r, report_);
    } else if (auto value = parse_duration(given->text)) {
      return *value;
    } else {
      wrong_value(*given, r, value.error(), report_);
    }
  }
  return has_default(r) ? std::optional(parse_duration(r.fallback).value()) : std::nullopt;
}

std::optional<size_t> Fields::word_of(const Node& given, const Row& r) const {
  if (given.broken) return std::nullopt;
  if (given.kind != Node::Kind::scalar) {
    report_.error(given.mark,
                  quote(r.key) + " must be " + list_words(r.words) + ", not " + std::string(kind_name(given)));
    return std::nullopt;
  }
  auto all = split_words(r.words);
  for (size_t i = 0; i < all.size(); ++i) {
    if (all[i] == given.text) return i;
  }
  for (std::string_view word : split_words(r.later_words)) {
    if (word != given.text) continue;
    report_.error(given.mark, std::string(r.key) + ": " + quote(word) + " is not supported by this version yet");
    return std::nullopt;
  }
  std::string message = (all.size() == 1 ? "is not known; there is only " : "is none of ") + list_words(r.words);
  const bool is_number = parse_count(given.text).has_value();   // none is nearer than another
  if (auto near = nearest(given.text, all); near && !is_number) message += "; did you mean " + quote(*near) + "?";
  wrong_value(given, r, message, report_);
  return std::nullopt;
}

size_t Fields::word(std::string_view key) const {
  const Row& r = row(key);
  if (const Node* given = node(key)) {
    if (auto place = word_of(*given, r)) return *place;
  }
  return has_default(r) ? word_of(default_node(r), r).value() : 0;
}

std::vector<size_t> Fields::words(std::string_view key) const {
  const Row& r = row(key);
  std::vector<size_t> out;
  const Node* given = node(key);
  if (given != nullptr && given->kind != Node::Kind::sequence) {
    wrong_form(*given, r, report_);
  } else if (given != nullptr && given->items.empty()) {
    report_.error(given->mark, quote(key) + " is an empty list");
  } else if (given != nullptr) {
    for (const Node& item : given->items) {
      if (auto place = word_of(item, r)) out.push_back(*place);
    }
  }
  return out;
}

std::optional<std::string> Fields::text(std::string_view key) const {
  const Row& r = row(key);
  if (const Node* given = node(key)) {
    if (auto value = text_of(*given, quote(key), report_)) return value;
  }
  return has_default(r) ? std::optional(std::string(r.fallback)) : std::nullopt;
}

std::vector<Placed<std::string>> Fields::texts(std::string_view key) const {
  const Node* given = node(key);
  return given == nullptr ? std::vector<Placed<std::string>>{} : texts_of(*given, row(key), report_);
}

std::vector<NamedText> Fields::named_texts(std::string_view key) const {
  std::vector<NamedText> out;
  const Node* given = mapping(key);
  if (given == nullptr) return out;
  if (given->entries.empty() && !row(key).may_be_empty) {
    report_.error(given->mark, quote(key) + " is an empty mapping");
  }
  for (const Entry& entry : given->entries) {
    const Node& value = entry.value;
    if (value.broken) continue;
    const bool good = value.kind == Node::Kind::scalar && !has_control(value.text);
    if (good) out.push_back({entry.key, value.text, entry.mark});
    else text_of(value, quote(entry.key), report_);   // says what is wrong; an empty value is right here
  }
  return out;
}

std::optional<SocketName> Fields::bind(std::string_view key) const {
  const Row& r = row(key);
  if (const Node* given = node(key)) {
    auto value = text_of(*given, quote(key), report_);
    if (!value) return std::nullopt;
    if (auto address = parse_bind(*value)) return *address;
    else wrong_value(*given, r, address.error(), report_);
    return std::nullopt;
  }
  return has_default(r) ? std::optional(parse_bind(r.fallback).value()) : std::nullopt;
}

std::vector<Placed<SocketName>> Fields::binds(std::string_view key) const {
  std::vector<Placed<SocketName>> out;
  for (const auto& [value, mark] : texts(key)) {
    if (auto address = parse_bind(value)) out.push_back({*address, mark});
    else report_.error(mark, std::string(key) + ": " + quote(value) + " " + address.error());
  }
  return out;
}

std::optional<SocketName> Fields::server(std::string_view key) const {
  const Node* given = node(key);
  if (given == nullptr) return std::nullopt;
  auto value = text_of(*given, quote(key), report_);
  if (!value) return std::nullopt;
  auto address = parse_server(*value);
  if (address) return *address;
  wrong_value(*given, row(key), address.error(), report_);
  return std::nullopt;
}

const Node* Fields::mapping(std::string_view key) const {
  const Node* given = node(key);
  if (given == nullptr || given->kind == Node::Kind::mapping) return given;
  wrong_form(*given, row(key), report_);
  return nullptr;
}

Fields Fields::map(std::string_view key) const { return Fields(mapping(key), row(key).child, report_); }

std::vector<const Node*> Fields::items(std::string_view key) const {
  std::vector<const Node*> out;
  const Node* given = node(key);
  if (given == nullptr) return out;
  if (given->kind != Node::Kind::sequence) {
    wrong_form(*given, row(key), report_);
    return out;
  }
  for (const Node& item : given->items) out.push_back(&item);
  return out;
}

}  // namespace weir::config

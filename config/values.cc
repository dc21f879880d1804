#include "config/values.h"

#include <algorithm>
#include <array>

namespace weir::config {
namespace {

struct Unit {
  std::string_view name;
  uint64_t factor;
};
constexpr std::array<Unit, 5> kTimeUnits{
    {{"ms", 1}, {"s", 1000}, {"m", 60'000}, {"h", 3'600'000}, {"d", 86'400'000}}};
constexpr std::array<Unit, 5> kSizeUnits{
    {{"B", 1}, {"KiB", 1ull << 10}, {"MiB", 1ull << 20}, {"GiB", 1ull << 30}, {"TiB", 1ull << 40}}};
constexpr uint64_t kTimeMaxMs = 3650ull * 86'400'000;

bool is_digit(char c) { return c >= '0' && c <= '9'; }

// What someone who wrote "10KB", "5sec" or "30 S" most likely meant; empty when it cannot be told.
std::string_view nearest_time_unit(std::string_view unit) {
  const std::string word = lower(unit);
  if (word.starts_with("ms") || word.starts_with("mil")) return "ms";
  if (word.starts_with("s")) return "s";
  if (word.starts_with("h")) return "h";
  if (word.starts_with("d")) return "d";
  return word.starts_with("m") ? "m" : "";
}

std::string_view nearest_size_unit(std::string_view unit) {
  const std::string word = lower(unit);
  for (const Unit& known : kSizeUnits) {
    if (!word.empty() && word.front() == lower(known.name).front()) return known.name;
  }
  return "";
}

template <size_t N, class Nearest>
Parsed<uint64_t> parse_with_unit(std::string_view text, const std::array<Unit, N>& units, std::string_view example,
                                 std::string_view plain_unit, Nearest nearest) {
  size_t digits = 0;
  while (digits < text.size() && is_digit(text[digits])) ++digits;
  const std::string number(text.substr(0, digits));
  std::string_view unit = text.substr(digits);
  const std::string such_as = "write a whole number and its unit, such as `" + std::string(example) + "`";
  if (digits == 0) return std::unexpected("is no number with a unit; " + such_as);
  if (unit.empty()) {
    return std::unexpected("has no unit; did you mean " + quote(number + std::string(plain_unit)) + "?");
  }
  if (unit.front() == '.' || unit.front() == ',') {
    return std::unexpected("is not a whole number; take a smaller unit (" + such_as + ")");
  }
  for (const Unit& known : units) {
    if (unit != known.name) continue;
    auto value = parse_count(number);
    if (!value || *value > UINT64_MAX / known.factor) return std::unexpected("is too large");
    return *value * known.factor;
  }
  while (!unit.empty() && unit.front() == ' ') unit.remove_prefix(1);
  if (std::any_of(unit.begin(), unit.end(), is_digit)) {
    return std::unexpected("has more than one number; " + such_as);
  }
  std::string names;
  for (const Unit& known : units) names += (names.empty() ? "" : ", ") + std::string(known.name);
  const std::string_view meant = nearest(unit);
  if (meant.empty()) return std::unexpected("has an unknown unit; there are " + names);
  return std::unexpected("has an unknown unit; did you mean " + quote(number + std::string(meant)) + "?");
}

}  // namespace

Parsed<Milliseconds> parse_duration(std::string_view text) {
  auto ms = parse_with_unit(text, kTimeUnits, "30s", "s", nearest_time_unit);
  if (!ms) return std::unexpected(std::move(ms.error()));
  if (*ms > kTimeMaxMs) return std::unexpected("is too large: at most 3650d");
  return Milliseconds(static_cast<int64_t>(*ms));
}

Parsed<uint64_t> parse_size(std::string_view text) {
  return parse_with_unit(text, kSizeUnits, "64KiB", "KiB", nearest_size_unit);
}

Parsed<uint64_t> parse_count(std::string_view text) {
  if (text.empty() || !std::all_of(text.begin(), text.end(), is_digit)) {
    return std::unexpected("is no whole number");
  }
  uint64_t value = 0;
  for (char c : text) {
    const auto digit = static_cast<uint64_t>(c - '0');
    if (value > (UINT64_MAX - digit) / 10) return std::unexpected("is too large");
    value = value * 10 + digit;
  }
  return value;
}

Parsed<bool> parse_boolean(std::string_view text) {
  if (text == "true") return true;
  if (text == "false") return false;
  const std::string word = lower(text);
  for (std::string_view yes : {"yes", "on", "y", "true"}) {
    if (word == yes) return std::unexpected("is no boolean here, only `true` and `false` are; did you mean `true`?");
  }
  for (std::string_view no : {"no", "off", "n", "false"}) {
    if (word == no) return std::unexpected("is no boolean here, only `true` and `false` are; did you mean `false`?");
  }
  return std::unexpected("is no boolean: it takes `true` or `false`");
}

namespace {
template <size_t N>
std::string with_unit(uint64_t value, const std::array<Unit, N>& units, size_t if_zero) {
  size_t best = value == 0 ? if_zero : 0;
  for (size_t i = 0; value != 0 && i < units.size(); ++i) {
    if (value % units[i].factor == 0) best = i;
  }
  return std::to_string(value / units[best].factor) + std::string(units[best].name);
}
}  // namespace

std::string duration_text(Milliseconds value) { return with_unit(static_cast<uint64_t>(value.count()), kTimeUnits, 1); }
std::string size_text(uint64_t bytes) { return with_unit(bytes, kSizeUnits, 0); }

std::string quote(std::string_view text) { return "`" + std::string(text) + "`"; }

std::string lower(std::string_view text) {
  std::string out(text);
  for (char& c : out) {
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  }
  return out;
}

bool is_token(std::string_view text) {
  constexpr std::string_view kMarks = "!#$%&'*+-.^_`|~";
  return !text.empty() && std::all_of(text.begin(), text.end(), [&](char c) {
    return is_digit(c) || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || kMarks.find(c) != kMarks.npos;
  });
}

bool has_control(std::string_view text) {
  return std::any_of(text.begin(), text.end(),
                     [](char c) { return static_cast<unsigned char>(c) < 0x20 || c == 0x7f; });
}

}  // namespace weir::config

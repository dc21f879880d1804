#include "config/path_regex.h"

#include <re2/re2.h>

#include <algorithm>
#include <array>

namespace weir::config {

namespace {

constexpr int64_t kProgramBytesMax = 1 << 20;   // a pattern and its automaton; a path needs far less
constexpr size_t kGroupsMax = 9;

RE2::Options options() {
  RE2::Options out(RE2::Latin1);   // paths are bytes
  out.set_log_errors(false);
  out.set_max_mem(kProgramBytesMax);
  return out;
}

// RE2's complaint in words for someone who does not know it from inside.
std::string fault_of(const RE2& program) {
  const std::string at = program.error_arg().empty() ? "" : ": `" + program.error_arg() + "`";
  switch (program.error_code()) {
    case RE2::ErrorMissingBracket: return "has a `[` without its `]`" + at;
    case RE2::ErrorMissingParen: return "has a `(` without its `)`" + at;
    case RE2::ErrorUnexpectedParen: return "has a `)` without its `(`";
    case RE2::ErrorTrailingBackslash: return "ends in a `\\` that nothing follows";
    case RE2::ErrorRepeatArgument: return "repeats nothing" + at + "; a `\\` before it takes it as it is";
    case RE2::ErrorRepeatOp: return "repeats a repetition" + at;
    case RE2::ErrorRepeatSize: return "repeats something too often" + at + "; at most 1000 times";
    case RE2::ErrorBadCharRange: return "has a range that ends before it begins, or an unknown class" + at;
    case RE2::ErrorBadCharClass: return "has an unknown class of characters" + at;
    case RE2::ErrorBadNamedCapture: return "has a group with an invalid name" + at;
    case RE2::ErrorPatternTooLarge: return "is too large once compiled";
    case RE2::ErrorBadEscape: return "has a `\\` before a character that it gives no meaning" + at;
    default: return "is no pattern: " + program.error() + at;
  }
}

}  // namespace

struct PathRegex::Compiled {
  explicit Compiled(std::string_view text) : pattern(text), program(pattern, options()) {}

  std::string pattern;
  RE2 program;
};

std::expected<PathRegex, std::string> PathRegex::compile(std::string_view pattern) {
  if (std::any_of(pattern.begin(), pattern.end(), [](char c) { return static_cast<unsigned char>(c) >= 0x80; })) {
    return std::unexpected("has letters outside ASCII; in a path they stand percent-encoded");
  }
  for (std::string_view look : {"(?=", "(?!", "(?<=", "(?<!"}) {
    if (pattern.find(look) == pattern.npos) continue;
    return std::unexpected("looks ahead or behind (`" + std::string(look) +
                           "`), which cannot be done in linear time: it is not supported");
  }
  auto compiled = std::make_shared<Compiled>(pattern);
  if (!compiled->program.ok()) return std::unexpected(fault_of(compiled->program));
  return PathRegex(std::move(compiled));
}

const std::string& PathRegex::pattern() const noexcept { return compiled_->pattern; }

size_t PathRegex::groups() const noexcept {
  return static_cast<size_t>(compiled_->program.NumberOfCapturingGroups());
}

bool PathRegex::matches(std::string_view path) const noexcept {
  return compiled_->program.Match({path.data(), path.size()}, 0, path.size(), RE2::UNANCHORED, nullptr, 0);
}

bool PathRegex::replace(std::string_view path, std::string_view replacement, std::string& out) const {
  std::array<re2::StringPiece, kGroupsMax + 1> found;
  const auto wanted = static_cast<int>(std::min(groups(), kGroupsMax)) + 1;
  if (!compiled_->program.Match({path.data(), path.size()}, 0, path.size(), RE2::UNANCHORED, found.data(), wanted)) {
    return false;
  }
  const auto begin = static_cast<size_t>(found[0].data() - path.data());
  const size_t start = out.size();
  out.append(path.substr(0, begin));
  for (size_t i = 0; i < replacement.size(); ++i) {
    if (replacement[i] != '$' || i + 1 == replacement.size()) {
      out += replacement[i];
      continue;
    }
    const char next = replacement[++i];
    if (next < '0' || next > '9') {
      out += next;
      continue;
    }
    const re2::StringPiece& group = found[static_cast<size_t>(next - '0')];   // a group that took no part is empty
    out.append(group.data() == nullptr ? "" : group.data(), group.size());
  }
  out.append(path.substr(begin + found[0].size()));
  if (out.size() == start || out[start] != '/') out.insert(start, 1, '/');
  return true;
}

std::string PathRegex::replacement_fault(std::string_view replacement) const {
  for (size_t i = 0; i < replacement.size(); ++i) {
    if (replacement[i] != '$') continue;
    const char next = ++i < replacement.size() ? replacement[i] : '\0';
    if (next == '$') continue;
    if (next < '0' || next > '9') return "has a `$` that no digit follows; `$$` stands for a plain `$`";
    if (static_cast<size_t>(next - '0') <= groups()) continue;
    return "asks for group `$" + std::string(1, next) + "`, but the pattern has " +
           (groups() == 0 ? "none" : groups() == 1 ? "one" : std::to_string(groups()));
  }
  return "";
}

}  // namespace weir::config

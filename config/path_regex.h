// PathRegex: a compiled pattern for paths (RE2's syntax). The one place that knows RE2.
// A value: copies share the compiled pattern, which is immutable; any thread may match with it.
// Guarantee: time linear in the path, whatever the pattern; bounded memory. It never throws and never logs.
#pragma once

#include <expected>
#include <memory>
#include <string>
#include <string_view>

namespace weir::config {

class PathRegex {
 public:
  // The error is in words that follow "`PATTERN` ".
  static std::expected<PathRegex, std::string> compile(std::string_view pattern);

  const std::string& pattern() const noexcept;
  size_t groups() const noexcept;                            // `(...)` in it that capture
  bool matches(std::string_view path) const noexcept;        // found anywhere in it; `^` and `$` tie it to the ends
  // Appends `path` to `out`, with what is found first replaced; false and nothing appended when nothing is found.
  // `$0` is all that was found, `$1` to `$9` are groups, `$$` is `$`. What comes out begins with "/" in any case.
  bool replace(std::string_view path, std::string_view replacement, std::string& out) const;

  // What is wrong with a replacement for this pattern, in words that follow "`REPLACEMENT` "; "" when nothing is.
  std::string replacement_fault(std::string_view replacement) const;

  bool operator==(const PathRegex& other) const noexcept { return pattern() == other.pattern(); }

 private:
  struct Compiled;
  explicit PathRegex(std::shared_ptr<const Compiled> compiled) : compiled_(std::move(compiled)) {}
  std::shared_ptr<const Compiled> compiled_;
};

}  // namespace weir::config

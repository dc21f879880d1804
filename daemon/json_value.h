// JSON text, the reading half: a whole document into a tree (RFC 8259; no duplicate keys, at most 64 levels deep, at most
// kMembersMax members in an object, so that looking for duplicates costs little whatever a client sends).
// Callers: the admin API's bodies and the command line's view of answers; never the data path. A value; any thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace weir::json {

inline constexpr size_t kMembersMax = 64;

class Value {
 public:
  enum class Kind : uint8_t { null, boolean, number, text, array, object };

  static std::optional<Value> parse(std::string_view text);   // nullopt: malformed

  Kind kind() const noexcept { return kind_; }
  bool is(Kind kind) const noexcept { return kind_ == kind; }
  bool truth() const noexcept { return truth_; }
  double number() const noexcept { return number_; }
  const std::string& text() const noexcept { return text_; }           // of a number: as it was written
  const std::vector<Value>& items() const noexcept { return items_; }
  const std::vector<std::pair<std::string, Value>>& members() const noexcept { return members_; }
  const Value* find(std::string_view name) const noexcept;             // of an object; nullptr: not there
  const Value& at(std::string_view name) const noexcept;               // a null value where there is none
  std::string plain() const;                                           // scalars as a person writes them

 private:
  friend class Reader;
  Kind kind_ = Kind::null;
  bool truth_ = false;
  double number_ = 0;
  std::string text_;
  std::vector<Value> items_;
  std::vector<std::pair<std::string, Value>> members_;
};

}  // namespace weir::json

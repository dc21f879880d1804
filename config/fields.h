// Fields: one mapping of the document, read by the rows of the schema that belong to its level.
// The constructor reports unknown, missing and not yet supported keys; each getter reports a value of the wrong form
// and then gives the default, so that one mistake is one problem. A getter gives nothing where there is neither a value
// nor a default that the table can spell. Owner: the function that builds the level's struct.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "config/document.h"
#include "config/schema.h"
#include "config/values.h"

namespace weir::config {

template <class T>
struct Placed {
  T value;
  Mark mark;
};

struct NamedText {
  std::string name;
  std::string value;
  Mark mark;       // of the name
};

class Fields {
 public:
  // map: null when the mapping was not written: then everything is a default.
  Fields(const Node* map, Level level, Report& report);

  bool valid() const { return map_ != nullptr; }         // a mapping stands there
  bool empty() const { return map_ != nullptr && map_->entries.empty(); }
  bool has(std::string_view key) const;                  // a key of this level, and a value stands there
  bool written(std::string_view key) const { return map_ != nullptr && map_->find(key) != nullptr; }
  Mark mark() const { return map_ != nullptr ? map_->mark : Mark{}; }
  Mark mark(std::string_view key) const;                 // of the value, else of the mapping
  const Node* node(std::string_view key) const;          // null when not written, without a value, or reported already
                                                        // (a key of a later version always is)

  bool boolean(std::string_view key) const;
  std::optional<uint64_t> number(std::string_view key) const;   // count, size; auto is 0, unlimited is kUnlimited
  std::optional<Milliseconds> duration(std::string_view key) const;
  size_t word(std::string_view key) const;                      // its place among the row's words
  std::vector<size_t> words(std::string_view key) const;
  std::optional<std::string> text(std::string_view key) const;
  std::vector<Placed<std::string>> texts(std::string_view key) const;
  std::vector<NamedText> named_texts(std::string_view key) const;
  std::optional<SocketName> bind(std::string_view key) const;
  std::vector<Placed<SocketName>> binds(std::string_view key) const;
  std::optional<SocketName> server(std::string_view key) const;
  const Node* mapping(std::string_view key) const;              // its node, where it is a mapping
  Fields map(std::string_view key) const;
  std::vector<const Node*> items(std::string_view key) const;   // of a list

 private:
  const Row& row(std::string_view key) const;
  void check_later(const Entry& entry, const Row& row) const;
  std::optional<size_t> word_of(const Node& node, const Row& row) const;

  const Node* map_;
  Level level_;
  Report& report_;
};

std::string_view kind_name(const Node& node);   // "a list", "a mapping", "text", "nothing"
// A count or a size by its row. Nothing after a problem.
std::optional<uint64_t> number_of(const Node& node, const Row& row, Report& report);
std::vector<Placed<std::string>> texts_of(const Node& node, const Row& row, Report& report);
// Text without control characters; a problem names `what`.
std::optional<std::string> text_of(const Node& node, std::string_view what, Report& report);

}  // namespace weir::config

// Schema: the one table of every key there is. The reader takes keys, types, units, ranges, words and defaults from it
// and from nowhere else; docs/config.md is held against it by a test. A later piece adds rows here (or turns `later`
// into `optional`), a field in the snapshot and a line in build.cc.
// Constant data; any thread.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace weir::config {

// A mapping with a set of keys of its own.
enum class Level : uint8_t {
  none, top, defaults, listener, listener_limits, unix_file, listener_tls, certificate, route, match, target, rewrite,
  headers, edits, respond, redirect, route_limits, upstream, upstream_limits, server,
  timeouts, exchange_timeouts, limits, pipe, admin, metrics, log, access,
  shutdown, test, expect
};

enum class Type : uint8_t {
  boolean,        // true | false
  count,          // a whole number, or one of `words`
  size,           // 64KiB, or one of `words`
  duration,       // 30s
  word,           // one of `words`
  words,          // a list of them
  text,
  texts,          // text or a list of texts
  bind,           // a numeric or unix address to listen on
  binds,          // one or a list of them
  server,         // an address to connect to
  networks,       // one or a list of addresses and networks
  map,            // with the keys of `child`
  maps,           // a list of those
  text_or_maps,   // a text, or a list of maps
  texts_or_maps,  // a list whose items are texts or maps
  size_or_map,
  named_maps,     // name -> map
  named_texts,    // name -> text
  any,            // not read yet: whatever it will be
};

enum class Need : uint8_t { optional, required, later };   // later: its name is taken, this version does not support it

struct Row {
  Level level;
  std::string_view key;
  Type type;
  Need need;
  // The default as a user would write it; in parentheses: in words, the reader leaves the field as the snapshot has it.
  std::string_view fallback;
  std::string_view words;        // separated by spaces; for `word` in the order of the enum they stand for
  std::string_view later_words;  // words whose pieces are not built yet
  Level child;
  uint64_t min;                  // count, size (bytes), duration (ms); max 0: no limit
  uint64_t max;
  bool may_be_empty;             // a list or mapping that may be written without anything in it
  std::string_view doc;
};

inline constexpr size_t kLevels = static_cast<size_t>(Level::expect) + 1;

std::span<const Row> schema();
const Row* find_row(Level level, std::string_view key);
// Of a key of a later version: its default may be written all the same, since it asks for what is so anyway
// (`proxy_protocol: none`). A number never does: it asks to be held to it.
bool says_what_is_so(const Row& row);
std::string_view level_phrase(Level level);       // "at the top level", "in a listener"
std::string_view level_name(Level level);         // "top", "listener": for the JSON Schema
std::string_view actions();                       // the keys of which a route has exactly one
std::vector<std::string_view> split_words(std::string_view words);

// The candidate that `text` is most likely a slip of; nothing when none is near.
std::optional<std::string> nearest(std::string_view text, std::span<const std::string_view> candidates);
// Where a key that is unknown here would be right: "; did you mean `bind`?", "; it belongs in a match" or "".
std::string key_hint(Level level, std::string_view key);

}  // namespace weir::config

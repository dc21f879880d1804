// Values as users write them (times, sizes, counts, addresses, hosts) to values as programs use them, and back.
// Pure functions. The error is what is wrong, in words that follow "`VALUE` ": "has no unit; did you mean `30s`?".
// Guarantee: nothing is guessed: a unit is needed, an overflow is an error.
#pragma once

#include <expected>
#include <string>
#include <string_view>

#include "config/snapshot.h"

namespace weir::config {

template <class T>
using Parsed = std::expected<T, std::string>;

Parsed<Milliseconds> parse_duration(std::string_view text);   // "250ms" "30s" "5m" "1h" "7d"; "0s" is off
Parsed<uint64_t> parse_size(std::string_view text);           // "512B" "64KiB" "8MiB" "1GiB" "1TiB"
Parsed<uint64_t> parse_count(std::string_view text);          // decimal digits
Parsed<bool> parse_boolean(std::string_view text);            // true | false
Parsed<SocketName> parse_bind(std::string_view text);         // unix, ":PORT" or a numeric address with port
Parsed<SocketName> parse_server(std::string_view text);       // unix, a numeric address or a name, with port
Parsed<HostPattern> parse_host_pattern(std::string_view text);

std::string duration_text(Milliseconds value);                // the largest unit that fits: "90s", "1h"
std::string size_text(uint64_t bytes);

std::string quote(std::string_view text);                       // `text`
std::string lower(std::string_view text);
bool is_token(std::string_view text);                         // RFC 9110 token: methods and header names
bool has_control(std::string_view text);

}  // namespace weir::config

// describe: the effective configuration as JSON: keys in a fixed order, every default spelt out, `defaults` and
// inheritance worked into the levels that have them. For GET /config, `weir plan`, and the hash that says whether two
// configurations mean the same. Pure; takes milliseconds for thousands of routes, so it is not for the data path.
// Guarantee: with Secrets::kept the text is a configuration that loads to an equal snapshot (`$${` stands for `${`).
// With Secrets::redacted, the form for everything that leaves the process, the values of fields that carry credentials
// are "(redacted)", in `match`, in `headers` and in `tests`, and those of the parameters of URLs.
#pragma once

#include <string>
#include <string_view>

#include "config/snapshot.h"

namespace weir::config {

enum class Secrets : uint8_t { kept, redacted };

std::string describe(const Snapshot& snapshot, Secrets secrets = Secrets::kept);
// Authorization, Cookie and their like, and names that speak of a token, a secret, a password or a key.
bool is_secret_field(std::string_view name);             // in lower case
std::string hash_text(std::string_view text);            // 16 hex digits (FNV-1a, 64 bits): identity, no protection

}  // namespace weir::config

// Names to addresses, by getaddrinfo(3). It blocks: called on the supervisor's side (start, reload, the retry thread) only.
// Literals and unix paths never touch the network. An empty answer means that the name does not resolve now.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "config/snapshot.h"
#include "engines/address.h"

namespace weir {

std::vector<Address> resolve(const config::SocketName& name);

// Every server of a configuration, by its text. Order within a name is by address, so that equal answers compare equal.
using Addresses = std::map<std::string, std::vector<Address>>;
// A name that does not resolve now keeps the addresses it had in `before`: a DNS server's bad minute loses no origin. `kept` gets
// those names.
Addresses resolve_all(const config::Snapshot& config, const Addresses& before, std::vector<std::string>* kept = nullptr);
bool has_names(const config::Snapshot& config);   // anything that needs a look-up

}  // namespace weir

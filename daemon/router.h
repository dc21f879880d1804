// Router: which route a request takes: the first of the listener's routes, in the order of the file, whose whole match holds; the
// fallback last. Pure: a Runtime and a request in, an index out. Any thread; allocates nothing (but for what a path_regex needs).
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

#include "daemon/client_facts.h"
#include "daemon/runtime.h"

namespace weir {

// `steps`, if given, grows by the work that the look-up took: table probes and candidates.
std::optional<size_t> find_route(const Runtime& runtime, size_t listener, const Head& request, const ClientFacts& client = {},
                                 uint32_t* steps = nullptr) noexcept;

// "Shop.Example.com.:8080" -> "Shop.Example.com" (no port, no final dot); "[::1]:80" -> "[::1]". Compare without case.
std::string_view host_of(std::string_view authority) noexcept;

}  // namespace weir

// The names of the fields we know, and a perfect hash over them: which of them a name can be, by its length, first and last
// character. Callers: field_id (any bytes), and codecs that compare in their own way. Everything here is made at compile time.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <string_view>

#include "protocols/exchange/head.h"

namespace weir::field_names {

// In the order of FieldId.
inline constexpr std::string_view kNames[] = {
    "", "connection", "content-length", "transfer-encoding", "host", "keep-alive", "te", "trailer", "upgrade", "expect",
    "proxy-connection", "proxy-authenticate", "proxy-authorization", "x-forwarded-for", "x-forwarded-proto", "x-forwarded-host",
    "x-request-id", "forwarded", "via", "date", "server", "content-type", "content-encoding", "accept-encoding", "vary", "etag",
    "cache-control", "location", "user-agent", "cookie", "set-cookie", "authorization", "traceparent", "tracestate", "range",
    "content-range", "early-data", "proxy-status", "http2-settings", "priority", "sec-websocket-key", "sec-websocket-accept",
    "sec-websocket-version", "sec-websocket-protocol", "sec-websocket-extensions",
};
inline constexpr size_t kNameCount = std::size(kNames);
static_assert(kNameCount == static_cast<size_t>(FieldId::kCount), "every FieldId has its name");

// A perfect hash over length, first and last character: one multiplication and one table look-up settle which name it can be.
// The multiplier was found by trial; the static_assert below says when a new name needs another one.
inline constexpr uint32_t kMultiplier = 0x9f03b58b;
inline constexpr uint32_t kHashBits = 7;

constexpr uint32_t hash_of(const char* name, size_t size) noexcept {
  const auto first = static_cast<uint32_t>(static_cast<unsigned char>(name[0])) | 0x20u;
  const auto last = static_cast<uint32_t>(static_cast<unsigned char>(name[size - 1])) | 0x20u;
  const uint32_t key = static_cast<uint32_t>(size) | first << 8 | last << 16;
  return key * kMultiplier >> (32 - kHashBits);
}

struct HashTable {
  std::array<uint8_t, 1u << kHashBits> ids{};
  bool perfect = true;
  size_t longest = 0;
  size_t shortest = SIZE_MAX;
};

constexpr HashTable build_table() {
  HashTable table;
  for (size_t i = 1; i < kNameCount; ++i) {
    uint8_t& slot = table.ids[hash_of(kNames[i].data(), kNames[i].size())];
    if (slot != 0) table.perfect = false;
    slot = static_cast<uint8_t>(i);
    if (kNames[i].size() > table.longest) table.longest = kNames[i].size();
    if (kNames[i].size() < table.shortest) table.shortest = kNames[i].size();
  }
  return table;
}
inline constexpr HashTable kTable = build_table();
static_assert(kTable.perfect, "two names share a slot: find another multiplier");

}  // namespace weir::field_names

#include "protocols/exchange/head.h"

#include <cstring>

#include "protocols/exchange/field_names.h"

namespace weir {
namespace {

using namespace field_names;

// Lower-cases eight ASCII bytes at once; bytes outside A-Z stay as they are.
inline uint64_t lower8(uint64_t word) noexcept {
  constexpr uint64_t kOnes = 0x0101010101010101u;
  const uint64_t low7 = word & (0x7f * kOnes);
  const uint64_t above_z = low7 + (0x7f - 'Z') * kOnes;
  const uint64_t from_a = low7 + (0x80 - 'A') * kOnes;
  const uint64_t upper = ~word & (from_a ^ above_z) & (0x80 * kOnes);
  return word | upper >> 2;
}

inline uint64_t load(const char* from, size_t count) noexcept {
  uint64_t word = 0;
  std::memcpy(&word, from, count);
  return word;
}

// `known` is lower case already; both have `size` bytes.
inline bool equal_folded(const char* name, const char* known, size_t size) noexcept {
  size_t at = 0;
  for (; at + 8 <= size; at += 8)
    if (lower8(load(name + at, 8)) != load(known + at, 8)) return false;
  if (at == size) return true;
  if (size >= 8) return lower8(load(name + size - 8, 8)) == load(known + size - 8, 8);
  if (size >= 4) {
    const uint64_t mine = load(name, 4) | load(name + size - 4, 4) << 32;
    return lower8(mine) == (load(known, 4) | load(known + size - 4, 4) << 32);
  }
  for (; at < size; ++at)
    if (lower8(static_cast<unsigned char>(name[at])) != static_cast<unsigned char>(known[at])) return false;
  return true;
}

}  // namespace

FieldId field_id(std::string_view name) noexcept {
  if (name.size() - kTable.shortest > kTable.longest - kTable.shortest) return FieldId::other;
  const uint8_t id = kTable.ids[hash_of(name.data(), name.size())];
  const std::string_view known = kNames[id];
  if (known.size() != name.size() || !equal_folded(name.data(), known.data(), name.size())) return FieldId::other;
  return static_cast<FieldId>(id);
}

std::string_view field_name(FieldId id) noexcept {
  WEIR_ASSERT(id < FieldId::kCount);
  return kNames[static_cast<size_t>(id)];
}

const Field* Head::find(FieldId id) const noexcept {
  for (const Field& field : *this)
    if (field.id == id && !field.removed) return &field;
  return nullptr;
}

bool Head::add(FieldId id, std::string_view name, std::string_view value) noexcept {
  if (field_count >= kFieldsMax || name.size() > UINT16_MAX || value.size() > UINT32_MAX) return false;
  Field& field = fields[field_count++];
  field.name = name.data();
  field.value = value.data();
  field.value_size = static_cast<uint32_t>(value.size());
  field.name_size = static_cast<uint16_t>(name.size());
  field.id = id;
  field.hop = false;
  field.raw_line = false;
  field.removed = false;
  field.line_pad = 0;
  return true;
}

void Head::reset() noexcept {
  method = Method::get;
  version = Version::http11;
  status = 0;
  body = BodyKind::none;
  keep_alive = true;
  expect_continue = te_trailers = absolute_form = false;
  field_count = 0;
  content_length = 0;
  has_length = false;
  keep_alive_s = UINT32_MAX;
  method_text = scheme = authority = path = reason = std::string_view();
  backing.reset();
  big.reset();
}

// Methods are case-sensitive (RFC 9110 section 9.1): "get" is a method of its own.
Method method_of(std::string_view text) noexcept {
  switch (text.size()) {
    case 3:
      if (text == "GET") return Method::get;
      if (text == "PUT") return Method::put;
      break;
    case 4:
      if (text == "POST") return Method::post;
      if (text == "HEAD") return Method::head;
      break;
    case 5:
      if (text == "PATCH") return Method::patch;
      if (text == "TRACE") return Method::trace;
      break;
    case 6:
      if (text == "DELETE") return Method::del;
      break;
    case 7:
      if (text == "OPTIONS") return Method::options;
      if (text == "CONNECT") return Method::connect;
      break;
    default: break;
  }
  return Method::other;
}

bool method_idempotent(Method method) noexcept {
  switch (method) {
    case Method::get:
    case Method::head:
    case Method::put:
    case Method::del:
    case Method::options:
    case Method::trace: return true;
    case Method::post:
    case Method::patch:
    case Method::connect:
    case Method::other: return false;
  }
  return false;
}

}  // namespace weir

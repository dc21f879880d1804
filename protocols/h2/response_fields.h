// The fields of an answer as HTTP/2 sends them: ":status" first, nothing hop-by-hop, the length anew, then `extra`. Views into the
// head, into `extra` and into itself; made on the stack, alive during the call. Names keep their case: the library lowers it.
#pragma once

#include <array>
#include <charconv>
#include <span>

#include "protocols/exchange/head.h"
#include "protocols/h1/semantics.h"
#include "protocols/h2/session.h"

namespace weir::h2 {

class ResponseFields {
 public:
  ResponseFields(const Head& head, std::span<const ExtraField> extra) noexcept {
    status_ = {static_cast<char>('0' + head.status / 100), static_cast<char>('0' + head.status / 10 % 10),
               static_cast<char>('0' + head.status % 10)};
    add(":status", {status_.data(), status_.size()});
    constexpr uint64_t kAnew = h1::kHopFields | h1::field_bit(FieldId::content_length);
    for (const Field& field : head)
      if (field.forwarded() && (h1::field_bit(field.id) & kAnew) == 0) add(field.name_view(), field.value_view());
    if (head.status >= 200 && (head.body == BodyKind::length || (head.body == BodyKind::none && head.has_length))) {
      const auto end = std::to_chars(length_.data(), length_.data() + length_.size(), head.content_length).ptr;
      add("content-length", {length_.data(), static_cast<size_t>(end - length_.data())});
    }
    for (const ExtraField& field : extra) add(field.name, field.value);
  }
  std::span<const HeaderView> view() const noexcept { return {fields_.data(), count_}; }

 private:
  void add(std::string_view name, std::string_view value) noexcept {
    if (count_ < fields_.size()) fields_[count_++] = {name, value};
  }

  std::array<char, 3> status_;
  std::array<char, 20> length_;
  std::array<HeaderView, kFieldsMax + 32> fields_;
  size_t count_ = 0;
};

}  // namespace weir::h2

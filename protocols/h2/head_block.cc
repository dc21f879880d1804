#include "protocols/h2/head_block.h"

#include <algorithm>
#include <cstring>
#include <new>

#include "protocols/h1/chars.h"
#include "protocols/h1/semantics.h"

namespace weir::h2 {
namespace {

constexpr size_t kFirstBytes = 2048;
constexpr uint32_t kFieldOverhead = 32;     // what a field counts beside its bytes (RFC 9113 section 6.5.2)
constexpr std::string_view kCookieStart = "cookie: ";

bool is_target(std::string_view path) noexcept {
  return std::all_of(path.begin(), path.end(), [](char c) { return h1::is_char(c, h1::kTargetChar); });
}

}  // namespace

void HeadBlock::begin(Head* head) noexcept {
  head_ = head;
  used_ = 0;
  counted_ = length_ = 0;
  method_ = scheme_ = authority_ = path_ = host_ = cookie_ = Part();
  has_length_ = cookie_seen_ = expects_ = expects_other_ = false;
  problem_ = What::none;
  if (head != nullptr) head->reset();
}

bool HeadBlock::grow(size_t more) noexcept {
  if (used_ + more <= capacity_) return true;
  const size_t wanted = std::max({used_ + more, capacity_ * 2, kFirstBytes});
  std::unique_ptr<char[]> fresh(new (std::nothrow) char[wanted]);
  if (fresh == nullptr) {
    problem_ = What::out_of_memory;
    return false;
  }
  if (used_ > 0) std::memcpy(fresh.get(), bytes_.get(), used_);
  move_fields(bytes_.get(), fresh.get());
  bytes_ = std::move(fresh);
  capacity_ = wanted;
  return true;
}

void HeadBlock::move_fields(const char* from, const char* to) noexcept {
  for (Field& field : *head_) {
    field.name = to + (field.name - from);
    field.value = to + (field.value - from);
  }
}

bool HeadBlock::put(std::string_view text) noexcept {
  if (!grow(text.size())) return false;
  if (!text.empty()) std::memcpy(bytes_.get() + used_, text.data(), text.size());
  used_ += text.size();
  return true;
}

HeadBlock::Part HeadBlock::keep(std::string_view text) noexcept {
  const Part part{static_cast<uint32_t>(used_), static_cast<uint32_t>(text.size())};
  return put(text) ? part : Part();
}

bool HeadBlock::add(std::string_view name, std::string_view value, const HeadLimits& limits) noexcept {
  counted_ += name.size() + value.size() + kFieldOverhead;
  if (counted_ > uint64_t{limits.head_bytes} * 8 + (64u << 10)) return false;
  if (head_ == nullptr || problem_ != What::none) return true;
  if (used_ + cookie_.size + name.size() + value.size() + 4 > limits.head_bytes) {
    problem_ = name == ":path" ? What::uri_too_long : What::head_too_large;
    return true;
  }
  if (name.starts_with(':')) {
    pseudo(name, value);
  } else if (head_->field_count >= std::min(limits.fields, kFieldsMax - 1) && name != "cookie") {
    problem_ = What::too_many_fields;
  } else {
    regular(name, value);
  }
  return true;
}

void HeadBlock::pseudo(std::string_view name, std::string_view value) noexcept {
  if (name == ":method") method_ = keep(value);
  else if (name == ":scheme") scheme_ = keep(value);
  else if (name == ":authority") authority_ = keep(value);
  else if (name == ":path") path_ = keep(value);
}

void HeadBlock::regular(std::string_view name, std::string_view value) noexcept {
  const FieldId id = field_id(name);
  switch (id) {
    case FieldId::cookie: return crumb(value);
    case FieldId::content_length:
      has_length_ = true;
      if (!h1::parse_decimal(value, length_)) problem_ = What::bad_framing;
      break;
    case FieldId::te: head_->te_trailers = true; break;
    case FieldId::expect:
      expects_ = true;
      expects_other_ = expects_other_ || !h1::equal_ignoring_case(value, "100-continue");
      break;
    default: break;
  }
  line(id, name, value);
  if (id == FieldId::host && problem_ == What::none) {
    const Field& field = head_->fields[head_->field_count - 1];
    host_ = {static_cast<uint32_t>(field.value - bytes_.get()), field.value_size};
  }
}

void HeadBlock::line(FieldId id, std::string_view name, std::string_view value) noexcept {
  const size_t size = name.size() + value.size() + 4;
  if (!grow(size)) return;
  const char* from = bytes_.get() + used_;
  put(name);
  put(": ");
  put(value);
  put("\r\n");
  if (!head_->add(id, {from, name.size()}, {from + name.size() + 2, value.size()})) {
    problem_ = What::too_many_fields;
    return;
  }
  Field& field = head_->fields[head_->field_count - 1];
  field.raw_line = true;
  field.hop = (h1::field_bit(id) & h1::kHopFields) != 0;
}

// Crumbs are joined (RFC 9113 section 8.2.3). They grow at the end of the bytes, as one line without its end; other fields that
// come between two crumbs push what is there behind themselves.
void HeadBlock::crumb(std::string_view value) noexcept {
  if (!cookie_seen_) {
    cookie_seen_ = true;
    const Part start = keep(kCookieStart);
    cookie_ = {start.at, start.size};
  } else if (cookie_.at + cookie_.size != used_) {
    if (!grow(cookie_.size)) return;
    const Part moved{static_cast<uint32_t>(used_), cookie_.size};
    std::memcpy(bytes_.get() + used_, bytes_.get() + cookie_.at, cookie_.size);
    used_ += cookie_.size;
    cookie_ = moved;
  }
  if (cookie_.size > kCookieStart.size() && put("; ")) cookie_.size += 2;
  if (put(value)) cookie_.size += static_cast<uint32_t>(value.size());
}

void HeadBlock::join_cookie() noexcept {
  if (!cookie_seen_ || problem_ != What::none) return;
  if (cookie_.at + cookie_.size != used_) {
    if (!grow(cookie_.size + 2)) return;
    std::memcpy(bytes_.get() + used_, bytes_.get() + cookie_.at, cookie_.size);
    cookie_.at = static_cast<uint32_t>(used_);
    used_ += cookie_.size;
  }
  if (!put("\r\n")) return;
  const char* from = bytes_.get() + cookie_.at;
  const size_t name = kCookieStart.size() - 2;
  if (head_->add(FieldId::cookie, {from, name}, {from + name + 2, cookie_.size - kCookieStart.size()}))
    head_->fields[head_->field_count - 1].raw_line = true;
}

// Moves the bytes to where the head keeps them.
bool HeadBlock::settle(SmallBytes& small) noexcept {
  base_ = bytes_.get();
  if (used_ == 0) return true;
  if (used_ <= kSlabBytes) {
    Slice slice = small.take(used_);
    if (!slice) return false;
    std::memcpy(slice.data(), bytes_.get(), used_);
    move_fields(bytes_.get(), slice.data());
    base_ = slice.data();
    head_->backing = std::move(slice);
    return true;
  }
  LeasedBytes big = take_bytes(small.pool().lease(), used_);
  if (big == nullptr) return false;
  std::memcpy(big.get(), bytes_.get(), used_);
  move_fields(bytes_.get(), big.get());
  base_ = big.get();
  head_->big = std::move(big);
  return true;
}

What HeadBlock::decide_target(Head& head) const noexcept {
  const std::string_view scheme = text(scheme_);
  if (head.method != Method::connect) {
    if (h1::equal_ignoring_case(scheme, "https")) head.scheme = "https";
    else if (h1::equal_ignoring_case(scheme, "http")) head.scheme = "http";
    else return What::bad_request_line;
  }
  if (!h1::is_token(head.method_text)) return What::bad_method;
  if (host_.size != 0 && authority_.size != 0 && !h1::equal_ignoring_case(text(host_), text(authority_))) return What::bad_host;
  head.authority = authority_.size != 0 ? text(authority_) : text(host_);
  if (head.authority.empty() || !h1::is_host(head.authority, head.method == Method::connect, head.authority.data()))
    return What::bad_host;
  if (head.method == Method::connect) return What::none;
  head.path = text(path_);
  if (head.path == "*") return head.method == Method::options ? What::none : What::bad_path;
  return head.path.starts_with('/') && is_target(head.path) ? What::none : What::bad_path;
}

What HeadBlock::decide_body(Head& head, bool ends) const noexcept {
  head.has_length = has_length_;
  head.content_length = length_;
  if (ends) {
    head.body = BodyKind::none;
    // An origin that speaks HTTP/1 is told that there is none, where one would be expected.
    if (head.method == Method::post || head.method == Method::put || head.method == Method::patch) head.has_length = true;
  } else {
    head.body = has_length_ ? BodyKind::length : BodyKind::streamed;
  }
  if (expects_other_) return What::expectation_failed;
  head.expect_continue = expects_ && !ends;
  if (expects_ && ends)
    for (Field& field : head)
      if (field.id == FieldId::expect) field.hop = true;
  return What::none;
}

What HeadBlock::finish_request(bool ends, SmallBytes& small) noexcept {
  Head& head = *head_;
  join_cookie();
  if (!settle(small)) {
    head.reset();
    problem_ = What::out_of_memory;
  } else {
    head.method_text = text(method_);
  }
  head.version = Version::http2;
  head.method = method_of(head.method_text);
  head.scheme = "http";
  What what = problem_;
  if (what == What::none) what = decide_target(head);
  if (what == What::none) what = decide_body(head, ends);
  head_ = nullptr;
  return what;
}

What HeadBlock::finish_trailers(SmallBytes& small) noexcept {
  if (head_ == nullptr) return problem_;
  join_cookie();
  const bool good = problem_ == What::none && settle(small);
  Head& head = *std::exchange(head_, nullptr);
  if (!good) {
    head.reset();
    return problem_ != What::none ? problem_ : What::out_of_memory;
  }
  h1::finish_trailers(head);
  return What::none;
}

}  // namespace weir::h2

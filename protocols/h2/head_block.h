// HeadBlock: one header block, field by field as it is decoded, becomes a Head: pseudo-fields to its parts, cookie crumbs to one
// field, the rest to lines in the form that HTTP/1 sends, so that they are copied as one run to an h1 origin.
// What the library has checked already (names in lower case, order and number of pseudo-fields, no connection-specific field, one
// content-length) is not checked again; what HTTP means by it is (RFC 9113 section 8.3, RFC 9110), to the verdicts of HTTP/1.
// Owner: a ServerConn; header blocks never overlap. A head never holds more than its limit; what comes beyond is counted only.
#pragma once

#include <memory>
#include <string_view>

#include "protocols/exchange/fault.h"
#include "protocols/exchange/head.h"
#include "protocols/h2/small_bytes.h"

namespace weir::h2 {

struct HeadLimits {
  uint32_t head_bytes = 32u << 10;
  uint32_t fields = 128;
};

class HeadBlock {
 public:
  void begin(Head* head) noexcept;         // null: nobody wants it, it is only counted
  // false: so much that the peer means harm (eight times the limit and 64 KiB).
  bool add(std::string_view name, std::string_view value, const HeadLimits& limits) noexcept;
  // Puts the bytes where they stay and decides what the head means. `ends`: no body follows.
  What finish_request(bool ends, SmallBytes& small) noexcept;
  What finish_trailers(SmallBytes& small) noexcept;
  void forget(const Head& head) noexcept { if (head_ == &head) head_ = nullptr; }
  void release() noexcept { bytes_.reset(); capacity_ = used_ = 0; }   // while nothing is decoded

 private:
  struct Part { uint32_t at = 0, size = 0; };
  bool grow(size_t more) noexcept;
  bool put(std::string_view text) noexcept;
  Part keep(std::string_view text) noexcept;
  void pseudo(std::string_view name, std::string_view value) noexcept;
  void regular(std::string_view name, std::string_view value) noexcept;
  void line(FieldId id, std::string_view name, std::string_view value) noexcept;
  void crumb(std::string_view value) noexcept;
  void join_cookie() noexcept;
  bool settle(SmallBytes& small) noexcept;
  void move_fields(const char* from, const char* to) noexcept;
  std::string_view text(Part part) const noexcept { return {base_ + part.at, part.size}; }
  What decide_target(Head& head) const noexcept;
  What decide_body(Head& head, bool ends) const noexcept;

  Head* head_ = nullptr;
  std::unique_ptr<char[]> bytes_;
  const char* base_ = nullptr;      // where the bytes are now
  size_t capacity_ = 0, used_ = 0;
  uint64_t counted_ = 0;            // of the whole list, as RFC 9113 section 6.5.2 counts
  uint64_t length_ = 0;
  Part method_, scheme_, authority_, path_, host_, cookie_;
  bool has_length_ = false;
  bool cookie_seen_ = false;
  bool expects_ = false, expects_other_ = false;
  What problem_ = What::none;
};

}  // namespace weir::h2

// HeadBuffer: keeps the bytes of one head (or trailer section) together, whatever pieces they arrived in, for the parser that
// wants them contiguous. Owner: an h1 connection. Thread: the loop's own. A head inside one slab (nearly all) is not copied,
// whatever follows it; one that straddles two is copied once, into a slab; one above a slab goes to a heap buffer of its own,
// which the pool's lease is charged for. The bytes stay in `in` until take(), which cannot fail. Byte-by-byte arrival costs
// linear work.
#pragma once

#include <algorithm>
#include <memory>
#include <string_view>

#include "engines/chain.h"
#include "protocols/exchange/head.h"
#include "protocols/h1/parser.h"

namespace weir::h1 {

class HeadBuffer {
 public:
  // Appends what arrived; small pieces join the tail slab.
  void append(Chain& in, SlabPool& pool, Chain&& bytes) noexcept;
  // Gives the front of `in` (not empty) to parse(data, size, scanned), and more of it while parse wants more and there
  // is more within the limit. false: no memory to join the pieces.
  template <class Parser>
  [[nodiscard]] bool parse(Chain& in, SlabPool& pool, uint32_t limit, ParseResult& result, Parser&& parser) noexcept {
    std::string_view bytes = big_ == nullptr ? in.front().view() : std::string_view(big_.get(), big_size_);
    for (;;) {
      result = parser(bytes.data(), bytes.size(), scanned_);
      if (result.state != Parse::need_more || bytes.size() >= std::min<size_t>(in.bytes(), limit)) return true;
      bytes = join(in, pool, limit);
      if (bytes.empty()) return false;
    }
  }
  // The first `count` bytes that were parsed last were a head: pins them in `head`, leaves the rest in `in`.
  void take(Chain& in, uint32_t count, Head& head) noexcept;
  void reset() noexcept { big_.reset(); scanned_ = 0; }
  size_t charge() const noexcept { return big_ == nullptr ? 0 : big_capacity_; }   // memory beyond that of `in`

 private:
  std::string_view join(Chain& in, SlabPool& pool, uint32_t limit) noexcept;

  size_t scanned_ = 0;            // the parser's memory between calls
  LeasedBytes big_;               // a copy of the first big_size_ bytes of `in`
  size_t big_size_ = 0;
  size_t big_capacity_ = 0;
};

}  // namespace weir::h1

// What the contract suite believes: byte streams that can be checked at any offset, and a ledger of ops.
// Both only record what is wrong; a case asks at its end. control_test.cc shows that each of them can fail.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "engines/chain.h"
#include "engines/op.h"

namespace weir::contract {

// An endless stream of bytes, a function of its seed: whoever receives any part of it can tell whether it is the right part.
class Pattern {
 public:
  explicit Pattern(uint64_t seed) noexcept : seed_(seed * 0x9e3779b97f4a7c15ull + 1) {}
  char at(uint64_t offset) const noexcept { return static_cast<char>(word(offset / 8) >> (offset % 8 * 8)); }
  std::string bytes(uint64_t from, size_t count) const;
  // The first offset at which `got` differs from the stream, when it is said to begin at `from`; npos: it is right.
  size_t mismatch(uint64_t from, std::string_view got) const noexcept;

 private:
  uint64_t word(uint64_t index) const noexcept {
    uint64_t z = seed_ + index * 0x9e3779b97f4a7c15ull;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
    return z ^ (z >> 31);
  }
  uint64_t seed_;
};

class Ledger {
 public:
  void submitting(const Op& op);      // before Loop::submit
  void submitted(const Op& op);       // after it
  void completed(const Op& op);       // first thing in the callback
  void wrong(std::string what);       // any other violation; the first few are kept
  size_t outstanding() const noexcept { return outstanding_; }
  uint64_t completions() const noexcept { return completions_; }
  bool clean() const noexcept { return wrong_.empty(); }
  std::string text() const;

 private:
  struct Entry {
    bool outstanding = false;
    bool inside_submit = false;
  };
  std::unordered_map<const Op*, Entry> ops_;
  size_t outstanding_ = 0;
  uint64_t completions_ = 0;
  std::vector<std::string> wrong_;
};

// Reads one stream in order.
class StreamCheck {
 public:
  StreamCheck(Ledger& ledger, uint64_t seed, std::string name) : ledger_(ledger), pattern_(seed), name_(std::move(name)) {}
  void feed(std::string_view bytes);
  void feed(const Chain& bytes);
  void skip(uint64_t count) noexcept { count_ += count; }   // somebody else got these
  uint64_t count() const noexcept { return count_; }

 private:
  Ledger& ledger_;
  Pattern pattern_;
  std::string name_;
  uint64_t count_ = 0;
};

}  // namespace weir::contract

// The scans of sixteen bytes at a time against the plain loop over the table: every byte value at every place, every length up to
// several blocks, every distance from the memory's beginning.
#include "protocols/h1/chars.h"

#include <catch2/catch_test_macros.hpp>
#include <cstring>
#include <memory>
#include <random>
#include <string>

using namespace weir::h1;

namespace {

const char* plain(const char* at, const char* end, CharBit bit) {
  while (at != end && is_char(*at, bit)) ++at;
  return at;
}

// `text` in memory of exactly its size, scanned from each offset.
template <class Stop>
bool same(const std::string& text) {
  const std::unique_ptr<char[]> copy(new char[text.size()]);
  std::memcpy(copy.get(), text.data(), text.size());
  const char* const base = copy.get();
  const char* const end = base + text.size();
  for (const char* at = base; at <= end; ++at)
    if (detail::scan<Stop>(base, at, end) != plain(at, end, Stop::kPass)) return false;
  return true;
}

template <class Stop>
void check(char good) {
  for (size_t size = 0; size <= 50; ++size) {
    REQUIRE(same<Stop>(std::string(size, good)));
    for (size_t at = 0; at < size; ++at) {
      std::string text(size, good);
      for (int byte = 0; byte < 256; byte += size < 34 && size > 30 ? 1 : 37) {
        text[at] = static_cast<char>(byte);
        if (!same<Stop>(text)) FAIL("byte " << byte << " at " << at << " of " << size);
      }
    }
  }
  std::mt19937 random(1);
  for (int round = 0; round < 2000; ++round) {
    std::string text(random() % 80, good);
    for (char& c : text)
      if (random() % 16 == 0) c = static_cast<char>(random());
    if (!same<Stop>(text)) FAIL("round " << round);
  }
}

}  // namespace

TEST_CASE("h1 scans by blocks agree with the table, byte for byte", "[h1]") {
  SECTION("control bytes") { check<detail::ControlStop>('a'); }
  SECTION("targets") { check<detail::TargetStop>('/'); }
  SECTION("names") { check<detail::NameStop>('-'); }
  SECTION("hosts") { check<detail::HostStop>('.'); }
}

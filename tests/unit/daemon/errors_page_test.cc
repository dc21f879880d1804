// docs/errors.md against the table of causes: a row for each, with its words, and no other.
#include <catch2/catch_test_macros.hpp>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "protocols/exchange/fault.h"
#include "tests/source_dir.h"

using namespace weir;

namespace {

std::string row_of(What what) {
  static constexpr const char* kSides[] = {"client", "origin", "Weir"};
  static constexpr const char* kRetries[] = {"no", "if reused", "yes"};
  const FaultRow& row = fault_row(what);
  const Fault fault = make_fault(what);
  const std::string token = row.proxy_status == nullptr ? "" : "`" + std::string(row.proxy_status) + "`";
  return "| `" + std::string(row.code) + "` | " + (row.status == 0 ? "" : std::to_string(row.status)) + " | " + token + " | " +
         kSides[static_cast<size_t>(fault.side)] + " | " + kRetries[static_cast<size_t>(fault.retry)] + " | " + row.sentence + " |";
}

}  // namespace

TEST_CASE("docs/errors.md says what the table of causes says", "[fault]") {
  std::ifstream file(source_dir() + "/docs/errors.md");
  REQUIRE(file.good());
  std::vector<std::string> rows;
  for (std::string line; std::getline(file, line);)
    if (line.starts_with("| `")) rows.push_back(line);
  std::vector<std::string> wanted;
  for (int i = 1; i < static_cast<int>(What::kCount); ++i) wanted.push_back(row_of(static_cast<What>(i)));
  CHECK(rows == wanted);
}

// The complete example, damaged in hundreds of ways: there is always an answer, and the answer makes sense.
#include <catch2/catch_test_macros.hpp>

#include <algorithm>
#include <array>
#include <fstream>
#include <sstream>

#include "config/describe.h"
#include "config/schema_json.h"
#include "tests/source_dir.h"
#include "tests/unit/config/json_schema.h"
#include "tests/unit/config/support.h"

namespace weir::config {
namespace {

class Chance {
 public:
  explicit Chance(uint64_t seed) : state_(seed * 2 + 1) {}
  size_t below(size_t limit) {
    state_ = state_ * 6364136223846793005u + 1442695040888963407u;
    return static_cast<size_t>(state_ >> 33) % limit;
  }

 private:
  uint64_t state_;
};

std::string complete_example() {
  std::stringstream text;
  text << std::ifstream(source_dir() + "/docs/examples/complete.yaml").rdbuf();
  return text.str();
}

// [from, to) of a random line, its end included.
std::pair<size_t, size_t> line_at(const std::string& text, size_t at) {
  const size_t before = at == 0 ? std::string::npos : text.rfind('\n', at - 1);
  const size_t from = before == std::string::npos ? 0 : before + 1;
  return {from, std::min(text.find('\n', at), text.size() - 1) + 1};
}

void damage(std::string& text, Chance& chance) {
  constexpr std::array<std::string_view, 30> kBits{
      "",  "[]", "{}",   "-1",   "0",     "true",  "yes",  "999999999999999999999", "~",     "*x",
      "&", "!!", "<<: ", "\"",   "'",     "${",    "${X}", "${HOME:-5s}",           "\xff",  "\x01",
      ": ", ", ", "- ",  "\t",   "\n",    "}",     "]",    "unlimited",             "5s",    "h1"};
  const size_t at = chance.below(text.size());
  const std::string_view bit = kBits.at(chance.below(kBits.size()));
  const auto [from, to] = line_at(text, at);
  const size_t word_from = text.find_last_of(" {[,\n", at) + 1;
  const size_t word_to = std::min(text.find_first_of(" }],\n", std::max(at, word_from)), text.size());
  switch (chance.below(7)) {
    case 0: text.erase(at, 1 + chance.below(5)); break;
    case 1: text.insert(at, bit); break;
    case 2: text.erase(from, to - from); break;
    case 3: text.insert(to, text.substr(from, to - from)); break;
    case 4: if (word_from < word_to) text.replace(word_from, word_to - word_from, bit); break;
    case 5: text[at] = static_cast<char>(1 + chance.below(255)); break;
    default: {
      const auto [other_from, other_to] = line_at(text, chance.below(text.size()));
      text.insert(from, text.substr(other_from, other_to - other_from));
    }
  }
  if (text.empty()) text = "\n";
}

void check_problem(const Problem& problem, const std::string& text) {
  const auto lines = static_cast<size_t>(std::count(text.begin(), text.end(), '\n')) + (text.ends_with('\n') ? 0 : 1);
  CHECK(problem.where.file == "t.yaml");
  CHECK(problem.where.line <= lines);
  CHECK((problem.where.column > 0) == (problem.where.line > 0));
  CHECK(problem.message.size() > 5);
  CHECK(problem.message.find('\n') == std::string::npos);
}

}  // namespace

TEST_CASE("a damaged configuration is refused with its places, or means what it says") {
  const std::string whole = complete_example();
  const JsonSchema schema(schema_json());
  const FakeWorld world;
  size_t taken = 0, refused = 0;
  for (uint64_t seed = 1; seed <= 400; ++seed) {
    Chance chance(seed);
    std::string text = whole;
    for (size_t n = 1 + chance.below(2); n > 0; --n) damage(text, chance);
    CAPTURE(seed);
    auto result = load_text(text, "t.yaml", world.environment());
    if (!result) {
      ++refused;
      REQUIRE_FALSE(result.error().list.empty());
      for (const Problem& problem : result.error().list) check_problem(problem, text);
      continue;
    }
    ++taken;
    CHECK(result->hash.size() == 16);
    auto again = load_text(describe(*result), "t.yaml", world.environment());
    INFO((again ? "" : again.error().text()));
    REQUIRE(again.has_value());
    CHECK(again->hash == result->hash);
    CHECK(schema.takes(tree_of(text)));   // what the reader takes, the schema takes
  }
  CHECK(taken > 30);
  CHECK(refused > 30);
}

TEST_CASE("a configuration that ends too early gets an answer, wherever it ends") {
  const std::string whole = complete_example();
  const FakeWorld world;
  for (size_t size = 0; size < whole.size(); size += 13) {
    CAPTURE(size);
    const std::string text = whole.substr(0, size);
    auto result = load_text(text, "t.yaml", world.environment());
    if (result) continue;
    REQUIRE_FALSE(result.error().list.empty());
    for (const Problem& problem : result.error().list) check_problem(problem, text);
  }
}

}  // namespace weir::config

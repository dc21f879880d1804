// The table against itself, against docs/config.md, and against the examples.
#include "config/schema.h"

#include <catch2/catch_test_macros.hpp>

#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>

#include "tests/source_dir.h"
#include "tests/unit/config/support.h"

namespace weir::config {
namespace {

std::string read(const std::string& path) {
  std::ifstream file(source_dir() + "/" + path);
  REQUIRE(file.good());
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

// The part of the reference that is about one level: from its heading to the next one.
std::string section(const std::string& page, std::string_view heading) {
  const size_t from = page.find("# " + std::string(heading) + "\n");
  CAPTURE(heading);
  REQUIRE(from != std::string::npos);
  return page.substr(from, page.find("\n##", from) - from);
}

std::string_view heading(Level level) {
  switch (level) {
    case Level::top: return "The top level";
    case Level::defaults: return "defaults";
    case Level::listener: return "listeners";
    case Level::listener_limits: return "limits of a listener";
    case Level::unix_file: return "unix";
    case Level::listener_tls: return "tls of a listener";
    case Level::certificate: return "certificates";
    case Level::rewrite: return "rewrite";
    case Level::headers: return "headers";
    case Level::edits: return "header edits";
    case Level::route_limits: return "limits of a route";
    case Level::upstream_limits: return "limits of an upstream";
    case Level::route: return "routes";
    case Level::match: return "match";
    case Level::target: return "to";
    case Level::respond: return "respond";
    case Level::redirect: return "redirect";
    case Level::upstream: return "upstreams";
    case Level::server: return "servers";
    case Level::timeouts: return "timeouts";
    case Level::exchange_timeouts: return "timeouts of a route or upstream";
    case Level::limits: return "limits";
    case Level::pipe: return "pipe";
    case Level::admin: return "admin";
    case Level::metrics: return "metrics";
    case Level::log: return "log";
    case Level::access: return "access";
    case Level::shutdown: return "shutdown";
    case Level::test: return "tests";
    case Level::expect: return "expect";
    case Level::none: break;
  }
  return "";
}

}  // namespace

TEST_CASE("the table is sound") {
  std::set<std::pair<Level, std::string_view>> seen;
  std::set<Level> with_rows;
  for (const Row& row : schema()) {
    CAPTURE(row.key);
    CHECK(seen.emplace(row.level, row.key).second);
    CHECK_FALSE(row.doc.empty());
    CHECK((row.need != Need::required || row.fallback.empty()));
    CHECK(level_name(row.level) != level_name(Level::none));
    CHECK((row.type != Type::word || row.need == Need::later || !row.words.empty()));
    with_rows.insert(row.level);
  }
  for (const Row& row : schema()) {
    if (row.child != Level::none) CHECK(with_rows.contains(row.child));
  }
}

TEST_CASE("the reference has every key, its default, and whether it is supported") {
  const std::string page = read("docs/config.md");
  for (const Row& row : schema()) {
    CAPTURE(row.key, heading(row.level));
    const std::string part = section(page, heading(row.level));
    if (row.need == Need::later) {
      const size_t not_yet = part.find("Not supported by this version yet:");
      REQUIRE(not_yet != std::string::npos);
      CHECK(part.find("`" + std::string(row.key) + "`", not_yet) != std::string::npos);
      continue;
    }
    const size_t from = part.find("\n| `" + std::string(row.key) + "` |");
    REQUIRE(from != std::string::npos);
    const std::string line = part.substr(from + 1, part.find('\n', from + 1) - from - 1);
    CAPTURE(line);
    const std::string fallback = row.need == Need::required ? "required"
                                 : row.fallback.starts_with("(")
                                     ? std::string(row.fallback.substr(1, row.fallback.size() - 2))
                                 : row.fallback.empty() ? "" : "`" + std::string(row.fallback) + "`";
    CHECK(line.find("| " + fallback) != std::string::npos);
    for (std::string_view word : split_words(row.words)) {
      CHECK(line.find("`" + std::string(word) + "`") != std::string::npos);
    }
    CHECK(line.find(row.doc) != std::string::npos);
  }
}

TEST_CASE("the reference has no key that is not in the table") {
  const std::string page = read("docs/config.md");
  std::set<std::string> known;
  for (const Row& row : schema()) known.emplace(row.key);
  for (size_t at = 0; (at = page.find("\n| `", at)) != std::string::npos; ++at) {
    const std::string key = page.substr(at + 4, page.find('`', at + 4) - at - 4);
    CAPTURE(key);
    CHECK(known.contains(key));
  }
}

TEST_CASE("every example loads") {
  size_t count = 0;
  for (const auto& entry : std::filesystem::directory_iterator(source_dir() + "/docs/examples")) {
    if (entry.path().extension() != ".yaml") continue;
    ++count;
    auto result = load(entry.path(), Environment::real());
    INFO((result ? "" : result.error().text()));
    CHECK(result.has_value());
  }
  CHECK(count >= 4);
}

TEST_CASE("one example has every key that is supported") {
  const std::string text = read("docs/examples/complete.yaml");
  for (const Row& row : schema()) {
    if (row.need == Need::later) continue;
    CAPTURE(row.key, level_phrase(row.level));
    CHECK(text.find(std::string(row.key) + ":") != std::string::npos);
  }
}

TEST_CASE("the nearest spelling") {
  const std::vector<std::string_view> words{"bind", "engine", "path_prefix", "upstream", "warn", "io_uring"};
  CHECK(nearest("bnid", words) == "bind");
  CHECK(nearest("path-prefix", words) == "path_prefix");
  CHECK(nearest("PathPrefix", words) == "path_prefix");
  CHECK(nearest("upstreams", words) == "upstream");
  CHECK(nearest("warning", words) == "warn");
  CHECK(nearest("iouring", words) == "io_uring");
  CHECK_FALSE(nearest("colour", words).has_value());
  CHECK_FALSE(nearest("x", words).has_value());
  CHECK_FALSE(nearest(std::string(100'000, 'b'), words).has_value());
}

}  // namespace weir::config

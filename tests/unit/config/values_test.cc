// Networks and path patterns as the data path uses them.
#include <catch2/catch_test_macros.hpp>

#include "config/cidr.h"
#include "config/path_regex.h"

namespace weir::config {
namespace {

Cidr network(const char* text) { return parse_cidr(text).value(); }

std::array<uint8_t, 4> v4(uint8_t a, uint8_t b, uint8_t c, uint8_t d) { return {a, b, c, d}; }

std::string replaced(const char* pattern, std::string_view path, std::string_view replacement) {
  std::string out = "<";
  const bool found = PathRegex::compile(pattern).value().replace(path, replacement, out);
  return found ? out.substr(1) : "not found";
}

}  // namespace

TEST_CASE("a network holds its addresses and no others") {
  CHECK(network("10.0.0.0/8").contains(v4(10, 255, 0, 1)));
  CHECK_FALSE(network("10.0.0.0/8").contains(v4(11, 0, 0, 0)));
  CHECK(network("192.0.2.128/25").contains(v4(192, 0, 2, 255)));
  CHECK_FALSE(network("192.0.2.128/25").contains(v4(192, 0, 2, 127)));
  CHECK(network("192.0.2.7").contains(v4(192, 0, 2, 7)));
  CHECK_FALSE(network("192.0.2.7").contains(v4(192, 0, 2, 6)));
  CHECK(network("0.0.0.0/0").contains(v4(1, 2, 3, 4)));
  std::array<uint8_t, 16> six{0xfd, 0x12};
  CHECK(network("fd00::/8").contains(six));
  CHECK(network("::/0").contains(six));
  CHECK_FALSE(network("fe80::/10").contains(six));
  CHECK_FALSE(network("0.0.0.0/0").contains(six));
  CHECK_FALSE(network("::/0").contains(v4(1, 2, 3, 4)));
  const std::array<uint8_t, 16> mapped{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 10, 1, 2, 3};
  CHECK(network("10.0.0.0/8").contains(mapped));
  CHECK_FALSE(network("::/0").contains(mapped));
  CHECK_FALSE(network("0.0.0.0/0").contains({}));   // a unix socket's peer
}

TEST_CASE("a network's text is its shortest, and it covers what lies in it") {
  CHECK(network("[::1]").text() == "::1");
  CHECK(network("0:0::/16").text() == "::/16");
  CHECK(network("10.0.0.1/32").text() == "10.0.0.1");
  CHECK(network("10.0.0.0/8").covers(network("10.1.0.0/16")));
  CHECK(network("10.0.0.0/8").covers(network("10.0.0.0/8")));
  CHECK_FALSE(network("10.1.0.0/16").covers(network("10.0.0.0/8")));
  CHECK_FALSE(network("0.0.0.0/0").covers(network("::/0")));
}

TEST_CASE("a pattern is found anywhere, and its first place is replaced") {
  CHECK(PathRegex::compile("b+").value().matches("/abbc"));
  CHECK_FALSE(PathRegex::compile("^b").value().matches("/abbc"));
  CHECK(PathRegex::compile("^/a$").value() == PathRegex::compile("^/a$").value());
  CHECK_FALSE(PathRegex::compile("x").value() == PathRegex::compile("y").value());
  CHECK(replaced("b+", "/abbcb", "X") == "/aXcb");
  CHECK(replaced("^/v(\\d+)/(.*)", "/v3/a/b", "/$2/version/$1") == "/a/b/version/3");
  CHECK(replaced("x", "/a", "y") == "not found");
  CHECK(replaced("^/a", "/a/b", "") == "/b");
  CHECK(replaced("^/a$", "/a", "") == "/");                  // a path begins with "/", whatever is replaced
  CHECK(replaced("^/a(/.*)?$", "/a", "/z$1") == "/z");       // a group that took no part is empty
  CHECK(replaced("^/", "/q", "x") == "/xq");
  CHECK(replaced("a", "/a", "[$0][$$]") == "/[a][$]");
  CHECK(replaced("(a)|(b)|(c)|(d)|(e)|(f)|(g)|(h)|(i)|(j)", "/j", "$9-") == "/-");
  CHECK(replaced("\\xff", "/a\xff", "z") == "/az");          // paths are bytes
}

TEST_CASE("no pattern takes more than linear time") {
  // Steps that a backtracking matcher would need: 2^30.
  CHECK_FALSE(PathRegex::compile("^/(a+)+$").value().matches("/" + std::string(4000, 'a') + "!"));
}

}  // namespace weir::config

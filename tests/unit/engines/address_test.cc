#include "engines/address.h"

#include <catch2/catch_test_macros.hpp>

using weir::Address;

TEST_CASE("addresses come back as they were written") {
  for (const char* text : {"127.0.0.1:80", "0.0.0.0:0", "[::1]:8080", "[2001:db8::7]:65535", "unix:/run/x.sock", "unix:@name"}) {
    const auto address = Address::parse(text);
    REQUIRE(address.has_value());
    CHECK(address->text() == text);
  }
}

TEST_CASE("what is no address is refused") {
  for (const char* text : {"", "127.0.0.1", "127.0.0.1:", ":80", "127.0.0.1:65536", "127.0.0.1:-1", "127.0.0.1:+1", "127.0.0.1:8x",
                           "::1:80", "[::1]80", "[::1:80", "[]:80", "[127.0.0.1]:80", "localhost:80", "256.0.0.1:80", "unix:",
                           "unix:@", "unix"}) {
    INFO(text);
    CHECK_FALSE(Address::parse(text).has_value());
  }
  CHECK(Address::parse("unix:/" + std::string(106, 'x')).has_value());
  CHECK_FALSE(Address::parse("unix:/" + std::string(107, 'x')).has_value());
}

TEST_CASE("parts of an address") {
  char host[64];
  const auto v4 = *Address::parse("10.0.0.5:443");
  CHECK(v4.port() == 443);
  CHECK(v4.family() == AF_INET);
  CHECK(std::string_view(host, v4.host_text(host)) == "10.0.0.5");
  const auto v6 = *Address::parse("[::1]:443");
  CHECK(std::string_view(host, v6.host_text(host)) == "::1");
  const auto un = *Address::parse("unix:/x");
  CHECK(un.is_unix());
  CHECK(un.port() == 0);
  CHECK(std::string_view(host, un.host_text(host)) == "unix");
  CHECK(Address().family() == AF_UNSPEC);
  CHECK(Address().text().empty());
}

TEST_CASE("an IPv4 peer of a dual-stack socket is an IPv4 address") {
  CHECK(Address::parse("[::ffff:192.0.2.7]:99")->unmapped() == *Address::parse("192.0.2.7:99"));
  CHECK(Address::parse("[::ffff:192.0.2.7]:99")->unmapped().text() == "192.0.2.7:99");
  for (const char* text : {"[::1]:99", "[2001:db8::ffff:c000:207]:1", "[::192.0.2.7]:1", "192.0.2.7:99", "unix:/x"}) {
    CAPTURE(text);
    CHECK(Address::parse(text)->unmapped() == *Address::parse(text));
  }
  CHECK(Address().unmapped() == Address());
}

TEST_CASE("addresses are equal when they name the same place") {
  CHECK(*Address::parse("10.0.0.5:443") == *Address::parse("10.0.0.5:443"));
  CHECK_FALSE(*Address::parse("10.0.0.5:443") == *Address::parse("10.0.0.5:444"));
  CHECK_FALSE(*Address::parse("10.0.0.5:443") == *Address::parse("10.0.0.6:443"));
  CHECK_FALSE(*Address::parse("[::1]:443") == *Address::parse("127.0.0.1:443"));
  CHECK(*Address::parse("[0:0::1]:443") == *Address::parse("[::1]:443"));
  // The kernel may hand out a path with or without its final NUL.
  auto shorter = *Address::parse("unix:/x");
  --shorter.length;
  CHECK(shorter == *Address::parse("unix:/x"));
  CHECK(shorter.text() == "unix:/x");
  CHECK_FALSE(*Address::parse("unix:x") == *Address::parse("unix:@x"));
  CHECK(Address() == Address());
}

// One form of a request's target: paths and hosts in, as sent; what routing and the origin see out.
#include "protocols/exchange/target.h"

#include <catch2/catch_test_macros.hpp>
#include <cstring>
#include <memory>
#include <string>
#include <string_view>

#include "engines/slab.h"

using namespace weir;

namespace {

SlabPool& pool() {
  static SlabPool pool(1u << 20);
  return pool;
}

// Where the target lies: in a head's slab, with bytes before and behind it, or in memory of exactly its size.
enum class Place { slab, exact };

struct Target {
  Target(std::string_view authority, std::string_view path, Place place, std::string_view scheme = {}) {
    if (place == Place::slab) {
      Slab* slab = pool().take();
      std::memset(slab->data, '.', kSlabBytes);
      slab->used = kSlabBytes;
      head.backing = Slice(slab, 0, 256);
      char* at = slab->data + 5;
      std::memcpy(at, path.data(), path.size());
      head.path = {at, path.size()};
      at = slab->data + 128;
      std::memcpy(at, authority.data(), authority.size());
      head.authority = {at, authority.size()};
    } else {
      exact[0].reset(new char[path.size()]);
      exact[1].reset(new char[authority.size()]);
      std::memcpy(exact[0].get(), path.data(), path.size());
      std::memcpy(exact[1].get(), authority.data(), authority.size());
      head.path = {exact[0].get(), path.size()};
      head.authority = {exact[1].get(), authority.size()};
    }
    head.scheme = scheme;
  }
  Head head;
  std::unique_ptr<char[]> exact[2];
};

std::string path_of(std::string_view path) {
  std::string first;
  for (const Place place : {Place::slab, Place::exact}) {
    const auto target = std::make_unique<Target>("a", path, place);
    const What what = normalise_target(target->head);
    CHECK((what == What::none || what == What::bad_path));
    const std::string is = what == What::none ? std::string(target->head.path) : "400";
    if (place == Place::slab) first = is;
    CHECK(is == first);
    if (what != What::none) continue;
    // Idempotent: what is in this form stays as it is, for it may lie in memory that cannot be written.
    const auto again = std::make_unique<Target>("a", is, place);
    CHECK(normalise_target(again->head) == What::none);
    CHECK(again->head.path == is);
  }
  return first;
}

std::string host_of(std::string_view authority, std::string_view scheme = {}) {
  std::string first;
  for (const Place place : {Place::slab, Place::exact}) {
    const auto target = std::make_unique<Target>(authority, "/", place, scheme);
    CHECK(normalise_target(target->head) == What::none);
    if (place == Place::slab) first = target->head.authority;
    CHECK(target->head.authority == first);
  }
  return first;
}

}  // namespace

TEST_CASE("paths: dot segments are removed", "[H10]") {
  const std::string_view rows[][2] = {
      {"/", "/"},
      {"/a/b", "/a/b"},
      {"/a/b/", "/a/b/"},
      {"/.", "/"},
      {"/./", "/"},
      {"/..", "/"},
      {"/../", "/"},
      {"/../../a", "/a"},
      {"/a/.", "/a/"},
      {"/a/./b", "/a/b"},
      {"/a/..", "/"},
      {"/a/../b", "/b"},
      {"/a/b/..", "/a/"},
      {"/a/b/../", "/a/"},
      {"/a/b/../../c", "/c"},
      {"/a/b/c/./../../g", "/a/g"},
      {"/mid/content=5/../6", "/mid/6"},
      {"/a//../b", "/a/b"},
      {"//", "//"},
      {"//..", "/"},
      {"/a//b", "/a//b"},
      {"/.a", "/.a"},
      {"/..a", "/..a"},
      {"/a..", "/a.."},
      {"/a.", "/a."},
      {"/...", "/..."},
      {"/a/.../b", "/a/.../b"},
      {"/.well-known/x", "/.well-known/x"},
      {"/index.html", "/index.html"},
      {"/a?/../b", "/a?/../b"},
      {"/a/..?x=/.", "/?x=/."},
      {"/a/../b?c=%2F%zz\\", "/b?c=%2F%zz\\"},
      {"/0123456789abcd/../x", "/x"},
      {"/0123456789abc/../x", "/x"},
      {"/0123456789abcde/./x", "/0123456789abcde/x"},
      {"/0123456789abcdef0123456789abcdef/../y?z", "/y?z"},
      {"*", "*"},
  };
  for (const auto& [path, want] : rows) {
    INFO(path);
    CHECK(path_of(path) == want);
  }
}

TEST_CASE("paths: escapes of unreserved characters are decoded, the others are in capitals", "[H10]") {
  const std::string_view rows[][2] = {
      {"/%41%62%7e%2D%5f%30", "/Ab~-_0"},
      {"/%e2%82%ac", "/%E2%82%AC"},
      {"/a%20b", "/a%20b"},
      {"/%3a%3F%23", "/%3A%3F%23"},
      {"/%2e", "/"},
      {"/a/%2E%2e/b", "/b"},
      {"/a/.%2e/b", "/b"},
      {"/a/%2e./b", "/b"},
      {"/%252e%252e/", "/%252e%252e/"},
      {"/%25%32%65", "/%252e"},
      {"/%0d%0a", "/%0D%0A"},
      {"/%7F%ff", "/%7F%FF"},
      {"/x?%41", "/x?%41"},
      {"/%41?%41", "/A?%41"},
  };
  for (const auto& [path, want] : rows) {
    INFO(path);
    CHECK(path_of(path) == want);
  }
}

TEST_CASE("paths: what could be another path behind us is refused", "[H10]") {
  for (const std::string_view path :
       {"/a%2Fb", "/a%2fb", "/%2f", "/..%2f", "/a%5Cb", "/a%5cb", "/a%00", "/%00", "/a\\b", "/..\\a", "/%", "/%4", "/a%", "/a%4?b",
        "/%zz", "/%4g", "/%g4", "/%-1", "/0123456789abcdef%2F", "/0123456789abcdef0\\"}) {
    INFO(path);
    CHECK(path_of(path) == "400");
  }
}

TEST_CASE("paths: a dot segment with a parameter is refused: what cuts it at the semicolon sees another path", "[H10]") {
  for (const std::string_view path : {"/public/..;/admin", "/..;", "/a/..;x=1/b", "/a/.;/b", "/a/%2e%2E;/b", "/a/.%2e;v", "/0123456789abcdef/..;/"}) {
    INFO(path);
    CHECK(path_of(path) == "400");
  }
  const std::string_view rows[][2] = {{"/a/...;/b", "/a/...;/b"}, {"/a;x=..;/b", "/a;x=..;/b"}, {"/.a;/b", "/.a;/b"},
                                      {"/a/..%3B/b", "/a/..%3B/b"}, {"/a/;/b", "/a/;/b"}, {"/a?/..;/", "/a?/..;/"}};
  for (const auto& [path, want] : rows) {
    INFO(path);
    CHECK(path_of(path) == want);
  }
}

TEST_CASE("paths: one that is refused stays as it was sent", "[H10]") {
  const auto target = std::make_unique<Target>("a", "/x/../%41/b%2Fc", Place::slab);
  CHECK(normalise_target(target->head) == What::bad_path);
  CHECK(target->head.path == "/x/../%41/b%2Fc");
}

TEST_CASE("what a path is once its escapes are read", "[H10]") {
  for (const std::string_view path : {"/", "/a/b", "/a%20b", "/%25/x", "/...", "/a..", "/..a/", "/a%2e"})
    CHECK(path_kind(path) == PathKind::plain);
  for (const std::string_view path : {"/..", "/a/../b", "/%2e", "/a/.%2E/", "/a/./b"})
    CHECK(path_kind(path) == PathKind::has_dot_segments);
  for (const std::string_view path : {"/a%2fb", "/%", "/a\\b", "/../%5c", "/..;/"}) CHECK(path_kind(path) == PathKind::refused);
}

TEST_CASE("hosts: lower case, no final dot, no port that the scheme implies", "[H10]") {
  const std::string_view rows[][2] = {
      {"a", "a"},
      {"shop.example", "shop.example"},
      {"Shop.EXAMPLE", "shop.example"},
      {"shop.example.", "shop.example"},
      {"shop.example.:8080", "shop.example:8080"},
      {"shop.example:80", "shop.example"},
      {"Shop.Example.:80", "shop.example"},
      {"shop.example:8080", "shop.example:8080"},
      {"shop.example:443", "shop.example:443"},
      {"127.0.0.1:8080", "127.0.0.1:8080"},
      {"[::1]", "[::1]"},
      {"[::ABCD]:80", "[::abcd]"},
      {"[::1]:8080", "[::1]:8080"},
      {".", "."},
      {"a..", "a"},
      {"a..:81", "a:81"},
      {"an-Other.long.host.name.example", "an-other.long.host.name.example"},
      {"0123456789abcdeF.x", "0123456789abcdef.x"},
      {"[@Z]{z", "[@z]{z"},
  };
  for (const auto& [host, want] : rows) {
    INFO(host);
    CHECK(host_of(host) == want);
  }
  CHECK(host_of("a:443", "https") == "a");
  CHECK(host_of("a:80", "https") == "a:80");
  CHECK(host_of("a:80", "http") == "a");
}

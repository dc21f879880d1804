// Which route a request takes.
#include <catch2/catch_test_macros.hpp>

#include <stdexcept>

#include "config/load.h"
#include "daemon/router.h"
#include "protocols/h1/parser.h"

namespace weir {
namespace {

class Routes {
 public:
  explicit Routes(const std::string& routes) {
    const std::string text = "version: 1\nlisteners: [{name: one, bind: \":80\"}, {name: two, bind: \":81\"}]\nroutes:\n" + routes;
    const config::Environment nothing{[](const std::string&) { return std::nullopt; },
                                      [](const std::string&) { return std::unexpected(std::string("none")); },
                                      [](const std::string&) { return std::vector<std::string>(); }};
    auto config = config::load_text(text, "t.yaml", nothing);
    if (!config) throw std::runtime_error(config.error().text());
    const Addresses addresses = resolve_all(*config, {});
    runtime_ = compile(std::move(*config), addresses, 1, 1, registry_);
  }
  // The body of the route's answer, "-" where there is none.
  std::string take(std::string_view host, std::string_view path, std::string_view method = "GET",
                   std::initializer_list<std::pair<std::string_view, std::string_view>> fields = {}, size_t listener = 0) {
    Head head;
    head.reset();
    head.authority = host;
    head.path = path;
    head.method_text = method;
    for (const auto& [name, value] : fields) head.add(field_id(name), name, value);
    return take(head, listener);
  }
  std::string take(const Head& head, size_t listener = 0) {
    const auto found = find_route(*runtime_, listener, head);
    return found ? std::get<config::Respond>(runtime_->routes[*found].route->action).body : "-";
  }

 private:
  StatsRegistry registry_;
  std::unique_ptr<Runtime> runtime_;
};

std::string route(const std::string& match, const std::string& body) {
  return "  - {" + (match.empty() ? "" : "match: {" + match + "}, ") + "respond: {status: 200, body: \"" + body + "\"}}\n";
}

}  // namespace

TEST_CASE("a host is compared without case, port and final dot") {
  Routes r(route("host: shop.example.com", "shop") + route("host: \"[::1]\"", "six"));
  CHECK(r.take("shop.example.com", "/") == "shop");
  CHECK(r.take("Shop.EXAMPLE.com", "/") == "shop");
  CHECK(r.take("shop.example.com:8080", "/") == "shop");
  CHECK(r.take("shop.example.com.", "/") == "shop");
  CHECK(r.take("shop.example.com.:80", "/") == "shop");
  CHECK(r.take("[::1]:80", "/") == "six");
  CHECK(r.take("[::1]", "/") == "six");
  CHECK(r.take("example.com", "/") == "-");
  CHECK(r.take("xshop.example.com", "/") == "-");
  CHECK(r.take("shop.example.com.evil", "/") == "-");
  CHECK(r.take("", "/") == "-");
  CHECK(r.take("shop.example.com..", "/") == "-");
}

TEST_CASE("a wildcard stands for one label or more, and not for none") {
  Routes r(route("host: \"*.example.com\"", "any"));
  CHECK(r.take("a.example.com", "/") == "any");
  CHECK(r.take("a.b.example.com", "/") == "any");
  CHECK(r.take("A.Example.COM.:1", "/") == "any");
  CHECK(r.take("example.com", "/") == "-");
  CHECK(r.take(".example.com", "/") == "-");
  CHECK(r.take("aexample.com", "/") == "-");
  CHECK(r.take("a.example.org", "/") == "-");
}

TEST_CASE("a path is exact, and without its query") {
  Routes r(route("path: /old", "old") + route("path: /", "root"));
  CHECK(r.take("a", "/old") == "old");
  CHECK(r.take("a", "/old?x=/new") == "old");
  CHECK(r.take("a", "/old/") == "-");
  CHECK(r.take("a", "/Old") == "-");
  CHECK(r.take("a", "/") == "root");
  CHECK(r.take("a", "/?") == "root");
  CHECK(r.take("a", "*") == "-");
}

TEST_CASE("a prefix takes whole segments") {
  Routes r(route("path_prefix: /api/", "api") + route("path_prefix: /a/b", "ab"));
  CHECK(r.take("a", "/api") == "api");
  CHECK(r.take("a", "/api/") == "api");
  CHECK(r.take("a", "/api/x/y?z") == "api");
  CHECK(r.take("a", "/api?x") == "api");
  CHECK(r.take("a", "/apiary") == "-");
  CHECK(r.take("a", "/ap") == "-");
  CHECK(r.take("a", "/a/bc") == "-");
  CHECK(r.take("a", "/a/b/c") == "ab");
  Routes all(route("path_prefix: /", "all"));
  CHECK(all.take("a", "/") == "all");
  CHECK(all.take("a", "/x") == "all");
}

TEST_CASE("methods are one of a list, in their case") {
  Routes r(route("method: [GET, PURGE]", "yes"));
  CHECK(r.take("a", "/", "GET") == "yes");
  CHECK(r.take("a", "/", "PURGE") == "yes");
  CHECK(r.take("a", "/", "POST") == "-");
  CHECK(r.take("a", "/", "get") == "-");
}

TEST_CASE("header values are exact, their names without case; any one of several fields will do") {
  Routes r(route("header: {X-Beta: \"1\", cookie: c}", "beta"));
  CHECK(r.take("a", "/", "GET", {{"x-beta", "1"}, {"Cookie", "c"}}) == "beta");
  CHECK(r.take("a", "/", "GET", {{"X-BETA", "2"}, {"X-BETA", "1"}, {"cookie", "c"}}) == "beta");
  CHECK(r.take("a", "/", "GET", {{"x-beta", "1"}}) == "-");
  CHECK(r.take("a", "/", "GET", {{"x-beta", "11"}, {"cookie", "c"}}) == "-");
  CHECK(r.take("a", "/", "GET", {{"x-beta", "1"}, {"cookie", "C"}}) == "-");
}

TEST_CASE("query parameters are compared byte for byte") {
  Routes r(route("query: {v: \"2\"}", "two") + route("query: {flag: \"\"}", "flag"));
  CHECK(r.take("a", "/?v=2") == "two");
  CHECK(r.take("a", "/?a=b&v=2&c") == "two");
  CHECK(r.take("a", "/?v=1&v=2") == "two");
  CHECK(r.take("a", "/?v=22") == "-");
  CHECK(r.take("a", "/?vv=2") == "-");
  CHECK(r.take("a", "/v=2") == "-");
  CHECK(r.take("a", "/?V=2") == "-");
  CHECK(r.take("a", "/?x&flag") == "flag");
  CHECK(r.take("a", "/?flag=") == "flag");
  CHECK(r.take("a", "/?&&v=2") == "two");
}

TEST_CASE("all parts of a match must hold, and the first match of the file wins") {
  Routes r(route("host: a, path_prefix: /x, method: GET", "narrow") + route("", "fallback") +
           route("host: a, path_prefix: /y", "path") + route("host: a", "host"));
  CHECK(r.take("a", "/x") == "narrow");
  CHECK(r.take("a", "/x", "POST") == "host");
  CHECK(r.take("a", "/y/1") == "path");
  CHECK(r.take("a", "/z") == "host");
  CHECK(r.take("b", "/x") == "fallback");   // it stands second, and is tried last
}

TEST_CASE("a field that Connection takes away from the origin chooses no route either") {
  const std::string bytes = "GET / HTTP/1.1\r\nHost: a\r\nConnection: x-internal, upgrade\r\nX-Internal: 1\r\nUpgrade: h2c\r\nX-Other: 1\r\n\r\n";
  Head head;
  head.reset();
  size_t scanned = 0;
  REQUIRE(h1::parse_request_head(bytes.data(), bytes.size(), scanned, {}, head).state == h1::Parse::done);
  CHECK(Routes(route("header: {x-internal: \"1\"}", "inside") + route("", "rest")).take(head) == "rest");
  CHECK(Routes(route("header: {x-other: \"1\"}", "other") + route("", "rest")).take(head) == "other");
  CHECK(Routes(route("header: {upgrade: h2c}", "upgrade") + route("", "rest")).take(head) == "upgrade");
}

TEST_CASE("a route may belong to one listener") {
  Routes r(route("listener: two, path: /p", "second") + route("path: /p", "both"));
  CHECK(r.take("a", "/p", "GET", {}, 0) == "both");
  CHECK(r.take("a", "/p", "GET", {}, 1) == "second");
}

TEST_CASE("host_of") {
  CHECK(host_of("Shop.Example.com.:8080") == "Shop.Example.com");
  CHECK(host_of("[::1]:80") == "[::1]");
  CHECK(host_of("[::1") == "[::1");
  CHECK(host_of("a:") == "a");
  CHECK(host_of(":80").empty());
  CHECK(host_of("").empty());
}

}  // namespace weir

// The indexed router against one that tries every route in turn, on random tables and requests; and what a look-up costs.
#include <catch2/catch_test_macros.hpp>

#include <random>

#include "daemon/router.h"

namespace weir {
namespace {

// What docs/config.md says of a match, in the plainest words there are.
class Plain {
 public:
  static std::optional<size_t> find(const config::Snapshot& config, size_t listener, const Head& request) {
    for (size_t i = 0; i < config.routes.size(); ++i)
      if (config.routes[i].match && holds(*config.routes[i].match, listener, request)) return i;
    return config.fallback;
  }

 private:
  static bool holds(const config::Match& m, size_t listener, const Head& request) {
    const std::string target(request.path);
    const std::string path = target.substr(0, target.find('?'));
    return any(m.listeners, [&](size_t one) { return one == listener; }) &&
           any(m.hosts, [&](const auto& one) { return host(one, std::string(request.authority)); }) &&
           (!m.path || *m.path == path) && (m.path_prefix.empty() || (path + "/").starts_with(m.path_prefix + "/")) &&
           any(m.methods, [&](const auto& one) { return one == request.method_text; });
  }
  static bool host(const config::HostPattern& pattern, std::string text) {
    for (char& c : text) c = static_cast<char>(std::tolower(c));
    if (!pattern.wildcard) return text == pattern.name;
    return text.ends_with("." + pattern.name) && text.size() > pattern.name.size() + 1;
  }
  template <class List, class Test>
  static bool any(const List& list, Test test) {
    return list.empty() || std::any_of(list.begin(), list.end(), test);
  }
};

std::unique_ptr<Runtime> compiled(config::Snapshot config) {
  static StatsRegistry registry;
  return compile(std::move(config), {}, 1, 1, registry);
}

config::Snapshot listeners(size_t count) {
  config::Snapshot config;
  for (size_t i = 0; i < count; ++i) {
    config.listeners.emplace_back();
    config.listeners.back().name = "l" + std::to_string(i);
  }
  return config;
}

config::Route& add_route(config::Snapshot& config) {
  config::Route& route = config.routes.emplace_back();
  route.name = "r" + std::to_string(config.routes.size());
  route.action = config::Respond{};
  return route;
}

// Few words, so that tables and requests meet often.
class Dice {
 public:
  explicit Dice(uint32_t seed) : engine_(seed) {}
  bool one_in(uint32_t n) { return engine_() % n == 0; }
  uint32_t below(uint32_t n) { return engine_() % n; }
  std::string host() {
    std::string text;
    for (uint32_t labels = 1 + below(4); labels > 0; --labels) text += (text.empty() ? "" : ".") + std::string(1, "abc"[below(3)]);
    return text;
  }
  std::string path() {
    std::string text;
    for (uint32_t parts = 1 + below(4); parts > 0; --parts) text += "/" + std::string(below(3), "xy"[below(2)]);
    return text;
  }

 private:
  std::mt19937 engine_;
};

config::Snapshot random_table(Dice& dice) {
  config::Snapshot config = listeners(2);
  const uint32_t count = dice.below(20);
  for (uint32_t i = 0; i < count; ++i) {
    config::Route& route = add_route(config);
    if (!config.fallback && dice.one_in(12)) {
      config.fallback = i;
      continue;
    }
    config::Match& match = route.match.emplace();
    for (uint32_t hosts = dice.below(3); hosts > 0; --hosts) match.hosts.push_back({dice.host(), dice.one_in(2)});
    const uint32_t kind = dice.below(4);
    if (kind == 0) match.path = dice.path();
    if (kind == 1) match.path_prefix = dice.path();
    if (match.path_prefix.ends_with("/")) match.path_prefix.pop_back();
    if (dice.one_in(3)) match.methods.push_back(dice.one_in(2) ? "GET" : "POST");
    if (dice.one_in(4)) match.listeners.push_back(dice.below(2));
  }
  return config;
}

uint32_t steps_of(const Runtime& runtime, const std::string& host, const std::string& path, std::optional<size_t> wanted) {
  Head head;
  head.reset();
  head.method_text = "GET";
  head.authority = host;
  head.path = path;
  uint32_t steps = 0;
  CHECK(find_route(runtime, 0, head, {}, &steps) == wanted);
  return steps;
}

}  // namespace

TEST_CASE("the index takes the route that trying all in turn takes") {
  uint32_t found = 0, missed = 0;
  for (uint32_t seed = 1; seed <= 2000; ++seed) {
    CAPTURE(seed);
    Dice dice(seed);
    const auto runtime = compiled(random_table(dice));
    for (int i = 0; i < 40; ++i) {
      std::string host = dice.host();
      if (dice.one_in(8)) host = "." + host;
      if (dice.one_in(4)) host[0] = static_cast<char>(std::toupper(host[0]));
      const std::string port = dice.one_in(4) ? ":8080" : "";
      const std::string authority = host + port, path = dice.path() + (dice.one_in(4) ? "?q" : "");
      Head head;
      head.reset();
      head.method_text = dice.one_in(2) ? "GET" : "POST";
      head.path = path;
      head.authority = host;
      const size_t listener = dice.below(2);
      const auto wanted = Plain::find(runtime->config, listener, head);
      head.authority = authority;
      CAPTURE(authority, path, listener);
      if (find_route(*runtime, listener, head) != wanted) FAIL("another route");
      ++(wanted ? found : missed);
    }
  }
  CHECK(found > 20'000);
  CHECK(missed > 2'000);
}

TEST_CASE("what a look-up takes does not grow with the number of hosts") {
  const auto table = [](size_t count) {
    config::Snapshot config = listeners(1);
    for (size_t i = 0; i < count; ++i)
      add_route(config).match.emplace().hosts.push_back({"h" + std::to_string(i) + ".example.com", i % 2 == 1});
    return compiled(std::move(config));
  };
  const auto small = table(10), large = table(10'000);
  uint32_t most_small = 0, most_large = 0;
  for (size_t i = 0; i < 10; ++i) {
    const std::string name = "h" + std::to_string(i) + ".example.com";
    most_small = std::max(most_small, steps_of(*small, i % 2 == 1 ? "www." + name : name, "/", i));
  }
  for (size_t i = 0; i < 10'000; ++i) {
    const std::string name = "h" + std::to_string(i) + ".example.com";
    most_large = std::max(most_large, steps_of(*large, i % 2 == 1 ? "www." + name : name, "/", i));
    most_large = std::max(most_large, steps_of(*large, "no." + name.substr(1), "/", std::nullopt));
  }
  CHECK(most_small >= 2);
  CHECK(most_large <= most_small + 60);  // probes of a half full table: a run of taken slots, whatever its size
}

TEST_CASE("nor with the number of prefixes and paths, on one host") {
  const auto table = [](size_t count) {
    config::Snapshot config = listeners(1);
    for (size_t i = 0; i < count; ++i) {
      config::Match& match = add_route(config).match.emplace();
      match.hosts.push_back({"a", false});
      if (i % 2 == 0) match.path_prefix = "/p" + std::to_string(i);
      else match.path = "/p" + std::to_string(i);
    }
    return compiled(std::move(config));
  };
  const auto large = table(10'000);
  uint64_t total = 0;
  uint32_t most = 0;
  for (size_t i = 0; i < 10'000; ++i) {
    const uint32_t steps = steps_of(*large, "a", "/p" + std::to_string(i) + (i % 2 == 0 ? "/x" : ""), i);
    total += steps;
    most = std::max(most, steps);
  }
  CHECK(most <= 60);
  CHECK(total <= 10'000 * 8);
  CHECK(steps_of(*large, "b", "/p0", std::nullopt) <= 60);
}

TEST_CASE("a long path is walked once, and no further than the longest prefix") {
  config::Snapshot config = listeners(1);
  add_route(config).match.emplace().path_prefix = "/a/b";
  const auto runtime = compiled(std::move(config));
  std::string path;
  for (int i = 0; i < 8000; ++i) path += "/a";
  CHECK(steps_of(*runtime, "a", path, std::nullopt) <= 4);
  CHECK(steps_of(*runtime, "a", "/a/b" + path, 0) <= 4);
}

TEST_CASE("the only route, without a match, takes no step") {
  config::Snapshot config = listeners(1);
  add_route(config);
  config.fallback = 0;
  const auto runtime = compiled(std::move(config));
  CHECK(steps_of(*runtime, "a", "/x", 0) == 0);
}

}  // namespace weir

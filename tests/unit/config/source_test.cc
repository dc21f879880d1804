// Files: includes, the environment, YAML's anchors, and the bounds that no text can break.
#include <catch2/catch_test_macros.hpp>

#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "config/yaml_reader.h"
#include "tests/unit/config/support.h"

namespace weir::config {

TEST_CASE("variables of the environment") {
  FakeWorld world;
  world.variables = {{"PORT", "8080"}, {"EMPTY", ""}, {"EVIL", "x, redirect: {location: /}"}, {"N", "4"}};
  const Snapshot s = snapshot_of(R"(version: 1
workers: ${N}
listeners: [{bind: "127.0.0.1:${PORT}"}]
routes:
  - {match: {path: /a}, respond: {body: "${EVIL} ${NONE:-d-${x} ${EMPTY:-e} $${PORT} $PORT ${EMPTY}."}}
)",
                                 world);
  CHECK(s.workers == 4);
  CHECK(s.listeners[0].binds[0].text() == "127.0.0.1:8080");
  // A value is text: it is not read as YAML, nor expanded again; the first "}" ends a default.
  CHECK(std::get<Respond>(s.routes[0].action).body == "x, redirect: {location: /} d-${x e ${PORT} $PORT .");

  CHECK(problems_of("version: 1\nlisteners: [{bind: \"${HOST}:80\"}]\nworkers: ${W}\n") ==
        "t.yaml:2:20: the environment variable `HOST` is not set; `${HOST:-default}` would give it a default\n"
        "t.yaml:3:10: the environment variable `W` is not set; `${W:-default}` would give it a default\n");
  CHECK(problems_of(kListener + "user: \"${A B}\"\n") ==
        "t.yaml:4:7: `${A B}` names no variable (`$${` stands for a plain `${`)\n");
  CHECK(problems_of(kListener + "user: \"a${B\"\n") ==
        "t.yaml:4:7: `${` without its `}` (`$${` stands for a plain `${`)\n");
  CHECK(problems_of(kListener + "timeouts: {write: \"${N}\"}\n", world) ==
        "t.yaml:4:19: write: `4` has no unit; did you mean `4s`?\n");
}

TEST_CASE("includes are merged in the order of the files' names") {
  FakeWorld world;
  world.files = {
      {"/etc/weir/conf.d/20.yaml", "routes: [{match: {path: /20}, respond: {}}]\nlimits: {connections: 20}\n"},
      {"/etc/weir/conf.d/10.yaml", "version: 1\nlisteners: [{bind: \":81\"}]\nroutes: [{match: {path: /10}, to: b}]\n"
                                   "upstreams: {b: {servers: [\"h:2\"]}}\nx-mine: 1\n"},
      {"/etc/weir/conf.d/30.txt", "nonsense: {"},
      {"/other/40.yaml", "user: weir\ntests: [{get: \"http://a/10\", expect: {upstream: b}}]\n"},
  };
  world.files["/etc/weir/weir.yaml"] = "version: 1\ninclude: [conf.d/*.yaml, /other/40.yaml, none/*.yaml]\n"
                                       "listeners: [{bind: \":80\"}]\nlimits: {header_count: 10}\nx-mine: 2\n"
                                       "routes: [{match: {path: /0}, respond: {}}]\n"
                                       "upstreams: {a: {servers: [\"h:1\"]}}\n";
  auto s = load("/etc/weir/weir.yaml", world.environment());
  if (!s) FAIL(s.error().text());
  CHECK(s->files == std::vector<std::string>{"/etc/weir/weir.yaml", "/etc/weir/conf.d/10.yaml",
                                             "/etc/weir/conf.d/20.yaml", "/other/40.yaml"});
  REQUIRE(s->listeners.size() == 2);
  CHECK(s->listeners[1].name == ":81");
  REQUIRE(s->routes.size() == 3);
  CHECK(s->routes[0].name == "/0");
  CHECK(s->routes[1].name == "/10");
  CHECK(s->routes[1].where.text() == "/etc/weir/conf.d/10.yaml:3:10");
  CHECK(s->routes[2].name == "/20");
  CHECK(s->upstreams.size() == 2);
  CHECK(s->limits.header_count == 10);
  CHECK(s->limits.connections == 20);
  CHECK(s->user == "weir");
  CHECK(s->tests.size() == 1);
}

TEST_CASE("a problem names the file it is in") {
  FakeWorld world;
  world.files = {{"a.yaml", "upstreams: {a: {servers: [\"h:1\"]}}\nlimits: {connections: none}\nroutes:\n  - {to: x}\n"},
                 {"b.yaml", "upstreams: {a: {servers: [\"h:2\"]}}\nlimits: {connections: 5}\nuser: x\ninclude: c.yaml\n"
                            "version: 2\nlisteners: {}\n"}};
  const std::string main = "version: 1\ninclude: \"*.yaml\"\nlisteners: [{bind: \":80\"}]\nuser: y\nwrong: 1\n";
  CHECK(problems_of(main, world) ==
        "t.yaml:5:1: unknown key `wrong` at the top level\n"
        "a.yaml:2:23: connections: `none` is no whole number\n"
        "a.yaml:4:10: there is no upstream named `x`\n"
        "b.yaml:1:13: `a` is given twice; the first one is at a.yaml:1:13\n"
        "b.yaml:2:10: `connections` is given twice; the first one is at a.yaml:2:10\n"
        "b.yaml:3:1: `user` is given twice; the first one is at t.yaml:4:1\n"
        "b.yaml:4:1: only the main file includes others\n"
        "b.yaml:5:1: `version` is given twice; the first one is at t.yaml:1:1\n"
        "b.yaml:6:1: `listeners` is given twice; the first one is at t.yaml:3:1\n");
}

TEST_CASE("includes that cannot be") {
  FakeWorld world;
  world.files = {{"a.yaml", "user: x\n"}, {"t.yaml", ""}, {"bad.yaml", "a: [\n"}, {"list.yaml", "- a\n"}};
  CHECK(problems_of(kListener + "include: b.yaml\n", world) == "t.yaml:4:10: cannot read `b.yaml`: no such file\n");
  CHECK(problems_of(kListener + "include: [a.yaml, a.yaml]\n", world) ==
        "t.yaml:4:19: `a.yaml` is included twice\n");
  CHECK(problems_of(kListener + "include: t.yaml\n", world) == "t.yaml:4:10: `t.yaml` includes itself\n");
  CHECK(problems_of(kListener + "include: {}\n", world) ==
        "t.yaml:4:10: `include` must be text or a list of texts, not a mapping\n");
  CHECK(problems_of(kListener + "include: [bad.yaml, list.yaml, none.yaml]\n", world) ==
        "t.yaml:4:32: cannot read `none.yaml`: no such file\n"
        "bad.yaml:1:5: not valid YAML: a list that begins with `[` is not closed by `]`\n"
        "list.yaml:1:1: the file must be a mapping that begins with `version: 1`, not a list\n");
  for (size_t i = 0; i < 1001; ++i) world.files["many/" + std::to_string(i) + ".yaml"] = "x-a: 1\n";
  CHECK(problems_of(kListener + "include: many/*.yaml\n", world) == "t.yaml:4:10: more than 1000 files\n");
}

TEST_CASE("anchors, aliases and merge keys are copies") {
  const Snapshot s = snapshot_of(R"(version: 1
x-fast: &fast {response: 1s, connect: 1s}
x-slow: &slow {write: 9s, connect: 9s}
listeners: [{bind: ":80"}]
routes:
  - {to: a, timeouts: *fast}
upstreams:
  a: &a {servers: &s ["h:1"], timeouts: {<<: [*fast, *slow], response: 5s}}
  b: {servers: *s}
)");
  CHECK(s.routes[0].timeouts.response == std::chrono::seconds(1));
  CHECK(s.upstreams[0].timeouts.response == std::chrono::seconds(5));   // what stands there wins over what is merged
  CHECK(s.upstreams[0].timeouts.connect == std::chrono::seconds(1));    // and the first merged over the second
  CHECK(s.upstreams[0].timeouts.write == std::chrono::seconds(9));
  CHECK(s.upstreams[1].servers == s.upstreams[0].servers);
  CHECK(problems_of(kListener + "timeouts: {<<: 5}\n") ==
        "t.yaml:4:16: `<<` takes a mapping (`*name`) or a list of mappings\n");
  // A mistake inside an anchor is one problem, at the anchor.
  CHECK(problems_of("version: 1\nx-a: &a {write: 5}\nlisteners: [{bind: \":80\", timeouts: *a}, "
                    "{bind: \":81\", timeouts: *a}]\n") == "t.yaml:2:17: write: `5` has no unit; did you mean `5s`?\n");
}

TEST_CASE("no text makes the reader large or slow") {
  std::string laughs = "version: 1\nx0: &x0 [a, a, a, a, a, a, a, a, a, a]\n";
  for (int i = 1; i < 12; ++i) {
    const std::string last = "*x" + std::to_string(i - 1);
    laughs += "x" + std::to_string(i) + ": &x" + std::to_string(i) + " [" + last;
    for (int j = 0; j < 9; ++j) laughs += ", " + last;
    laughs += "]\n";
  }
  CHECK(problems_of(laughs) == "t.yaml:7:10: more than 200000 values, aliases counted in full\n");
  CHECK(problems_of("a: " + std::string(65, '[') + std::string(65, ']') + "\n") ==
        "t.yaml:1:67: nested more than 64 levels deep\n");
  CHECK(problems_of("a: " + std::string(100'000, '[')).ends_with(": nested more than 64 levels deep\n"));
  std::string many = "a: [";
  for (size_t i = 0; i < kNodesMax; ++i) many += "1,";
  CHECK(problems_of(many + "1]\n").ends_with(": more than 200000 values, aliases counted in full\n"));
  CHECK(problems_of(std::string(8 * 1024 * 1024 + 1, '#')) ==
        "t.yaml: is larger than 8MiB: this is no configuration\n");
}

TEST_CASE("files on disk") {
  namespace fs = std::filesystem;
  std::string pattern = fs::temp_directory_path() / "weir-config-XXXXXX";
  REQUIRE(mkdtemp(pattern.data()) != nullptr);
  const fs::path directory = pattern;
  const Environment real = Environment::real();
  const auto failure = [&](const fs::path& path) {
    auto result = load(path, real);
    return result ? "" : result.error().text().substr(path.string().size());
  };
  CHECK(failure(directory / "none.yaml") == ": cannot read the configuration: no such file\n");
  CHECK(failure(directory) == ": cannot read the configuration: it is a directory\n");
  CHECK(failure("/dev/null") == ": cannot read the configuration: it is no regular file\n");
  std::ofstream(directory / "empty.yaml").close();
  CHECK(failure(directory / "empty.yaml") == ":1:1: the file is empty\n");
  std::ofstream(directory / "locked.yaml") << "version: 1\n";
  fs::permissions(directory / "locked.yaml", fs::perms::none);
  if (geteuid() != 0) {   // root reads it all the same
    CHECK(failure(directory / "locked.yaml") == ": cannot read the configuration: no permission to read it\n");
  }
  fs::create_directory(directory / "conf.d");
  std::ofstream(directory / "conf.d/b.yaml") << "listeners: [{bind: \":2\"}]\n";
  std::ofstream(directory / "conf.d/a.yaml") << "listeners: [{bind: \":1\"}]\n";
  std::ofstream(directory / "main.yaml") << "version: 1\ninclude: conf.d/*.yaml\nuser: ${WEIR_TEST_USER}\n";
  REQUIRE(setenv("WEIR_TEST_USER", "me", 1) == 0);
  auto good = load(directory / "main.yaml", real);
  unsetenv("WEIR_TEST_USER");
  if (!good) FAIL(good.error().text());
  REQUIRE(good->listeners.size() == 2);
  CHECK(good->listeners[0].name == ":1");
  CHECK(good->listeners[1].name == ":2");
  CHECK(good->user == "me");
  fs::remove_all(directory);
}

}  // namespace weir::config

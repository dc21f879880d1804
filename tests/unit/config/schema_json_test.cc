// The JSON Schema against the table, the examples, and what the reader takes and refuses.
#include "config/schema_json.h"

#include <catch2/catch_test_macros.hpp>

#include <filesystem>
#include <fstream>
#include <sstream>

#include "config/schema.h"
#include "tests/source_dir.h"
#include "tests/unit/config/json_schema.h"
#include "tests/unit/config/support.h"

namespace weir::config {

TEST_CASE("the schema has every key of the table, and what is not supported yet satisfies nothing") {
  const JsonSchema schema(schema_json());
  CHECK(schema.root().find("$schema")->value.text == "https://json-schema.org/draft/2020-12/schema");
  const Node& levels = schema.root().find("$defs")->value;
  for (const Row& row : weir::config::schema()) {
    CAPTURE(row.key, level_name(row.level));
    const Entry* level = levels.find(level_name(row.level));
    REQUIRE(level != nullptr);
    const Entry* property = level->value.find("properties")->value.find(row.key);
    REQUIRE(property != nullptr);
    CHECK(property->value.find("description")->value.text.starts_with(row.doc));
    const bool later = property->value.find("not") != nullptr || property->value.find("const") != nullptr;
    CHECK(later == (row.need == Need::later));
    if (row.child != Level::none) CHECK(levels.find(level_name(row.child)) != nullptr);
  }
}

TEST_CASE("every example satisfies the schema") {
  const JsonSchema schema(schema_json());
  size_t count = 0;
  for (const auto& entry : std::filesystem::directory_iterator(source_dir() + "/docs/examples")) {
    if (entry.path().extension() != ".yaml") continue;
    CAPTURE(entry.path());
    std::stringstream text;
    text << std::ifstream(entry.path()).rdbuf();
    CHECK(schema.takes(tree_of(text.str())));
    ++count;
  }
  CHECK(count >= 4);
}

TEST_CASE("what the reader refuses for its form, the schema refuses; and what it takes") {
  const JsonSchema schema(schema_json());
  const auto both = [&](const std::string& text, bool right) {
    CAPTURE(text);
    CHECK(schema.takes(tree_of(text)) == right);
    CHECK(problems_of(text).empty() == right);
  };
  both(kListener, true);
  for (const char* line : {"workers: 2", "workers: auto", "x-any: {a: [1]}", "limits: {request_body: unlimited}",
                           "limits: {pipe: 1MiB}", "limits: {pipe: {min: 1MiB}}", "timeouts: {write: 0s}", "routes: []",
                           "defaults: {trace: pass, via: true}", "version-: 1", "workers: 0", "workers: many",
                           "workers: [2]", "timeouts: {write: 30}", "timeouts: {write: 30sec}", "timeouts: []",
                           "limits: {memory: 64MB}", "limits: {h2_streams: 256}", "limits: {ws_message: 1MiB}", "timeouts: {ws_ping: 30s}",
                           "log: {level: loud}", "log: {access: json}", "tests: [x]",
                           "metrics: {}", "defaults: {trace: start}", "defaults: {via: yes}", "upstreams: []",
                           "upstreams: {a: {}}", "upstreams: {a: {servers: []}}", "upstreams: {a: {servers: [{}]}}",
                           "upstreams: {a: {servers: [\"h:1\"], tls: {}}}", "routes: [{}]", "user:"}) {
    const bool right = problems_of(kListener + line + "\n").empty();
    both(kListener + line + "\n", right);
  }
  const auto route = [&](const std::string& inside, bool right) {
    both(kListener + kUpstream + "routes:\n  - {" + inside + "}\n", right);
  };
  route("to: a", true);
  route("to: [{upstream: a}]", true);
  route("to: []", false);
  route("to: a, respond: {}", false);
  route("match: {path: /}", false);
  route("redirect: {status: 301, location: /x}", true);
  route("redirect: {status: 300, location: /x}", false);
  route("redirect: {status: \"301\", location: /x}", true);
  route("to: a, match: {header: {x: 1, y: true}}", true);
  route("to: a, match: {header: [x]}", false);
  route("to: a, headers: {request: {remove: []}}", true);
  route("to: a, match: {method: []}", false);
  route("to: a, tls: {}", false);
  route("to: a, timeouts: {write: 1s}", true);
  route("to: a, timeouts: {keepalive: 1s}", false);
}

TEST_CASE("a value that the environment gives satisfies the schema, whatever it will be") {
  const JsonSchema schema(schema_json());
  CHECK(schema.takes(tree_of(kListener + "workers: \"${N}\"\ntimeouts: {write: \"${T:-5s}\"}\ndefaults: {via: \"${V}\"}\n")));
  CHECK_FALSE(schema.takes(tree_of(kListener + "workers: \"$N\"\n")));
  CHECK(schema.takes(tree_of("version: 1\ninclude: conf.d/*.yaml\n")));   // the listeners may be there
  CHECK_FALSE(schema.takes(tree_of("version: 1\n")));
}

}  // namespace weir::config

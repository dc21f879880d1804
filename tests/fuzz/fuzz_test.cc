// The fuzz target as a test: the committed corpus, then a fixed number of executions, must pass. Under clang's sanitizers they are
// libFuzzer's, guided by coverage from a fixed seed; elsewhere fixed mutations of the corpus.
#include <sys/wait.h>

#include <array>
#include <catch2/catch_test_macros.hpp>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <string>

#include "tests/source_dir.h"

namespace {

constexpr unsigned long kRuns = 30'000;

struct Run {
  int status;
  std::string output;
  unsigned long runs() const {  // "Done N runs", as libFuzzer says it
    const size_t at = output.rfind("Done ");
    return at == std::string::npos ? 0 : std::strtoul(output.c_str() + at + 5, nullptr, 10);
  }
};

std::string folder() { return weir::source_dir() + "/tests/fuzz"; }

Run run(const std::string& arguments) {
  FILE* pipe = popen((weir::build_dir() + "/tests/fuzz/h1_fuzz " + arguments + " 2>&1").c_str(), "r");
  REQUIRE(pipe != nullptr);
  Run result{};
  std::array<char, 4096> piece{};
  while (const size_t count = fread(piece.data(), 1, piece.size(), pipe)) result.output.append(piece.data(), count);
  result.status = pclose(pipe);
  if (result.output.size() > 8000) result.output.erase(0, result.output.size() - 8000);
  return result;
}

}  // namespace

TEST_CASE("the HTTP/1 codec keeps its promises on the committed corpus and on what grows out of it", "[fuzz][H3]") {
  // What is found new goes to the first folder, which starts empty: the run is the same each time. A crash leaves its input there.
  std::string fresh = (std::filesystem::temp_directory_path() / "weir-fuzz-XXXXXX").string();
  REQUIRE(mkdtemp(fresh.data()) != nullptr);
  const Run done = run("-seed=1 -max_len=1024 -timeout=25 -runs=" + std::to_string(kRuns) + " -artifact_prefix=" + fresh +
                       "/ -dict=" + folder() + "/h1.dict " + fresh + " " + folder() + "/corpus/h1");
  INFO(done.output);
  CHECK(WIFEXITED(done.status));
  REQUIRE(WEXITSTATUS(done.status) == 0);
  CHECK(done.runs() >= kRuns);
  std::filesystem::remove_all(fresh);
}

TEST_CASE("control: a broken promise of the codec ends the fuzz target", "[fuzz][X3]") {
  REQUIRE(setenv("WEIR_FUZZ_CONTROL", "1", 1) == 0);
  const Run broken = run("-runs=1 -artifact_prefix=/dev/null " + folder() + "/corpus/h1/get");
  unsetenv("WEIR_FUZZ_CONTROL");
  INFO(broken.output);
  CHECK(!(WIFEXITED(broken.status) && WEXITSTATUS(broken.status) == 0));
}

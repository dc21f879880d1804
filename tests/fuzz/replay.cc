// A main for the fuzz target where the compiler has no libFuzzer. It knows of libFuzzer's options only -runs=N: that many
// executions, on the inputs given (files, or folders of files) first as they are, then mutated, the same ones each time.
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>
#include <string>
#include <vector>

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

namespace {

constexpr size_t kBytesMax = 4096;

std::vector<std::string> inputs;

void add(const std::filesystem::path& path) {
  std::ifstream in(path, std::ios::binary);
  inputs.emplace_back(std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>());
}

// One to four changes: another byte, a byte less, a piece of another input, a piece twice.
std::string mutated(std::mt19937& random) {
  const auto pick = [&random](size_t count) { return static_cast<size_t>(random()) % count; };
  std::string text = inputs[pick(inputs.size())];
  for (size_t changes = 1 + pick(4); changes > 0 && !text.empty(); --changes) {
    const size_t at = pick(text.size());
    const std::string& other = inputs[pick(inputs.size())];
    switch (pick(5)) {
      case 0: text[at] = static_cast<char>(pick(256)); break;
      case 1: text[at] = "\r\n :;,.%/0aZ\t"[pick(13)]; break;
      case 2: text.erase(at, 1 + pick(4)); break;
      case 3: text.insert(at, other.substr(pick(other.size() + 1), pick(40))); break;
      default: text.insert(at, text.substr(pick(text.size()), pick(20))); break;
    }
  }
  if (text.size() > kBytesMax) text.resize(kBytesMax);
  return text;
}

void run(const std::string& text) { LLVMFuzzerTestOneInput(reinterpret_cast<const uint8_t*>(text.data()), text.size()); }

}  // namespace

int main(int argc, char** argv) {
  size_t runs = 0;
  for (int i = 1; i < argc; ++i) {
    if (std::strncmp(argv[i], "-runs=", 6) == 0) runs = std::strtoul(argv[i] + 6, nullptr, 10);
    if (argv[i][0] == '-') continue;
    if (!std::filesystem::is_directory(argv[i])) {
      add(argv[i]);
      continue;
    }
    for (const auto& entry : std::filesystem::directory_iterator(argv[i])) add(entry.path());
  }
  if (inputs.empty()) {
    std::fprintf(stderr, "no inputs\n");
    return 1;
  }
  std::sort(inputs.begin(), inputs.end());  // folders have no order of their own
  size_t done = 0;
  for (const std::string& text : inputs) run(text), ++done;
  std::mt19937 random(1);
  for (; done < runs; ++done) run(mutated(random));
  std::fprintf(stderr, "Done %zu runs\n", done);
  return 0;
}

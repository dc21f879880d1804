#include "config/load.h"

#include "config/build.h"
#include "config/describe.h"
#include "config/source.h"

namespace weir::config {
namespace {

LoadResult failed(Report& report) { return std::unexpected(Problems{report.errors()}); }

LoadResult load_into(std::string_view text, Report& report, const Environment& environment) {
  auto tree = read_source(text, 0, environment, report);
  if (!tree) return failed(report);
  Snapshot snapshot = build(*tree, report, environment);
  if (report.error_count() > 0) return failed(report);
  snapshot.files = report.files();
  snapshot.warnings = report.warnings();
  snapshot.hash = hash_text(describe(snapshot));
  return snapshot;
}

// The wall around the exceptions of yaml-cpp and of the library.
template <class Work>
LoadResult guarded(const std::string& name, Work work) noexcept {
  try {
    return work();
  } catch (const std::exception& error) {
    const std::string message = std::string("could not be read: ") + error.what();
    return std::unexpected(Problems{{Problem{Where{name, 0, 0}, message}}});
  }
}

}  // namespace

LoadResult load_text(std::string_view text, const std::string& name, const Environment& environment) noexcept {
  return guarded(name, [&] {
    Report report;
    report.add_file(name);
    return load_into(text, report, environment);
  });
}

LoadResult load(const std::string& path, const Environment& environment) noexcept {
  return guarded(path, [&]() -> LoadResult {
    auto text = environment.read_file(path);
    if (text) return load_text(*text, path, environment);
    return std::unexpected(Problems{{Problem{Where{path, 0, 0}, "cannot read the configuration: " + text.error()}}});
  });
}

std::string Problems::text() const {
  std::string out;
  for (const Problem& problem : list) out += problem.text() + "\n";
  return out;
}

}  // namespace weir::config

// The command line. What it does is elsewhere: run is the supervisor's, check the configuration loader's, and what is asked of a
// running daemon is in commands.
#include <CLI/CLI.hpp>

#include <cstdio>
#include <optional>
#include <string>

#include "config/load.h"
#include "config/schema_json.h"
#include "daemon/admin_api.h"
#include "daemon/certificates.h"
#include "daemon/commands.h"
#include "daemon/config_tests.h"
#include "daemon/signals.h"
#include "daemon/supervisor.h"

namespace {

constexpr int kExitOk = 0, kExitFailure = 1, kExitUsage = 2, kExitBadConfig = 78;

// Everything that is wrong with the file, one line each; warnings too. 78 when it would not start.
int check(const std::string& path, bool quiet) {
  const auto loaded = weir::config::load(path, weir::certificate_environment(true));
  if (!loaded) {
    fputs(loaded.error().text().c_str(), stderr);
    return kExitBadConfig;
  }
  const auto failed = weir::run_config_tests(*loaded);
  for (const auto& problem : failed) fprintf(stderr, "%s\n", problem.text().c_str());
  for (const auto& warning : loaded->warnings) fprintf(stderr, "%s (warning)\n", warning.text().c_str());
  if (!failed.empty()) return kExitBadConfig;
  if (!quiet)
    printf("%s is valid: %zu listener(s), %zu route(s), %zu upstream(s)\n", path.c_str(), loaded->listeners.size(),
           loaded->routes.size(), loaded->upstreams.size());
  return kExitOk;
}

// The words that talk to a running daemon.
struct AdminVerbs {
  CLI::App* status;
  CLI::App* reload;
  CLI::App* drain;
  CLI::App* stop;
  std::string where, token_file;
  bool json = false, undo = false;
  double timeout_seconds = 0;

  template <class Common>
  void add(CLI::App& app, const Common& common) {
    status = app.add_subcommand("status", "what the running daemon is and does");
    reload = app.add_subcommand("reload", "make it read its configuration again, and wait for the verdict");
    drain = app.add_subcommand("drain", "make its /readyz say 503, so that a balancer looks elsewhere; it serves on");
    stop = app.add_subcommand("stop", "end it as TERM does, and wait until it is gone");
    for (CLI::App* verb : {status, reload, drain, stop}) {
      common(verb);
      verb->add_option("--admin", where, "its admin socket (unix:PATH or ADDRESS:PORT); default: what the configuration says");
      verb->add_option("--token", token_file, "a file with the token, for ADDRESS:PORT; default: what the configuration says");
      verb->add_flag("--json", json, "print the daemon's answer as it is");
    }
    for (CLI::App* verb : {reload, stop})
      verb->add_option("--timeout", timeout_seconds, "seconds to wait; default: what the configuration allows (stop), 60 (reload)")
          ->check(CLI::Range(0.001, 1e6));
    drain->add_flag("--undo", undo, "back into rotation");
  }

  bool parsed() const { return status->parsed() || reload->parsed() || drain->parsed() || stop->parsed(); }

  // --admin, else the configuration's admin.bind where the file can be read, else the built-in default.
  int run(const std::string& config_path, bool quiet) const {
    std::string name = where, token_path = token_file, token;
    if (name.empty()) {
      const auto loaded = weir::config::load(config_path, weir::config::Environment::real());
      const weir::config::Admin admin = loaded ? loaded->admin : weir::config::Admin{};
      name = admin.bind.is_any() ? "127.0.0.1" + admin.bind.text() : admin.bind.text();
      if (token_path.empty()) token_path = admin.token_file;
    }
    if (!token_path.empty()) {
      auto read = weir::read_token(token_path);
      if (!read) {
        fprintf(stderr, "weir: %s\n", read.error().c_str());
        return kExitFailure;
      }
      token = std::move(*read);
    }
    const auto address = weir::Address::parse(name);
    if (!address) {
      fprintf(stderr, "weir: --admin %s: not unix:PATH or ADDRESS:PORT\n", name.c_str());
      return kExitUsage;
    }
    weir::CommandOptions options{{*address, name, token}, json, quiet};
    if (timeout_seconds > 0) options.timeout = std::chrono::milliseconds(static_cast<int64_t>(timeout_seconds * 1000));
    if (status->parsed()) return weir::command_status(options);
    if (reload->parsed()) return weir::command_reload(options);
    if (drain->parsed()) return weir::command_drain(options, undo);
    return weir::command_stop(options);
  }
};

int command_line(int argc, char** argv) {
  CLI::App app{"Weir: an edge server in front of your backends"};
  app.require_subcommand(0, 1);
  std::string path = "/etc/weir/weir.yaml";
  std::string level;
  bool quiet = false, test = false;
  const auto common = [&](CLI::App* command) {
    command->add_option("-c,--config", path, "the configuration file")->capture_default_str();
    command->add_option("--log-level", level, "debug, info, warn or error; wins over the file")
        ->check(CLI::IsMember({"debug", "info", "warn", "error"}));
    command->add_flag("-q,--quiet", quiet, "say only what is wrong");
  };
  common(&app);
  app.add_flag("-t", test, "the same as check");
  CLI::App* run = app.add_subcommand("run", "serve, in the foreground");
  CLI::App* checking = app.add_subcommand("check", "read the configuration and print everything that is wrong with it");
  CLI::App* schema = app.add_subcommand("schema", "print the JSON Schema of the configuration");
  CLI::App* version = app.add_subcommand("version", "print the version");
  common(run);
  common(checking);
  AdminVerbs verbs;
  verbs.add(app, common);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? kExitOk : kExitUsage;
  }
  if (version->parsed()) {
    puts("weir " WEIR_VERSION);
    return kExitOk;
  }
  if (schema->parsed()) {
    fputs(weir::config::schema_json().c_str(), stdout);
    return kExitOk;
  }
  if (checking->parsed() || test) return check(path, quiet);
  if (verbs.parsed()) return verbs.run(path, quiet);
  if (!run->parsed()) {
    fputs(app.help().c_str(), stderr);
    return kExitUsage;
  }
  weir::SupervisorOptions options;
  options.config_path = path;
  if (!level.empty()) {
    using enum weir::config::LogLevel;
    options.log_level = level == "debug" ? debug : level == "info" ? info : level == "warn" ? warn : error;
  } else if (quiet) {
    options.log_level = weir::config::LogLevel::warn;
  }
  weir::Signals::block();
  return weir::Supervisor(std::move(options)).run();
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return command_line(argc, argv);
  } catch (const std::exception& error) {
    fprintf(stderr, "weir: %s\n", error.what());
    return 1;
  }
}

#include "daemon/commands.h"

#include <algorithm>
#include <cstdio>
#include <ctime>
#include <thread>
#include <vector>

#include "daemon/json_value.h"

namespace weir {

namespace {

using json::Value;

constexpr int kDone = 0, kRefused = 1, kUnreachable = 69, kBadConfig = 78;
constexpr std::chrono::seconds kAskPatience{10}, kReloadPatience{60}, kOneLook{1};

// Columns as wide as their longest cell, two blanks between; the first row is the heading.
std::string table(const std::vector<std::vector<std::string>>& rows) {
  std::vector<size_t> widths(rows.front().size(), 0);
  for (const auto& row : rows)
    for (size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], row[i].size());
  std::string out;
  for (const auto& row : rows) {
    std::string line;
    for (size_t i = 0; i < row.size(); ++i) line += row[i] + std::string(widths[i] + 2 - row[i].size(), ' ');
    line.erase(line.find_last_not_of(' ') + 1);
    out += line + '\n';
  }
  return out;
}

std::string span_text(int64_t seconds) {
  const int64_t days = seconds / 86'400, hours = seconds / 3600 % 24, minutes = seconds / 60 % 60;
  if (days > 0) return std::to_string(days) + " d " + std::to_string(hours) + " h";
  if (hours > 0) return std::to_string(hours) + " h " + std::to_string(minutes) + " min";
  if (minutes > 0) return std::to_string(minutes) + " min";
  return std::to_string(std::max<int64_t>(seconds, 0)) + " s";
}

std::string binds_text(const Value& listener) {
  std::string out;
  for (const Value& bind : listener.at("binds").items()) out += (out.empty() ? "" : ",") + bind.at("bind").plain();
  return out;
}

std::string state_text(const Value& status) {
  if (status.at("stage").text() != "serving") return status.at("stage").plain();
  return status.at("ready").truth() ? "serving" : "draining";
}

std::string upstreams_table(const Value& answer) {
  std::vector<std::vector<std::string>> rows = {{"UPSTREAM", "SERVER", "WEIGHT", "2XX", "3XX", "4XX", "5XX", "CONNECTIONS"}};
  for (const Value& upstream : answer.at("upstreams").items()) {
    bool first = true;
    for (const Value& server : upstream.at("servers").items()) {
      const Value& answers = server.at("answers");
      rows.push_back({upstream.at("name").plain(), server.at("address").plain(), server.at("weight").plain(),
                      answers.at("2xx").plain(), answers.at("3xx").plain(), answers.at("4xx").plain(), answers.at("5xx").plain(),
                      first ? upstream.at("connections").plain() : ""});
      first = false;
    }
  }
  return rows.size() == 1 ? "" : '\n' + table(rows);
}

// The sentence of an answer, whatever it was.
std::string sentence_of(const AdminResponse& answer) {
  const auto body = Value::parse(answer.body);
  if (body) {
    for (const char* key : {"error", "message"})
      if (body->at(key).is(Value::Kind::text)) return body->at(key).text();
  }
  return "status " + std::to_string(answer.status);
}

int unreachable(const std::string& why) {
  fprintf(stderr, "weir: the daemon cannot be reached: %s\n", why.c_str());
  return kUnreachable;
}

// Prints what came of a command.
int verdict(const CommandOptions& options, const AdminResponse& answer, const char* prefix) {
  const bool ok = answer.status == 200;
  if (options.json) fputs(answer.body.c_str(), stdout);
  else if (!ok) fprintf(stderr, "weir: %s\n", sentence_of(answer).c_str());
  else if (!options.quiet) printf("%s%s\n", prefix, sentence_of(answer).c_str());
  return ok ? kDone : kRefused;
}

// Nobody listens there any more, or another process does (a service manager may have started one at once).
bool is_gone(const AdminEndpoint& admin, const std::string& pid) {
  if (!admin_reachable(admin, kOneLook)) return true;
  const auto now = ask_admin(admin, "GET", "/status", {}, kOneLook);
  if (!now || now->status != 200) return false;
  const auto status = Value::parse(now->body);
  return status && status->at("pid").plain() != pid;
}

}  // namespace

std::string status_text(const std::string& status_json, const std::string& upstreams_json, int64_t now_unix) {
  const auto status = Value::parse(status_json);
  if (!status) return {};
  const Value& config = status->at("config");
  std::string out = "weir " + status->at("version").plain() + " (" + status->at("commit").plain() + "), pid " +
                    status->at("pid").plain() + ", " + state_text(*status) + ", up " +
                    span_text(now_unix - static_cast<int64_t>(status->at("started").number())) + ", " +
                    status->at("workers").plain() + " worker(s)\n";
  out += status->at("config_file").plain() + ", generation " + config.at("generation").plain() + ", hash " +
         config.at("hash").plain() + (config.at("last_reload_success").truth() ? "" : "; THE LAST RELOAD FAILED") + "\n\n";
  std::vector<std::vector<std::string>> rows = {{"LISTENER", "BIND", "ENGINE", "CONNECTIONS"}};
  for (const Value& listener : status->at("listeners").items())
    rows.push_back({listener.at("name").plain(), binds_text(listener), listener.at("engine").plain(),
                    listener.at("connections").plain()});
  out += table(rows);
  if (const Value& memory = status->at("memory"); memory.is(Value::Kind::object)) {
    out += "\nmemory " + memory.at("level").plain() + ": " + memory.at("leased_bytes").plain() + " of " +
           memory.at("budget_bytes").plain() + " bytes; a connection may cost " + memory.at("worst_connection_bytes").plain() +
           " bytes, an idle one " + memory.at("idle_connection_bytes").plain() + '\n';
  }
  if (const auto upstreams = Value::parse(upstreams_json)) out += upstreams_table(*upstreams);
  for (const auto& [name, count] : status->at("must_stay_zero").members())
    if (count.number() != 0) out += "\n" + name + " is " + count.plain() + ": a bug of Weir's, please report it\n";
  return out;
}

int command_status(const CommandOptions& options) {
  const auto status = ask_admin(options.admin, "GET", "/status", {}, kAskPatience);
  if (!status) return unreachable(status.error());
  if (status->status != 200 || options.json) return verdict(options, *status, "");
  const auto upstreams = ask_admin(options.admin, "GET", "/upstreams", {}, kAskPatience);
  const std::string text = status_text(status->body, upstreams ? upstreams->body : "", time(nullptr));
  if (text.empty()) return unreachable(options.admin.name + ": what answers there is no Weir");
  fputs(text.c_str(), stdout);
  return kDone;
}

int command_reload(const CommandOptions& options) {
  const auto answer = ask_admin(options.admin, "POST", "/reload", {}, options.timeout.value_or(kReloadPatience));
  if (!answer) return unreachable(answer.error());
  if (const auto body = Value::parse(answer->body); body && !options.json)
    for (const Value& problem : body->at("problems").items()) fprintf(stderr, "%s\n", problem.text().c_str());
  const int code = verdict(options, *answer, "reloaded: ");
  return answer->status == 400 ? kBadConfig : code;
}

int command_drain(const CommandOptions& options, bool undo) {
  const auto answer = ask_admin(options.admin, "POST", undo ? "/undrain" : "/drain", {}, kAskPatience);
  if (!answer) return unreachable(answer.error());
  return verdict(options, *answer, "");
}

int command_stop(const CommandOptions& options) {
  const auto before = ask_admin(options.admin, "GET", "/status", {}, kAskPatience);
  if (!before) return unreachable(before.error());
  if (before->status != 200) return verdict(options, *before, "");
  const auto status = Value::parse(before->body);
  const std::string pid = status ? status->at("pid").plain() : "-";
  const auto told = std::chrono::seconds(status ? static_cast<int64_t>(status->at("stops_within_s").number()) : 0);
  const auto answer = ask_admin(options.admin, "POST", "/stop", {}, kAskPatience);
  if (answer && answer->status != 200) return verdict(options, *answer, "");
  if (!answer && !is_gone(options.admin, pid)) return unreachable(answer.error());   // else it went at once
  const std::chrono::milliseconds wait = options.timeout.value_or(std::max<std::chrono::milliseconds>(told, kAskPatience));
  const auto deadline = std::chrono::steady_clock::now() + wait;
  while (!is_gone(options.admin, pid)) {
    if (std::chrono::steady_clock::now() >= deadline) {
      fprintf(stderr, "weir: process %s was asked to stop, and still answers after %g s\n", pid.c_str(),
              static_cast<double>(wait.count()) / 1000);
      return kRefused;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  if (!options.quiet && !options.json) puts("stopped");
  return kDone;
}

}  // namespace weir

// The match of a route: read, and compared with others.
#include <algorithm>

#include "config/build.h"

namespace weir::config {
namespace {

bool contains(const auto& list, const auto& value) {
  return std::find(list.begin(), list.end(), value) != list.end();
}

bool is_hex(char c) { return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F'); }

bool is_unreserved(int c) {
  return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '-' || c == '.' ||
         c == '_' || c == '~';
}

// Requests are compared in their normal form, so a path in another form would never match. Returns what is wrong.
std::string match_fault(const std::string& path) {
  if (path.find_first_of("?#") != path.npos) return "is more than a path; `query` matches what follows the `?`";
  if (std::string fault = path_fault(path); !fault.empty()) return fault;
  for (size_t i = 0; (i = path.find('%', i)) != path.npos; ++i) {
    const std::string escape = path.substr(i, 3);
    if (is_unreserved(std::stoi(escape.substr(1), nullptr, 16))) {
      return "can never match: requests are compared with " + quote(escape) + " decoded; write the character itself";
    }
  }
  for (std::string_view dots : {"/./", "/../"}) {
    if ((path + "/").find(dots) == std::string::npos) continue;
    return "can never match: requests are compared without dot segments";
  }
  return "";
}

std::optional<std::string> read_path(Draft& draft, const Fields& fields, std::string_view key) {
  auto path = fields.text(key);
  if (!path) return std::nullopt;
  const std::string fault = match_fault(*path);
  if (fault.empty()) return path;
  draft.report.error(fields.mark(key), std::string(key) + ": " + quote(*path) + " " + fault);
  return std::nullopt;
}

void read_methods(Draft& draft, const Fields& fields, Match& match) {
  for (const auto& [method, mark] : fields.texts("method")) {
    const bool upper = std::none_of(method.begin(), method.end(), [](char c) { return c >= 'a' && c <= 'z'; });
    if (!is_token(method)) {
      draft.report.error(mark, "method: " + quote(method) + " is no method");
    } else if (!upper && lower(method) == method) {
      std::string meant = method;
      for (char& c : meant) c = c >= 'a' && c <= 'z' ? static_cast<char>(c - 'a' + 'A') : c;
      draft.report.error(mark, "method: methods are case-sensitive; did you mean " + quote(meant) + "?");
    } else {
      match.methods.push_back(method);
    }
  }
}

void read_headers(Draft& draft, const Fields& fields, Match& match) {
  for (const auto& [name, value, mark] : fields.named_texts("header")) {
    if (!is_token(name)) draft.report.error(mark, "header: " + quote(name) + " is no field name");
    const NameValue field{lower(name), value};
    for (const NameValue& other : match.headers) {
      if (other.name == field.name) draft.report.error(mark, "header: " + quote(name) + " is given twice");
    }
    match.headers.push_back(field);
  }
}

void read_query(Draft& draft, const Fields& fields, Match& match) {
  for (const auto& [name, value, mark] : fields.named_texts("query")) {
    const bool name_good = !name.empty() && name.find_first_of("&=# ") == name.npos;
    if (!name_good || value.find_first_of("&# ") != value.npos) {
      const std::string pair = name + "=" + value;
      draft.report.error(mark, "query: " + quote(pair) + " cannot stand in a URL so; percent-encode it");
    }
    match.query.push_back({name, value});
  }
}

bool host_covered(const HostPattern& narrow, const std::vector<HostPattern>& wide) {
  return std::any_of(wide.begin(), wide.end(), [&](const HostPattern& host) {
    if (host == narrow) return true;
    return host.wildcard && narrow.name.ends_with("." + host.name);
  });
}

bool under(const std::string& path, const std::string& prefix) {
  return path.starts_with(prefix) && (path.size() == prefix.size() || path[prefix.size()] == '/');
}

bool path_covered(const Match& wide, const Match& narrow) {
  if (wide.path) return narrow.path == wide.path;
  if (wide.path_regex) {
    return narrow.path ? wide.path_regex->matches(*narrow.path) : narrow.path_regex == wide.path_regex;
  }
  if (wide.path_prefix.empty()) return true;
  return under(narrow.path ? *narrow.path : narrow.path_prefix, wide.path_prefix);
}

bool clients_covered(const std::vector<Cidr>& narrow, const std::vector<Cidr>& wide) {
  if (wide.empty()) return true;
  return !narrow.empty() && std::all_of(narrow.begin(), narrow.end(), [&](const Cidr& one) {
    return std::any_of(wide.begin(), wide.end(), [&](const Cidr& other) { return other.covers(one); });
  });
}

void read_paths(Draft& draft, const Fields& fields, Match& match) {
  match.path = read_path(draft, fields, "path");
  match.path_prefix = read_path(draft, fields, "path_prefix").value_or("");
  if (match.path_prefix.ends_with("/")) match.path_prefix.pop_back();
  match.path_regex = read_regex(draft, fields);
  std::vector<std::string_view> given;
  for (std::string_view key : {"path", "path_prefix", "path_regex"}) {
    if (fields.written(key)) given.push_back(key);
  }
  if (given.size() < 2) return;
  draft.report.error(fields.mark(given[1]), "a match has either " + quote(given[0]) + " or " + quote(given[1]));
}

}  // namespace

std::string path_fault(const std::string& path) {
  if (!path.starts_with("/")) return "must begin with `/`";
  if (path.find_first_of("?#") != path.npos) return "is more than a path";
  constexpr std::string_view kAllowed = "-._~!$&'()*+,;=:@/%";
  for (size_t i = 0; i < path.size(); ++i) {
    const char c = path[i];
    if (!is_unreserved(static_cast<unsigned char>(c)) && kAllowed.find(c) == kAllowed.npos) {
      return "has characters that stand percent-encoded in a request; write them so";
    }
    if (c == '%' && (i + 2 >= path.size() || !is_hex(path[i + 1]) || !is_hex(path[i + 2]))) {
      return "has a `%` without two hex digits";
    }
  }
  return "";
}

std::optional<PathRegex> read_regex(Draft& draft, const Fields& fields) {
  auto pattern = fields.text("path_regex");
  if (!pattern) return std::nullopt;
  auto regex = PathRegex::compile(*pattern);
  if (regex) return std::move(*regex);
  draft.report.error(fields.mark("path_regex"), "path_regex: " + quote(*pattern) + " " + regex.error());
  return std::nullopt;
}

Match build_match(Draft& draft, const Fields& fields) {
  Match match;
  if (fields.empty()) {
    draft.report.error(fields.mark(), "`match` is empty; leave it out to make this route the fallback");
  }
  for (const auto& [text, mark] : fields.texts("host")) {
    auto host = parse_host_pattern(text);
    if (host) match.hosts.push_back(std::move(*host));
    else draft.report.error(mark, "host: " + quote(text) + " " + host.error());
  }
  read_paths(draft, fields, match);
  read_methods(draft, fields, match);
  read_headers(draft, fields, match);
  read_query(draft, fields, match);
  for (const auto& name : fields.texts("listener")) {
    auto index = resolve(draft, name, draft.listener_index, "listener");
    if (index && !contains(match.listeners, *index)) match.listeners.push_back(*index);
  }
  if (fields.written("scheme")) match.scheme = static_cast<Scheme>(fields.word("scheme"));
  match.clients = read_networks(draft, fields, "client");
  return match;
}

bool covers(const Match& wide, const Match& narrow, size_t listeners) {
  const auto all_in = [](const auto& some, const auto& all) {
    return std::all_of(some.begin(), some.end(), [&](const auto& one) { return contains(all, one); });
  };
  const auto covered = [&](const HostPattern& host) { return host_covered(host, wide.hosts); };
  const bool hosts = wide.hosts.empty() ||
                     (!narrow.hosts.empty() && std::all_of(narrow.hosts.begin(), narrow.hosts.end(), covered));
  const bool methods = wide.methods.empty() || (!narrow.methods.empty() && all_in(narrow.methods, wide.methods));
  const bool all_listeners = wide.listeners.empty() || wide.listeners.size() == listeners;
  return hosts && path_covered(wide, narrow) && methods && (!wide.scheme || wide.scheme == narrow.scheme) &&
         clients_covered(narrow.clients, wide.clients) && all_in(wide.headers, narrow.headers) &&
         all_in(wide.query, narrow.query) &&
         (all_listeners || (!narrow.listeners.empty() && all_in(narrow.listeners, wide.listeners)));
}

}  // namespace weir::config

// What a route changes on the way: `rewrite` and `headers`.
#include <algorithm>
#include <array>

#include "config/build.h"

namespace weir::config {
namespace {

constexpr size_t kFieldBytesMax = 8192;

// A host as it stands in a Host field: a name or an address, with a port or without.
bool is_authority(const std::string& text) {
  if (text.starts_with("unix:")) return false;
  if (parse_server(text)) return true;
  const auto host = parse_host_pattern(text);
  return host && !host->wildcard;
}

void read_path_prefix(Draft& draft, const Fields& fields, const Node* match, Rewrite& rewrite) {
  auto prefix = fields.text("path_prefix");
  if (!prefix) return;
  const Mark mark = fields.mark("path_prefix");
  if (match == nullptr || match->find("path_prefix") == nullptr) {
    draft.report.error(mark, "path_prefix: the `match` of this route has no `path_prefix` whose place it could take; "
                             "there is `path_regex`");
  }
  const std::string fault = path_fault(*prefix);
  if (!fault.empty()) draft.report.error(mark, "path_prefix: " + quote(*prefix) + " " + fault);
  if (prefix->ends_with("/")) prefix->pop_back();
  rewrite.path_prefix = std::move(*prefix);
}

void read_replacement(Draft& draft, const Fields& fields, Rewrite& rewrite) {
  rewrite.path_regex = read_regex(draft, fields);
  if (fields.written("path_regex") != fields.written("replacement")) {
    const bool regex = fields.written("path_regex");
    draft.report.error(fields.mark(regex ? "path_regex" : "replacement"),
                       regex ? "`path_regex` needs a `replacement` beside it" : "`replacement` needs a `path_regex` beside it");
  }
  const Node* given = fields.node("replacement");
  if (given == nullptr) return;
  if (given->kind == Node::Kind::scalar && given->text.empty()) return;   // takes out what was found
  auto text = fields.text("replacement");
  if (!text) return;
  std::string fault = path_fault("/" + *text);   // a part of a path
  if (fault.empty() && rewrite.path_regex) fault = rewrite.path_regex->replacement_fault(*text);
  if (!fault.empty()) draft.report.error(given->mark, "replacement: " + quote(*text) + " " + fault);
  rewrite.replacement = std::move(*text);
}

void read_rewrite(Draft& draft, const Fields& route_fields, Route& route) {
  const Fields fields = route_fields.map("rewrite");
  if (!fields.valid()) return;
  if (fields.empty()) draft.report.error(fields.mark(), "`rewrite` is an empty mapping");
  if (!route_fields.written("to")) {
    draft.report.error(fields.mark(), "`rewrite` needs `to`: this route passes nothing on");
  }
  read_path_prefix(draft, fields, route_fields.node("match"), route.rewrite);
  read_replacement(draft, fields, route.rewrite);
  if (fields.written("path_prefix") && fields.written("path_regex")) {
    draft.report.error(fields.mark("path_regex"), "a rewrite has either `path_prefix` or `path_regex`");
  }
  auto host = fields.text("host");
  if (!host) return;
  if (!is_authority(*host)) {
    draft.report.error(fields.mark("host"), "host: " + quote(*host) + " is no host such as `app.internal` or `10.0.0.5:8080`");
  }
  route.rewrite.host = lower(*host);
}

// Why Weir does not let a field be changed, or "".
std::string_view field_fault(const std::string& name) {
  constexpr std::array<std::string_view, 9> kOwn{"connection", "content-length", "keep-alive", "proxy-connection", "te",
                                                 "trailer", "transfer-encoding", "upgrade", "http2-settings"};
  if (!is_token(name)) return " is no field name";
  if (name == "host") return " is changed by `rewrite: {host: ...}`";
  if (std::find(kOwn.begin(), kOwn.end(), name) == kOwn.end()) return "";
  return " frames a message or belongs to one connection: it cannot be changed";
}

std::vector<NameValue> read_fields(Draft& draft, const Fields& fields, std::string_view key) {
  std::vector<NameValue> out;
  for (const auto& [text, value, mark] : fields.named_texts(key)) {
    NameValue field{lower(text), value};
    std::string_view fault = field_fault(field.name);
    if (fault.empty() && value.size() > kFieldBytesMax) fault = " has a value longer than 8192 bytes";
    if (fault.empty() && (value.starts_with(' ') || value.ends_with(' '))) fault = " has a value that begins or ends with a space";
    if (!fault.empty()) draft.report.error(mark, std::string(key) + ": " + quote(text) + std::string(fault));
    const auto same = [&](const NameValue& other) { return other.name == field.name; };
    if (std::any_of(out.begin(), out.end(), same)) {
      draft.report.error(mark, std::string(key) + ": " + quote(text) + " is given twice");
    }
    out.push_back(std::move(field));
  }
  return out;
}

HeaderEdits read_one_way(Draft& draft, const Fields& fields) {
  HeaderEdits edits;
  edits.set = read_fields(draft, fields, "set");
  edits.add = read_fields(draft, fields, "add");
  for (const auto& [text, mark] : fields.texts("remove")) {
    std::string name = lower(text);
    const std::string_view fault = field_fault(name);
    if (!fault.empty()) draft.report.error(mark, "remove: " + quote(text) + std::string(fault));
    const auto same = [&](const NameValue& field) { return field.name == name; };
    if (std::any_of(edits.set.begin(), edits.set.end(), same)) {
      draft.report.error(mark, "remove: " + quote(text) + " is also in `set`, which takes the place of all of that name");
    }
    if (std::find(edits.remove.begin(), edits.remove.end(), name) != edits.remove.end()) {
      draft.report.error(mark, "remove: " + quote(text) + " is given twice");
    }
    edits.remove.push_back(std::move(name));
  }
  return edits;
}

}  // namespace

void read_edits(Draft& draft, const Fields& fields, Route& route) {
  read_rewrite(draft, fields, route);
  const Fields headers = fields.map("headers");
  route.request_headers = read_one_way(draft, headers.map("request"));
  route.response_headers = read_one_way(draft, headers.map("response"));
  if (fields.valid() && !fields.written("to") && !route.request_headers.empty()) {
    draft.report.error(headers.mark("request"), "`request` needs `to`: this route passes nothing on");
  }
}

}  // namespace weir::config

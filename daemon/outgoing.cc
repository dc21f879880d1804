#include "daemon/outgoing.h"

#include <strings.h>

#include <algorithm>

namespace weir {

namespace {

constexpr uint64_t bit(FieldId id) noexcept { return uint64_t{1} << static_cast<unsigned>(id); }
constexpr uint64_t kForwardingFields = bit(FieldId::x_forwarded_for) | bit(FieldId::x_forwarded_proto) |
                                       bit(FieldId::x_forwarded_host) | bit(FieldId::forwarded) | bit(FieldId::x_request_id);

bool equal_name(std::string_view a, std::string_view b) noexcept {
  return a.size() == b.size() && strncasecmp(a.data(), b.data(), a.size()) == 0;
}

bool names(const FieldEdit& edit, const Field& field) noexcept {
  return edit.id != FieldId::other ? edit.id == field.id : field.id == FieldId::other && equal_name(edit.name, field.name_view());
}

void remove_named(Head& head, const HeaderPlan& plan) noexcept {
  for (Field& field : head)
    for (const FieldEdit& edit : plan.gone)
      if (names(edit, field)) field.removed = true;
}

std::string_view via_value(Version version) noexcept { return version == Version::http10 ? "1.0 weir" : "1.1 weir"; }

// A segment "." or "..", up to the query: an origin would resolve it to a path that no rule of ours has seen.
bool has_dot_segment(std::string_view path) noexcept {
  path = path.substr(0, path.find('?'));
  while (!path.empty()) {
    path.remove_prefix(1);
    const std::string_view segment = path.substr(0, path.find('/'));
    if (segment == "." || segment == "..") return true;
    path.remove_prefix(segment.size());
  }
  return false;
}

void put_quoted(std::string& out, std::string_view text) {
  out += '"';
  for (const char c : text) {
    if (c == '"' || c == '\\') out += '\\';
    out += c;
  }
  out += '"';
}

}  // namespace

void drop_forwarding_fields(Head& request) noexcept {
  for (Field& field : request)
    if ((bit(field.id) & kForwardingFields) != 0) field.removed = true;
}

// The chain of addresses grows by the peer; what else a trusted peer says stays as it is.
void Outgoing::keep_trusted(Exchange& exchange, std::span<const ExtraField> own) {
  chain_.clear();
  uint64_t there = 0;
  for (Field& field : exchange.request()) {
    if (!field.removed) there |= bit(field.id);
    if (field.id != FieldId::x_forwarded_for) continue;
    field.removed = true;
    if (!chain_.empty()) chain_ += ", ";
    chain_ += field.value_view();
  }
  if (!chain_.empty()) chain_ += ", ";
  chain_ += exchange.peer_ip;
  for (const ExtraField& field : own) {
    const FieldId id = field_id(field.name);
    if (id == FieldId::x_forwarded_for) extra_.push_back({field.name, chain_});
    else if ((there & bit(id)) == 0) extra_.push_back(field);
  }
}

void Outgoing::add_forwarded(Exchange& exchange) {
  forwarded_ = "for=";
  const bool ipv6 = exchange.peer_ip.find(':') != std::string_view::npos;
  if (ipv6) forwarded_ += "\"[";
  forwarded_ += exchange.peer_ip == "unix" ? std::string_view("unknown") : exchange.peer_ip;
  if (ipv6) forwarded_ += "]\"";
  forwarded_ += ";host=";
  put_quoted(forwarded_, exchange.request().authority);
  forwarded_ += exchange.https ? ";proto=https" : ";proto=http";
  extra_.push_back({"forwarded", forwarded_});
}

What Outgoing::rewrite(const Head& request, const RouteExtras* extras) {
  path_.clear();
  if (extras == nullptr || extras->rewrite == nullptr) return What::none;
  const config::Rewrite& rule = *extras->rewrite;
  if ((!rule.path_prefix && !rule.path_regex) || !request.path.starts_with('/')) return What::none;
  const size_t mark = std::min(request.path.find('?'), request.path.size());
  const std::string_view path = request.path.substr(0, mark);
  if (rule.path_prefix) {
    path_ += *rule.path_prefix;
    path_ += path.substr(std::min(extras->matched_prefix, path.size()));
  } else if (!rule.path_regex->replace(path, rule.replacement, path_)) {
    path_ += path;
  }
  if (!path_.starts_with('/')) path_.insert(0, 1, '/');
  path_ += request.path.substr(mark);
  return has_dot_segment(path_) ? What::bad_path : What::none;
}

void Outgoing::edit(Head& request, const HeaderPlan& plan) {
  remove_named(request, plan);
  std::erase_if(extra_, [&](const ExtraField& field) {
    return std::any_of(plan.gone.begin(), plan.gone.end(), [&](const FieldEdit& e) { return equal_name(e.name, field.name); });
  });
  for (const FieldEdit& put : plan.put) extra_.push_back({put.name, put.value});
}

void Outgoing::send(Exchange& exchange, Stream& origin, const RouteExtras* extras, std::span<const ExtraField> own) {
  Head& request = exchange.request();
  extra_.clear();
  if (exchange.peer_trusted) keep_trusted(exchange, own);
  else extra_.assign(own.begin(), own.end());
  const std::string_view path = request.path, authority = request.authority;
  if (extras != nullptr) {
    if (extras->forwarded) add_forwarded(exchange);
    if (extras->via) extra_.push_back({"via", via_value(request.version)});
    edit(request, extras->request);
    if (!path_.empty()) request.path = path_;
    if (extras->rewrite != nullptr && !extras->rewrite->host.empty()) request.authority = extras->rewrite->host;
  }
  exchange.connect(origin, extra_);  // copies what it sends
  request.path = path;
  request.authority = authority;
}

void edit_answer(const RouteExtras& extras, Head& answer, bool from_origin) noexcept {
  if (extras.via && from_origin) answer.add(FieldId::via, "via", via_value(answer.version));
  remove_named(answer, extras.response);
  for (const FieldEdit& put : extras.response.put) answer.add(put.id, put.name, put.value);
}

}  // namespace weir

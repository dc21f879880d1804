#include "daemon/outgoing.h"

#include <strings.h>

#include <algorithm>

#include "protocols/exchange/target.h"

namespace weir {

namespace {

constexpr uint64_t bit(FieldId id) noexcept { return uint64_t{1} << static_cast<unsigned>(id); }
constexpr uint64_t kXForwarded =
    bit(FieldId::x_forwarded_for) | bit(FieldId::x_forwarded_proto) | bit(FieldId::x_forwarded_host);
constexpr uint64_t kForwardingFields = kXForwarded | bit(FieldId::forwarded) | bit(FieldId::x_request_id);

bool equal_name(std::string_view a, std::string_view b) noexcept {
  return a.size() == b.size() && strncasecmp(a.data(), b.data(), a.size()) == 0;
}

char lower(char c) noexcept { return c >= 'A' && c <= 'Z' ? static_cast<char>(c | 0x20) : c; }

// Many origins (CGI, WSGI, PHP) hand their applications `x_user` under the same name as `x-user`: a client that writes the one must
// not get past a rule about the other. `name` is in lower case.
bool reads_as(std::string_view sent, std::string_view name) noexcept {
  if (sent.size() != name.size()) return false;
  for (size_t i = 0; i < sent.size(); ++i)
    if (lower(sent[i]) != name[i] && !(sent[i] == '_' && name[i] == '-')) return false;
  return true;
}

bool forwarding_alias(const Field& field) noexcept {
  constexpr FieldId kNamed[] = {FieldId::x_forwarded_for, FieldId::x_forwarded_proto, FieldId::x_forwarded_host,
                                FieldId::x_request_id};
  if (lower(field.name[0]) != 'x') return false;
  return std::any_of(std::begin(kNamed), std::end(kNamed),
                     [&](FieldId id) { return reads_as(field.name_view(), field_name(id)); });
}

bool names(const FieldEdit& edit, const Field& field, bool from_client) noexcept {
  if (field.id != FieldId::other) return edit.id == field.id;
  if (from_client) return reads_as(field.name_view(), edit.name);
  return edit.id == FieldId::other && equal_name(edit.name, field.name_view());
}

void remove_named(Head& head, const HeaderPlan& plan, bool from_client) noexcept {
  for (Field& field : head)
    for (const FieldEdit& edit : plan.gone)
      if (names(edit, field, from_client)) field.removed = true;
}

bool takes_out(const HeaderPlan& plan, std::string_view name) noexcept {
  return std::any_of(plan.gone.begin(), plan.gone.end(), [&](const FieldEdit& edit) { return equal_name(edit.name, name); });
}

std::string_view via_value(Version version) noexcept {
  if (version == Version::http2) return "2.0 weir";
  return version == Version::http10 ? "1.0 weir" : "1.1 weir";
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
  for (Field& field : request) {
    if ((bit(field.id) & (kForwardingFields | bit(FieldId::other))) == 0) continue;
    if (field.id != FieldId::other || forwarding_alias(field)) field.removed = true;
  }
}

void drop_unbelieved(Head& request, const ListenerPlan& listener) noexcept {
  const uint64_t gone = listener.only_forwarded ? kXForwarded : 0;
  for (Field& field : request)
    if ((bit(field.id) & gone) != 0 || (field.id == FieldId::other && forwarding_alias(field))) field.removed = true;
}

// The chain of addresses grows by the peer; what else a trusted peer says stays as it is. Where it does not speak of the client in
// X-Forwarded-For, the chain begins with what it says elsewhere.
void Outgoing::keep_trusted(Exchange& exchange, std::span<const ExtraField> own, bool replace) {
  chain_.clear();
  uint64_t there = 0;
  for (Field& field : exchange.request()) {
    if (!field.removed) there |= bit(field.id);
    if (field.id != FieldId::x_forwarded_for || replace) continue;
    field.removed = true;
    if (!chain_.empty()) chain_ += ", ";
    chain_ += field.value_view();
  }
  if (chain_.empty() && exchange.client_ip != exchange.peer_ip) chain_ += exchange.client_ip;
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
  // A rewrite may put together what no request could have: an origin would make it a path that no rule of ours has seen.
  if (path_kind(path_) != PathKind::plain) return What::bad_path;
  path_ += request.path.substr(mark);
  return What::none;
}

void Outgoing::edit(Head& request, const HeaderPlan& plan) {
  remove_named(request, plan, true);
  std::erase_if(extra_, [&](const ExtraField& field) { return takes_out(plan, field.name); });
  extra_.insert(extra_.end(), plan.put.begin(), plan.put.end());
}

void Outgoing::send(Exchange& exchange, Stream& origin, const RouteExtras* extras, std::span<const ExtraField> own, bool replace) {
  Head& request = exchange.request();
  extra_.clear();
  if (exchange.peer_trusted) keep_trusted(exchange, own, replace);
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

std::span<const ExtraField> Outgoing::edit_answer(const RouteExtras& extras, Head& answer, bool from_origin) {
  const HeaderPlan& plan = extras.response;
  remove_named(answer, plan, false);
  if (!extras.via || !from_origin || takes_out(plan, "via")) return plan.put;
  extra_.assign(1, {"via", via_value(answer.version)});
  extra_.insert(extra_.end(), plan.put.begin(), plan.put.end());
  return extra_;
}

void remove_edited(const RouteExtras& extras, Head& fields, bool from_client) noexcept {
  remove_named(fields, from_client ? extras.request : extras.response, from_client);
}

}  // namespace weir

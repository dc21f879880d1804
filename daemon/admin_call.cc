#include "daemon/admin_call.h"

#include <algorithm>

#include "daemon/json.h"

namespace weir {

namespace {

int hex_digit(char c) noexcept {
  if (c >= '0' && c <= '9') return c - '0';
  const char lower = static_cast<char>(c | 0x20);
  return lower >= 'a' && lower <= 'f' ? lower - 'a' + 10 : -1;
}

std::string decoded(std::string_view text) {
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '%' && i + 2 < text.size() && hex_digit(text[i + 1]) >= 0 && hex_digit(text[i + 2]) >= 0) {
      out += static_cast<char>(hex_digit(text[i + 1]) * 16 + hex_digit(text[i + 2]));
      i += 2;
    } else {
      out += text[i] == '+' ? ' ' : text[i];
    }
  }
  return out;
}

// f(name, value), both as they stand; true: stop.
template <class F>
void each_parameter(std::string_view query, F&& f) {
  while (!query.empty()) {
    const std::string_view part = query.substr(0, query.find('&'));
    query.remove_prefix(std::min(query.size(), part.size() + 1));
    const size_t equals = part.find('=');
    if (!part.empty() && f(part.substr(0, equals), equals == std::string_view::npos ? std::string_view() : part.substr(equals + 1)))
      return;
  }
}

}  // namespace

AdminAnswer AdminAnswer::error(uint16_t status, std::string_view sentence) {
  json::Writer body;
  body.object().member("error", sentence).end_object();
  return {status, "application/json", body.text() + "\n", {}};
}

std::string AdminRequest::parameter(std::string_view name) const {
  std::string found;
  each_parameter(query, [&](std::string_view key, std::string_view value) {
    if (decoded(key) != name) return false;
    found = decoded(value);
    return true;
  });
  return found;
}

std::string AdminRequest::unknown_parameter(std::initializer_list<std::string_view> known) const {
  std::string found;
  each_parameter(query, [&](std::string_view key, std::string_view) {
    std::string name = decoded(key);
    if (std::find(known.begin(), known.end(), name) != known.end()) return false;
    found = std::move(name);
    return true;
  });
  return found;
}

AdminCall::AdminCall(Exchange& exchange, const AdminHandler& handler) noexcept
    : loop_(exchange.context().loop), exchange_(&exchange), handler_(handler) {
  work_.self = this;
  work_.pump = asked_entry;
}

AdminCall::~AdminCall() { loop_.forget_dirty(work_); }

void AdminCall::begin() noexcept { exchange_->connect(*this, {}); }

size_t AdminCall::room() const noexcept { return body_.size() < kAdminBodyBytesMax ? kAdminBodyBytesMax - body_.size() : 0; }

void AdminCall::send_body(Chain&& bytes) noexcept {
  const size_t before = body_.size();
  body_.resize(before + bytes.bytes());
  bytes.copy_out(body_.data() + before, 0, bytes.bytes());
  bytes.clear();
}

void AdminCall::send_end(const Head*) noexcept { loop_.mark_dirty(work_); }

void AdminCall::send_head(const Head& head, std::span<const ExtraField>) noexcept {
  if (head.body == BodyKind::none) loop_.mark_dirty(work_);
}

void AdminCall::abort(const Fault&) noexcept { exchange_ = nullptr; }

void AdminCall::asked_entry(Pump& pump) noexcept { static_cast<Work&>(pump).self->ask(); }

void AdminCall::ask() {
  const auto alive = shared_from_this();   // an answer ends the exchange, and with it the server's hold
  if (exchange_ == nullptr) return;
  const Head& head = exchange_->request();
  AdminRequest request;
  request.method = head.method_text;
  request.path = head.path.substr(0, head.path.find('?'));
  if (request.path.size() < head.path.size()) request.query = head.path.substr(request.path.size() + 1);
  request.body = body_;
  handler_(request, [weak = weak_from_this()](const AdminAnswer& made) {
    if (const auto call = weak.lock()) call->answer(made);
  });
}

void AdminCall::answer(const AdminAnswer& made) noexcept {
  if (exchange_ == nullptr) return;
  respond(*std::exchange(exchange_, nullptr), made);
}

void AdminCall::respond(Exchange& exchange, const AdminAnswer& made) noexcept {
  ExtraField extra[2] = {{"cache-control", "no-store"}, {}};
  if (!made.allow.empty()) extra[1] = {"allow", made.allow};
  else if (made.status == 401) extra[1] = {"www-authenticate", "Bearer"};
  exchange.respond(made.status, made.type, made.body, {extra, extra[1].name.empty() ? 1u : 2u});
}

}  // namespace weir

#include "tests/sim/wire.h"

#include <algorithm>
#include <cstring>
#include <cctype>
#include <charconv>

namespace weir::simtest {

namespace {

std::string word(const std::string& line, size_t index) {
  size_t at = 0;
  for (; index > 0 && at != std::string::npos; --index) at = line.find(' ', at == 0 ? 0 : at + 1);
  if (at == std::string::npos) return {};
  const size_t from = at == 0 ? 0 : at + 1;
  return line.substr(from, line.find(' ', from) - from);
}

}  // namespace

std::string Message::field(std::string_view name) const {
  for (const auto& [key, value] : fields)
    if (key == name) return value;
  return {};
}

size_t Message::count(std::string_view name) const {
  return static_cast<size_t>(std::count_if(fields.begin(), fields.end(), [&](const auto& f) { return f.first == name; }));
}

int Message::status() const {
  const std::string text = word(start, 1);
  int value = 0;
  std::from_chars(text.data(), text.data() + text.size(), value);
  return value;
}

std::string Message::method() const { return word(start, 0); }
std::string Message::target() const { return word(start, 1); }

void Wire::feed(std::string_view bytes) {
  if (at_ > (64u << 10) && at_ * 2 > in_.size()) {
    in_.erase(0, at_);
    at_ = 0;
  }
  in_.append(bytes);
  while (error.empty() && step()) continue;
}

void Wire::ended() {
  if (!messages.empty() && !messages.back().complete && state_ == State::until_close) done();
}

bool Wire::line(std::string* out) {
  const size_t end = in_.find("\r\n", at_);
  if (end == std::string::npos) return false;
  *out = in_.substr(at_, end - at_);
  at_ = end + 2;
  return true;
}

bool Wire::read_field(const std::string& text, std::vector<std::pair<std::string, std::string>>& into) {
  const size_t colon = text.find(':');
  if (colon == std::string::npos || colon == 0) {
    error = "not a field line: " + text;
    return false;
  }
  std::string name = text.substr(0, colon);
  for (char& c : name) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  const size_t from = text.find_first_not_of(" \t", colon + 1);
  into.emplace_back(name, from == std::string::npos ? "" : text.substr(from));
  return true;
}

bool Wire::step() {
  switch (state_) {
    case State::head: return head_line();
    case State::length:
    case State::until_close:
    case State::chunk_data: return take_body();
    case State::chunk_size: {
      std::string text;
      if (!line(&text)) return false;
      const auto result = std::from_chars(text.data(), text.data() + text.size(), left_, 16);
      if (result.ec != std::errc() || result.ptr != text.data() + text.size()) {
        error = "not a chunk size: " + text;
        return false;
      }
      state_ = left_ == 0 ? State::trailers : State::chunk_data;
      return true;
    }
    case State::chunk_end: {
      std::string text;
      if (!line(&text)) return false;
      if (!text.empty()) error = "no CRLF after a chunk";
      state_ = State::chunk_size;
      return true;
    }
    case State::trailers: {
      std::string text;
      if (!line(&text)) return false;
      if (text.empty()) done();
      else read_field(text, messages.back().trailers);
      return true;
    }
  }
  return false;
}

bool Wire::head_line() {
  std::string text;
  if (!line(&text)) return false;
  if (messages.empty() || messages.back().complete) {
    messages.emplace_back().start = text;
    const bool answer = text.starts_with("HTTP/1.1 ") || text.starts_with("HTTP/1.0 ");
    if (answer != (side_ == Side::responses)) error = "not a start line: " + text.substr(0, 80);
    return true;
  }
  if (!text.empty()) return read_field(text, messages.back().fields);
  begin_body();
  return true;
}

void Wire::begin_body() {
  Message& m = messages.back();
  m.head_done = true;
  if (side_ == Side::responses) {
    if (m.status() < 200) {
      m.complete = true;
      return;
    }
    const std::string method = asked_.empty() ? "GET" : asked_.front();
    if (!asked_.empty()) asked_.pop_front();
    if (method == "HEAD" || m.status() == 204 || m.status() == 304) return done();
  }
  if (m.count("content-length") + m.count("transfer-encoding") > 1) {
    error = "more than one framing";
    return;
  }
  if (const std::string text = m.field("content-length"); !text.empty()) {
    std::from_chars(text.data(), text.data() + text.size(), left_);
    state_ = State::length;
    if (left_ == 0) done();
  } else if (m.field("transfer-encoding") == "chunked") {
    m.chunked = true;
    state_ = State::chunk_size;
  } else if (side_ == Side::responses) {
    m.until_close = true;
    state_ = State::until_close;
  } else {
    done();
  }
}

bool Wire::take_body() {
  const size_t held = in_.size() - at_;
  const size_t count = state_ == State::until_close ? held : static_cast<size_t>(std::min<uint64_t>(held, left_));
  if (count == 0) return false;
  messages.back().body.append(in_, at_, count);
  at_ += count;
  if (state_ == State::until_close) return true;
  left_ -= count;
  if (left_ > 0) return true;
  if (state_ == State::length) done();
  else state_ = State::chunk_end;
  return true;
}

void Wire::done() {
  messages.back().complete = true;
  state_ = State::head;
  ++complete_;
}

std::string pattern(uint64_t seed, size_t count) {
  std::string bytes(count, '\0');
  uint64_t x = seed * 0x9e3779b97f4a7c15ull + 1;
  for (size_t i = 0; i < count; i += 8) {
    x ^= x << 13;
    x ^= x >> 7;
    x ^= x << 17;
    std::memcpy(bytes.data() + i, &x, std::min<size_t>(8, count - i));
  }
  return bytes;
}

std::string chunked(std::string_view body, size_t piece) {
  std::string out;
  for (size_t at = 0; at < body.size(); at += piece) {
    const std::string_view part = body.substr(at, piece);
    char size[20];
    const auto end = std::to_chars(size, size + sizeof size, part.size(), 16).ptr;
    out.append(size, static_cast<size_t>(end - size)).append("\r\n").append(part).append("\r\n");
  }
  return out + "0\r\n\r\n";
}

}  // namespace weir::simtest

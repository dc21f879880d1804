#include "daemon/json.h"

namespace weir::json {

namespace {

// Length of the valid UTF-8 sequence at the front of `text`; 0 if there is none (RFC 3629).
size_t utf8_length(std::string_view text) {
  const auto byte = [&](size_t i) { return i < text.size() ? static_cast<unsigned char>(text[i]) : 0u; };
  const unsigned first = byte(0);
  const auto tail = [&](size_t i) { return (byte(i) & 0xc0) == 0x80; };
  if (first < 0x80) return 1;
  if (first >= 0xc2 && first <= 0xdf) return tail(1) ? 2 : 0;
  if (first >= 0xe0 && first <= 0xef) {
    const bool overlong = first == 0xe0 && byte(1) < 0xa0;
    const bool surrogate = first == 0xed && byte(1) > 0x9f;
    return tail(1) && tail(2) && !overlong && !surrogate ? 3 : 0;
  }
  if (first >= 0xf0 && first <= 0xf4) {
    const bool overlong = first == 0xf0 && byte(1) < 0x90;
    const bool beyond = first == 0xf4 && byte(1) > 0x8f;
    return tail(1) && tail(2) && tail(3) && !overlong && !beyond ? 4 : 0;
  }
  return 0;
}

}  // namespace

void append_string(std::string& out, std::string_view text) {
  static constexpr char kHex[] = "0123456789abcdef";
  out += '"';
  while (!text.empty()) {
    const char c = text.front();
    size_t used = 1;
    switch (c) {
      case '"': out += "\\\""; break;
      case '\\': out += "\\\\"; break;
      case '\n': out += "\\n"; break;
      case '\r': out += "\\r"; break;
      case '\t': out += "\\t"; break;
      default:
        if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) {
          out += "\\u00";
          out += kHex[(static_cast<unsigned char>(c) >> 4) & 15];
          out += kHex[c & 15];
        } else if (const size_t length = utf8_length(text); length != 0) {
          out += text.substr(0, length);
          used = length;
        } else {
          out += "\\ufffd";
        }
    }
    text.remove_prefix(used);
  }
  out += '"';
}

void Writer::separate() {
  if (comma_) out_ += ',';
  comma_ = true;
}

Writer& Writer::open(char bracket) {
  separate();
  out_ += bracket;
  comma_ = false;
  return *this;
}

Writer& Writer::close(char bracket) {
  out_ += bracket;
  comma_ = true;
  return *this;
}

Writer& Writer::key(std::string_view name) {
  separate();
  append_string(out_, name);
  out_ += ':';
  comma_ = false;
  return *this;
}

Writer& Writer::value(std::string_view text) {
  separate();
  append_string(out_, text);
  return *this;
}

Writer& Writer::raw(std::string_view json) {
  separate();
  out_ += json;
  return *this;
}

Writer& Writer::value(uint64_t number) {
  separate();
  out_ += std::to_string(number);
  return *this;
}

Writer& Writer::value(int number) {
  separate();
  out_ += std::to_string(number);
  return *this;
}

Writer& Writer::value(bool truth) {
  separate();
  out_ += truth ? "true" : "false";
  return *this;
}

}  // namespace weir::json

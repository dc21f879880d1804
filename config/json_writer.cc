#include "config/json_writer.h"

#include <cstdio>

namespace weir::config {

void JsonWriter::open(char bracket) {
  value();
  out_ += bracket;
  ++depth_;
  first_ = true;
}

void JsonWriter::close(char bracket) {
  --depth_;
  if (!first_) line();
  out_ += bracket;
  first_ = false;
}

void JsonWriter::key(std::string_view name) {
  value();
  quoted(name);
  out_ += ": ";
  after_key_ = true;
}

void JsonWriter::text(std::string_view text) {
  value();
  quoted(text);
}

void JsonWriter::number(uint64_t number) {
  value();
  out_ += std::to_string(number);
}

void JsonWriter::boolean(bool value) {
  this->value();
  out_ += value ? "true" : "false";
}

void JsonWriter::pair(std::string_view name, std::string_view text) {
  key(name);
  this->text(text);
}

void JsonWriter::pair(std::string_view name, uint64_t number) {
  key(name);
  this->number(number);
}

void JsonWriter::flag(std::string_view name, bool value) {
  key(name);
  boolean(value);
}

std::string JsonWriter::take() { return std::move(out_) + "\n"; }

void JsonWriter::line() { out_.append("\n").append(2 * depth_, ' '); }

void JsonWriter::value() {
  if (after_key_) {
    after_key_ = false;
    return;
  }
  if (!first_) out_ += ',';
  if (depth_ > 0) line();
  first_ = false;
}

void JsonWriter::quoted(std::string_view text) {
  out_ += '"';
  for (char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\') {
      out_.append(1, '\\').append(1, c);
    } else if (byte < 0x20 || byte == 0x7f) {
      char escape[8];
      std::snprintf(escape, sizeof escape, "\\u%04x", byte);
      out_ += escape;
    } else {
      out_ += c;
    }
  }
  out_ += '"';
}

}  // namespace weir::config

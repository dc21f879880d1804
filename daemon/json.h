// JSON text, the writing half only: strings escaped after RFC 8259, and a small writer that keeps track of commas.
// Callers: log, status, access log. It never reads JSON (a library does, where that is needed). Any thread; a value.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace weir::json {

void append_string(std::string& out, std::string_view text);   // quoted; bytes that are not UTF-8 become U+FFFD

class Writer {
 public:
  Writer& object() { return open('{'); }
  Writer& array() { return open('['); }
  Writer& end_object() { return close('}'); }
  Writer& end_array() { return close(']'); }
  Writer& key(std::string_view name);
  Writer& value(std::string_view text);
  Writer& value(const char* text) { return value(std::string_view(text)); }
  Writer& value(uint64_t number);
  Writer& value(int number);
  Writer& value(uint32_t number) { return value(static_cast<uint64_t>(number)); }
  Writer& value(bool truth);
  Writer& raw(std::string_view json);            // a value that is JSON text already
  template <class T>
  Writer& member(std::string_view name, const T& v) {
    key(name);
    return value(v);
  }
  const std::string& text() const { return out_; }

 private:
  Writer& open(char bracket);
  Writer& close(char bracket);
  void separate();

  std::string out_;
  bool comma_ = false;
};

}  // namespace weir::json

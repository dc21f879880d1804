// JsonWriter: indented JSON, written front to back. Commas, line ends and escapes are its work, brackets the caller's.
// Owner: one function that writes one text. Not for the data path.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace weir::config {

class JsonWriter {
 public:
  void open(char bracket);       // '{' or '['
  void close(char bracket);      // '}' or ']'
  void key(std::string_view name);
  void text(std::string_view text);
  void number(uint64_t number);
  void boolean(bool value);
  void pair(std::string_view name, std::string_view text);
  void pair(std::string_view name, const char* text) { pair(name, std::string_view(text)); }
  void pair(std::string_view name, uint64_t number);
  void flag(std::string_view name, bool value);
  std::string take();            // ends with a line end

 private:
  void line();
  void value();
  void quoted(std::string_view text);

  std::string out_;
  size_t depth_ = 0;
  bool first_ = true;
  bool after_key_ = false;
};

}  // namespace weir::config

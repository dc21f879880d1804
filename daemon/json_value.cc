#include "daemon/json_value.h"

#include <charconv>

namespace weir::json {

class Reader {
 public:
  explicit Reader(std::string_view text) : left_(text) {}

  bool document(Value& out) {
    if (!value(out, 0)) return false;
    blanks();
    return left_.empty();
  }

 private:
  static constexpr int kDepthMax = 64;

  void blanks() {
    while (!left_.empty() && (left_[0] == ' ' || left_[0] == '\t' || left_[0] == '\n' || left_[0] == '\r')) left_.remove_prefix(1);
  }
  bool take(char c) {
    blanks();
    if (left_.empty() || left_[0] != c) return false;
    left_.remove_prefix(1);
    return true;
  }
  bool word(std::string_view expected) {
    if (!left_.starts_with(expected)) return false;
    left_.remove_prefix(expected.size());
    return true;
  }

  bool value(Value& out, int depth) {
    blanks();
    if (left_.empty() || depth > kDepthMax) return false;
    switch (left_[0]) {
      case '{': return object(out, depth);
      case '[': return array(out, depth);
      case '"': out.kind_ = Value::Kind::text; return string(out.text_);
      case 't': out.kind_ = Value::Kind::boolean; out.truth_ = true; return word("true");
      case 'f': out.kind_ = Value::Kind::boolean; return word("false");
      case 'n': return word("null");
      default: return number(out);
    }
  }

  bool object(Value& out, int depth) {
    out.kind_ = Value::Kind::object;
    left_.remove_prefix(1);
    if (take('}')) return true;
    do {
      blanks();
      std::string name;
      if (left_.empty() || left_[0] != '"' || !string(name) || out.find(name) != nullptr || !take(':')) return false;
      Value member;
      if (out.members_.size() == kMembersMax) return false;
      if (!value(member, depth + 1)) return false;
      out.members_.emplace_back(std::move(name), std::move(member));
    } while (take(','));
    return take('}');
  }

  bool array(Value& out, int depth) {
    out.kind_ = Value::Kind::array;
    left_.remove_prefix(1);
    if (take(']')) return true;
    do {
      Value item;
      if (!value(item, depth + 1)) return false;
      out.items_.push_back(std::move(item));
    } while (take(','));
    return take(']');
  }

  bool digits() {
    const size_t before = left_.size();
    while (!left_.empty() && left_[0] >= '0' && left_[0] <= '9') left_.remove_prefix(1);
    return left_.size() != before;
  }

  bool number(Value& out) {
    const std::string_view begin = left_;
    if (!left_.empty() && left_[0] == '-') left_.remove_prefix(1);
    if (left_.empty()) return false;
    if (left_[0] == '0') left_.remove_prefix(1);
    else if (!digits()) return false;
    if (!left_.empty() && left_[0] == '.') {
      left_.remove_prefix(1);
      if (!digits()) return false;
    }
    if (!left_.empty() && (left_[0] == 'e' || left_[0] == 'E')) {
      left_.remove_prefix(1);
      if (!left_.empty() && (left_[0] == '+' || left_[0] == '-')) left_.remove_prefix(1);
      if (!digits()) return false;
    }
    out.kind_ = Value::Kind::number;
    out.text_ = begin.substr(0, begin.size() - left_.size());
    return std::from_chars(out.text_.data(), out.text_.data() + out.text_.size(), out.number_).ec == std::errc();
  }

  bool string(std::string& out) {
    left_.remove_prefix(1);
    while (!left_.empty()) {
      const char c = left_[0];
      left_.remove_prefix(1);
      if (c == '"') return true;
      if (static_cast<unsigned char>(c) < 0x20) return false;
      if (c != '\\') out += c;
      else if (!escape(out)) return false;
    }
    return false;
  }

  bool escape(std::string& out) {
    if (left_.empty()) return false;
    const char c = left_[0];
    left_.remove_prefix(1);
    static constexpr std::string_view kFrom = "\"\\/bfnrt", kTo = "\"\\/\b\f\n\r\t";
    if (c != 'u') {
      const size_t at = kFrom.find(c);
      if (at == std::string_view::npos) return false;
      out += kTo[at];
      return true;
    }
    uint32_t code = 0, low = 0;
    if (!hex4(code) || (code >= 0xdc00 && code <= 0xdfff)) return false;
    if (code >= 0xd800 && code <= 0xdbff) {
      if (!word("\\u") || !hex4(low) || low < 0xdc00 || low > 0xdfff) return false;
      code = 0x10000 + ((code - 0xd800) << 10) + (low - 0xdc00);
    }
    put_utf8(out, code);
    return true;
  }

  bool hex4(uint32_t& code) {
    if (left_.size() < 4) return false;
    const auto result = std::from_chars(left_.data(), left_.data() + 4, code, 16);
    if (result.ec != std::errc() || result.ptr != left_.data() + 4) return false;
    left_.remove_prefix(4);
    return true;
  }

  static void put_utf8(std::string& out, uint32_t code) {
    const auto tail = [&](int shift) { out += static_cast<char>(0x80 | ((code >> shift) & 0x3f)); };
    if (code < 0x80) {
      out += static_cast<char>(code);
    } else if (code < 0x800) {
      out += static_cast<char>(0xc0 | (code >> 6));
      tail(0);
    } else if (code < 0x10000) {
      out += static_cast<char>(0xe0 | (code >> 12));
      tail(6);
      tail(0);
    } else {
      out += static_cast<char>(0xf0 | (code >> 18));
      tail(12);
      tail(6);
      tail(0);
    }
  }

  std::string_view left_;
};

std::optional<Value> Value::parse(std::string_view text) {
  Value out;
  if (!Reader(text).document(out)) return std::nullopt;
  return out;
}

const Value* Value::find(std::string_view name) const noexcept {
  for (const auto& [key, member] : members_)
    if (key == name) return &member;
  return nullptr;
}

const Value& Value::at(std::string_view name) const noexcept {
  static const Value kNone;
  const Value* found = find(name);
  return found != nullptr ? *found : kNone;
}

std::string Value::plain() const {
  switch (kind_) {
    case Kind::boolean: return truth_ ? "yes" : "no";
    case Kind::number:
    case Kind::text: return text_;
    case Kind::null:
    case Kind::array:
    case Kind::object: break;
  }
  return "-";
}

}  // namespace weir::json

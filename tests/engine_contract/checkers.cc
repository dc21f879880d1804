#include "tests/engine_contract/checkers.h"

#include <algorithm>

namespace weir::contract {

namespace {
const char* kind_name(OpKind kind) {
  switch (kind) {
    case OpKind::accept: return "accept";
    case OpKind::connect: return "connect";
    case OpKind::recv: return "recv";
    case OpKind::send: return "send";
    case OpKind::relay: return "relay";
  }
  return "?";
}
constexpr size_t kWrongMax = 8;
}  // namespace

std::string Pattern::bytes(uint64_t from, size_t count) const {
  std::string out(count, '\0');
  for (size_t i = 0; i < count;) {
    const uint64_t at = from + i;
    uint64_t w = word(at / 8) >> (at % 8 * 8);
    for (uint64_t left = 8 - at % 8; left > 0 && i < count; --left, w >>= 8) out[i++] = static_cast<char>(w);
  }
  return out;
}

size_t Pattern::mismatch(uint64_t from, std::string_view got) const noexcept {
  for (size_t i = 0; i < got.size();) {
    const uint64_t at = from + i;
    uint64_t w = word(at / 8) >> (at % 8 * 8);
    for (uint64_t left = 8 - at % 8; left > 0 && i < got.size(); --left, w >>= 8, ++i) {
      if (got[i] != static_cast<char>(w)) return i;
    }
  }
  return std::string_view::npos;
}

void Ledger::wrong(std::string what) {
  if (wrong_.size() < kWrongMax) wrong_.push_back(std::move(what));
}

void Ledger::submitting(const Op& op) {
  Entry& e = ops_[&op];
  if (e.outstanding) wrong(std::string(kind_name(op.kind)) + " submitted while in flight");
  else ++outstanding_;
  e.outstanding = true;
  e.inside_submit = true;
}

void Ledger::submitted(const Op& op) { ops_[&op].inside_submit = false; }

void Ledger::completed(const Op& op) {
  ++completions_;
  Entry& e = ops_[&op];
  const std::string name = kind_name(op.kind);
  if (e.inside_submit) wrong(name + " completed into its caller");
  if (!e.outstanding) wrong(name + " completed twice");
  if (op.socket != nullptr && op.socket->fd < 0) wrong(name + " completed after its socket was closed");
  const bool more = op.kind == OpKind::accept && static_cast<const AcceptOp&>(op).more;
  if (more && op.result <= 0) wrong("accept goes on after an error");
  if (!more && !op.idle()) wrong(name + " is not idle in its callback");
  if (more || !e.outstanding) return;
  e.outstanding = false;
  --outstanding_;
}

std::string Ledger::text() const {
  std::string out;
  for (const std::string& what : wrong_) out += what + "\n";
  return out;
}

void StreamCheck::feed(std::string_view bytes) {
  const size_t bad = pattern_.mismatch(count_, bytes);
  if (bad != std::string_view::npos) ledger_.wrong(name_ + ": wrong byte at " + std::to_string(count_ + bad));
  count_ += bytes.size();
}

void StreamCheck::feed(const Chain& bytes) {
  for (const ChainNode* node = bytes.first(); node != nullptr; node = node->next) feed(node->slice.view());
}

}  // namespace weir::contract

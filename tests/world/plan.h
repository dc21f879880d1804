// Plan: one request of a random world and the answer that its origin means to give. judge() holds what a client received
// against its plans. Owner: a RandomWorld. Pure.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tests/sim/wire.h"

namespace weir::simtest {

// How an origin answers. The first ones are honest and end with the request's connection as it was.
enum class Manner : uint8_t {
  length, chunks, trailers, pieces, slow, interim, empty,
  until_close, early, short_body, reset_body, no_last_chunk, surplus, hang_up, stall, stall_body, nonsense, kCount
};
constexpr bool honest(Manner manner) { return manner <= Manner::empty; }
constexpr uint64_t kHonest = static_cast<uint64_t>(Manner::empty) + 1;

struct Plan {
  std::string method;
  std::string target;             // unique; names the answer
  size_t up_bytes = 0;
  bool up_chunked = false;
  bool old = false;               // HTTP/1.0
  bool close = false;             // asks for the connection's end
  size_t down_bytes = 0;
  Manner manner = Manner::length;
  uint64_t seed = 0;

  std::string up() const { return pattern(seed, up_bytes); }
  std::string down() const { return method == "HEAD" ? "" : pattern(seed + 1, down_bytes); }
  bool repeatable() const { return method != "POST" && method != "PATCH"; }  // while none of its body has gone
  std::string bytes() const;      // the request
};

// Are these the answers to these requests? `whole`: so many of them must be there and well. "" or what is wrong.
std::string judge(const std::vector<Plan>& plans, const Wire& answers, size_t whole);

}  // namespace weir::simtest

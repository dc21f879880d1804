// RandomWorld: some clients with some requests each, through a Proxy, to origins of any behaviour, under faults, all from one seed.
// Owner: a test. run() plays it until every connection has ended and says in words what was wrong, "" if nothing.
// What is checked: answers come in order and whole ones are byte-equal; what an origin takes for a whole request is byte-equal; a
// request is not repeated where that is not safe; where nothing disturbs, every request is answered; every connection ends by
// itself; and Proxy::verdict().
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "tests/sim/proxy.h"

namespace weir::simtest {

// How an origin answers. The first ones are honest and end with the request's connection as it was.
enum class Manner : uint8_t {
  length, chunks, pieces, slow, interim, empty,
  until_close, early, short_body, reset_body, no_last_chunk, surplus, hang_up, stall, stall_body, nonsense, kCount
};
constexpr bool honest(Manner manner) { return manner <= Manner::empty; }

struct Plan {
  std::string method;
  std::string target;             // unique; names the answer
  size_t up_bytes = 0;
  bool up_chunked = false;
  size_t down_bytes = 0;
  Manner manner = Manner::length;
  uint64_t seed = 0;

  std::string up() const { return pattern(seed, up_bytes); }
  std::string down() const { return method == "HEAD" ? "" : pattern(seed + 1, down_bytes); }
  bool repeatable() const { return up_bytes == 0 && !up_chunked && method != "POST" && method != "PATCH"; }
  std::string bytes() const;      // the request
};

// Are these the answers to these requests? `whole`: so many of them must be there and well. "" or what is wrong.
std::string judge(const std::vector<Plan>& plans, const Wire& answers, size_t whole);

class RandomWorld {
 public:
  enum class Sabotage : uint8_t { none, flip_byte, swap_answers, shorten };   // controls: an origin that lies
  explicit RandomWorld(uint64_t seed, Sabotage sabotage = Sabotage::none);
  std::string run();

  struct Totals {
    uint64_t requests = 0, whole = 0, relays = 0, retries = 0, timeouts = 0, refused = 0, reused = 0;
  };
  void add_to(Totals& totals);

 private:
  struct Actor {
    std::vector<Plan> plans;
    Client* client = nullptr;
    size_t sent = 0;
    bool pipelined = false;
    bool rude = false;            // goes away when it likes
    bool gone = false;
    size_t whole = 0;             // answers that must come
  };
  static Proxy::Options options(uint64_t seed);
  void make_origin(const std::string& address);
  void answer(Origin::Conn& conn, const Plan& plan);
  void honest_answer(Origin::Conn& conn, const Plan& plan);
  void received(Origin::Conn& conn, const Message& request);
  void make_client(size_t index);
  Plan make_plan(size_t client, size_t index);
  void ask(Actor& actor);
  void send_in_pieces(Actor& actor, const std::string& bytes);
  void changed(Actor& actor);
  void complain(const std::string& what) { wrong_ += what + "; "; }
  Duration some(Duration most) { return Duration(static_cast<int64_t>(random_.below(static_cast<uint64_t>(most.count())))); }
  bool chance(double p) { return random_.chance(p); }

  Sabotage sabotage_;
  SimRandom random_;
  bool calm_;                     // no faults, no rude clients, no drain
  std::map<std::string, Plan> by_target_;
  std::map<std::string, int> begun_;
  std::vector<std::unique_ptr<Actor>> actors_;
  std::string wrong_;
  Proxy proxy_;
};

}  // namespace weir::simtest

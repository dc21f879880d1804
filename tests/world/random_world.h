// RandomWorld: some clients with some requests each, through a Proxy, to origins of any behaviour, under faults, reloads, engine
// changes and drains, all from one seed. Owner: a test. run() plays it until every connection has ended and says in words what
// was wrong, "" if nothing. What is checked: answers come in order and whole ones are byte-equal (a cut one is seen to be cut);
// what an origin takes for a whole request is byte-equal; a request is not repeated where that is not safe; where nothing
// disturbs, every request is answered, reloads and engine changes or not; no connection is quiet for longer than the deadlines
// allow; memory and connections stay within their limits; every connection ends by itself; and Proxy::verdict().
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "tests/sim/proxy.h"
#include "tests/world/plan.h"

namespace weir::simtest {

class RandomWorld {
 public:
  enum class Sabotage : uint8_t { none, flip_byte, swap_answers, shorten, wrapped, complete_twice };   // controls: who lies
  struct Options {
    Sabotage sabotage = Sabotage::none;
    std::function<void(const std::string&)> trace{};   // each event as a line of text
  };
  RandomWorld(uint64_t seed, const Options& options);
  explicit RandomWorld(uint64_t seed) : RandomWorld(seed, Options{}) {}
  std::string run();

  struct Totals {
    uint64_t requests = 0, whole = 0, relays = 0, retries = 0, timeouts = 0, refused = 0, reused = 0;
    uint64_t reloads = 0, engine_changes = 0, drains = 0, half_closes = 0, origins_killed = 0;
    bool operator==(const Totals&) const = default;
  };
  void add_to(Totals& totals);

 private:
  struct Actor {
    std::vector<Plan> plans;
    Client* client = nullptr;
    size_t sent = 0;
    size_t pieces = 0;            // of what it asks that have still to go
    bool pipelined = false;
    bool rude = false;            // goes away when it likes
    bool half_closes = false;     // once it has asked for all
    bool gone = false;
    size_t whole = 0;             // answers that must come
    TimePoint heard{};            // when something last happened here
  };
  static Proxy::Options proxy_options(uint64_t seed, const Options& options);
  void disturb();
  void reload();
  void change_engine();
  void make_origin(const std::string& address);
  void kill_origin(Origin& origin);
  void answer(Origin::Conn& conn, const Plan& plan);
  void honest_answer(Origin::Conn& conn, const Plan& plan);
  void received(Origin::Conn& conn, const Message& request);
  void make_client(size_t index);
  void start(Actor& actor);
  Plan make_plan(size_t client, size_t index, bool last);
  void ask(Actor& actor);
  void send_in_pieces(Actor& actor, const std::string& bytes);
  void changed(Actor& actor);
  void watch(Actor& actor);
  void check_limits();
  void judge_all();
  size_t answers_due(const Actor& actor) const;
  void complain(const std::string& what) { if (wrong_.size() < 2000) wrong_ += what + "; "; }
  Duration some(Duration most) { return Duration(static_cast<int64_t>(random_.below(static_cast<uint64_t>(most.count())))); }
  bool chance(double p) { return random_.chance(p); }

  Sabotage sabotage_;
  SimRandom random_;
  bool calm_;                     // no faults, no rude clients; honest requests are answered, unless a drain came first
  bool drains_ = false;
  bool over_limit_ = false;
  int64_t connections_max_;
  size_t cap_slabs_max_ = 0;      // of a pipe, under any of the configurations
  std::map<std::string, Plan> by_target_;
  std::map<std::string, int> begun_;
  std::vector<std::unique_ptr<Actor>> actors_;
  std::string wrong_;
  Totals done_;
  Proxy proxy_;
};

}  // namespace weir::simtest

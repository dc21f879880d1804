#include "tests/world/random_world.h"

#include <algorithm>

#include "tests/world/twice_engine.h"

namespace weir::simtest {

using namespace std::chrono_literals;

namespace {

constexpr Duration kQuietMax = 12s;   // every deadline is 3 s or less; three connects, one answer and their rounding follow each other
constexpr size_t kSlabsPerConnection = 48;   // what a connection may hold besides its pipes: heads, read-ahead, output

bool is_calm(uint64_t seed) { return seed % 4 == 0; }

std::string timeouts(SimRandom& random) {
  const char* seconds = random.chance(0.7) ? "2s" : "1s";
  return std::string("client_header: 2s, client_body: ") + seconds + ", stream_idle: 3s, keepalive: " + seconds +
         ", write: 2s, connect: 1s, response: 2s, origin_body: " + seconds + ", origin_idle: 1s, linger: 1s";
}

size_t pipe_max_bytes(SimRandom& random) { return size_t{64 << 10} << random.below(4); }

std::string limits(size_t pipe_max) {
  return "limits: {pipe: {min: 64KiB, max: " + std::to_string(pipe_max >> 10) + "KiB}}\n";
}

SimFaults some_faults(SimRandom& random) {
  SimFaults f;
  const auto some = [&](double p) { return random.chance(0.5) ? p : 0.0; };
  f.short_recv = some(0.3);
  f.short_send = some(0.3);
  f.hold_back = some(0.1);
  f.delay_completion = some(0.1);
  f.reorder = some(0.3);
  f.cancel_race = some(0.5);
  f.relay_no_pipe = some(0.3);
  f.reset = some(0.002);
  f.broken_pipe = some(0.002);
  f.accept_emfile = some(0.1);
  f.accept_enobufs = some(0.1);
  f.recv_enobufs = some(0.002);
  f.connect_refused = some(0.2);
  f.connect_timeout = some(0.05);
  f.connect_timeout_after = 3s;
  return f;
}

}  // namespace

// ---- making it

Proxy::Options RandomWorld::proxy_options(uint64_t seed, const Options& options) {
  SimRandom random(seed * 77);
  Proxy::Options o;
  o.seed = seed;
  o.timeouts = timeouts(random);
  o.more = limits(pipe_max_bytes(random));
  o.servers = {kOrigin1};
  if (random.chance(0.6)) o.servers.push_back(kOrigin2);
  o.pipes.relay = random.chance(0.6);
  o.two_engines = random.chance(0.5);
  o.link.latency = std::chrono::microseconds(1 + random.below(3000));
  o.link.window_bytes = static_cast<uint32_t>(4096 + random.below(200'000));
  o.link.send_buffer_bytes = static_cast<uint32_t>(4096 + random.below(200'000));
  o.link.segment_bytes = static_cast<uint32_t>(100 + random.below(16'000));
  if (!is_calm(seed)) {
    o.faults = some_faults(random);
    if (random.chance(0.2)) o.slab_bytes_max = size_t{1} << 20;
    if (random.chance(0.1)) o.connections = 1 + static_cast<int64_t>(random.below(6));
  }
  if (options.sabotage >= Sabotage::wrapped)
    o.wrap_engine = [seed, share = options.sabotage == Sabotage::wrapped ? 0 : 0.005](std::unique_ptr<Engine> inner) {
      return std::make_unique<TwiceEngine>(std::move(inner), seed, share);
    };
  return o;
}

RandomWorld::RandomWorld(uint64_t seed, const Options& options)
    : sabotage_(options.sabotage), random_(seed), calm_(is_calm(seed)), proxy_(proxy_options(seed, options)) {
  if (options.trace) proxy_.network.trace(options.trace);
  connections_max_ = proxy_options(seed, options).connections;
  cap_slabs_max_ = proxy_.exchanges.limits.cap_max / kSlabBytes;
  make_origin(kOrigin1);
  if (calm_ || chance(0.8)) make_origin(kOrigin2);   // else its connects are refused, where it is configured at all
  const size_t clients = 1 + random_.below(10);
  for (size_t i = 0; i < clients; ++i) make_client(i);
  disturb();
}

// What happens to the proxy itself. Reloads and engine changes may be noticed by nobody, so they come in calm worlds too.
void RandomWorld::disturb() {
  if (chance(0.4))
    for (uint64_t i = 1 + random_.below(3); i > 0; --i) proxy_.network.after(some(1s), [this] { reload(); });
  if (proxy_.engine() != EngineKind::sim)
    for (uint64_t i = random_.below(12); i > 0; --i) proxy_.network.after(some(1s), [this] { change_engine(); });
  if (chance(0.15)) {
    drains_ = true;
    proxy_.network.after(some(1s), [this] {
      proxy_.network.note("== drain");
      ++done_.drains;
      proxy_.drain();
    });
  }
  if (calm_) return;
  if (chance(0.1)) proxy_.network.after(some(1s), [this] {
    proxy_.network.note("== everything is cut");
    proxy_.listener().cut(make_fault(What::shutting_down));
  });
  if (chance(0.2)) proxy_.network.after(some(1s), [this] { kill_origin(proxy_.origin(kOrigin1)); });
  if (chance(0.1)) proxy_.network.after(some(500ms), [this] {
    proxy_.network.note("== descriptors are short");
    proxy_.network.set_descriptors_max(2 + static_cast<uint32_t>(random_.below(12)));
    proxy_.network.after(some(2s), [this] { proxy_.network.set_descriptors_max(1u << 20); });
  });
}

void RandomWorld::reload() {
  ++done_.reloads;
  const bool second = chance(0.5), swap = chance(0.3), extra = chance(0.3);
  const size_t pipe_max = pipe_max_bytes(random_);
  cap_slabs_max_ = std::max(cap_slabs_max_, pipe_max / kSlabBytes);
  proxy_.reload([&](Proxy::Options& o) {
    o.servers = {swap ? kOrigin2 : kOrigin1};
    if (second) o.servers.push_back(swap ? kOrigin1 : kOrigin2);
    o.timeouts = timeouts(random_);
    o.more = limits(pipe_max);
    if (drains_) return;                               // a socket that is added now would never be dropped
    o.binds = {kFront};
    if (extra && done_.reloads == 1) o.binds.push_back("127.0.0.1:81");
  });
}

void RandomWorld::change_engine() {
  ++done_.engine_changes;
  proxy_.reload([](Proxy::Options&) {}, proxy_.engine() == EngineKind::epoll ? EngineKind::uring : EngineKind::epoll);
}

Plan RandomWorld::make_plan(size_t client, size_t index, bool last) {
  static constexpr const char* kMethods[] = {"GET", "GET", "GET", "HEAD", "PUT", "DELETE", "POST", "POST", "PATCH"};
  Plan plan;
  plan.method = kMethods[random_.below(std::size(kMethods))];
  plan.target = "/" + std::to_string(client) + "/" + std::to_string(index);
  plan.seed = random_.next();
  const bool body = plan.method == "PUT" || plan.method[0] == 'P';
  const uint64_t size_kinds[] = {0, 1, 500, 20'000, 300'000};
  plan.old = last && chance(0.1);
  plan.close = last && chance(0.1);
  if (body) plan.up_bytes = random_.below(1 + size_kinds[random_.below(5)]);
  plan.up_chunked = body && !plan.old && chance(0.4);
  plan.down_bytes = random_.below(1 + size_kinds[random_.below(5)]);
  plan.manner = static_cast<Manner>(random_.below(chance(0.8) ? kHonest : static_cast<uint64_t>(Manner::kCount)));
  // A lie about a body that HEAD never has would be found out by whoever gets the connection next, innocent as it looked.
  if (plan.method == "HEAD" && !honest(plan.manner) && plan.manner != Manner::stall) plan.manner = Manner::hang_up;
  return plan;
}

void RandomWorld::make_client(size_t index) {
  Actor& actor = *actors_.emplace_back(std::make_unique<Actor>());
  const size_t count = 1 + random_.below(8);
  for (size_t i = 0; i < count; ++i) {
    actor.plans.push_back(make_plan(index, i, i + 1 == count));
    by_target_[actor.plans.back().target] = actor.plans.back();
  }
  actor.pipelined = chance(0.4);
  actor.rude = !calm_ && chance(0.2);
  actor.half_closes = chance(0.2);
  if (calm_)
    for (const Plan& plan : actor.plans) {
      if (!honest(plan.manner)) break;
      ++actor.whole;
    }
  proxy_.network.after(some(500ms), [this, &actor] { start(actor); });
}

void RandomWorld::start(Actor& actor) {
  actor.client = &proxy_.client();
  actor.heard = proxy_.now();
  actor.client->on_change = [this, &actor](Client&) { changed(actor); };
  if (chance(0.3)) {                             // a slow reader
    actor.client->peer.allow(1000);
    for (int i = 1; i < 400; ++i)
      proxy_.network.after(10ms * i, [&actor, i] { actor.client->peer.allow(static_cast<uint64_t>(i) * 20'000); });
    proxy_.network.after(4s, [&actor] { actor.client->peer.allow(UINT64_MAX); });
  }
  ask(actor);
  if (!actor.rude) return;
  const int how = static_cast<int>(random_.below(3));
  proxy_.network.after(some(300ms), [&actor, how] {
    if (how == 0) actor.client->peer.reset();
    if (how == 1) actor.client->peer.close();
    if (how == 2) actor.client->peer.finish();   // perhaps in the middle of a request
    actor.gone = actor.gone || how != 2;
  });
}

void RandomWorld::ask(Actor& actor) {
  std::string bytes;
  do {
    const Plan& plan = actor.plans[actor.sent++];
    actor.client->in.asked(plan.method);
    bytes += plan.bytes();
  } while (actor.pipelined && actor.sent < actor.plans.size());
  send_in_pieces(actor, bytes);
}

void RandomWorld::send_in_pieces(Actor& actor, const std::string& bytes) {
  Duration when{0};
  const size_t pieces = 1 + random_.below(4);
  for (size_t at = 0, i = 1; at < bytes.size(); ++i) {
    const size_t count = i >= pieces ? bytes.size() - at : 1 + random_.below(bytes.size() - at);
    const bool last = at + count == bytes.size() && actor.sent == actor.plans.size();
    ++actor.pieces;
    proxy_.network.after(when, [this, &actor, last, part = bytes.substr(at, count)] {
      --actor.pieces;
      if (actor.gone) return;
      watch(actor);
      actor.client->send(part);
      if (last && actor.half_closes) {
        ++done_.half_closes;
        actor.client->peer.finish();
      }
      if (actor.pieces == 0) changed(actor);  // the answer may have come before the request was whole
    });
    at += count;
    when += some(chance(0.1) ? 500ms : 5ms);
  }
}

// Something happens to this client. Before it nothing may have been silent for longer than the deadlines allow.
void RandomWorld::watch(Actor& actor) {
  if (proxy_.now() - actor.heard > kQuietMax) complain(actor.plans.front().target + ": its connection was quiet for too long");
  actor.heard = proxy_.now();
}

void RandomWorld::changed(Actor& actor) {
  Client& client = *actor.client;
  if (actor.gone) return;
  watch(actor);
  const bool over = client.closed() || client.in.complete() >= actor.plans.size();
  if (over) {
    actor.gone = true;
    client.peer.close();
  } else if (!actor.pipelined && actor.pieces == 0 && client.in.complete() == actor.sent) {
    ask(actor);
  }
}

// ---- origins

void RandomWorld::make_origin(const std::string& address) {
  Origin& origin = proxy_.origin(address);
  origin.on_change = [this](Origin::Conn& conn) {
    if (!conn.in.messages.empty()) {
      Message& last = conn.in.messages.back();
      if (last.head_done && conn.note != &last) {          // a new request's head
        conn.note = &last;
        const auto plan = by_target_.find(last.target());
        if (plan == by_target_.end()) complain("a request that nobody made: " + last.start);
        else if (plan->second.manner == Manner::early) answer(conn, plan->second);
        if (plan != by_target_.end() && ++begun_[last.target()] > (plan->second.repeatable() ? 2 : 1))
          complain(last.target() + " was repeated");
      }
      if (!conn.in.error.empty()) complain("the origin reads nonsense: " + conn.in.error);
    }
    if (conn.peer.ended()) conn.peer.close();
  };
  origin.on_request = [this](Origin::Conn& conn, Message& request) { received(conn, request); };
}

void RandomWorld::kill_origin(Origin& origin) {
  proxy_.network.note("== an origin dies");
  ++done_.origins_killed;
  origin.stop();
  for (Origin::Conn& conn : origin.conns) chance(0.5) ? conn.peer.reset() : conn.peer.close();
  if (chance(0.7)) proxy_.network.after(some(1s), [&origin] { origin.start(); });
}

void RandomWorld::received(Origin::Conn& conn, const Message& request) {
  const auto found = by_target_.find(request.target());
  if (found == by_target_.end()) return;
  const Plan& plan = found->second;
  if (request.method() != plan.method) complain(plan.target + ": its method changed");
  if (request.body != plan.up()) complain(plan.target + ": the request's body changed on its way");
  if (plan.manner == Manner::early) return;
  if (plan.manner != Manner::slow) return answer(conn, plan);
  proxy_.network.after(some(800ms), [this, &conn, &plan] { answer(conn, plan); });
}

void RandomWorld::honest_answer(Origin::Conn& conn, const Plan& plan) {
  std::string id = plan.target, body = plan.down();
  if (sabotage_ == Sabotage::swap_answers) id = "/9/9";
  if (sabotage_ == Sabotage::flip_byte && !body.empty()) body[body.size() / 2] ^= 1;
  if (sabotage_ == Sabotage::shorten && !body.empty()) body.pop_back();
  const std::string head = "HTTP/1.1 200 OK\r\nX-Id: " + id + "\r\n";
  if (plan.manner == Manner::empty) return conn.peer.send("HTTP/1.1 204 No Content\r\nX-Id: " + id + "\r\n\r\n");
  if (plan.manner == Manner::interim) conn.peer.send("HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n");
  const size_t length = plan.method == "HEAD" ? plan.down_bytes : body.size();
  if (plan.manner == Manner::chunks || plan.manner == Manner::trailers) {
    std::string all = plan.method == "HEAD" ? "" : chunked(body, 1 + plan.seed % 7000);
    if (plan.manner == Manner::trailers && !all.empty()) all.insert(all.size() - 2, "X-Trailer: " + id + "\r\n");
    return conn.peer.send(head + "Transfer-Encoding: chunked\r\n\r\n" + all);
  }
  const std::string all = head + "Content-Length: " + std::to_string(length) + "\r\n\r\n" + body;
  const size_t cut = plan.manner == Manner::pieces ? random_.below(all.size()) : all.size();
  conn.peer.send(all.substr(0, cut));
  if (cut < all.size()) proxy_.network.after(some(300ms), [&conn, rest = all.substr(cut)] { conn.peer.send(rest); });
}

void RandomWorld::answer(Origin::Conn& conn, const Plan& plan) {
  if (honest(plan.manner) || plan.manner == Manner::early) return honest_answer(conn, plan);
  const std::string body = plan.down();
  const std::string head = "HTTP/1.1 200 OK\r\nX-Id: " + plan.target + "\r\n";
  const std::string more = head + "Content-Length: " + std::to_string(plan.down_bytes + 1) + "\r\n\r\n";
  switch (plan.manner) {
    case Manner::until_close:
      conn.peer.send(head + "\r\n" + body);
      return conn.peer.finish();
    case Manner::short_body:
      conn.peer.send(more + body);
      return conn.peer.finish();
    case Manner::reset_body:
      conn.peer.send(more + body);
      return proxy_.network.after(some(5ms), [&conn] { conn.peer.reset(); });
    case Manner::no_last_chunk: {
      const std::string all = chunked(body, 1000);
      conn.peer.send(head + "Transfer-Encoding: chunked\r\n\r\n" + all.substr(0, all.size() - 5));
      return conn.peer.finish();
    }
    case Manner::surplus:
      honest_answer(conn, plan);
      return conn.peer.send("HTTP/1.1 200 OK\r\nX-Id: poison\r\nContent-Length: 0\r\n\r\n");
    case Manner::hang_up: return conn.peer.close();
    case Manner::stall: return;
    case Manner::stall_body: return conn.peer.send(more + body);
    case Manner::nonsense: return conn.peer.send("SSH-2.0-nonsense\r\n\r\n");
    default: return honest_answer(conn, plan);
  }
}

// ---- playing it

void RandomWorld::check_limits() {
  const size_t connections = proxy_.conns.in_use();
  const size_t slabs_max = (connections + proxy_.open_origins()) * kSlabsPerConnection +
                           proxy_.exchanges.exchanges.in_use() * 2 * (cap_slabs_max_ + 2);
  const bool over = proxy_.slabs() > slabs_max || static_cast<int64_t>(connections) > connections_max_;
  if (over && !over_limit_)
    complain("over a limit: " + std::to_string(proxy_.slabs()) + " slabs of " + std::to_string(slabs_max) + " with " +
             std::to_string(connections) + " connections");
  over_limit_ = over;
}

// In a calm world: all that are honest, up to the first that is not. A drain may close a connection between two of them, never
// one whose request has reached an origin.
size_t RandomWorld::answers_due(const Actor& actor) const {
  if (!drains_) return actor.whole;
  size_t due = 0;
  for (size_t i = 0; i < actor.whole && begun_.contains(actor.plans[i].target); ++i) ++due;
  return due;
}

void RandomWorld::judge_all() {
  for (const auto& actor : actors_) {
    const std::string verdict = judge(actor->plans, actor->client->in, answers_due(*actor));
    if (!verdict.empty()) complain(verdict);
  }
}

std::string RandomWorld::run() {
  bool all_came = false;
  proxy_.network.after(500ms, [&] { all_came = true; });
  const TimePoint began = proxy_.now();
  const auto over = [&] {
    check_limits();
    return all_came && proxy_.server().open.get() == 0 && proxy_.open_origins() == 0 &&
           std::all_of(actors_.begin(), actors_.end(), [](const auto& a) { return a->gone || a->client->closed(); });
  };
  if (!proxy_.run(over)) {
    size_t waiting = 0;
    for (const auto& actor : actors_) waiting += !actor->gone && !actor->client->closed();
    complain("the world stands still with " + std::to_string(waiting) + " clients waiting, connections open: " +
             std::to_string(proxy_.server().open.get()) + " and " + std::to_string(proxy_.open_origins()));
  }
  if (proxy_.now() - began > 200s) complain("it took too long");
  judge_all();
  const std::string verdict = proxy_.verdict();
  return wrong_ + verdict;
}

void RandomWorld::add_to(Totals& totals) {
  totals.requests += proxy_.server().requests.get();
  for (const auto& actor : actors_) totals.whole += actor->client->in.complete();
  totals.relays += proxy_.exchanges.pipes.relays.get();
  totals.retries += proxy_.upstream().retries_connect.get() + proxy_.upstream().retries_reused.get();
  totals.timeouts += proxy_.all_timeouts();
  for (const Counter& one : proxy_.refused()) totals.refused += one.get();
  totals.reused += proxy_.upstream().client.reused.get();
  totals.reloads += done_.reloads;
  totals.engine_changes += done_.engine_changes;
  totals.drains += done_.drains;
  totals.half_closes += done_.half_closes;
  totals.origins_killed += done_.origins_killed;
}

}  // namespace weir::simtest

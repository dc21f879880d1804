#include "tests/sim/random_world.h"

#include <algorithm>

namespace weir::simtest {

using namespace std::chrono_literals;

namespace {

bool is_calm(uint64_t seed) { return seed % 4 == 0; }

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

std::string Plan::bytes() const {
  std::string text = method + " " + target + " HTTP/1.1\r\nHost: world\r\n";
  if (up_chunked) return text + "Transfer-Encoding: chunked\r\n\r\n" + chunked(up(), 1 + seed % 9000);
  if (up_bytes > 0 || method == "POST") text += "Content-Length: " + std::to_string(up_bytes) + "\r\n";
  return text + "\r\n" + up();
}

std::string judge(const std::vector<Plan>& plans, const Wire& answers, size_t whole) {
  if (!answers.error.empty()) return answers.error;
  size_t index = 0, well = 0;
  for (const Message& message : answers.messages) {
    if (message.head_done && message.status() < 200) continue;
    if (index == plans.size()) return "an answer that nobody asked for";
    const Plan& plan = plans[index++];
    if (!message.complete) continue;
    const std::string id = message.field("x-id");
    if (id.empty() && message.status() >= 400) continue;   // ours
    if (id != plan.target) return plan.target + " was answered with that of " + id;
    const std::string body = plan.manner == Manner::empty ? "" : plan.down();
    if (message.body != body)
      return plan.target + ": " + std::to_string(message.body.size()) + " bytes are not its " + std::to_string(body.size());
    if (index == well + 1) ++well;
  }
  if (well < whole) return "only " + std::to_string(well) + " of " + std::to_string(whole) + " answers";
  return {};
}

// ---- making it

Proxy::Options RandomWorld::options(uint64_t seed) {
  SimRandom random(seed * 77);
  Proxy::Options o;
  o.seed = seed;
  o.timeouts = "client_header: 2s, client_body: 2s, stream_idle: 3s, keepalive: 2s, write: 2s, connect: 1s, response: 2s, "
               "origin_body: 2s, origin_idle: 1s, linger: 1s";
  o.servers = {kOrigin1};
  if (random.chance(0.6)) o.servers.push_back(kOrigin2);
  o.pipes.relay = random.chance(0.6);
  o.link.latency = std::chrono::microseconds(1 + random.below(3000));
  o.link.window_bytes = static_cast<uint32_t>(4096 + random.below(200'000));
  o.link.send_buffer_bytes = static_cast<uint32_t>(4096 + random.below(200'000));
  o.link.segment_bytes = static_cast<uint32_t>(100 + random.below(16'000));
  if (!is_calm(seed)) o.faults = some_faults(random);
  if (!is_calm(seed) && random.chance(0.2)) o.slab_bytes_max = size_t{1} << 20;
  return o;
}

RandomWorld::RandomWorld(uint64_t seed, Sabotage sabotage)
    : sabotage_(sabotage), random_(seed), calm_(is_calm(seed)), proxy_(options(seed)) {
  make_origin(kOrigin1);
  if (calm_ || chance(0.8)) make_origin(kOrigin2);   // else its connects are refused, where it is configured at all
  const size_t clients = 1 + random_.below(10);
  for (size_t i = 0; i < clients; ++i) make_client(i);
  if (!calm_ && chance(0.2)) proxy_.network.after(some(1s), [this] { proxy_.drain(); });
  if (!calm_ && chance(0.1)) proxy_.network.after(some(1s), [this] { proxy_.listener().cut(make_fault(What::shutting_down)); });
}

Plan RandomWorld::make_plan(size_t client, size_t index) {
  static constexpr const char* kMethods[] = {"GET", "GET", "GET", "HEAD", "PUT", "DELETE", "POST", "POST", "PATCH"};
  Plan plan;
  plan.method = kMethods[random_.below(std::size(kMethods))];
  plan.target = "/" + std::to_string(client) + "/" + std::to_string(index);
  plan.seed = random_.next();
  const bool body = plan.method == "PUT" || plan.method[0] == 'P';
  const uint64_t size_kinds[] = {0, 1, 500, 20'000, 300'000};
  if (body) plan.up_bytes = random_.below(1 + size_kinds[random_.below(5)]);
  plan.up_chunked = body && chance(0.4);
  plan.down_bytes = random_.below(1 + size_kinds[random_.below(5)]);
  plan.manner = static_cast<Manner>(chance(0.8) ? random_.below(6) : random_.below(static_cast<uint64_t>(Manner::kCount)));
  return plan;
}

void RandomWorld::make_client(size_t index) {
  Actor& actor = *actors_.emplace_back(std::make_unique<Actor>());
  const size_t count = 1 + random_.below(8);
  for (size_t i = 0; i < count; ++i) {
    actor.plans.push_back(make_plan(index, i));
    by_target_[actor.plans.back().target] = actor.plans.back();
  }
  actor.pipelined = chance(0.4);
  actor.rude = !calm_ && chance(0.2);
  if (calm_)
    for (const Plan& plan : actor.plans) {
      if (!honest(plan.manner)) break;
      ++actor.whole;
    }
  proxy_.network.after(some(500ms), [this, &actor] {
    actor.client = &proxy_.client();
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
    proxy_.network.after(when, [&actor, part = bytes.substr(at, count)] {
      if (!actor.gone) actor.client->send(part);
    });
    at += count;
    when += some(chance(0.1) ? 500ms : 5ms);
  }
}

void RandomWorld::changed(Actor& actor) {
  Client& client = *actor.client;
  if (actor.gone) return;
  const bool over = client.closed() || client.in.complete() >= actor.plans.size();
  if (over) {
    actor.gone = true;
    client.peer.close();
  } else if (!actor.pipelined && client.in.complete() == actor.sent) {
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
  if (plan.manner == Manner::chunks) {
    conn.peer.send(head + "Transfer-Encoding: chunked\r\n\r\n" + (plan.method == "HEAD" ? "" : chunked(body, 1 + plan.seed % 7000)));
    return;
  }
  const std::string all = head + "Content-Length: " + std::to_string(length) + "\r\n\r\n" + body;
  const size_t cut = plan.manner == Manner::pieces ? random_.below(all.size()) : all.size();
  conn.peer.send(all.substr(0, cut));
  if (cut < all.size()) proxy_.network.after(some(300ms), [&conn, rest = all.substr(cut)] { conn.peer.send(rest); });
}

void RandomWorld::answer(Origin::Conn& conn, const Plan& plan) {
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

std::string RandomWorld::run() {
  bool all_came = false;
  proxy_.network.after(500ms, [&] { all_came = true; });
  const TimePoint began = proxy_.now();
  const auto over = [&] {
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
  for (const auto& actor : actors_) {
    const std::string verdict = judge(actor->plans, actor->client->in, actor->whole);
    if (!verdict.empty()) complain(verdict);
  }
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
}

}  // namespace weir::simtest

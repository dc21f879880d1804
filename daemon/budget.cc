#include "daemon/budget.h"

#include <algorithm>
#include <array>
#include <utility>

#include "config/footprint.h"
#include "daemon/listener.h"
#include "daemon/log.h"

namespace weir {

namespace {
constexpr Duration kPressedLook = std::chrono::milliseconds(100);
constexpr Duration kTrimLook = std::chrono::seconds(5);
constexpr Duration kTellEvery = std::chrono::seconds(1);
constexpr Duration kStill = std::chrono::seconds(1);          // no byte moved and, for as long again, none acknowledged
constexpr Duration kPatience = std::chrono::seconds(3);       // everybody moves and there is no room: then the slowest ends
constexpr size_t kVictimsMax = 256;                           // a look
constexpr unsigned kAckLooksMax = 1024;                       // system calls a look
constexpr size_t kTrimMax = 512;                              // likewise
// What config/footprint.h counts with.
static_assert((sizeof(h1::ServerConn) + 63) / 64 * 64 <= config::kIdleConnectionBytes);
static_assert((sizeof(Exchange) + 63) / 64 * 64 + (sizeof(h1::ClientConn) + 63) / 64 * 64 <= config::kExchangeBytes);
static_assert(kSlabBytes == config::kBufferBytes && MemoryBudget::kTightPercent == config::kGrantsPercent);
static_assert(PipeLimits().queue_max == config::kQueueBytes);
static_assert(SlotPool<h1::ClientConn>::kSegmentBytes <= 64u << 10);   // what ExchangeContext::may_begin keeps for it
constexpr size_t kFreeKept = kSlabsPerSegment;

// Whether bytes wait for a peer to take them, or an unfinished head for its rest. Who waits for an answer, or for us to receive
// again, is nobody's burden.
bool peers_lag(h1::ServerConn& conn) noexcept {
  const auto waits = [](const Pipe& pipe) { return pipe.held() > 0 || (pipe.relaying() && !pipe.relay_awaits_source()); };
  Exchange* exchange = conn.exchange();
  if (exchange == nullptr) return conn.buffered() > 0;
  const size_t at_origin = exchange->origin() != nullptr ? exchange->origin()->buffered() : 0;
  if (at_origin > 0 || waits(exchange->up()) || waits(exchange->down())) return true;
  return conn.buffered() > at_origin + exchange->up().charge() + exchange->down().charge();
}
}  // namespace

struct MemoryGuard::Victim {
  h1::ServerConn* conn = nullptr;
  int64_t rank = 0;        // the largest ends first
};

MemoryGuard::MemoryGuard(MemoryBudget& budget, ExchangeContext& exchanges, bool teller) noexcept
    : budget_(budget), exchanges_(exchanges), loop_(exchanges.loop), normal_(exchanges.limits), teller_(teller) {
  changed = changed_entry;
  notice_.guard = this;
  notice_.run = [](Message& message) noexcept {
    auto& notice = static_cast<Notice&>(message);
    notice.queued.store(false);
    notice.guard->follow();
  };
  look_.guard = this;
  look_.coarse = true;
  look_.fire = [](Timer& timer) noexcept { static_cast<Look&>(timer).guard->look(); };
  MemoryLease& lease = loop_.slabs().lease();
  exchanges.exchanges.charge_to(lease);
  exchanges.trailers.charge_to(lease);
  lease.grew_context = this;
  lease.grew = grew_entry;
  budget_.watch(*this);
}

MemoryGuard::~MemoryGuard() {
  budget_.unwatch(*this);
  if (wants_) budget_.want(-1);
  loop_.forget_timer(look_);
  loop_.slabs().lease().grew = nullptr;
}

// Any thread.
void MemoryGuard::changed_entry(MemoryBudget::Watcher& watcher) noexcept {
  auto& guard = static_cast<MemoryGuard&>(watcher);
  if (!guard.notice_.queued.exchange(true)) guard.loop_.mailbox().push(guard.notice_);
}

void MemoryGuard::grew_entry(void* guard) noexcept {
  auto& self = *static_cast<MemoryGuard*>(guard);
  if (!self.look_.armed()) self.loop_.set_timer(self.look_, self.loop_.now() + kTrimLook);
}

void MemoryGuard::configure(const PipeLimits& limits) noexcept {
  normal_ = limits;
  normal_.relay = exchanges_.limits.relay;
  squeeze();
}

void MemoryGuard::follow() noexcept {
  const MemoryLevel now = budget_.level();
  if (now == level_) return;
  level_ = now;
  squeeze();
  pause();
  look();
}

// While requests stand in line those that would come behind them wait in the kernel, where they cost nothing.
void MemoryGuard::pause() noexcept {
  const bool pause = refusing() || exchanges_.first_waiter != nullptr;
  if (std::exchange(paused_, pause) == pause) return;
  for (Listener* listener : listeners_) listener->pause_accepting(pause);
}

// Once a second at most; what changes and changes back in between is not told.
void MemoryGuard::tell() noexcept {
  if (!teller_) return;
  const auto changed = [this](Told& told, bool now) {
    if (told.so == now || loop_.now() < told.at + kTellEvery) return false;
    told = {now, loop_.now()};
    return true;
  };
  const std::string used = std::to_string(budget_.used()), limit = std::to_string(budget_.limit());
  if (changed(told_tight_, level_ != MemoryLevel::normal)) {
    if (told_tight_.so) log::warn("memory: grants are down to 16 KiB", {{"used", used}, {"limit", limit}});
    else log::info("memory: grants are as large as before", {{"used", used}, {"limit", limit}});
  }
  if (changed(told_paused_, paused_)) {
    if (told_paused_.so) log::warn("memory: no connections are accepted", {{"used", used}, {"limit", limit}});
    else log::info("memory: connections are accepted again", {{"used", used}, {"limit", limit}});
  }
}

// Something changed that was not told yet.
bool MemoryGuard::owes_news() const noexcept {
  return teller_ && (told_tight_.so != (level_ != MemoryLevel::normal) || told_paused_.so != paused_);
}

// New pipes begin with what holds now, those that run are told.
void MemoryGuard::squeeze() noexcept {
  const bool tight = level_ != MemoryLevel::normal;
  exchanges_.limits = normal_;
  if (tight) exchanges_.limits.cap_min = exchanges_.limits.cap_max = exchanges_.limits.queue_max = kTightBytes;
  const auto fit = [&](Pipe& pipe) {
    if (!pipe.opened()) return;
    if (tight) pipe.limit_cap(kTightBytes);
    else pipe.restore_cap(normal_);
  };
  for (Listener* listener : listeners_) {
    listener->connections().each([&](h1::ServerConn& conn) {
      if (conn.exchange() == nullptr) return;
      fit(conn.exchange()->up());
      fit(conn.exchange()->down());
    });
  }
}

void MemoryGuard::look() noexcept {
  const bool more = trim();
  if (const bool waits = exchanges_.first_waiter != nullptr; waits != wants_) {
    wants_ = waits;
    budget_.want(waits ? 1 : -1);
  }
  const bool was_pressed = std::exchange(pressed_, refusing() || budget_.wanted());
  if (pressed_ && !was_pressed) pressed_since_ = loop_.now();
  if (pressed_) end_some();
  pause();
  tell();
  exchanges_.wake_waiting();
  const bool often = level_ != MemoryLevel::normal || exchanges_.first_waiter != nullptr || owes_news();
  look_.coarse = !often;
  if (often) loop_.set_timer(look_, loop_.now() + kPressedLook);
  else if (more) loop_.set_timer(look_, loop_.now() + kTrimLook);
}

void MemoryGuard::rest() noexcept {
  loop_.forget_timer(look_);
  if (std::exchange(wants_, false)) budget_.want(-1);
}

// Under pressure all that is free. Else half of what the last five seconds did not need, so that the next peak finds some.
// True: there is enough that it is worth another look.
bool MemoryGuard::trim() noexcept {
  SlabPool& slabs = loop_.slabs();
  const size_t needed = std::max(slabs.take_peak(), slabs.in_use()) - slabs.in_use() + kFreeKept;
  const size_t free = slabs.warm() - slabs.in_use();
  size_t keep = level_ == MemoryLevel::normal ? needed : 0;
  if (free > keep) {
    if (level_ == MemoryLevel::normal && free - keep > kFreeKept) keep += (free - keep) / 2;
    stats.trimmed.add(slabs.trim(keep, kTrimMax) * kSlabBytes);
  }
  return slabs.warm() > 2 * kFreeKept;
}

// Those that stand still: no byte moved for a second, and none was acknowledged by either peer for another one (a peer that reads
// slowly empties its kernel's buffer first). Those for which nothing waits here come only when ending others was of no use.
size_t MemoryGuard::find_victims(Victim* victims, size_t most) noexcept {
  const TimePoint now = loop_.now();
  const bool anyone = refusing() && now - pressed_since_ > kPatience;
  size_t count = 0;
  unsigned ack_looks = 0;
  const auto offer = [&](h1::ServerConn& conn, int64_t rank) {
    if (count == most && rank <= victims[count - 1].rank) return;
    size_t place = count < most ? count++ : count - 1;
    for (; place > 0 && victims[place - 1].rank < rank; --place) victims[place] = victims[place - 1];
    victims[place] = {&conn, rank};
  };
  const auto look_at = [&](h1::ServerConn& conn) {
    if (conn.awaits_memory()) return;   // it is ours to go on; its own deadline stands
    h1::ServerConn::MemoryMark& mark = conn.memory_mark;
    Exchange* exchange = conn.exchange();
    const size_t held = conn.buffered();
    if (held == 0 && exchange == nullptr) return;
    const uint64_t progress = conn.progress();
    if (progress != mark.progress || mark.since == TimePoint{}) {
      mark = {progress, 0, now, now};
    } else if (now - mark.since >= kStill && now - mark.acked_since >= kStill) {
      const bool lags = peers_lag(conn);
      if (!(lags || anyone) || ++ack_looks > kAckLooksMax) return;
      Stream* origin = exchange != nullptr ? exchange->origin() : nullptr;
      const uint64_t acked = conn.acked_bytes() + (origin != nullptr ? origin->acked_bytes() : 0);
      if (acked == mark.acked) {
        offer(conn, (now - mark.since).count() + (lags ? INT64_MAX / 2 : 0));
        return;
      }
      mark.acked = acked;
      mark.acked_since = now;
    }
    if (!anyone || exchange == nullptr || held <= kSlabBytes) return;
    const int64_t lived = (now - exchange->started_at()).count() / 1'000'000;
    const uint64_t moved = exchange->bytes_from_client() + exchange->bytes_to_client();
    if (lived > 1000) offer(conn, -static_cast<int64_t>(moved / static_cast<uint64_t>(lived)) - 1);
  };
  for (Listener* listener : listeners_) listener->connections().each(look_at);
  return count;
}

// Until this worker's part of what is too much is free: enough that those who wait to be accepted find room, not a few of
// them. What ends gives its memory back at the end of the tick, or some later.
void MemoryGuard::end_some() noexcept {
  const uint64_t goal = budget_.limit() / 100 * MemoryBudget::kNormalAgainPercent;
  const uint64_t used = budget_.used();
  if (used <= goal) return;
  const double part = static_cast<double>(loop_.slabs().lease().held()) / static_cast<double>(used);
  const auto wanted = static_cast<uint64_t>(static_cast<double>(used - goal) * std::min(part, 1.0)) + kSlabBytes;
  std::array<Victim, kVictimsMax> victims;
  const size_t count = find_victims(victims.data(), victims.size());
  uint64_t freed = 0;
  uint64_t answers = std::max<uint64_t>(budget_.limit() / 100 / kSlabBytes, 1);   // each takes a buffer for a moment
  for (size_t i = 0; i < count && freed < wanted; ++i) {
    const bool moves = victims[i].rank < 0;
    if (moves && i > 0) break;
    if (victims[i].conn->answers_for_memory() && answers-- == 0) break;   // the others at the next look
    freed += victims[i].conn->buffered();
    victims[i].conn->end_for_memory();
    stats.ended.add();
    ++ended_untold_;
    pressed_since_ = loop_.now();
    if (moves) break;   // of those, one at a time
  }
  if (ended_untold_ == 0 || loop_.now() < ended_told_at_ + kTellEvery) return;
  ended_told_at_ = loop_.now();
  log::warn("memory: exchanges were ended to make room", {{"count", std::to_string(ended_untold_)},
                                                          {"code", fault_row(What::memory_pressure).code},
                                                          {"used", std::to_string(used)},
                                                          {"limit", std::to_string(budget_.limit())}});
  ended_untold_ = 0;
}

}  // namespace weir

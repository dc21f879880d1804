#include "protocols/exchange/exchange.h"

#include <array>
#include <cstring>
#include <ctime>

#include "protocols/exchange/target.h"
#include "protocols/h1/writer.h"

namespace weir {

namespace {

// The exchange's life. Rows: where it is. Columns: what happened. A dash in the picture below is a broken promise of ours.
//
//                connect      answer        response_done   cut
//   routing      awaiting     responding    -               done
//   awaiting     awaiting     responding    -               done
//   responding   -            -             done            done
//   done         -            -             -               done
constexpr ExchangeState kBad = static_cast<ExchangeState>(0xff);
constexpr std::array<std::array<ExchangeState, 4>, 4> kNext = {{
    {ExchangeState::awaiting, ExchangeState::responding, kBad, ExchangeState::done},
    {ExchangeState::awaiting, ExchangeState::responding, kBad, ExchangeState::done},
    {kBad, kBad, ExchangeState::done, ExchangeState::done},
    {kBad, kBad, kBad, ExchangeState::done},
}};

}  // namespace

std::string_view DateCache::text(TimePoint now) noexcept {
  if (now >= valid_until_) {
    timespec wall{};
    clock_gettime(CLOCK_REALTIME, &wall);
    tm parts{};
    gmtime_r(&wall.tv_sec, &parts);
    strftime(text_, sizeof text_, "%a, %d %b %Y %H:%M:%S GMT", &parts);
    valid_until_ = now + std::chrono::nanoseconds(1'000'000'000 - wall.tv_nsec);
  }
  return {text_, 29};
}

// Whoever stands in line holds a small head and not a whole slab: it is copied behind those of others. The first to need a new slab
// lends its own.
void ExchangeContext::pack(Chain& head) noexcept {
  if (head.empty() || head.bytes() > kSlabBytes / 4 || head.front().size() != head.bytes()) return;
  Slice& own = head.front();
  const uint32_t count = own.size();
  if (own.slab() == waiting_room.slab()) return;
  if (!waiting_room || waiting_room.slab()->used + count > kSlabBytes) {
    waiting_room = own.share();
    return;
  }
  Slab* slab = waiting_room.slab();
  std::memcpy(slab->data + slab->used, own.data(), count);
  SlabPool::ref(*slab);
  Slice copy(slab, slab->used, count);
  slab->used += count;
  head.clear();
  head.append(std::move(copy));
}

bool ExchangeContext::may_begin_under_pressure(MemoryWaiter& waiter) noexcept {
  // Where no object is free a segment of them, and a buffer each for the request, the answer and what is made of them.
  constexpr size_t kOriginSegmentBytes = 64u << 10;
  const size_t bytes = (exchanges.has_free() ? 0 : SlotPool<Exchange>::kSegmentBytes) + kOriginSegmentBytes + 4 * kSlabBytes;
  if ((first_waiter == nullptr || first_waiter == &waiter) && loop.slabs().lease().ensure_begin(bytes)) {
    stop_waiting(waiter);
    wake_waiting();
    return true;
  }
  stand_in_line(waiter);
  return false;
}

void ExchangeContext::stand_in_line(MemoryWaiter& waiter) noexcept {
  if (waiter.waiting) return;
  waiter.waiting = true;
  waiter.next = nullptr;
  waiter.prev = std::exchange(last_waiter, &waiter);
  (waiter.prev != nullptr ? waiter.prev->next : first_waiter) = &waiter;
  stats.waited_for_memory.add();
}

void ExchangeContext::stop_waiting(MemoryWaiter& waiter) noexcept {
  if (!waiter.waiting) return;
  waiter.waiting = false;
  (waiter.prev != nullptr ? waiter.prev->next : first_waiter) = waiter.next;
  (waiter.next != nullptr ? waiter.next->prev : last_waiter) = waiter.prev;
  if (first_waiter == nullptr) waiting_room.reset();
}

Exchange::Exchange(ExchangeContext& context, ExchangeHandler& handler, Stream& client, void* from_listener) noexcept
    : listener(from_listener), context_(context), handler_(handler), client_(&client), started_at_(context.loop.now()) {
  release = release_entry;
}

void Exchange::go(Event event) noexcept {
  const ExchangeState next = kNext[static_cast<size_t>(state_)][static_cast<size_t>(event)];
  WEIR_ASSERT(next != kBad);
  state_ = next;
}

void Exchange::start() noexcept {
  if (request_.body == BodyKind::none) {
    up_done_ = true;
  } else {
    up_.open(context_.loop, *this, client_, nullptr, context_.limits, context_.pipes);
    client_->in = &up_;
    up_.touch();
  }
  const What what = request_.target_plain ? What::none : normalise_target(request_);
  if (what != What::none) fail(make_fault(what));
  else if (request_.upgrade != Upgrade::none) fail(make_fault(What::upgrade_refused));  // no route may open a tunnel yet
  else handler_.on_request(*this);
}

void Exchange::connect(Stream& origin, std::span<const ExtraField> extra) noexcept {
  go(Event::connect);
  origin_ = &origin;
  origin.send_head(request_, extra);
  if (up_.opened()) {
    origin.out = &up_;
    up_.attach_sink(origin);
    up_.touch();
  }
}

void Exchange::informational(Head& head) noexcept {
  if (state_ != ExchangeState::awaiting) return;
  handler_.on_more_fields(*this, head, false);
  client_->send_head(head, {});
}

void Exchange::response_head(Head& head) noexcept {
  const std::span<const ExtraField> extra = handler_.on_response(*this, head);
  go(Event::answer);
  answered_at_ = context_.loop.now();
  status_ = head.status;
  client_->send_head(head, extra);
  if (head.body == BodyKind::none) {
    finish({});
    return;
  }
  down_.open(context_.loop, *this, origin_, client_, context_.limits, context_.pipes);
  origin_->in = &down_;
  client_->out = &down_;
  down_.touch();
}

void Exchange::respond(uint16_t status, std::string_view content_type, std::string_view body,
                       std::span<const ExtraField> extra) noexcept {
  go(Event::answer);
  status_ = status;
  Head& head = context_.response;
  head.reset();
  head.status = status;
  head.has_length = status != 204 && status != 304;
  head.content_length = body.size();
  const bool bodyless = request_.method == Method::head || body.empty() || status == 204 || status == 304;
  head.body = bodyless ? BodyKind::none : BodyKind::length;
  if (!body.empty() && !content_type.empty()) head.add(FieldId::content_type, "content-type", content_type);
  head.add(FieldId::date, "date", context_.date.text(context_.loop.now()));
  for (const ExtraField& field : extra) head.add(field_id(field.name), field.name, field.value);
  const std::span<const ExtraField> more = handler_.on_local_answer(*this, head);
  Chain bytes;
  if (!bodyless && !bytes.append_copy(context_.loop.slabs(), body.data(), body.size())) {
    finish(make_fault(What::out_of_memory));
    return;
  }
  client_->send_head(head, more);
  if (bodyless) {
    finish({});
    return;
  }
  PipeLimits limits = context_.limits;
  if (body.size() > limits.cap_min) limits.cap_min = static_cast<uint32_t>(body.size());
  if (limits.cap_max < limits.cap_min) limits.cap_max = limits.cap_min;
  down_.open(context_.loop, *this, nullptr, client_, limits, context_.pipes);
  client_->out = &down_;
  down_.deliver(std::move(bytes));
  down_.end(nullptr);
}

void Exchange::fail(const Fault& fault) noexcept {
  const FaultRow& row = fault_row(fault.what);
  if (fault_.what == What::none) fault_ = fault;
  if (row.status == 0) {
    finish(fault);
    return;
  }
  char text[256];
  size_t used = 0;
  auto put = [&](std::string_view part) {
    const size_t count = part.size() < sizeof text - used ? part.size() : sizeof text - used;
    memcpy(text + used, part.data(), count);
    used += count;
  };
  const char digits[4] = {static_cast<char>('0' + row.status / 100), static_cast<char>('0' + row.status / 10 % 10),
                          static_cast<char>('0' + row.status % 10), ' '};
  put({digits, 4});
  put(h1::reason_phrase(row.status));
  put("\n");
  put(row.sentence);
  put("\n");
  char proxy_status[128];
  size_t length = 0;
  if (row.proxy_status != nullptr) {
    for (const char* part : {"weir; error=", row.proxy_status, "; details=\"", row.code, "\""}) {
      const size_t count = strlen(part);
      WEIR_ASSERT(length + count <= sizeof proxy_status);
      memcpy(proxy_status + length, part, count);
      length += count;
    }
  }
  const ExtraField extra[] = {{"proxy-status", {proxy_status, length}}};
  respond(row.status, "text/plain; charset=utf-8", {text, used}, {extra, length == 0 ? 0u : 1u});
}

void Exchange::origin_failed(const Fault& fault) noexcept {
  origin_ = nullptr;
  if (state_ == ExchangeState::awaiting) {
    if (up_.opened()) up_.detach_sink();
    if (!up_.lost() && handler_.on_origin_failed(*this, fault)) return;
    fail(fault);
    return;
  }
  if (state_ != ExchangeState::responding) return;
  if (down_.opened() && down_.ended()) return;  // the whole answer was received: its connection's end does not matter
  finish(fault);
}

void Exchange::client_failed(const Fault& fault, bool answerable) noexcept {
  if (state_ == ExchangeState::done) return;
  if (answerable && state_ != ExchangeState::responding) {
    fault_ = fault;
    if (up_.opened()) up_.detach_sink();
    if (origin_ != nullptr) std::exchange(origin_, nullptr)->abort(fault);
    fail(fault);
    return;
  }
  finish(fault);
}

void Exchange::pipe_finished(Pipe& pipe) noexcept {
  if (&pipe == &up_) {
    up_done_ = true;
    return;
  }
  finish({});
}

// Before an answer began the client is told; the request, which cannot be passed on, is not read any further.
void Exchange::pipe_failed(Pipe& pipe, const Fault& fault) noexcept {
  if (&pipe == &up_ && (state_ == ExchangeState::routing || state_ == ExchangeState::awaiting)) {
    client_->in = nullptr;
    up_.close();
    if (origin_ != nullptr) std::exchange(origin_, nullptr)->abort(fault);
    fail(fault);
    return;
  }
  if (state_ != ExchangeState::done) finish(fault);
}

void Exchange::pipe_idle(Pipe&) noexcept { release_when_idle(); }

void Exchange::pipe_trailers(Pipe& pipe, Head& trailers) noexcept { handler_.on_more_fields(*this, trailers, &pipe == &up_); }

Head* Exchange::new_trailers(bool from_client) noexcept {
  Head*& slot = trailers_[from_client ? 0 : 1];
  if (slot == nullptr) slot = context_.trailers.make();
  return slot;
}

// Well (no fault): the answer was handed to the client stream in full. A request that is still being received then (an early
// answer) is the client connection's to discard; the origin connection that waits for the rest of it is of no more use.
void Exchange::finish(const Fault& fault) noexcept {
  if (state_ == ExchangeState::done) return;
  go(fault ? Event::cut : Event::response_done);
  if (fault) fault_ = fault;
  if (down_.opened()) {
    bytes_to_client_ = down_.consumed();
    context_.stats.bytes_to_client.add(bytes_to_client_);
  }
  if (up_.opened()) {
    bytes_from_client_ = up_.delivered();
    context_.stats.bytes_from_client.add(bytes_from_client_);
  }
  Stream* origin = std::exchange(origin_, nullptr);
  Stream* client = std::exchange(client_, nullptr);
  up_.close();
  down_.close();
  if (origin != nullptr) {
    if (fault || !up_done_) origin->abort(fault);
    else origin->detach();
  }
  if (fault) client->abort(fault);
  else client->detach();
  context_.stats.ended.add();
  if (fault_) context_.stats.failed.add();
  handler_.on_end(*this);
  release_when_idle();
}

void Exchange::release_when_idle() noexcept {
  if (state_ != ExchangeState::done || release_queued_ || !up_.idle() || !down_.idle()) return;
  release_queued_ = true;
  context_.loop.free_later(*this);
}

void Exchange::release_entry(Slot& slot) noexcept {
  auto& exchange = static_cast<Exchange&>(slot);
  ExchangeContext& context = exchange.context_;
  for (Head* trailers : exchange.trailers_)
    if (trailers != nullptr) context.trailers.destroy(trailers);
  context.exchanges.destroy(&exchange);
  context.wake_waiting();
}

}  // namespace weir

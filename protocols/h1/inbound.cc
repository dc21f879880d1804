#include "protocols/h1/inbound.h"

namespace weir::h1 {

What Inbound::move_body(Pipe& pipe, Exchange& exchange, bool from_client, const HeadLimits& limits,
                        SlabPool& pool) noexcept {
  if (relaying || pipe.ended()) return What::none;
  const uint64_t credit = granted > pipe.delivered() ? granted - pipe.delivered() : 0;
  // Framing (a last chunk, a CRLF) is read even without credit: it is not body.
  if (!in.empty() && reader.state() == BodyReader::State::more) {
    Chain body;
    const BodyReader::State state = reader.read(in, body, credit);
    if (!body.empty()) {
      pipe.deliver(std::move(body));
      delivered_now = true;
    }
    if (state == BodyReader::State::bad) return reader.what();
    if (in.empty()) in = Chain();
  }
  if (reader.state() == BodyReader::State::trailers && !in.empty())
    return read_trailers(pipe, exchange, from_client, limits, pool);
  if (reader.state() == BodyReader::State::done) pipe.end(nullptr);
  return What::none;
}

What Inbound::read_trailers(Pipe& pipe, Exchange& exchange, bool from_client, const HeadLimits& limits,
                            SlabPool& pool) noexcept {
  Head* trailers = exchange.new_trailers(from_client);
  if (trailers == nullptr) return What::out_of_memory;
  const What what = parse_trailers_into(*trailers, limits, pool);
  if (what == What::none && body_done()) pipe.end(trailers->field_count != 0 ? trailers : nullptr);
  return what;
}

// none: they were read (the body is done then), or more of them is to come.
What Inbound::parse_trailers_into(Head& trailers, const HeadLimits& limits, SlabPool& pool) noexcept {
  trailers.reset();
  ParseResult result;
  const auto parser = [&](const char* data, size_t size, size_t& scanned) noexcept {
    return parse_trailers(data, size, scanned, limits, trailers);
  };
  if (!head.parse(in, pool, limits.head_bytes, result, parser)) return What::out_of_memory;
  if (result.state == Parse::need_more) return What::none;
  if (result.state == Parse::bad) return result.what;
  head.take(in, result.consumed, trailers);
  reader.trailers_read();
  return What::none;
}

uint64_t Inbound::discard_body(ExchangeContext& context, const HeadLimits& limits, bool& bad) noexcept {
  const size_t before = in.bytes();
  if (before != 0 && reader.state() == BodyReader::State::more) {
    Chain gone;
    bad = reader.read(in, gone, UINT64_MAX) == BodyReader::State::bad;
  }
  if (!bad && !in.empty() && reader.state() == BodyReader::State::trailers) {
    Head* trailers = context.trailers.make();
    bad = trailers == nullptr || parse_trailers_into(*trailers, limits, context.loop.slabs()) != What::none;
    if (trailers != nullptr) context.trailers.destroy(trailers);
  }
  return before - in.bytes();
}

}  // namespace weir::h1

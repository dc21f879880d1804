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
  const std::string_view bytes = head.view(in, pool, limits.head_bytes);
  if (bytes.empty()) return What::out_of_memory;
  trailers->reset();
  const ParseResult result = parse_trailers(bytes.data(), bytes.size(), head.scanned, limits, *trailers);
  if (result.state == Parse::need_more) return What::none;
  if (result.state == Parse::bad) return result.what;
  head.take(in, pool, result.consumed, *trailers);
  reader.trailers_read();
  pipe.end(trailers->field_count != 0 ? trailers : nullptr);
  return What::none;
}

}  // namespace weir::h1

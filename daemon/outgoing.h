// Outgoing: the request as an origin gets it, where that is more than the client's own bytes: a route's rewrite and header edits,
// or the forwarding fields of a trusted proxy in front of us. Routes without any of these never come here.
// Owner: a Forwarder; its memory is reused, so that in steady state nothing is allocated. Thread: the worker's.
#pragma once

#include <string>
#include <vector>

#include "daemon/runtime.h"
#include "protocols/exchange/exchange.h"

namespace weir {

class Outgoing {
 public:
  // Makes the target that `send` uses next. Not What::none: the request cannot be passed on so, this is why.
  What rewrite(const Head& request, const RouteExtras* extras);
  // Connects the exchange to `origin` with the changed head; the exchange's own request stays as the client sent it, but for fields
  // marked removed. `own`: the fields that every request gets. `replace`: instead of a trusted peer's, too.
  void send(Exchange& exchange, Stream& origin, const RouteExtras* extras, std::span<const ExtraField> own, bool replace);
  // What a route does to the head of an answer, whoever made it. Returns what it adds; good until the next call.
  std::span<const ExtraField> edit_answer(const RouteExtras& extras, Head& answer, bool from_origin);

 private:
  void keep_trusted(Exchange& exchange, std::span<const ExtraField> own, bool replace);
  void add_forwarded(Exchange& exchange);
  void edit(Head& request, const HeaderPlan& plan);

  std::vector<ExtraField> extra_;
  std::string path_, chain_, forwarded_;
};

// What a route takes out of fields that stand in no request or final answer: those of interim answers and trailer sections.
void remove_edited(const RouteExtras& extras, Head& fields, bool from_client) noexcept;

// The fields that say where a request came from: from a peer that is not trusted they are never passed on. From nobody are those
// that an origin might take for them (x_forwarded_for).
void drop_forwarding_fields(Head& request) noexcept;
void drop_unbelieved(Head& request, const ListenerPlan& listener) noexcept;   // of a trusted peer's

}  // namespace weir

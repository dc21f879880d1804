// Forwarder: what a worker does with a request: find its route, answer it or send it to an origin, and try again where that is
// safe. One per worker, for all its listeners. Thread: the worker's.
// A request is tried again only while nothing of its answer and nothing of its body has been used: after a failed connect at the
// another endpoint, and once on a fresh connection when a reused one died before its first byte and either nothing of the request
// had left us or its method is idempotent.
#pragma once

#include <string>

#include "daemon/access_log.h"
#include "daemon/outgoing.h"
#include "daemon/request_id.h"
#include "daemon/router.h"
#include "daemon/worker_runtime.h"

namespace weir {

// What an exchange needs to know of the listener it came through.
struct ListenerView {
  std::string name;
  size_t index = 0;                 // in the current runtime's listeners
  WorkerRuntime* current = nullptr; // new exchanges begin under this
  EngineKind engine = EngineKind::epoll;
  ListenerStats* stats = nullptr;   // this worker's
};

class Forwarder final : public ExchangeHandler {
 public:
  Forwarder(size_t worker, const RequestIds& ids) noexcept : worker_(worker), ids_(ids) {}
  void log_to(AccessSink* sink) noexcept { access_ = sink; }
  void tell_when_unused(Pump& pump) noexcept { unused_ = &pump; }   // an older configuration has no exchange any more
  void on_request(Exchange& exchange) noexcept override;
  bool on_origin_failed(Exchange& exchange, const Fault& fault) noexcept override;
  std::span<const ExtraField> on_response(Exchange& exchange, Head& response) noexcept override;
  std::span<const ExtraField> on_local_answer(Exchange& exchange, Head& answer) noexcept override;
  void on_more_fields(Exchange& exchange, Head& fields, bool from_client) noexcept override;
  void on_end(Exchange& exchange) noexcept override;

 private:
  bool look_first(Exchange& exchange, const config::Listener& listener, const ListenerPlan& plan, ClientFacts& client) noexcept;
  void redirect_to_https(Exchange& exchange) noexcept;
  void name(Exchange& exchange) noexcept;
  void answer(Exchange& exchange, const config::Route& route) noexcept;
  void forward(Exchange& exchange, Rotation::Target& to, bool fresh) noexcept;
  void send(Exchange& exchange, Stream& origin) noexcept;

  size_t worker_;
  AccessSink* access_ = nullptr;
  Pump* unused_ = nullptr;
  RequestIds ids_;
  Outgoing outgoing_;
  std::string location_;          // scratch: of a redirect
};

}  // namespace weir

// AdminCall: one request to the admin server between its head and its answer: takes its body (as the exchange's "origin"), then
// asks a handler, which may answer at once or later.
// Owner: AdminServer, until the exchange ends; the handler holds an AdminReply, which is good for as long as it likes and does
// nothing once the client is gone. Thread: the loop's own.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "protocols/exchange/exchange.h"

namespace weir {

inline constexpr size_t kAdminBodyBytesMax = size_t{64} << 10;   // of a request; the server refuses larger ones before (413)

struct AdminAnswer {
  uint16_t status = 200;
  std::string type = "application/json";
  std::string body;
  std::string allow{};                                 // of a 405: the methods that there are
  static AdminAnswer error(uint16_t status, std::string_view sentence);
};

struct AdminRequest {
  std::string_view method, path, query;                // path without the query
  std::string_view body;
  std::string parameter(std::string_view name) const;  // of the query, percent-decoded; empty: not there
  std::string unknown_parameter(std::initializer_list<std::string_view> known) const;   // the first that is none of these
};

using AdminReply = std::function<void(const AdminAnswer&)>;
using AdminHandler = std::function<void(const AdminRequest&, AdminReply)>;

class AdminCall final : public Stream, public std::enable_shared_from_this<AdminCall> {
 public:
  AdminCall(Exchange& exchange, const AdminHandler& handler) noexcept;
  ~AdminCall() override;
  void begin() noexcept;                               // takes the request's body
  static void respond(Exchange& exchange, const AdminAnswer& answer) noexcept;

  // Stream: a sink only.
  void grant(uint64_t) noexcept override {}
  size_t room() const noexcept override;
  void send_body(Chain&& bytes) noexcept override;
  void send_end(const Head* trailers) noexcept override;
  void send_head(const Head& head, std::span<const ExtraField> extra) noexcept override;
  void abort(const Fault& fault) noexcept override;
  void detach() noexcept override { exchange_ = nullptr; }
  bool source_live() const noexcept override { return true; }
  bool sink_live() const noexcept override { return true; }

 private:
  struct Work : Pump { AdminCall* self = nullptr; };
  static void asked_entry(Pump& pump) noexcept;
  void ask();
  void answer(const AdminAnswer& answer) noexcept;

  Loop& loop_;
  Exchange* exchange_;                                 // null: it has ended
  const AdminHandler& handler_;
  std::string body_;
  Work work_;
};

}  // namespace weir

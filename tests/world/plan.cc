#include "tests/world/plan.h"

namespace weir::simtest {

std::string Plan::bytes() const {
  std::string text = method + " " + target + (old ? " HTTP/1.0" : " HTTP/1.1") + "\r\nHost: world\r\n";
  if (close) text += "Connection: close\r\n";
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
    for (const auto& [name, value] : message.trailers)
      if (name != "x-trailer" || value != plan.target) return plan.target + ": a trailer that is not its own: " + name;
    if (index == well + 1) ++well;
  }
  if (well < whole)
    return "only " + std::to_string(well) + " of " + std::to_string(whole) + " answers: not that to " + plans[well].target;
  return {};
}

}  // namespace weir::simtest

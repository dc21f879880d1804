#include "config/build.h"

#include <algorithm>

namespace weir::config {
namespace {

void split_url(Draft& draft, const std::string& url, Mark mark, ConfigTest& test) {
  test.url = url;
  test.https = url.starts_with("https://");
  const size_t from = test.https ? 8 : 7;
  const size_t end = std::min(url.find_first_of("/?#", from), url.size());
  if ((!test.https && !url.starts_with("http://")) || end == from) {
    draft.report.error(mark, "get: " + quote(url) + " is no URL such as `https://shop.example.com/x`");
    return;
  }
  test.host = lower(std::string_view(url).substr(from, end - from));
  test.target = url.substr(end, url.find('#', end) - end);
  if (!test.target.starts_with("/")) test.target.insert(0, "/");
}

void read_request(Draft& draft, const Fields& fields, ConfigTest& test) {
  test.method = fields.text("method").value();
  if (!is_token(test.method)) {
    draft.report.error(fields.mark("method"), "method: " + quote(test.method) + " is no method");
  }
  for (const auto& [name, value, mark] : fields.named_texts("header")) {
    if (!is_token(name)) draft.report.error(mark, "header: " + quote(name) + " is no field name");
    test.headers.push_back({lower(name), value});
  }
  if (auto name = fields.text("listener")) {
    test.listener = resolve(draft, {*name, fields.mark("listener")}, draft.listener_index, "listener");
  }
  if (auto text = fields.text("client")) {
    auto client = parse_cidr(*text);
    if (client && client->bits == (client->ipv6 ? 128 : 32)) test.client = client->text();
    else draft.report.error(fields.mark("client"), "client: " + quote(*text) + " is no address such as `192.0.2.7`");
  }
}

}  // namespace

void read_tests(Draft& draft, const Fields& top) {
  for (const Node* item : top.items("tests")) {
    const Fields fields(item, Level::test, draft.report);
    ConfigTest test;
    test.where = draft.report.where(item->mark);
    if (auto url = fields.text("get")) split_url(draft, *url, fields.mark("get"), test);
    read_request(draft, fields, test);
    const Fields expect = fields.map("expect");
    if (auto name = expect.text("upstream")) {
      resolve(draft, {*name, expect.mark("upstream")}, draft.upstream_index, "upstream");
      test.expect.upstream = *name;
    }
    if (auto name = expect.text("route")) {
      resolve(draft, {*name, expect.mark("route")}, draft.route_index, "route");
      test.expect.route = *name;
    }
    if (auto status = expect.number("status")) test.expect.status = static_cast<uint16_t>(*status);
    const Node* given = fields.node("expect");
    if (given != nullptr && given->kind == Node::Kind::mapping && given->entries.empty()) {
      draft.report.error(given->mark, "`expect` is empty: it needs `upstream`, `route` or `status`");
    }
    draft.snapshot.tests.push_back(std::move(test));
  }
}

}  // namespace weir::config

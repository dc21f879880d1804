#include "config/build.h"

#include <algorithm>

namespace weir::config {
namespace {

void read_server(Draft& draft, const Node& item, Upstream& upstream) {
  std::optional<SocketName> address;
  Server server;
  if (item.kind == Node::Kind::mapping) {
    const Fields fields(&item, Level::server, draft.report);
    address = fields.server("address");
    server.weight = static_cast<uint32_t>(fields.number("weight").value());
  } else if (auto text = text_of(item, "a server", draft.report)) {
    auto parsed = parse_server(*text);
    if (parsed) address = std::move(*parsed);
    else draft.report.error(item.mark, "servers: " + quote(*text) + " " + parsed.error());
  }
  if (!address) return;
  server.address = std::move(*address);
  for (const Server& other : upstream.servers) {
    if (other.address != server.address) continue;
    draft.report.error(item.mark, "server " + quote(server.address.text()) +
                                      " is listed twice; `weight` gives it a larger share");
  }
  upstream.servers.push_back(std::move(server));
}

Upstream read_upstream(Draft& draft, const Entry& entry) {
  Upstream upstream;
  upstream.name = entry.key;
  upstream.where = draft.report.where(entry.mark);
  if (entry.value.kind == Node::Kind::null) {
    if (!entry.value.broken) draft.report.error(entry.mark, "upstream " + quote(entry.key) + " has no value");
    return upstream;
  }
  const Fields fields(&entry.value, Level::upstream, draft.report);
  upstream.balance = static_cast<Balance>(fields.word("balance"));
  fields.word("protocol");
  upstream.own_timeouts = read_timeouts(fields);
  upstream.timeouts = upstream.own_timeouts.over(draft.snapshot.timeouts);
  upstream.own_limits = read_limit_overrides(fields);
  upstream.max_connections = fields.number("max_connections").value();
  const auto items = fields.items("servers");
  for (const Node* item : items) read_server(draft, *item, upstream);
  const Node* servers = fields.node("servers");
  if (servers != nullptr && servers->kind == Node::Kind::sequence && items.empty()) {
    draft.report.error(servers->mark, "`servers` is an empty list");
  }
  const bool all_read = !items.empty() && upstream.servers.size() == items.size();
  const auto idle = [](const Server& server) { return server.weight == 0; };
  if (all_read && std::all_of(upstream.servers.begin(), upstream.servers.end(), idle)) {
    draft.report.error(servers->mark, "every server of " + quote(entry.key) + " has weight 0: none would be used");
  }
  return upstream;
}

}  // namespace

void read_upstreams(Draft& draft, const Fields& top) {
  const Node* given = top.mapping("upstreams");
  if (given == nullptr) return;
  std::vector<const Entry*> entries;
  for (const Entry& entry : given->entries) entries.push_back(&entry);
  std::sort(entries.begin(), entries.end(), [](const Entry* a, const Entry* b) { return a->key < b->key; });
  for (const Entry* entry : entries) {
    Node name;
    name.kind = Node::Kind::scalar;
    name.text = entry->key;
    name.mark = entry->mark;
    text_of(name, "the name of an upstream", draft.report);
    draft.upstream_index.emplace(entry->key, draft.snapshot.upstreams.size());
    draft.upstream_marks.push_back(entry->mark);
    draft.snapshot.upstreams.push_back(read_upstream(draft, *entry));
  }
  draft.upstream_used.resize(entries.size());
}

}  // namespace weir::config

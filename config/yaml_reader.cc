#include "config/yaml_reader.h"

#include <yaml-cpp/eventhandler.h>
#include <yaml-cpp/exceptions.h>
#include <yaml-cpp/mark.h>
#include <yaml-cpp/parser.h>

#include <algorithm>
#include <array>
#include <map>
#include <sstream>
#include <unordered_map>

namespace weir::config {
namespace {

struct Stop {};   // thrown to leave yaml-cpp after a problem that makes reading on pointless

class Builder final : public YAML::EventHandler {
 public:
  // end: behind the last character of the text.
  Builder(Mark end, Report& report) : end_(end), report_(report) {}

  std::optional<Node>& root() { return root_; }

  // yaml-cpp sees what is missing at the end on a line that the text does not have.
  Mark at(const YAML::Mark& mark) const {
    const auto line = static_cast<uint32_t>(mark.line + 1);
    return line > end_.line ? end_ : Mark{end_.file, line, static_cast<uint32_t>(mark.column + 1)};
  }

  void OnDocumentStart(const YAML::Mark& mark) override {
    if (++documents_ < 2) return;
    report_.error(at(mark), "a second YAML document (after `---`) in one file: only one is read");
    throw Stop{};
  }
  void OnDocumentEnd() override {}

  void OnNull(const YAML::Mark& mark, YAML::anchor_t anchor) override {
    count(1, at(mark));
    Node node;
    node.mark = at(mark);
    done(std::move(node), anchor);
  }

  void OnAlias(const YAML::Mark& mark, YAML::anchor_t anchor) override {
    auto found = anchors_.find(anchor);
    if (found == anchors_.end()) {
      report_.error(at(mark), "an alias inside the value that its own anchor names");
      throw Stop{};
    }
    count(found->second.nodes, at(mark));
    done(found->second.node, 0);
  }

  void OnScalar(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                const std::string& value) override {
    count(1, at(mark));
    check_tag(mark, tag);
    Node node;
    node.kind = Node::Kind::scalar;
    node.quoted = tag == "!";
    node.text = value;
    node.mark = at(mark);
    done(std::move(node), anchor);
  }

  void OnSequenceStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                       YAML::EmitterStyle::value) override {
    open(mark, tag, anchor, Node::Kind::sequence);
  }
  void OnSequenceEnd() override { close(); }
  void OnMapStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                  YAML::EmitterStyle::value) override {
    open(mark, tag, anchor, Node::Kind::mapping);
  }
  void OnMapEnd() override {
    merge(frames_.back());
    close();
  }

 private:
  struct Frame {
    Node node;
    YAML::anchor_t anchor;
    bool has_key = false;             // the next value belongs to `key`
    bool is_merge = false;            // and that key is a plain `<<`
    Entry key;
    std::unordered_map<std::string, Mark> seen;
    std::vector<Node> merges;
  };
  struct Anchored {
    Node node;
    size_t nodes;
  };

  void count(size_t nodes, Mark mark) {
    if (nodes <= kNodesMax - nodes_) {
      nodes_ += nodes;
      return;
    }
    report_.error(mark, "more than " + std::to_string(kNodesMax) + " values, aliases counted in full");
    throw Stop{};
  }

  void check_tag(const YAML::Mark& mark, const std::string& tag) {
    if (tag.empty() || tag == "?" || tag == "!") return;
    report_.error(at(mark), "YAML tags (`" + tag + "`) are not used here; leave it out");
  }

  void open(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor, Node::Kind kind) {
    count(1, at(mark));
    check_tag(mark, tag);
    if (frames_.size() == kDepthMax) {
      report_.error(at(mark), "nested more than " + std::to_string(kDepthMax) + " levels deep");
      throw Stop{};
    }
    Frame frame;
    frame.node.kind = kind;
    frame.node.mark = at(mark);
    frame.anchor = anchor;
    frames_.push_back(std::move(frame));
  }

  void close() {
    Frame frame = std::move(frames_.back());
    frames_.pop_back();
    done(std::move(frame.node), frame.anchor);
  }

  void done(Node node, YAML::anchor_t anchor) {
    if (anchor != 0) anchors_[anchor] = {node, count_nodes(node)};
    if (frames_.empty()) {
      root_ = std::move(node);
      return;
    }
    Frame& frame = frames_.back();
    if (frame.node.kind == Node::Kind::sequence) frame.node.items.push_back(std::move(node));
    else if (!frame.has_key) take_key(frame, std::move(node));
    else take_value(frame, std::move(node));
  }

  void take_key(Frame& frame, Node&& node) {
    if (node.kind != Node::Kind::scalar) {
      report_.error(node.mark, "a key must be plain text");
      throw Stop{};
    }
    frame.has_key = true;
    frame.key.mark = node.mark;
    frame.is_merge = node.text == "<<" && !node.quoted;
    frame.key.key = std::move(node.text);
  }

  void take_value(Frame& frame, Node&& node) {
    frame.has_key = false;
    if (frame.is_merge) {
      frame.merges.push_back(std::move(node));
      return;
    }
    auto [first, fresh] = frame.seen.emplace(frame.key.key, frame.key.mark);
    if (!fresh) {
      report_.error(frame.key.mark, "`" + frame.key.key + "` is given twice; the first one is at " +
                                        report_.text(first->second));
      return;
    }
    if (node.kind == Node::Kind::null) node.mark = frame.key.mark;   // yaml-cpp puts it where the next token is
    frame.key.value = std::move(node);
    frame.node.entries.push_back(std::move(frame.key));
    frame.key = {};
  }

  void merge(Frame& frame) {
    for (Node& merged : frame.merges) {
      if (merged.kind == Node::Kind::mapping) {
        merge_one(frame, std::move(merged));
        continue;
      }
      bool all_maps = merged.kind == Node::Kind::sequence;
      for (const Node& item : merged.items) all_maps = all_maps && item.kind == Node::Kind::mapping;
      if (!all_maps) report_.error(merged.mark, "`<<` takes a mapping (`*name`) or a list of mappings");
      else for (Node& item : merged.items) merge_one(frame, std::move(item));
    }
  }

  static void merge_one(Frame& frame, Node&& from) {
    for (Entry& entry : from.entries) {
      if (frame.seen.emplace(entry.key, entry.mark).second) frame.node.entries.push_back(std::move(entry));
    }
  }

  Mark end_;
  Report& report_;
  size_t nodes_ = 0;
  uint32_t documents_ = 0;
  std::vector<Frame> frames_;
  std::map<YAML::anchor_t, Anchored> anchors_;
  std::optional<Node> root_;
};

// yaml-cpp's commonest complaints in words for someone who does not know a parser from inside.
std::string in_plain_words(const std::string& message) {
  constexpr std::array<std::array<std::string_view, 2>, 9> kWords{{
      {"end of sequence flow not found", "a list that begins with `[` is not closed by `]`"},
      {"end of map flow not found", "a mapping that begins with `{` is not closed by `}`"},
      {"end of map not found", "a key was expected here; is the line indented like those around it?"},
      {"end of sequence not found", "a `-` was expected here; is the line indented like those around it?"},
      {"illegal map value", "a `:` where none can be; a text that contains `: ` needs quotes"},
      {"illegal tab when looking for indentation", "a tab in the indentation; only spaces count there"},
      {"illegal document indicator in scalar", "a text in quotes is not closed before this"},
      {"the referenced anchor is not defined", "an alias (`*name`) whose anchor (`&name`) does not stand before it"},
      {"unknown token", "a character that no value can begin with; texts that begin with it need quotes"},
  }};
  for (const auto& [theirs, ours] : kWords) {
    if (message.starts_with(theirs)) return std::string(ours);
  }
  return message;
}

Mark end_of(std::string_view text, uint32_t file) {
  if (text.ends_with('\n')) text.remove_suffix(1);
  const size_t before = text.rfind('\n');
  const size_t from = before == text.npos ? 0 : before + 1;
  return {file, static_cast<uint32_t>(std::count(text.begin(), text.end(), '\n') + 1),
          static_cast<uint32_t>(text.size() - from + 1)};
}

}  // namespace

std::optional<Node> read_yaml(std::string_view text, uint32_t file, Report& report) {
  const Mark top{file, 1, 1};
  if (text.find('\0') != std::string_view::npos) {
    report.error({file, 0, 0}, "contains a zero byte: this is no text file");
    return std::nullopt;
  }
  Builder builder(end_of(text, file), report);
  try {
    // yaml-cpp takes a quote that is never closed when the file ends in a line end; the document's end mark stops that.
    std::istringstream stream{std::string(text) + (text.ends_with('\n') ? "...\n" : "\n...\n")};
    YAML::Parser parser(stream);
    while (parser.HandleNextDocument(builder)) {
    }
  } catch (const Stop&) {
    return std::nullopt;
  } catch (const YAML::Exception& error) {
    report.error(error.mark.is_null() ? top : builder.at(error.mark), "not valid YAML: " + in_plain_words(error.msg));
    return std::nullopt;
  }
  if (!builder.root() || builder.root()->kind == Node::Kind::null) {
    report.error(top, "the file is empty");
    return std::nullopt;
  }
  return std::move(builder.root());
}

}  // namespace weir::config

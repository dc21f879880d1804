// Wire: what scripted clients and origins make of HTTP/1.1 bytes (RFC 9112). A plain second reading, written without a look at
// protocols/h1, so that the two can disagree. Owner: a Client or an Origin's connection of proxy.h. It takes bytes in any
// pieces; what is not HTTP/1.1 ends in `error` and stops it. `messages` keeps all in order; only the last may be incomplete.
#pragma once

#include <cstdint>
#include <deque>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace weir::simtest {

struct Message {
  std::string start;                                         // request or status line
  std::vector<std::pair<std::string, std::string>> fields;   // names in lower case
  std::vector<std::pair<std::string, std::string>> trailers;
  std::string body;
  bool head_done = false;
  bool complete = false;
  bool until_close = false;
  bool chunked = false;

  std::string field(std::string_view name) const;            // the first of that name, "" if there is none
  size_t count(std::string_view name) const;
  int status() const;                                        // of a response
  std::string method() const;                                // of a request
  std::string target() const;
};

class Wire {
 public:
  enum class Side : uint8_t { requests, responses };
  explicit Wire(Side side) : side_(side) {}
  void asked(std::string method) { asked_.push_back(std::move(method)); }   // responses: what they answer, in order
  void feed(std::string_view bytes);
  void ended();                                              // end of file
  size_t complete() const { return complete_; }              // final messages; 1xx answers do not count

  std::deque<Message> messages;
  std::string error;

 private:
  enum class State : uint8_t { head, length, until_close, chunk_size, chunk_data, chunk_end, trailers };
  bool step();
  bool line(std::string* out);
  bool read_field(const std::string& text, std::vector<std::pair<std::string, std::string>>& into);
  bool head_line();
  void begin_body();
  void done();
  bool take_body();

  Side side_;
  State state_ = State::head;
  std::string in_;
  size_t at_ = 0;
  uint64_t left_ = 0;
  size_t complete_ = 0;
  std::deque<std::string> asked_;
};

// `count` bytes that differ at every place and for every seed, so that a lost, doubled or moved byte shows.
std::string pattern(uint64_t seed, size_t count);
// As chunks of at most `piece` bytes, with a last chunk.
std::string chunked(std::string_view body, size_t piece);

}  // namespace weir::simtest

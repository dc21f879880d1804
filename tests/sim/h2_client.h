// H2Client: a scripted HTTP/2 client at the front of a Proxy. It speaks in frames, as it is told, whether or not the rules allow them;
// what comes back it takes apart: frames as they came, and answers by stream. Its header blocks are literals without the table.
// Owner: a test case. Thread: the test's.
#pragma once

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "protocols/h2/frames.h"
#include "tests/sim/proxy.h"

struct nghttp2_hd_inflater;

namespace weir::simtest {

using h2::FrameType;
inline int64_t number(h2::ErrorCode code) { return static_cast<int64_t>(code); }
using H2Fields = std::vector<std::pair<std::string, std::string>>;

struct H2Frame {
  uint8_t type = 0, flags = 0;
  int32_t stream = 0;
  std::string payload;
  bool is(FrameType t) const { return type == static_cast<uint8_t>(t); }
};

struct H2Answer {
  int status = 0;
  std::vector<int> interim;
  H2Fields fields, trailers;
  std::string body;
  bool ended = false;
  int64_t reset = -1;                // error code
  bool done() const { return ended || reset >= 0; }
  std::string field(const std::string& name) const;
};

std::string h2_number(uint64_t number, int bytes);
std::string h2_block(const H2Fields& fields);
H2Fields h2_get(const std::string& path = "/", const std::string& method = "GET");

class H2Client {
 public:
  struct Options {
    bool preface = true;             // and SETTINGS, with these entries
    std::vector<std::pair<int, uint32_t>> settings{};
    bool acknowledge = true;         // SETTINGS and PING
    bool credit = true;              // gives windows back as DATA comes
  };
  H2Client(Proxy& proxy, const Options& options);
  explicit H2Client(Proxy& proxy) : H2Client(proxy, Options{}) {}
  ~H2Client();
  H2Client(const H2Client&) = delete;

  void send(std::string_view bytes) { peer.send(bytes); }
  static std::string frame(uint8_t type, uint8_t flags, int32_t stream, std::string_view payload);
  void frame(FrameType type, uint8_t flags, int32_t stream, std::string_view payload);
  void headers(int32_t stream, const H2Fields& fields, uint8_t flags = h2::kEndHeaders | h2::kEndStream);
  int32_t get(const std::string& path = "/", const H2Fields& more = {});
  int32_t request(const H2Fields& fields, bool ends);
  void data(int32_t stream, std::string_view bytes, bool ends);     // one frame, whatever the windows say
  void upload(int32_t stream, std::string bytes, bool ends);        // as the windows allow
  void reset(int32_t stream, uint32_t code = 8);
  void window(int32_t stream, uint32_t bytes);
  void ping() { frame(FrameType::ping, 0, 0, "12345678"); }

  H2Answer& answer(int32_t stream) { return answers[stream]; }
  bool closed() const { return peer.ended() || peer.error() != 0; }
  size_t count(FrameType type) const;
  // The code of the last GOAWAY; -1: there was none, or something came behind it.
  int64_t goaway() const;

  SimPeer& peer;
  std::vector<H2Frame> frames;
  std::map<int32_t, H2Answer> answers;
  std::vector<std::pair<int32_t, uint32_t>> goaways;                // last id, code
  std::vector<std::pair<int, uint32_t>> settings;                   // the server's
  std::function<void(H2Client&, const H2Frame&)> on_frame;
  std::string error;                                                // what no server may send
  uint64_t body_bytes = 0;
  int64_t connection_window = 65535;                                // for our DATA
  bool credit;
  int32_t next_stream = 1;

 private:
  struct Upload { int64_t window = 65535; std::string left; bool ends = false; };
  void feed();
  void take(const H2Frame& frame);
  void take_block(const H2Frame& frame);
  void pump(int32_t stream, Upload& upload);

  bool acknowledge_;
  std::string in_;
  std::string block_;
  uint8_t block_flags_ = 0;
  int32_t block_stream_ = 0;
  std::map<int32_t, Upload> uploads_;
  nghttp2_hd_inflater* inflater_ = nullptr;
};

}  // namespace weir::simtest

// An HTTP/2 connection in memory: an nghttp2 session of either role whose streams are Streams. It exists to show that Stream and
// Pipe have the shape of a protocol with many streams, windows and trailers; it is no product code.
// Grants are absolute: a stream that is granted more than its peer was told sends a WINDOW_UPDATE over the difference, and no other
// window update is ever sent for it. Connection credit goes back on receipt.
#pragma once

#include <nghttp2/nghttp2.h>

#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "protocols/exchange/pipe.h"

namespace weir::test {

class H2Conn;

inline constexpr size_t kQueueBytes = 32u << 10;        // per stream: what waits for DATA frames
inline constexpr uint32_t kStreamWindow = kPipeCapMin;  // SETTINGS_INITIAL_WINDOW_SIZE: what a new pipe grants
inline constexpr uint32_t kConnWindow = 1u << 20;

class H2Stream final : public Stream {
 public:
  H2Stream(H2Conn& conn, int32_t id) : conn_(conn), id_(id) {}
  void grant(uint64_t total) noexcept override;
  size_t room() const noexcept override { return queue_.bytes() < kQueueBytes ? kQueueBytes - queue_.bytes() : 0; }
  void send_body(Chain&& bytes) noexcept override;
  void send_end(const Head* trailers) noexcept override;
  void send_head(const Head& head, std::span<const ExtraField> extra) noexcept override;
  void abort(const Fault& fault) noexcept override;
  void detach() noexcept override { in = out = nullptr; }
  bool source_live() const noexcept override { return !closed && told > received; }
  bool sink_live() const noexcept override { return !closed && !queue_.empty(); }
  int32_t id() const { return id_; }
  size_t queued() const { return queue_.bytes(); }

  uint64_t told = kStreamWindow;     // the peer may have sent so much
  uint64_t received = 0;
  bool head_seen = false;            // the peer's first head
  bool closed = false;
  uint32_t close_code = 0;
  std::unique_ptr<Head> trailers;    // received
  std::map<std::string, std::string> trailer_fields;

 private:
  friend class H2Conn;
  H2Conn& conn_;
  int32_t id_;
  Chain queue_;
  bool end_ = false;
  bool deferred_ = false;
  std::vector<std::pair<std::string, std::string>> trailers_out_;
};

class H2Conn {
 public:
  H2Conn(Loop& loop, bool server);
  ~H2Conn();
  H2Conn(const H2Conn&) = delete;
  H2Conn& operator=(const H2Conn&) = delete;

  H2Stream& open();                                   // client: a new request (a POST)
  // Makes frames until the wire holds so much, then lets them out; true: something went.
  std::string output(size_t wire_bytes_max);
  void input(std::string_view bytes);
  nghttp2_session* session() { return session_; }
  Loop& loop() { return loop_; }

  std::vector<std::unique_ptr<H2Stream>> streams;     // in the order in which they began
  void (*on_stream)(H2Conn&, H2Stream&, void*) = nullptr;   // server: a request's head came
  void (*on_closed)(H2Conn&, H2Stream&, void*) = nullptr;   // ended, well or not; its pipes are the owner's to close
  void* context = nullptr;
  uint64_t window_updates = 0;                        // sent for streams
  int64_t resets_seen = 0;

 private:
  friend class H2Stream;
  static nghttp2_ssize read_body(nghttp2_session*, int32_t, uint8_t*, size_t, uint32_t*, nghttp2_data_source*, void*);
  static int send_data(nghttp2_session*, nghttp2_frame*, const uint8_t*, size_t, nghttp2_data_source*, void*);
  static int on_data(nghttp2_session*, uint8_t, int32_t, const uint8_t*, size_t, void*);
  static int on_header(nghttp2_session*, const nghttp2_frame*, const uint8_t*, size_t, const uint8_t*, size_t, uint8_t, void*);
  static int on_begin(nghttp2_session*, const nghttp2_frame*, void*);
  static int on_frame(nghttp2_session*, const nghttp2_frame*, void*);
  static int on_sent(nghttp2_session*, const nghttp2_frame*, void*);
  static int on_close(nghttp2_session*, int32_t, uint32_t, void*);
  H2Stream* stream(int32_t id) { return static_cast<H2Stream*>(nghttp2_session_get_stream_user_data(session_, id)); }
  H2Stream& add(int32_t id);
  void end_body(H2Stream& stream);

  Loop& loop_;
  bool server_;
  nghttp2_session* session_ = nullptr;
  std::string wire_;
};

}  // namespace weir::test

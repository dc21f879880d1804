// Session: HTTP/2's frames, streams' states and header compression for one connection: nghttp2 behind our own chains, the
// only place that calls it. Bytes come in by receive(), frames are made late, by fill(), straight into the connection's output.
// Before the library sees a frame, its header is charged to the Budget; the library's own limits stand above ours, for some of them
// end a connection without a GOAWAY. Over budget, at an error or when told, the session ends: a GOAWAY stands last in the output,
// over() is true, and nothing more is read or written.
// Owner: a ServerConn, which is told what came (SessionOwner, from within receive and fill). Thread: the loop's own.
// It knows no exchange, no deadline and no meaning of a field.
#pragma once

#include <memory>
#include <span>

#include "protocols/h2/abuse.h"
#include "protocols/h2/frames.h"
#include "protocols/h2/small_bytes.h"

struct nghttp2_session;

namespace weir::h2 {

// What the session keeps of one stream. Owner: the SessionOwner, from stream_begins until `closed` (and longer, as it likes).
struct SessionStream {
  int32_t id = 0;
  Chain queue;                  // body that waits to be framed
  bool end_queued = false;      // and after it the end
  bool end_sent = false;
  bool remote_ended = false;    // the peer's END_STREAM was read
  bool closed = false;          // the library knows it no more
  bool deferred = false;        // the library waits for resume()
  bool responded = false;       // its final head was given to the library
  std::unique_ptr<char[]> trailers;   // to be sent behind the body: TrailerSize, name, value; and so on
  uint32_t trailer_bytes = 0;
};

struct TrailerSize { uint32_t name = 0, value = 0; };

struct HeaderView {
  std::string_view name, value;
};

// Why a session ended; for logs and counters.
enum class EndCause : uint8_t { none, drained, shutdown, timeout, overhead, resets, header_list, protocol, memory };
inline constexpr size_t kEndCauses = 9;
inline constexpr std::array<const char*, kEndCauses> kEndCauseNames = {
    "none", "drained", "shutdown", "timeout", "overhead", "resets", "header_list", "protocol", "memory"};

struct SessionOwner {
  virtual SessionStream* stream_begins(int32_t id) noexcept = 0;    // a request's header block; nullptr: refuse it
  virtual void trailers_begin(SessionStream& stream) noexcept = 0;
  virtual bool field(SessionStream& stream, std::string_view name, std::string_view value) noexcept = 0;   // false: too many
  virtual void block_ended(SessionStream& stream, bool trailers, bool ends) noexcept = 0;
  virtual void data(SessionStream& stream, Slice&& bytes) noexcept = 0;
  virtual void ended(SessionStream& stream) noexcept = 0;           // remote_ended; after block_ended or the last data
  virtual void closed(SessionStream& stream, ErrorCode code) noexcept = 0;
  // So many bytes left the queue for the output. true: more of it is at hand, so nothing that is less urgent goes before it.
  virtual bool framed(SessionStream& stream, size_t bytes) noexcept = 0;
  virtual void ping_answered() noexcept = 0;
  virtual void goaway_made(ErrorCode code, EndCause cause) noexcept = 0;

 protected:
  ~SessionOwner() = default;
};

struct SessionLimits {
  BudgetLimits budget;
  uint32_t streams = 256;
  uint32_t header_list_bytes = 32u << 10;   // told to the peer; the owner counts
  uint32_t connection_window = 4u << 20;
};

class Session {
 public:
  Session(SessionOwner& owner, const SessionLimits& limits, SmallBytes& small, Chain& out, TimePoint now) noexcept;
  ~Session();
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  bool start() noexcept;                              // our SETTINGS stand in the output then; false: no memory
  void receive(const Slice& bytes, TimePoint now) noexcept;
  // Makes frames until the output holds `most` bytes or there is nothing that may be sent. Control frames are always made.
  // true: it stopped for a stream whose queue is to be filled again first.
  bool fill(size_t most) noexcept;

  // Heads; bodies come out of stream.queue. `ends`: no body and no trailers follow.
  void respond(SessionStream& stream, std::span<const HeaderView> fields, bool ends) noexcept;
  void inform(SessionStream& stream, std::span<const HeaderView> fields) noexcept;   // 1xx
  void send(SessionStream& stream, Chain&& body) noexcept;
  // No trailers: the last DATA frame ends the stream.
  void finish(SessionStream& stream, std::unique_ptr<char[]> trailers, uint32_t bytes) noexcept;
  void reset(SessionStream& stream, ErrorCode code) noexcept;
  void prioritise(SessionStream& stream, std::string_view field) noexcept;   // RFC 9218: the origin's word

  void credit_stream(SessionStream& stream, uint32_t bytes) noexcept;
  void credit_connection(uint32_t bytes) noexcept;
  bool stream_window_shut(const SessionStream& stream) const noexcept;
  bool connection_window_shut() const noexcept;

  void ping() noexcept;
  void announce_goaway() noexcept;                    // GOAWAY(2^31-1): soon; streams are still accepted
  void refuse_further() noexcept;                     // GOAWAY(last accepted): later ones are ignored
  void accepted(int32_t id) noexcept { if (id > processed_) processed_ = id; budget_.request_accepted(); }
  // Ends it: GOAWAY(last processed) is the last that is said. Once.
  void end(ErrorCode code, EndCause cause) noexcept;
  // The transport is gone: nothing is said any more.
  void abandon() noexcept { over_ = true; }
  bool over() const noexcept { return over_; }

  bool settings_seen() const noexcept { return settings_seen_; }
  bool block_open() const noexcept { return block_open_; }       // a header block has begun and not ended
  int32_t last_seen() const noexcept { return last_seen_; }
  uint32_t streams_told() const noexcept { return streams_told_; }
  uint32_t queued() const noexcept { return queued_; }           // streams that have body to be framed
  const Budget& budget() const noexcept { return budget_; }

 private:
  struct Callbacks;
  struct Recent { int32_t id = 0; uint32_t credit = 0; };
  static constexpr size_t kRecent = 32;

  SessionStream* stream(int32_t id) const noexcept;
  void feed(const uint8_t* data, size_t count) noexcept;
  void resume(SessionStream& stream) noexcept;
  const uint8_t* take_preface(const uint8_t* at, const uint8_t* end) noexcept;
  bool frame_begins(const FrameHeader& frame) noexcept;
  void take_frame(const FrameHeader& frame, const uint8_t* bytes, size_t count) noexcept;
  bool bad_window_update(const uint8_t* frame) noexcept;
  bool on_closed_stream(const FrameHeader& frame) noexcept;
  bool charge(uint32_t frames) noexcept;
  bool count_reset() noexcept;
  bool unblocks(int32_t id) const noexcept;
  bool block_grows(const FrameHeader& frame) noexcept;
  void forget_now(SessionStream& stream) noexcept;
  void make_frames(size_t most) noexcept;
  void lower_streams_setting(Slice& settings) noexcept;
  void remember_reset(int32_t id, uint32_t credit) noexcept;
  void failed(int error) noexcept;

  SessionOwner& owner_;
  const SessionLimits& limits_;
  SmallBytes& small_;
  Chain& out_;
  nghttp2_session* session_ = nullptr;
  Budget budget_;
  TimePoint now_;
  const Slice* input_ = nullptr;        // what receive() works on
  size_t most_ = 0;                     // of fill()
  uint32_t streams_told_ = 0;
  uint32_t payload_left_ = 0;           // of the frame being read
  uint32_t block_bytes_ = 0;            // of the header block being read, compressed
  uint32_t data_in_frame_ = 0;
  uint32_t queued_ = 0;
  uint8_t preface_taken_ = 0;
  uint8_t held_size_ = 0;
  std::array<uint8_t, kFrameHeaderBytes + 4> held_{};   // a frame header, or a WINDOW_UPDATE, that came in pieces
  int32_t last_seen_ = 0;
  int32_t processed_ = 0;
  int32_t goaway_last_ = kLastStreamId;
  uint8_t pings_ = 0;                   // of ours that are not answered yet
  bool settings_seen_ = false;
  bool settings_sent_ = false;
  bool stopped_ = false;                // by framed()
  bool goaway_stands_last_ = false;     // of all frames made so far
  bool block_open_ = false, block_ends_ = false;
  bool over_ = false;
  ErrorCode wanted_code_ = ErrorCode::no_error;   // asked for from within a callback
  EndCause wanted_cause_ = EndCause::none;
  std::array<Recent, kRecent> recent_{};          // streams that we reset: what was under way then is no offence
  size_t recent_at_ = 0;
};

}  // namespace weir::h2

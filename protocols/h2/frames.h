// The few facts of HTTP/2's framing (RFC 9113 sections 4, 6 and 7) that we read and write ourselves: a frame's nine bytes, the
// names of types, flags and error codes, and a GOAWAY as bytes. Everything else is the library's. Pure; any thread.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace weir::h2 {

inline constexpr std::string_view kPreface = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
inline constexpr size_t kFrameHeaderBytes = 9;
inline constexpr int32_t kLastStreamId = INT32_MAX;
inline constexpr uint32_t kInitialWindow = 65535;   // of a connection and of a stream, before anyone said otherwise

enum class FrameType : uint8_t {
  data, headers, priority, rst_stream, settings, push_promise, ping, goaway, window_update, continuation
};

inline constexpr uint8_t kEndStream = 0x1, kAck = 0x1, kEndHeaders = 0x4, kPadded = 0x8;

enum class ErrorCode : uint32_t {
  no_error, protocol_error, internal_error, flow_control_error, settings_timeout, stream_closed, frame_size_error, refused_stream,
  cancel, compression_error, connect_error, enhance_your_calm, inadequate_security, http_1_1_required
};
inline constexpr size_t kErrorCodes = 14;
inline constexpr std::array<const char*, kErrorCodes> kErrorNames = {
    "NO_ERROR", "PROTOCOL_ERROR", "INTERNAL_ERROR", "FLOW_CONTROL_ERROR", "SETTINGS_TIMEOUT", "STREAM_CLOSED", "FRAME_SIZE_ERROR",
    "REFUSED_STREAM", "CANCEL", "COMPRESSION_ERROR", "CONNECT_ERROR", "ENHANCE_YOUR_CALM", "INADEQUATE_SECURITY",
    "HTTP_1_1_REQUIRED"};

struct FrameHeader {
  uint32_t length = 0;
  uint8_t type = 0;
  uint8_t flags = 0;
  int32_t stream = 0;

  bool is(FrameType t) const noexcept { return type == static_cast<uint8_t>(t); }
  bool has(uint8_t flag) const noexcept { return (flags & flag) != 0; }

  static FrameHeader parse(const uint8_t* bytes) noexcept {
    FrameHeader head;
    head.length = static_cast<uint32_t>(bytes[0] << 16 | bytes[1] << 8 | bytes[2]);
    head.type = bytes[3];
    head.flags = bytes[4];
    head.stream = static_cast<int32_t>((bytes[5] & 0x7fu) << 24 | uint32_t{bytes[6]} << 16 | uint32_t{bytes[7]} << 8 | bytes[8]);
    return head;
  }
};

using GoawayBytes = std::array<uint8_t, kFrameHeaderBytes + 8>;
inline GoawayBytes goaway_bytes(int32_t last, ErrorCode code) noexcept {
  const auto id = static_cast<uint32_t>(last);
  const auto error = static_cast<uint32_t>(code);
  const auto byte = [](uint32_t number, int shift) { return static_cast<uint8_t>(number >> shift); };
  return {0, 0, 8, static_cast<uint8_t>(FrameType::goaway), 0, 0, 0, 0, 0,
          byte(id, 24), byte(id, 16), byte(id, 8), byte(id, 0), byte(error, 24), byte(error, 16), byte(error, 8), byte(error, 0)};
}

}  // namespace weir::h2

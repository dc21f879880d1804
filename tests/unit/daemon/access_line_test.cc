// A line of the access log: which keys it has, that any byte in a request leaves it one well-formed line, and the ring.
#include "daemon/access_log.h"

#include <catch2/catch_test_macros.hpp>

using namespace weir;

namespace {

AccessEntry entry() {
  AccessEntry e;
  e.unix_ms = 1'700'000'000'123;
  e.listener = "web";
  e.client_ip = e.peer_ip = "192.0.2.7";
  e.method = "GET";
  e.host = "a.example";
  e.path = "/x?y=1";
  e.scheme = "http";
  e.status = 200;
  e.end = "ok";
  e.generation = 3;
  e.engine = "epoll";
  return e;
}

std::string json_line(const AccessEntry& e) {
  std::string out;
  append_access_json(out, e);
  return out;
}

std::string combined_line(const AccessEntry& e) {
  std::string out;
  append_access_combined(out, e);
  return out;
}

}  // namespace

TEST_CASE("access log: what has nothing to say stays out of the line", "[access]") {
  CHECK(json_line(entry()) ==
        "{\"ts\":\"2023-11-14T22:13:20.123Z\",\"listener\":\"web\",\"protocol\":\"h1\",\"client_ip\":\"192.0.2.7\","
        "\"peer_ip\":\"192.0.2.7\",\"method\":\"GET\",\"host\":\"a.example\",\"path\":\"/x?y=1\",\"status\":200,"
        "\"scheme\":\"http\",\"bytes_in\":0,\"bytes_out\":0,\"duration_ms\":0.000,\"end\":\"ok\",\"generation\":3,"
        "\"engine\":\"epoll\"}\n");
}

TEST_CASE("access log: all that can be said", "[access]") {
  AccessEntry e = entry();
  e.request_id = "0123";
  e.traceparent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
  e.user_agent = "curl";
  e.bytes_in = 5;
  e.bytes_out = 18'446'744'073'709'551'615u;
  e.duration_us = 1'234'567;
  e.connect_us = 89;
  e.first_byte_us = 1000;
  e.stall_client_us = 7;
  e.stall_origin_us = 5'000'000;
  e.route = "r";
  e.upstream = "u";
  e.origin = "10.0.0.5:8080";
  e.reused = true;
  e.attempts = 2;
  e.end = "response_short";
  e.error = "Why.";
  const std::string line = json_line(e);
  for (const char* part :
       {"\"request_id\":\"0123\"", "\"trace_id\":\"4bf92f3577b34da6a3ce929d0e0e4736\"", "\"span_id\":\"00f067aa0ba902b7\"",
        "\"user_agent\":\"curl\"", "\"bytes_in\":5,\"bytes_out\":18446744073709551615", "\"duration_ms\":1234.567",
        "\"connect_ms\":0.089", "\"first_byte_ms\":1.000,\"stall_client_ms\":0.007,\"stall_origin_ms\":5000.000", "\"route\":\"r\",\"upstream\":\"u\"",
        "\"origin\":\"10.0.0.5:8080\",\"reused\":true,\"attempts\":2", "\"end\":\"response_short\",\"error\":\"Why.\""})
    CHECK(line.find(part) != std::string::npos);
}

TEST_CASE("access log: a malformed traceparent is not taken for one", "[access]") {
  for (const char* bad :
       {"00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-0", "00-4BF92F3577B34DA6A3CE929D0E0E4736-00f067aa0ba902b7-01",
        "00-00000000000000000000000000000000-00f067aa0ba902b7-01", "00-4bf92f3577b34da6a3ce929d0e0e4736-0000000000000000-01",
        "ff-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01", "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01-x",
        "00_4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01", ""}) {
    INFO(bad);
    AccessEntry e = entry();
    e.traceparent = bad;
    CHECK(json_line(e) == json_line(entry()));
  }
  AccessEntry later = entry();  // a later version may append
  later.traceparent = "01-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01-more";
  CHECK(json_line(later).find("trace_id") != std::string::npos);
}

TEST_CASE("access log: every byte leaves one line, and quotes stay paired", "[access]") {
  for (int byte = 0; byte < 256; ++byte) {
    INFO(byte);
    const std::string text = std::string("a") + static_cast<char>(byte) + "b";
    AccessEntry e = entry();
    e.path = e.user_agent = e.referer = e.host = text;
    for (const std::string& line : {json_line(e), combined_line(e)}) {
      CHECK(line.find('\n') == line.size() - 1);
      size_t quotes = 0;
      for (size_t i = 0; i < line.size(); ++i) {
        CHECK((static_cast<unsigned char>(line[i]) >= 0x20 || i == line.size() - 1));
        if (line[i] == '\\') ++i;
        else if (line[i] == '"') ++quotes;
      }
      CHECK(quotes % 2 == 0);
    }
    const std::string line = combined_line(e);  // of nothing but ASCII: whoever reads it need not guess a charset
    for (const char c : line) CHECK(static_cast<unsigned char>(c) < 0x7f);
  }
}

TEST_CASE("access log: combined, as nginx writes it", "[access]") {
  AccessEntry e = entry();
  e.bytes_out = 12;
  e.referer = "https://b.example/\"";
  CHECK(combined_line(e) == "192.0.2.7 - - [14/Nov/2023:22:13:20 +0000] \"GET /x?y=1 HTTP/1.1\" 200 12 "
                            "\"https://b.example/\\x22\" \"-\"\n");
  e.version = Version::http10;
  CHECK(combined_line(e).find("\"GET /x?y=1 HTTP/1.0\"") != std::string::npos);
  e.version = Version::http2;
  CHECK(combined_line(e).find("\"GET /x?y=1 HTTP/2.0\"") != std::string::npos);
  e.status = 0;
  e.client_left = true;
  CHECK(combined_line(e).find("\" 499 12 ") != std::string::npos);
  e.client_left = false;
  CHECK(combined_line(e).find("\" 500 12 ") != std::string::npos);
  AccessEntry bad;  // a head that could not be read
  bad.client_ip = "2001:db8::1";
  bad.status = 400;
  CHECK(combined_line(bad) == "2001:db8::1 - - [01/Jan/1970:00:00:00 +0000] \"-\" 400 0 \"-\" \"-\"\n");
}

TEST_CASE("access log: a full ring drops whole lines and counts them", "[access]") {
  AccessRing ring(64);
  const std::string line(30, 'x');
  CHECK(ring.put(line));
  CHECK(ring.put(line));
  CHECK_FALSE(ring.put("12345"));
  CHECK(ring.put("1234"));
  CHECK(ring.dropped() == 1);
  std::string out;
  ring.take(out);
  CHECK(out == line + line + "1234");
  CHECK(ring.put(line));
  ring.take(out);
  CHECK(out == line + line + "1234" + line);
  CHECK_FALSE(ring.put(std::string(65, 'y')));
  CHECK(ring.dropped() == 2);
}

// HTTP/1 heads: what is accepted, as what, and what is refused, why and at which byte; each case at every cut
// (h1_replay.h).
#include <random>

#include "protocols/exchange/target.h"
#include "protocols/h1/parser.h"
#include "tests/unit/protocols/h1_replay.h"

using namespace weir;
using namespace weir::h1;
using namespace weir::h1::test;

namespace {

struct Refused {
  const char* name;
  Kind kind;
  std::string bytes;
  What what;
  int at = -1;  // -1: not looked at
};

void check(const Refused& row) {
  INFO(row.name);
  const Outcome outcome = replay(row.kind, row.bytes);
  CHECK(outcome.result.state == Parse::bad);
  CHECK(static_cast<int>(outcome.result.what) == static_cast<int>(row.what));
  if (row.at >= 0) CHECK(static_cast<int>(outcome.result.at) == row.at);
}

std::string get(std::string_view fields) { return "GET / HTTP/1.1\r\nHost: a\r\n" + std::string(fields) + "\r\n"; }
std::string post(std::string_view fields) { return "POST / HTTP/1.1\r\nHost: a\r\n" + std::string(fields) + "\r\n"; }
std::string ok(std::string_view fields) { return "HTTP/1.1 200 OK\r\n" + std::string(fields) + "\r\n"; }

// A head that stays readable: its bytes live as long as it does.
struct Parsed {
  explicit Parsed(std::string bytes, Kind kind = Kind::request)
      : text(std::move(bytes)), head(std::make_unique<Head>()) {
    const Outcome outcome = replay(kind, text);
    size_t scanned = 0;
    result = parse_once(kind, text.data(), text.size(), scanned, {}, *head);
    INFO(text);
    CHECK(outcome.result.state == result.state);
    CHECK(static_cast<int>(result.what) == 0);
    REQUIRE(result.state == Parse::done);
  }
  const Field& field(std::string_view name) const {
    for (const Field& field : *head)
      if (field.name_view() == name) return field;
    FAIL("no field " << name);
    return head->fields[0];
  }
  std::string text;
  std::unique_ptr<Head> head;
  ParseResult result;
};

}  // namespace

TEST_CASE("h1 request lines") {
  const Parsed plain("GET /a/b?c=d%20e HTTP/1.1\r\nHost: Example.com:8080\r\n\r\nrest");
  CHECK(plain.head->method == Method::get);
  CHECK(plain.head->path == "/a/b?c=d%20e");
  CHECK(plain.head->authority == "Example.com:8080");
  CHECK(plain.head->scheme.empty());
  CHECK_FALSE(plain.head->absolute_form);
  CHECK(plain.head->body == BodyKind::none);
  CHECK(plain.result.consumed == plain.text.size() - 4);

  const Parsed other("PURGE-1.x / HTTP/1.1\r\nHost: a\r\n\r\n");
  CHECK(other.head->method == Method::other);
  CHECK(other.head->method_text == "PURGE-1.x");
  CHECK(Parsed("get / HTTP/1.1\r\nHost: a\r\n\r\n").head->method == Method::other);

  CHECK(Parsed("OPTIONS * HTTP/1.1\r\nHost: a\r\n\r\n").head->path == "*");
  CHECK(Parsed("GET // HTTP/1.1\r\nHost: a\r\n\r\n").head->path == "//");
  CHECK(Parsed("GET / HTTP/1.0\r\n\r\n").head->version == Version::http10);
  CHECK(Parsed("GET / HTTP/1.7\r\nHost: a\r\n\r\n").head->version == Version::http11);
  CHECK(Parsed("\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\n").head->path == "/");

  const Parsed absolute("GET HTTP://A.b:81/x?y HTTP/1.1\r\nHost: a.B:81\r\n\r\n");
  CHECK(absolute.head->absolute_form);
  CHECK(absolute.head->scheme == "http");
  CHECK(absolute.head->authority == "A.b:81");
  CHECK(absolute.head->path == "/x?y");
  CHECK(Parsed("GET https://a HTTP/1.1\r\nHost: a\r\n\r\n").head->path == "/");
  CHECK(Parsed("OPTIONS http://a HTTP/1.1\r\nHost: a\r\n\r\n").head->path == "*");
  CHECK(Parsed("GET http://a/ HTTP/1.0\r\n\r\n").head->authority == "a");

  const Parsed tunnel("CONNECT [::1]:443 HTTP/1.1\r\nHost: [::1]:443\r\n\r\n");
  CHECK(tunnel.head->authority == "[::1]:443");
  CHECK(tunnel.head->path.empty());
}

TEST_CASE("h1 request lines that are refused", "[H2][H3]") {
  const Refused rows[] = {
      {"control byte first, as in a TLS hello", Kind::request, "\x16\x03\x01", What::bad_request_line, 0},
      {"blank first", Kind::request, " GET / HTTP/1.1\r\n", What::bad_request_line, 0},
      {"two empty lines first", Kind::request, "\r\n\r\nGET / HTTP/1.1\r\n", What::bad_request_line, 2},
      {"bare LF first", Kind::request, "\nGET / HTTP/1.1\r\n", What::bad_request_line, 0},
      {"bare CR first", Kind::request, "\rGET / HTTP/1.1\r\n", What::bad_request_line, 0},
      {"method no token", Kind::request, "G@T / HTTP/1.1\r\n", What::bad_method, 1},
      {"method not ASCII", Kind::request, "G\xc3\xa9T / HTTP/1.1\r\n", What::bad_method, 1},
      {"method with a control byte", Kind::request, std::string("G\0T / HTTP/1.1\r\n", 16), What::bad_request_line, 1},
      {"method only", Kind::request, "GET\r\n", What::bad_request_line, 3},
      {"tab for SP", Kind::request, "GET\t/ HTTP/1.1\r\n", What::bad_method, 3},
      {"two blanks before the target", Kind::request, "GET  / HTTP/1.1\r\n", What::bad_request_line, 4},
      {"two blanks behind the target", Kind::request, "GET /  HTTP/1.1\r\n", What::bad_request_line},
      {"blank in the target", Kind::request, "GET /a b HTTP/1.1\r\n", What::bad_request_line},
      {"blank at the end", Kind::request, "GET / HTTP/1.1 \r\n", What::bad_version},
      {"no target", Kind::request, "GET HTTP/1.1\r\n", What::bad_request_line},
      {"control byte in the target", Kind::request, "GET /\x01 HTTP/1.1\r\n", What::bad_request_line, 5},
      {"DEL in the target", Kind::request, "GET /\x7f HTTP/1.1\r\n", What::bad_request_line, 5},
      {"NUL in the target", Kind::request, std::string("GET /\0 HTTP/1.1\r\n", 17), What::bad_request_line, 5},
      {"target not ASCII", Kind::request, "GET /\xc3\xa9 HTTP/1.1\r\n", What::bad_request_line, 5},
      {"fragment", Kind::request, "GET /a#b HTTP/1.1\r\n", What::bad_request_line, 6},
      {"HTTP/0.9", Kind::request, "GET /\r\n", What::bad_request_line},
      {"other major", Kind::request, "GET / HTTP/2.0\r\n", What::bad_version, 6},
      {"major 0", Kind::request, "GET / HTTP/0.9\r\n", What::bad_version},
      {"two digits", Kind::request, "GET / HTTP/1.10\r\n", What::bad_version},
      {"no minor", Kind::request, "GET / HTTP/1\r\n", What::bad_version},
      {"lower case", Kind::request, "GET / http/1.1\r\n", What::bad_version},
      {"other protocol", Kind::request, "GET / ICAP/1.0\r\n", What::bad_request_line},
      {"bare LF at the end", Kind::request, "GET / HTTP/1.1\nHost: a\r\n\r\n", What::bad_request_line, 14},
      {"bare CR at the end", Kind::request, "GET / HTTP/1.1\rHost: a\r\n\r\n", What::bad_request_line, 14},
      {"relative target", Kind::request, "GET a/b HTTP/1.1\r\n", What::bad_request_line, 4},
      {"star for GET", Kind::request, "GET * HTTP/1.1\r\n", What::bad_request_line},
      {"origin-form for CONNECT", Kind::request, "CONNECT / HTTP/1.1\r\n", What::bad_request_line},
      {"CONNECT without a port", Kind::request, "CONNECT a HTTP/1.1\r\n", What::bad_request_line},
      {"absolute-form without a host", Kind::request, "GET http:/// HTTP/1.1\r\n", What::bad_request_line},
      {"absolute-form with user information", Kind::request, "GET http://u@a/ HTTP/1.1\r\n", What::bad_request_line},
      {"absolute-form of another scheme", Kind::request, "GET ftp://a/ HTTP/1.1\r\n", What::bad_request_line},
      {"absolute-form, query without a path", Kind::request, "GET http://a?b HTTP/1.1\r\n", What::bad_request_line},
  };
  for (const Refused& row : rows) check(row);
}

TEST_CASE("h1 fields: values are trimmed, lines that may be sent again are flagged") {
  const Parsed p(
      get("a: b\r\nc:d\r\ne:\t f \t\r\ng:\r\nh:   \r\n!#$%&'*+-.^_`|~9: \"x\"\r\nobs: \xe9\xff\r\ntab: a\tb\r\n"
          "pad31:x                               \r\npad32:x                                \r\n"));
  CHECK(p.field("a").value_view() == "b");
  CHECK(p.field("c").value_view() == "d");
  CHECK(p.field("e").value_view() == "f");
  CHECK(p.field("e").line_pad == 2);
  CHECK(p.field("e").raw_line);
  CHECK(p.field("g").value_view().empty());
  CHECK(p.field("h").value_view().empty());
  CHECK(p.field("!#$%&'*+-.^_`|~9").value_view() == "\"x\"");
  CHECK(p.field("obs").value_view() == "\xe9\xff");
  CHECK(p.field("tab").value_view() == "a\tb");
  CHECK(p.field("pad31").line_pad == 31);
  CHECK(p.field("pad31").raw_line);
  CHECK_FALSE(p.field("pad32").raw_line);
  CHECK(p.field("pad32").value_view() == "x");
  for (const Field& field : *p.head) {
    if (!field.raw_line) continue;
    const char* end = field.value + field.value_size + field.line_pad;
    CHECK(std::string_view(end, 2) == "\r\n");
  }
}

TEST_CASE("h1 knows fields by their whole name, in any case, and by nothing else") {
  const auto head = std::make_unique<Head>();
  for (unsigned id = 1; id < static_cast<unsigned>(FieldId::kCount); ++id) {
    const std::string name(field_name(static_cast<FieldId>(id)));
    for (size_t at = 0; at <= name.size(); ++at) {
      std::string other = name;  // at == size: the name as it is, in capitals
      if (at < name.size())
        other[at] = other[at] == 'q' ? 'z' : 'q';
      else
        for (char& c : other) c = c >= 'a' && c <= 'z' ? static_cast<char>(c - 32) : c;
      // In front of other bytes, and as the last bytes that may be read.
      const std::string bytes = other + ": a\r\n" + other + ":\r\n\r\n";
      const std::unique_ptr<char[]> exact(new char[bytes.size()]);
      std::memcpy(exact.get(), bytes.data(), bytes.size());
      size_t scanned = 0;
      INFO(other);
      REQUIRE(parse_trailers(exact.get(), bytes.size(), scanned, {}, *head).state == Parse::done);
      const auto want = at == name.size() ? static_cast<FieldId>(id) : field_id(other);
      CHECK(static_cast<int>(head->fields[0].id) == static_cast<int>(want));
      CHECK(static_cast<int>(head->fields[1].id) == static_cast<int>(want));
    }
  }
}

TEST_CASE("h1 field lines that are refused", "[H3][H5]") {
  const Refused rows[] = {
      {"blank before the colon", Kind::request, get("a : b\r\n"), What::bad_header_field, 26},
      {"tab before the colon", Kind::request, get("a\t: b\r\n"), What::bad_header_field, 26},
      {"no colon", Kind::request, get("abc\r\n"), What::bad_header_field, 28},
      {"empty name", Kind::request, get(": b\r\n"), What::bad_header_field, 25},
      {"name no token", Kind::request, get("a(b): c\r\n"), What::bad_header_field, 26},
      {"name not ASCII", Kind::request, get("\xe9: c\r\n"), What::bad_header_field, 25},
      {"NUL in a name", Kind::request, get(std::string_view("a\0b: c\r\n", 8)), What::bad_header_field, 26},
      {"obs-fold", Kind::request, get("a: b\r\n c\r\n"), What::bad_header_field, 31},
      {"obs-fold with a tab", Kind::request, get("a: b\r\n\tc\r\n"), What::bad_header_field, 31},
      {"blank before the first field", Kind::request, "GET / HTTP/1.1\r\n Host: a\r\n\r\n", What::bad_header_field, 16},
      {"NUL in a value", Kind::request, get(std::string_view("a: b\0c\r\n", 8)), What::bad_header_field, 29},
      {"control byte in a value", Kind::request, get("a: b\x1b[0m\r\n"), What::bad_header_field, 29},
      {"DEL in a value", Kind::request, get("a: b\x7f\r\n"), What::bad_header_field, 29},
      {"bare CR in a value", Kind::request, get("a: b\rc\r\n"), What::bad_header_field, 29},
      {"bare LF ends a value", Kind::request, get("a: b\nc: d\r\n"), What::bad_header_field, 29},
      {"CR CR LF", Kind::request, get("a: b\r\r\n"), What::bad_header_field, 29},
      {"bare LF ends the head", Kind::request, "GET / HTTP/1.1\r\nHost: a\r\n\n", What::bad_header_field, 25},
      {"bare CR ends the head", Kind::request, "GET / HTTP/1.1\r\nHost: a\r\n\rX", What::bad_header_field, 25},
      {"first error counts", Kind::request, get("a : b\r\nb: \x01\r\n"), What::bad_header_field, 26},
      {"control byte in a long value", Kind::request, get("a: " + std::string(100, 'x') + "\x02yyy\r\n"),
       What::bad_header_field, 128},
  };
  for (const Refused& row : rows) check(row);
}

TEST_CASE("h1 Host", "[H3]") {
  const char* good[] = {"a",   "a.b-c_d~e", "127.0.0.1:80", "[::1]",       "[2001:db8::1]:8443",
                        "a:0", "a:65535",   "%41b",         "a!$&'()*+,;="};
  for (const char* host : good) {
    INFO(host);
    CHECK(Parsed("GET / HTTP/1.1\r\nHost: " + std::string(host) + "\r\n\r\n").head->authority == host);
  }
  CHECK(Parsed("GET / HTTP/1.0\r\n\r\n").head->authority.empty());
  const char* bad[] = {"",     " ",       "a b",  "a/b",  "a?b",      "a@b",   "a:",  "a:b",    "a:65536", "a:123456",
                       "a:-1", "a:80:80", ":80",  "[::1", "[]",       "[::g]", "::1", "[::1]x", "a%",      "a%4",
                       "a%zz", "a\\b",    "a\"b", "a<b",  "\xc3\xa9", "a\tb",  "[a]", "a[::1]"};
  for (const char* host : bad)
    check({host, Kind::request, "GET / HTTP/1.1\r\nHost: " + std::string(host) + "\r\n\r\n", What::bad_host});
  check({"missing", Kind::request, "GET / HTTP/1.1\r\nA: b\r\n\r\n", What::bad_host, 0});
  check({"repeated", Kind::request, get("Host: a\r\n"), What::bad_host, 25});
  check({"repeated on 1.0", Kind::request, "GET / HTTP/1.0\r\nHost: a\r\nhost: a\r\n\r\n", What::bad_host});
  check({"absolute-form against Host", Kind::request, "GET http://b/ HTTP/1.1\r\nHost: a\r\n\r\n", What::bad_host});
  check({"absolute-form, other port", Kind::request, "GET http://a:81/ HTTP/1.1\r\nHost: a\r\n\r\n", What::bad_host});
  check({"absolute-form without Host", Kind::request, "GET http://a/ HTTP/1.1\r\n\r\n", What::bad_host});
  check({"CONNECT against Host", Kind::request, "CONNECT a:1 HTTP/1.1\r\nHost: b:1\r\n\r\n", What::bad_host});
}

TEST_CASE("h1 request framing", "[H3]") {
  CHECK(Parsed(post("")).head->body == BodyKind::none);
  const Parsed length(post("Content-Length: 18446744073709551615\r\n"));
  CHECK(length.head->body == BodyKind::length);
  CHECK(length.head->has_length);
  CHECK(length.head->content_length == UINT64_MAX);
  CHECK(Parsed(post("content-length:007 \r\n")).head->content_length == 7);
  const Parsed chunked(post("Transfer-Encoding: Chunked\r\n"));
  CHECK(chunked.head->body == BodyKind::chunked);
  CHECK_FALSE(chunked.head->has_length);
  CHECK(chunked.field("Transfer-Encoding").hop);

  const char* bad[] = {"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n",
                       "Transfer-Encoding: chunked\r\nContent-Length: 5\r\n",
                       "Content-Length: 5\r\nContent-Length: 5\r\n",
                       "Content-Length: 5\r\nContent-Length: 6\r\n",
                       "Content-Length: 5, 5\r\n",
                       "Content-Length: +5\r\n",
                       "Content-Length: -5\r\n",
                       "Content-Length:\r\n",
                       "Content-Length: \r\n",
                       "Content-Length: 5 5\r\n",
                       "Content-Length: 0x5\r\n",
                       "Content-Length: 5a\r\n",
                       "Content-Length: 5.0\r\n",
                       "Content-Length: \"5\"\r\n",
                       "Content-Length: 18446744073709551616\r\n",
                       "Content-Length: 99999999999999999999999\r\n",
                       "Content-Length: 5,\r\n",
                       "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n",
                       "Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n",
                       "Transfer-Encoding: gzip, chunked\r\n",
                       "Transfer-Encoding: chunked, gzip\r\n",
                       "Transfer-Encoding: chunked, chunked\r\n",
                       "Transfer-Encoding: identity\r\n",
                       "Transfer-Encoding:\r\n",
                       "Transfer-Encoding: chunked;x=y\r\n",
                       "Transfer-Encoding: xchunked\r\n",
                       "Transfer-Encoding: \"chunked\"\r\n",
                       "Transfer-Encoding: ,chunked\r\n",
                       "Transfer-Encoding: chunked\xff\r\n"};
  for (const char* fields : bad) check({fields, Kind::request, post(fields), What::bad_framing});
  check({"chunked on 1.0", Kind::request, "POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n", What::bad_framing});
  // Look-alikes are fields like any other, never framing: nothing is decided by them.
  CHECK(Parsed(post("Content_Length: 5\r\nX-Transfer-Encoding: chunked\r\n")).head->body == BodyKind::none);
}

TEST_CASE("h1 connection options", "[H5]") {
  CHECK(Parsed(get("")).head->keep_alive);
  CHECK(Parsed(get("Connection: Keep-Alive\r\n")).head->keep_alive);
  CHECK_FALSE(Parsed(get("Connection: CLOSE\r\n")).head->keep_alive);
  CHECK_FALSE(Parsed(get("Connection: keep-alive\r\nConnection: close\r\n")).head->keep_alive);
  CHECK_FALSE(Parsed(get("Connection: x, ,close\r\n")).head->keep_alive);
  CHECK_FALSE(Parsed("GET / HTTP/1.0\r\n\r\n").head->keep_alive);
  CHECK(Parsed("GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n").head->keep_alive);
  CHECK_FALSE(Parsed("GET / HTTP/1.0\r\nConnection: keep-alive, close\r\n\r\n").head->keep_alive);

  const Parsed p(get(
      "X-One: 1\r\nConnection: x-ONE, Cookie , upgrade\r\nx-one: 2\r\nCookie: c\r\nUpgrade: h2c\r\nKeep-Alive: 5\r\n"
      "Proxy-Connection: x\r\nTE: gzip;q=0.5 , Trailers\r\nHTTP2-Settings: x\r\nX-Two: 2\r\nProxy-Authorization: "
      "p\r\n"));
  for (const char* name : {"X-One", "x-one", "Connection", "Cookie", "Upgrade", "Keep-Alive", "Proxy-Connection", "TE",
                           "HTTP2-Settings", "Proxy-Authorization"}) {
    INFO(name);
    CHECK(p.field(name).hop);
  }
  CHECK_FALSE(p.field("X-Two").hop);
  CHECK(p.head->te_trailers);
  CHECK_FALSE(Parsed(get("TE: gzip\r\n")).head->te_trailers);

  // Naming what routes or frames, or what a proxy before us vouches for, takes nothing out.
  const Parsed kept(
      post("Connection: host, content-length, x-forwarded-for, via\r\nContent-Length: 5\r\nX-Forwarded-For: 1\r\nVia: "
           "v\r\n"));
  CHECK(kept.head->authority == "a");
  CHECK(kept.head->content_length == 5);
  for (const char* name : {"Host", "Content-Length", "X-Forwarded-For", "Via"}) CHECK_FALSE(kept.field(name).hop);

  check({"option no token", Kind::request, get("Connection: close; x\r\n"), What::bad_header_field});
  std::string many = "Connection: a";
  for (int i = 0; i < 64; ++i) many += ",b";
  check({"too many options", Kind::request, get(many + "\r\n"), What::bad_header_field});
}

TEST_CASE("h1 targets that are in their one form already are noticed, and no others", "[H10]") {
  const auto same = [](std::string_view path, std::string_view host) {
    Parsed p("GET " + std::string(path) + " HTTP/1.1\r\nHost: " + std::string(host) + "\r\nUser-Agent: some/1\r\n\r\n");
    const bool plain = p.head->target_plain;
    const std::string sent_path(p.head->path);
    const std::string sent_host(p.head->authority);
    const What what = normalise_target(*p.head);  // the bytes are the test's own
    INFO(path << ' ' << host);
    if (plain) CHECK((what == What::none && p.head->path == sent_path && p.head->authority == sent_host));
    return plain;
  };
  std::string path = "/";
  std::string host;
  for (int size = 1; size < 60; ++size) {
    path += static_cast<char>(size % 7 == 0 ? '/' : 'a' + size % 26);
    host += static_cast<char>(size % 7 == 3 ? '.' : 'a' + size % 26);
    if (!host.ends_with('.')) CHECK(same(path, host));
    for (size_t at = 0; at < path.size(); ++at)
      for (const char* odd : {"%41", "\\", "/.", "/../", "%2f"}) {
        std::string other = path;
        CHECK_FALSE(same(other.insert(at == 0 ? 1 : at, odd), "a"));
      }
    for (size_t at = 0; at < host.size(); ++at) {
      std::string other = host;
      other[at] = "AZM"[at % 3];
      CHECK_FALSE(same("/some/path", other));
    }
  }
  CHECK(same("/index.html?x=1.2", "shop.example:8080"));
  CHECK(same("/a.b/c..d/e.", "127.0.0.1:18080"));
  CHECK(same("/", "[::1]:8080"));
  for (const char* odd : {"a.", "a:80", "a:443", "a.:81", "0123456789abcde.:81", "0123456789abcdef.:81", "A"})
    CHECK_FALSE(same("/", odd));
}

TEST_CASE("h1 upgrades", "[H9]") {
  const auto upgrade = [](std::string_view fields, std::string_view version = "HTTP/1.1") {
    return Parsed("GET / " + std::string(version) + "\r\nHost: a\r\n" + std::string(fields) + "\r\n").head->upgrade;
  };
  CHECK(upgrade("") == Upgrade::none);
  CHECK(upgrade("Connection: Upgrade\r\nUpgrade: WebSocket\r\n") == Upgrade::websocket);
  CHECK(upgrade("Upgrade: foo/1, websocket\r\nConnection: keep-alive, upgrade\r\n") == Upgrade::websocket);
  CHECK(upgrade("Connection: upgrade\r\nUpgrade: foo\r\n") == Upgrade::other);
  CHECK(upgrade("Connection: upgrade\r\nUpgrade: h2c\r\nUpgrade: IRC/6.9\r\n") == Upgrade::other);
  CHECK(upgrade("Connection: upgrade\r\nUpgrade: websockets\r\n") == Upgrade::other);
  CHECK(upgrade("Connection: upgrade\r\nUpgrade: HTTP/3.0\r\n") == Upgrade::other);
  // Offers that may be passed over.
  CHECK(upgrade("Connection: upgrade, http2-settings\r\nUpgrade: h2c\r\nHTTP2-Settings: x\r\n") == Upgrade::none);
  CHECK(upgrade("Connection: upgrade\r\nUpgrade: TLS/1.2, HTTP/2.0, ,h2c\r\n") == Upgrade::none);
  // Not meant for us: nothing in Connection, or from HTTP/1.0.
  CHECK(upgrade("Upgrade: foo\r\n") == Upgrade::none);
  CHECK(upgrade("Connection: upgrade\r\n") == Upgrade::none);
  CHECK(upgrade("Connection: upgrade\r\nUpgrade: foo\r\n", "HTTP/1.0") == Upgrade::none);
}

TEST_CASE("h1 expectations", "[H9]") {
  const Parsed p(post("Expect: 100-Continue\r\nContent-Length: 5\r\n"));
  CHECK(p.head->expect_continue);
  CHECK(p.field("Expect").forwarded());
  const Parsed empty(get("Expect: 100-continue\r\n"));
  CHECK_FALSE(empty.head->expect_continue);
  CHECK_FALSE(empty.field("Expect").forwarded());
  const Parsed old("POST / HTTP/1.0\r\nExpect: 100-continue\r\nContent-Length: 5\r\n\r\n");
  CHECK_FALSE(old.head->expect_continue);
  CHECK_FALSE(old.field("Expect").forwarded());
  check({"other", Kind::request, post("Expect: tea\r\n"), What::expectation_failed});
  check({"one of two", Kind::request, post("Expect: 100-continue\r\nExpect: tea\r\nContent-Length: 1\r\n"),
         What::expectation_failed});
}

TEST_CASE("h1 responses", "[H9]") {
  const Parsed p(ok("Content-Length: 5\r\nX: y\r\n"), Kind::response);
  CHECK(p.head->status == 200);
  CHECK(p.head->reason == "OK");
  CHECK(p.head->body == BodyKind::length);
  CHECK(p.head->keep_alive);
  CHECK(Parsed("HTTP/1.1 404\r\nContent-Length: 0\r\n\r\n", Kind::response).head->reason.empty());
  CHECK(Parsed("HTTP/1.1 404 \r\nContent-Length: 0\r\n\r\n", Kind::response).head->reason.empty());
  CHECK(Parsed("HTTP/1.1 404 not \xe9\tfound\r\nContent-Length: 0\r\n\r\n", Kind::response).head->reason ==
        "not \xe9\tfound");
  CHECK(Parsed(ok("Transfer-Encoding: chunked\r\n"), Kind::response).head->body == BodyKind::chunked);

  const Parsed twice(ok("Content-Length: 5\r\nContent-Length: 5\r\n"), Kind::response);
  CHECK(twice.head->content_length == 5);
  CHECK(twice.head->fields[0].forwarded());
  CHECK_FALSE(twice.head->fields[1].forwarded());

  const Parsed until(ok(""), Kind::response);
  CHECK(until.head->body == BodyKind::until_close);
  CHECK_FALSE(until.head->keep_alive);
  CHECK_FALSE(Parsed("HTTP/1.0 200 OK\r\nContent-Length: 5\r\n\r\n", Kind::response).head->keep_alive);
  CHECK(Parsed("HTTP/1.0 200 OK\r\n\r\n", Kind::response).head->body == BodyKind::until_close);
  CHECK_FALSE(Parsed(ok("Connection: close\r\nContent-Length: 5\r\n"), Kind::response).head->keep_alive);
}

TEST_CASE("h1 responses without a body", "[H9]") {
  for (const char* status : {"100 Continue", "103 Early Hints", "204 No Content", "304 Not Modified"}) {
    INFO(status);
    const Parsed p("HTTP/1.1 " + std::string(status) + "\r\n\r\n", Kind::response);
    CHECK(p.head->body == BodyKind::none);
    CHECK(p.head->keep_alive);
  }
  const Parsed not_modified("HTTP/1.1 304 x\r\nContent-Length: 99\r\n\r\n", Kind::response);
  CHECK(not_modified.head->body == BodyKind::none);
  CHECK(not_modified.head->has_length);
  CHECK(not_modified.head->content_length == 99);
  CHECK(not_modified.head->keep_alive);
  // A body where none can be: its bytes must not become the next answer.
  const Parsed odd("HTTP/1.1 204 x\r\nContent-Length: 9\r\n\r\n", Kind::response);
  CHECK(odd.head->body == BodyKind::none);
  CHECK_FALSE(odd.head->keep_alive);
  CHECK_FALSE(odd.head->has_length);
  CHECK_FALSE(Parsed("HTTP/1.1 204 x\r\nTransfer-Encoding: chunked\r\n\r\n", Kind::response).head->keep_alive);

  const Parsed head(ok("Content-Length: 5\r\n"), Kind::head_response);
  CHECK(head.head->body == BodyKind::none);
  CHECK(head.head->content_length == 5);
  CHECK(head.head->has_length);
  CHECK(Parsed(ok("Transfer-Encoding: chunked\r\n"), Kind::head_response).head->body == BodyKind::none);
  CHECK(Parsed(ok(""), Kind::head_response).head->keep_alive);
  CHECK(Parsed(ok("Content-Length: 5\r\nTransfer-Encoding: x\r\n"), Kind::connect_response).head->body ==
        BodyKind::none);
  CHECK(Parsed("HTTP/1.1 403 x\r\nContent-Length: 5\r\n\r\n", Kind::connect_response).head->body == BodyKind::length);
}

TEST_CASE("h1 responses that are refused", "[H3]") {
  const Refused rows[] = {
      {"other protocol", Kind::response, "ICY 200 OK\r\n\r\n", What::bad_response, 0},
      {"major 2", Kind::response, "HTTP/2.0 200 OK\r\n\r\n", What::bad_response},
      {"no status", Kind::response, "HTTP/1.1\r\n\r\n", What::bad_response},
      {"two digits", Kind::response, "HTTP/1.1 20 OK\r\n\r\n", What::bad_response},
      {"four digits", Kind::response, "HTTP/1.1 2000 OK\r\n\r\n", What::bad_response},
      {"status 099", Kind::response, "HTTP/1.1 099 x\r\n\r\n", What::bad_response},
      {"status 600", Kind::response, "HTTP/1.1 600 x\r\n\r\n", What::bad_response},
      {"two blanks", Kind::response, "HTTP/1.1  200 OK\r\n\r\n", What::bad_response},
      {"empty line first", Kind::response, "\r\nHTTP/1.1 200 OK\r\n\r\n", What::bad_response},
      {"NUL in the reason", Kind::response, std::string("HTTP/1.1 200 O\0\r\n\r\n", 19), What::bad_response, 14},
      {"bare LF", Kind::response, "HTTP/1.1 200 OK\nA: b\r\n\r\n", What::bad_response, 15},
      {"bare CR", Kind::response, "HTTP/1.1 200 O\rK\r\n\r\n", What::bad_response, 14},
      {"blank before the colon", Kind::response, ok("A : b\r\n"), What::bad_response},
      {"obs-fold", Kind::response, ok("A: b\r\n c\r\n"), What::bad_response},
      {"CL with TE", Kind::response, ok("Content-Length: 5\r\nTransfer-Encoding: chunked\r\n"), What::response_framing},
      {"two lengths", Kind::response, ok("Content-Length: 5\r\nContent-Length: 6\r\n"), What::response_framing},
      {"list of lengths", Kind::response, ok("Content-Length: 5, 5\r\n"), What::response_framing},
      {"signed length", Kind::response, ok("Content-Length: +5\r\n"), What::response_framing},
      {"unknown coding", Kind::response, ok("Transfer-Encoding: gzip, chunked\r\n"), What::response_framing},
      {"chunked on 1.0", Kind::response, "HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n",
       What::response_framing},
      {"CL with TE for HEAD", Kind::head_response, ok("Content-Length: 5\r\nTransfer-Encoding: chunked\r\n"),
       What::response_framing},
  };
  for (const Refused& row : rows) check(row);
}

TEST_CASE("h1 trailers", "[H5][H9]") {
  const Parsed p(
      "X-Sum: 1\r\ngrpc-status: 0\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\nHost: b\r\nCookie: c\r\n"
      "If-Match: x\r\nETag: \"e\"\r\n\r\nrest",
      Kind::trailers);
  CHECK(p.result.consumed == p.text.size() - 4);
  for (const char* name : {"X-Sum", "grpc-status", "ETag"}) CHECK(p.field(name).forwarded());
  for (const char* name : {"Content-Length", "Transfer-Encoding", "Host", "Cookie", "If-Match"})
    CHECK_FALSE(p.field(name).forwarded());
  CHECK(Parsed("\r\n", Kind::trailers).head->field_count == 0);
  check({"blank before the colon", Kind::trailers, "a : b\r\n\r\n", What::bad_header_field, 1});
  check({"bare LF", Kind::trailers, "\n", What::bad_header_field, 0});
  check({"bare LF ends a line", Kind::trailers, "a: b\n\r\n", What::bad_header_field, 4});
  check({"obs-fold", Kind::trailers, "a: b\r\n c\r\n\r\n", What::bad_header_field, 6});
}

TEST_CASE("h1 limits are seen before the end is", "[H2][H4]") {
  const HeadLimits small{.head_bytes = 64, .fields = 3};
  const auto what = [&](Kind kind, const std::string& bytes) {
    const Outcome outcome = replay(kind, bytes, small);
    return outcome.result.state == Parse::bad ? outcome.result.what : What::none;
  };
  // 64 bytes exactly are taken, with anything behind them.
  const std::string fits = "GET / HTTP/1.1\r\nHost: a\r\nX: " + std::string(32, 'x') + "\r\n\r\n";
  REQUIRE(fits.size() == 64);
  CHECK(replay(Kind::request, fits, small).result.state == Parse::done);
  CHECK(replay(Kind::request, fits + "more of it", small).result.consumed == 64);
  CHECK(what(Kind::request, "GET / HTTP/1.1\r\nHost: a\r\nX: " + std::string(33, 'x') + "\r\n\r\n") ==
        What::head_too_large);
  CHECK(what(Kind::request, "GET / HTTP/1.1\r\nHost: a\r\nX: " + std::string(36, 'x')) == What::head_too_large);
  CHECK(what(Kind::request, "GET / HTTP/1.1\r\nHost: a\r\nX: " + std::string(35, 'x')) == What::none);
  CHECK(what(Kind::request, "GET /" + std::string(59, 'x')) == What::uri_too_long);
  CHECK(what(Kind::request, "GET /" + std::string(58, 'x')) == What::none);
  CHECK(what(Kind::request, std::string(64, 'A')) == What::uri_too_long);
  CHECK(what(Kind::response, "HTTP/1.1 200 " + std::string(64, 'x')) == What::response_head_too_large);
  CHECK(what(Kind::response, "HTTP/1.1 200 OK\r\nA: " + std::string(64, 'x')) == What::response_head_too_large);
  CHECK(what(Kind::trailers, "A: " + std::string(64, 'x')) == What::head_too_large);
  // Three fields are taken; the fourth is refused when its line is complete, whatever follows.
  CHECK(what(Kind::request, "GET / HTTP/1.1\r\nHost: a\r\nB:\r\nC:\r\n\r\n") == What::none);
  CHECK(what(Kind::request, "GET / HTTP/1.1\r\nHost: a\r\nB:\r\nC:\r\nD:\r\n") == What::too_many_fields);
  CHECK(what(Kind::response, "HTTP/1.1 200 OK\r\nA:\r\nB:\r\nC:\r\nD:\r\n") == What::response_head_too_large);
  CHECK(what(Kind::trailers, "A:\r\nB:\r\nC:\r\nD:\r\n") == What::too_many_fields);
  // The table's own size is a limit whatever config says.
  std::string many = "GET / HTTP/1.1\r\nHost: a\r\n";
  for (int i = 1; i < 256; ++i) many += "a:\r\n";
  size_t scanned = 0;
  const auto head = std::make_unique<Head>();
  const HeadLimits wide{.head_bytes = 1u << 20, .fields = 100000};
  const std::string fields256 = many + "\r\n";
  CHECK(parse_request_head(fields256.data(), fields256.size(), scanned, wide, *head).state == Parse::done);
  scanned = 0;
  const std::string fields257 = many + "a:\r\n\r\n";
  CHECK(parse_request_head(fields257.data(), fields257.size(), scanned, wide, *head).what == What::too_many_fields);
}

TEST_CASE("h1 limits that a reload lowers hold for a head that is half read", "[H2][H4]") {
  std::string half = "GET / HTTP/1.1\r\nHost: a\r\n";
  for (int i = 0; i < 100; ++i) half += "X-" + std::to_string(i) + ": y\r\n";
  const auto go_on = [&](const std::string& bytes, const HeadLimits& lowered) {
    const auto head = std::make_unique<Head>();
    size_t scanned = 0;
    const HeadLimits first{.head_bytes = 1u << 16, .fields = 256};
    CHECK(parse_request_head(half.data(), half.size(), scanned, first, *head).state == Parse::need_more);
    return parse_request_head(bytes.data(), bytes.size(), scanned, lowered, *head);
  };
  std::string more = half;
  for (int i = 0; i < 400; ++i) more += "Y: z\r\n";
  CHECK(go_on(more + "\r\n", {.head_bytes = 1u << 16, .fields = 64}).what == What::too_many_fields);
  CHECK(go_on(half + "\r\n", {.head_bytes = 1u << 16, .fields = 64}).what == What::too_many_fields);
  CHECK(go_on(half + "\r\n", {.head_bytes = 512, .fields = 256}).what == What::head_too_large);
  CHECK(go_on(half + "\r\n", {.head_bytes = 1u << 16, .fields = 101}).state == Parse::done);
}

TEST_CASE("h1 a head of byte-sized reads costs linear time", "[H4]") {
  // The bytes looked at cannot be counted from outside; a quadratic search over 1 MiB would take most of a minute.
  const std::string bytes = "GET / HTTP/1.1\r\nHost: a\r\nX: " + std::string(1u << 20, 'x') + "\r\n\r\n";
  const HeadLimits wide{.head_bytes = 2u << 20, .fields = 10};
  const auto head = std::make_unique<Head>();
  size_t scanned = 0;
  for (size_t size = 1; size < bytes.size(); ++size)
    if (parse_request_head(bytes.data(), size, scanned, wide, *head).state != Parse::need_more)
      FAIL("early at " << size);
  const ParseResult result = parse_request_head(bytes.data(), bytes.size(), scanned, wide, *head);
  CHECK(result.state == Parse::done);
  CHECK(result.consumed == bytes.size());
}

TEST_CASE("h1 random heads, good and broken, give one verdict at every cut", "[H3]") {
  std::mt19937 random(20240229);
  const auto pick = [&](unsigned count) { return static_cast<unsigned>(random() % count); };
  const std::string_view names[] = {"Host",
                                    "X-A",
                                    "cookie",
                                    "Accept-Encoding",
                                    "Transfer-Encoding",
                                    "content-length",
                                    "Connection",
                                    "a.b",
                                    "x-forwarded-for",
                                    "TE",
                                    "Expect",
                                    "Sec-WebSocket-Extensions"};
  const std::string_view values[] = {"a",
                                     "",
                                     "chunked",
                                     "5",
                                     "close",
                                     "x-a, cookie",
                                     "100-continue",
                                     "trailers",
                                     "\xe9 b\tc",
                                     "0123456789012345678901234567890123456789",
                                     "a, b;c=\"d\""};
  const std::string_view noise[] = {"\r",   "\n",   "\r\n", " ", ":",        "\t",
                                    "\x01", "\x7f", "\xff", "#", "\r\n\r\n", "HTTP/1.1"};
  int good = 0;
  int bad = 0;
  for (int round = 0; round < 1500; ++round) {
    std::string bytes = pick(2) != 0 ? "GET /a HTTP/1.1\r\nHost: a\r\n" : "POST http://a/b HTTP/1.1\r\nHost: a\r\n";
    if (pick(4) == 0) bytes = "HTTP/1.1 200 OK\r\n";
    for (unsigned i = pick(6); i > 0; --i) {
      bytes.append(names[pick(std::size(names))])
          .append(":")
          .append(pick(4), ' ')
          .append(values[pick(std::size(values))]);
      bytes.append(pick(3), ' ').append("\r\n");
    }
    bytes += "\r\n";
    if (pick(2) != 0) bytes.insert(pick(static_cast<unsigned>(bytes.size())), noise[pick(std::size(noise))]);
    if (pick(8) == 0) bytes.erase(pick(static_cast<unsigned>(bytes.size())), 1);
    INFO(bytes);
    const Kind kind = bytes.starts_with("HTTP") ? Kind::response : Kind::request;
    const HeadLimits limits{.head_bytes = pick(4) == 0 ? 64u : 4096u, .fields = pick(4) == 0 ? 3u : 128u};
    const Outcome outcome = replay(kind, bytes, limits);
    ++(outcome.result.state == Parse::done ? good : bad);
  }
  CHECK(good > 200);
  CHECK(bad > 200);
}

// Who the client is, behind proxies that are believed and those that are not.
#include <catch2/catch_test_macros.hpp>

#include <algorithm>
#include <memory>

#include "daemon/client_facts.h"
#include "daemon/request_id.h"

namespace weir {
namespace {

using Fields = std::vector<std::pair<std::string, std::string>>;

class Asked {
 public:
  Asked(const std::string& peer, Fields fields, bool only_forwarded = false) : peer_(peer), fields_(std::move(fields)), head_(std::make_unique<Head>()) {
    for (const char* network : {"10.0.0.0/8", "fd00::/8"}) listener_.trusted_proxies.push_back(*config::parse_cidr(network));
    if (only_forwarded) listener_.trusted_header = config::TrustedHeader::forwarded;
    head_->reset();
    for (const auto& [name, value] : fields_) head_->add(field_id(name), name, value);
    const Address address = *Address::parse(peer.find(':') == std::string::npos ? peer + ":1" : "[" + peer + "]:1");
    facts = find_client(listener_, *head_, &address, peer_, false);
  }
  ClientFacts facts;

 private:
  std::string peer_;
  Fields fields_;
  std::unique_ptr<Head> head_;
  config::Listener listener_;
};

std::string client(const std::string& peer, Fields fields) { return std::string(Asked(peer, std::move(fields)).facts.ip); }

}  // namespace

TEST_CASE("the right-most address that is no trusted proxy is the client") {
  CHECK(client("10.0.0.1", {{"x-forwarded-for", "1.1.1.1"}}) == "1.1.1.1");
  CHECK(client("10.0.0.1", {{"x-forwarded-for", "6.6.6.6, 1.1.1.1, 10.0.0.9"}}) == "1.1.1.1");
  CHECK(client("10.0.0.1", {{"x-forwarded-for", "6.6.6.6"}, {"x-forwarded-for", "1.1.1.1 ,\t10.0.0.9"}}) == "1.1.1.1");
  CHECK(client("10.0.0.1", {{"x-forwarded-for", "10.0.0.3, 10.0.0.9"}}) == "10.0.0.3");
  CHECK(client("10.0.0.1", {}) == "10.0.0.1");
  CHECK(client("fd00::1", {{"x-forwarded-for", "2001:db8::7"}}) == "2001:db8::7");
}

TEST_CASE("whoever is not trusted speaks for himself alone") {
  CHECK(client("9.9.9.9", {{"x-forwarded-for", "1.1.1.1"}, {"forwarded", "for=1.1.1.1"}}) == "9.9.9.9");
  CHECK(client("fe80::1", {{"x-forwarded-for", "1.1.1.1"}}) == "fe80::1");
  CHECK_FALSE(Asked("9.9.9.9", {}).facts.trusted);
  CHECK_FALSE(Asked("9.9.9.9", {{"x-forwarded-proto", "https"}}).facts.https);
}

TEST_CASE("what is no address ends the chain: those before it may be anyone's invention") {
  CHECK(client("10.0.0.1", {{"x-forwarded-for", "1.1.1.1, unknown, 10.0.0.9"}}) == "10.0.0.9");
  CHECK(client("10.0.0.1", {{"x-forwarded-for", "1.1.1.1, unknown"}}) == "10.0.0.1");
  CHECK(client("10.0.0.1", {{"x-forwarded-for", " , ,"}}) == "10.0.0.1");
  CHECK(client("10.0.0.1", {{"x-forwarded-for", std::string(300, '1')}}) == "10.0.0.1");
}

TEST_CASE("ports and brackets are no part of the address") {
  CHECK(client("10.0.0.1", {{"x-forwarded-for", "1.1.1.1:4711"}}) == "1.1.1.1");
  CHECK(client("10.0.0.1", {{"x-forwarded-for", "[2001:db8::7]:80"}}) == "2001:db8::7");
  CHECK(client("10.0.0.1", {{"x-forwarded-for", "[2001:db8::7"}}) == "10.0.0.1");
}

TEST_CASE("Forwarded is read where there is no X-Forwarded-For") {
  CHECK(client("10.0.0.1", {{"forwarded", "for=6.6.6.6, For=\"[2001:db8::7]:99\";proto=https, for=10.0.0.4"}}) == "2001:db8::7");
  CHECK(client("10.0.0.1", {{"forwarded", "proto=http;for=1.1.1.1"}}) == "1.1.1.1");
  CHECK(client("10.0.0.1", {{"forwarded", "for=1.1.1.1"}, {"x-forwarded-for", "2.2.2.2"}}) == "2.2.2.2");
  CHECK(client("10.0.0.1", {{"forwarded", "for=_hidden"}}) == "10.0.0.1");
}

TEST_CASE("Forwarded is read with its quotes: what a proxy quotes of the client decides nothing") {
  const auto one = [](const std::string& value) { return client("10.0.0.1", {{"forwarded", value}}); };
  CHECK(one("for=1.1.1.1;host=\"a,for=6.6.6.6;x=b\"") == "1.1.1.1");
  CHECK(one("host=\"a;for=6.6.6.6;b\";for=1.1.1.1") == "1.1.1.1");
  CHECK(one("host=\"a\\\",for=6.6.6.6;b=\\\"\" ; for=\"1.1.1.1:80\"") == "1.1.1.1");
  CHECK(one("for=6.6.6.6;x=\", for=1.1.1.1;host=\"a\"") == "10.0.0.1");   // somebody opened a quote
  CHECK(one("for=6.6.6.6\"x\", for=1.1.1.1\"") == "10.0.0.1");
  CHECK(one("for=6.6.6.6, nonsense") == "10.0.0.1");
  CHECK(one("for=\"1.1.1.1") == "10.0.0.1");
  CHECK(one(" , for=1.1.1.1 , ,") == "1.1.1.1");
  CHECK(one("") == "10.0.0.1");
  CHECK(client("10.0.0.1", {{"forwarded", "for=\""}, {"forwarded", "for=1.1.1.1"}}) == "1.1.1.1");
  std::string long_chain = "for=6.6.6.6";
  for (int i = 0; i < 31; ++i) long_chain += ", for=10.0.0.9";
  CHECK(one(long_chain) == "6.6.6.6");
  CHECK(one(long_chain + ", for=10.0.0.8") == "10.0.0.9");
}

TEST_CASE("the scheme stands beside the client's address in Forwarded") {
  const auto https = [](Fields fields, bool only = false) { return Asked("10.0.0.1", std::move(fields), only).facts.https; };
  CHECK(https({{"forwarded", "for=1.1.1.1;proto=https"}}));
  CHECK(https({{"forwarded", "for=1.1.1.1;Proto=\"HTTPS\", for=10.0.0.4;proto=http"}}));
  CHECK_FALSE(https({{"forwarded", "for=6.6.6.6;proto=https, for=1.1.1.1;proto=http"}}));
  CHECK_FALSE(https({{"forwarded", "for=1.1.1.1;host=\"a;proto=https;b\";proto=http"}}));
  CHECK_FALSE(https({{"forwarded", "for=1.1.1.1;proto=http"}, {"x-forwarded-proto", "https"}}));
  CHECK(https({{"forwarded", "for=1.1.1.1"}, {"x-forwarded-proto", "https"}}));
  CHECK_FALSE(https({{"forwarded", "for=6.6.6.6;proto=https"}, {"x-forwarded-for", "1.1.1.1"}}));
  CHECK(https({{"forwarded", "for=6.6.6.6;proto=http"}, {"x-forwarded-for", "1.1.1.1"}, {"x-forwarded-proto", "https"}}));
  CHECK_FALSE(https({{"forwarded", "for=1.1.1.1"}, {"x-forwarded-proto", "https"}}, true));
}

TEST_CASE("where the proxies write Forwarded alone, X-Forwarded-For is anyone's invention") {
  const auto ip = [](Fields fields) { return std::string(Asked("10.0.0.1", std::move(fields), true).facts.ip); };
  CHECK(ip({{"forwarded", "for=1.1.1.1"}, {"x-forwarded-for", "6.6.6.6"}}) == "1.1.1.1");
  CHECK(ip({{"x-forwarded-for", "6.6.6.6"}}) == "10.0.0.1");
}

TEST_CASE("a trusted proxy tells the scheme") {
  CHECK(Asked("10.0.0.1", {{"x-forwarded-proto", "https"}}).facts.https);
  CHECK(Asked("10.0.0.1", {{"x-forwarded-proto", "HTTPS"}}).facts.https);
  CHECK_FALSE(Asked("10.0.0.1", {{"x-forwarded-proto", "http"}}).facts.https);
  // What the client wrote stands first where a proxy appends; only the proxy's own word counts.
  CHECK_FALSE(Asked("10.0.0.1", {{"x-forwarded-proto", "https"}, {"x-forwarded-proto", "http"}}).facts.https);
  CHECK_FALSE(Asked("10.0.0.1", {{"x-forwarded-proto", "https, http"}}).facts.https);
  CHECK(Asked("10.0.0.1", {{"x-forwarded-proto", "http"}, {"x-forwarded-proto", "https"}}).facts.https);
  CHECK_FALSE(Asked("10.0.0.1", {}).facts.https);
}

TEST_CASE("request ids are 32 hexadecimal digits, and no two are the same") {
  RequestIds ids, others;
  std::vector<std::string> seen;
  for (int i = 0; i < 2000; ++i) {
    for (RequestIds* from : {&ids, &others}) {
      std::string id(RequestIds::kSize, '?');
      from->write(id.data());
      CHECK(id.find_first_not_of("0123456789abcdef") == std::string::npos);
      seen.push_back(std::move(id));
    }
  }
  std::sort(seen.begin(), seen.end());
  CHECK(std::adjacent_find(seen.begin(), seen.end()) == seen.end());
}

TEST_CASE("an id that a trusted peer gives is kept when it can stand in a log") {
  CHECK(RequestIds::acceptable("0af7-651916cd43dd"));
  CHECK(RequestIds::acceptable(std::string(128, 'x')));
  CHECK_FALSE(RequestIds::acceptable(""));
  CHECK_FALSE(RequestIds::acceptable(std::string(129, 'x')));
  CHECK_FALSE(RequestIds::acceptable("a b"));
  CHECK_FALSE(RequestIds::acceptable("a\xff"));
}

}  // namespace weir

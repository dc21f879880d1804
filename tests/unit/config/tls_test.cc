// `tls` of a listener: its keys, where its files are, and what is said about them with which place.
#include "config/describe.h"
#include "config/diff.h"
#include "tests/unit/config/cases.h"

namespace weir::config {
namespace {

using Looks = std::map<std::string, CertificateLook>;   // by the certificate's file

LoadResult load_looking(const std::string& text, const Looks& looks, const std::string& name = "t.yaml") {
  Environment environment = FakeWorld().environment();
  environment.certificate = [&](const std::string& cert, const std::string&) {
    auto at = looks.find(cert);
    return at == looks.end() ? CertificateLook{} : at->second;
  };
  return load_text(text, name, environment);
}

std::string warnings_of(const std::string& text, const Looks& looks) {
  const auto result = load_looking(text, looks);
  if (!result) return "error: " + result.error().text();
  std::string out;
  for (const Problem& warning : result->warnings) out += warning.text() + "\n";
  return out;
}

std::string site(const std::string& tls, const std::string& routes = "  - respond: {status: 200}\n") {
  return kListener + "    tls: " + tls + "\nroutes:\n" + routes;
}

}  // namespace

TEST_CASE("a certificate alone, and several") {
  const Snapshot one = snapshot_of(site("{cert: a.pem, key: /k/a.key}"));
  REQUIRE(one.listeners[0].tls);
  CHECK(one.listeners[0].tls->certificates == std::vector<CertificateFiles>{{"a.pem", "/k/a.key", {}}});
  CHECK(one.listeners[0].tls->min_version == TlsVersion::tls12);
  CHECK(one.listeners[0].tls->certificates[0].where.text() == "t.yaml:4:17");
  const Snapshot many = snapshot_of(site("{certificates: [{cert: a.pem}, {cert: b.pem, key: b.key}], min_version: \"1.3\"}"));
  CHECK(many.listeners[0].tls->certificates == std::vector<CertificateFiles>{{"a.pem", "a.pem", {}}, {"b.pem", "b.key", {}}});
  CHECK(many.listeners[0].tls->min_version == TlsVersion::tls13);
  CHECK_FALSE(snapshot_of(kListener).listeners[0].tls);
}

TEST_CASE("a relative path is relative to the file that has it") {
  const auto loaded = load_looking(site("{cert: tls/a.pem, key: /k/a.key}"), {}, "/etc/weir/weir.yaml");
  REQUIRE(loaded);
  CHECK(loaded->listeners[0].tls->certificates[0].cert == "/etc/weir/tls/a.pem");
  CHECK(loaded->listeners[0].tls->certificates[0].key == "/k/a.key");
}

TEST_CASE("mistakes in `tls`") {
  const auto tls = [](const std::string& value, const std::string& problem) { return listener("    tls: " + value + "\n", problem); };
  check({
      tls("{}", "4:10: `tls` needs `cert` and `key`, or `certificates`"),
      tls("{min_version: \"1.2\"}", "4:10: `tls` needs `cert` and `key`, or `certificates`"),
      tls("{cert: a, certificates: [{cert: b}]}", "4:34: `cert` and `certificates` exclude each other"),
      tls("{certificates: [{key: b}]}", "4:26: `cert` is missing in a certificate"),
      tls("{certificates: []}", "4:25: `certificates` is an empty list"),
      tls("{cert: a, client_auth: request}", "4:33: `client_auth` needs `client_ca` beside it"),
      tls("{cert: a, client_crl: b}", "4:32: `client_crl` needs `client_ca` beside it"),
      tls("{cert: a, client_ca: b, client_auth: maybe}", "4:47: client_auth: `maybe` is none of `require` or `request`"),
      tls("{cert: a, min_version: \"1.1\"}", "4:33: min_version: `1.1` is none of `1.2` or `1.3`; did you mean `1.2`?"),
      tls("{cert: a, keys: b}", "4:20: unknown key `keys` in `tls`; did you mean `key`?"),
      tls("true", "4:10: `tls` must be a mapping (`key: value`), not text"),
  });
}

TEST_CASE("what the files hold is said at the key that names them") {
  const Looks looks{{"a.pem", {{}, {{true, false, "is the key of another certificate"}}}},
                    {"b.pem", {{}, {{false, false, "expired on 2026-11-30"}}}},
                    {"c.pem", {{"example.com"}, {{false, true, "expires soon"}}}}};
  const auto broken = load_looking(site("{certificates: [{cert: a.pem, key: a.key}, {cert: b.pem}]}"), looks);
  REQUIRE_FALSE(broken);
  CHECK(broken.error().text() ==
        "t.yaml:4:45: key: `a.key` is the key of another certificate\nt.yaml:4:60: cert: `b.pem` expired on 2026-11-30\n");
  CHECK(warnings_of(site("{cert: c.pem}"), looks) == "t.yaml:4:17: cert: `c.pem` expires soon\n");
}

TEST_CASE("who may sign clients' certificates") {
  const Snapshot read = snapshot_of(site("{cert: a.pem, client_ca: ca.pem, client_auth: request, client_crl: /k/crl.pem}"));
  CHECK(read.listeners[0].tls->client_ca == "ca.pem");
  CHECK(read.listeners[0].tls->client_auth == ClientAuth::request);
  CHECK(read.listeners[0].tls->client_crl == "/k/crl.pem");
  CHECK(snapshot_of(describe(read)).listeners[0].tls == read.listeners[0].tls);
  CHECK(snapshot_of(site("{cert: a.pem, client_ca: ca.pem}")).listeners[0].tls->client_auth == ClientAuth::require);
  Environment environment = FakeWorld().environment();
  environment.pem = [](const std::string& path, PemKind kind) {
    return path + (kind == PemKind::revocations ? " lists nobody" : " signs nobody");
  };
  const auto faulty = load_text(site("{cert: a.pem, client_ca: ca.pem, client_crl: crl.pem}"), "t.yaml", environment);
  REQUIRE_FALSE(faulty);
  CHECK(faulty.error().text() == "t.yaml:4:35: client_ca: `ca.pem` ca.pem signs nobody\n"
                                 "t.yaml:4:55: client_crl: `crl.pem` crl.pem lists nobody\n");
}

TEST_CASE("a certificate that covers no host of the listener's routes") {
  const auto warned = [](std::vector<std::string> names, const std::string& routes) {
    return warnings_of(site("{cert: a.pem}", routes), {{"a.pem", {std::move(names), {}}}});
  };
  const std::string shop = "  - {match: {host: shop.example.com}, respond: {status: 200}}\n";
  const std::string wild = "  - {match: {host: \"*.example.com\"}, respond: {status: 200}}\n";
  const std::string any = "  - respond: {status: 404}\n";
  CHECK(warned({"other.test"}, shop) ==
        "t.yaml:4:17: cert: `a.pem` is for `other.test`, and no route of this listener has a host that it covers\n");
  CHECK(warned({"other.test", "b.test"}, shop).find("is for `other.test` and other names, and") != std::string::npos);
  CHECK(warned({"other.test", "shop.example.com"}, shop) == "");
  CHECK(warned({"*.example.com"}, shop) == "");
  CHECK(warned({"*.shop.example.com"}, shop) != "");
  CHECK(warned({"*.example.com"}, wild) == "");
  CHECK(warned({"a.example.com"}, wild) == "");
  CHECK(warned({"example.com"}, wild) != "");
  CHECK(warned({"other.test"}, shop + any) == "");
}

TEST_CASE("a listener with TLS is one that has https") {
  const std::string route = "  - {match: {scheme: https}, respond: {status: 200}}\n";
  CHECK(warnings_of(site("{cert: a.pem}", route), {}) == "");
  CHECK(warnings_of(kListener + "routes:\n" + route, {}) != "");
}

TEST_CASE("`tls` is in the description, and a change of it is a change") {
  const Snapshot before = snapshot_of(site("{certificates: [{cert: a.pem}, {cert: b.pem, key: b.key}], min_version: \"1.3\"}"));
  const Snapshot again = snapshot_of(describe(before));
  CHECK(again.listeners[0].tls == before.listeners[0].tls);
  CHECK(same_structure(again.listeners[0], before.listeners[0]));
  CHECK_FALSE(same_structure(snapshot_of(site("{cert: a.pem}")).listeners[0], before.listeners[0]));
  CHECK_FALSE(same_structure(snapshot_of(kListener).listeners[0], before.listeners[0]));
}

}  // namespace weir::config

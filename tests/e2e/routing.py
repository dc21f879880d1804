"""What routes do with requests and answers: matching, weights, rewrites, header edits, redirects, forwarding fields, request ids."""
import json
import os

from lib.case import case
from lib.wire import head_bytes, wait_until

ONE = ("epoll",)
TRUSTED = ["127.0.0.0/8"]


def named(name):
    return lambda request, answer: answer.reply(200, [("X-Origin", name)], name.encode())


def listener(t, **more):
    from lib.weir import free_port
    t.port = t.port or free_port()
    return {"bind": f"127.0.0.1:{t.port}", "engine": t.engine, **more}


@case(engines=ONE)
def test_every_match_key(t):
    origin = t.origin()

    def route(match, body):
        return {"match": match, "respond": {"status": 200, "body": body}}
    t.weir(origin, listeners=[listener(t, name="main", trusted_proxies=TRUSTED)], routes=[
        {"respond": {"status": 200, "body": "fallback"}},
        route({"host": ["shop.example", "*.shop.example"], "path_prefix": "/api/"}, "prefix"),
        route({"host": "shop.example", "path": "/exact"}, "exact"),
        route({"path_regex": "^/[0-9]+$"}, "regex"),
        route({"path_prefix": "/h", "header": {"x-beta": "1"}}, "header"),
        route({"path_prefix": "/q", "query": {"v": "2"}}, "query"),
        route({"path_prefix": "/m", "method": ["PUT", "PURGE"]}, "method"),
        route({"path_prefix": "/s", "scheme": "https"}, "scheme"),
        route({"path_prefix": "/c", "client": ["192.0.2.0/24"]}, "client"),
        route({"path_prefix": "/l", "listener": "main"}, "listener"),
        {"match": {"path": "/never"}, "to": "app"},
    ])
    client = t.client()

    def ask(target, host="x.example", method="GET", headers=()):
        client.send(head_bytes(method, target, list(headers), host=host))
        return client.response(method).body.decode()
    assert ask("/api/v1?x", "Shop.Example:80") == "prefix"
    assert ask("/api", "a.b.shop.example.") == "prefix"
    assert ask("/apiary", "shop.example") == "fallback"
    assert ask("/exact", "shop.example") == "exact" and ask("/exact", "a.shop.example") == "fallback"
    assert ask("/42") == "regex" and ask("/42a") == "fallback"
    assert ask("/h", headers=[("X-Beta", "1")]) == "header" and ask("/h") == "fallback"
    assert ask("/q?a=b&v=2") == "query" and ask("/q?v=1") == "fallback"
    assert ask("/m", method="PURGE") == "method" and ask("/m") == "fallback"
    assert ask("/s", headers=[("X-Forwarded-Proto", "https")]) == "scheme" and ask("/s") == "fallback"
    assert ask("/c", headers=[("X-Forwarded-For", "192.0.2.7")]) == "client" and ask("/c") == "fallback"
    assert ask("/l") == "listener"
    assert not origin.requests


@case(engines=ONE)
def test_weights(t):
    blue, green = t.origin(named("blue")), t.origin(named("green"))
    t.weir(upstreams={"blue": {"servers": [blue.address]}, "green": {"servers": [green.address]}},
           routes=[{"to": [{"upstream": "blue", "weight": 9}, {"upstream": "green", "weight": 1}]}])
    client = t.client()
    bodies = [client.get("/").body for _ in range(100)]
    assert (bodies.count(b"blue"), bodies.count(b"green")) == (90, 10), bodies


@case(engines=ONE)
def test_rewrite(t):
    origin = t.origin()
    t.weir(origin, routes=[
        {"match": {"path_prefix": "/api/"}, "to": "app", "rewrite": {"path_prefix": "/v2/", "host": "api.internal"}},
        {"match": {"path_prefix": "/u"}, "to": "app", "rewrite": {"path_regex": "^/u/([a-z]+)", "replacement": "/users/$1/home"}},
    ])
    client = t.client()
    for target, want in (("/api/x?q=/api/", "/v2/x?q=/api/"), ("/api", "/v2"), ("/u/ann?x", "/users/ann/home?x"), ("/u", "/u")):
        assert client.get(target).status == 200
        assert origin.requests[-1].target == want, (target, origin.requests[-1].target)
    client.get("/api/x")
    seen = origin.requests[-1]
    assert (seen.header("host"), seen.header("x-forwarded-host")) == ("api.internal", "test.example"), seen.headers


@case(engines=ONE)
def test_redirects(t):
    origin = t.origin()
    t.weir(origin, listeners=[listener(t, redirect_https=True, trusted_proxies=TRUSTED)], routes=[
        {"match": {"path": "/old"}, "redirect": {"status": 301, "location": "https://shop.example/new"}}, {"to": "app"}])
    client = t.client()
    answer = client.get("/a/b?c=d")
    assert (answer.status, answer.header("location")) == (308, "https://test.example/a/b?c=d"), answer
    assert client.get("/.well-known/acme-challenge/x").status == 200
    assert client.get("/app", headers=[("X-Forwarded-Proto", "https")]).status == 200
    answer = client.get("/old", headers=[("X-Forwarded-Proto", "https")])
    assert (answer.status, answer.header("location")) == (301, "https://shop.example/new"), answer
    assert len(origin.requests) == 2
    client.send(b"GET /%0d%0aSet-Cookie:%20a=b HTTP/1.1\r\nHost: test.example\r\n\r\n")
    answer = client.response()
    assert answer.header("set-cookie") is None, answer


@case(engines=ONE)
def test_header_edits(t):
    origin = t.origin(lambda q, a: a.reply(200, [("Server", "secret"), ("X-Kept", "1")], b"ok"))
    t.weir(origin, routes=[{"to": "app", "headers": {
        "request": {"set": {"x-env": "prod"}, "add": {"x-tag": "t"}, "remove": ["cookie"]},
        "response": {"set": {"x-frame-options": "DENY"}, "remove": ["server"]}}}])
    answer = t.client().get("/", headers=[("Cookie", "a=b"), ("X-Env", "dev"), ("X-Tag", "mine")])
    seen = origin.requests[-1]
    assert (seen.header("cookie"), seen.header("x-env"), seen.header("x-tag")) == (None, "prod", "mine, t"), seen.headers
    assert (answer.header("server"), answer.header("x-frame-options"), answer.header("x-kept")) == (None, "DENY", "1"), answer


@case(engines=ONE)
def test_edits_that_would_break_framing(t):
    """Fields that frame a message or belong to one connection cannot be edited: the configuration is refused."""
    config = t.config("127.0.0.1:1", routes=[{"to": "app", "headers": {
        "request": {"set": {"transfer-encoding": "chunked"}, "remove": ["content-length"]},
        "response": {"add": {"connection": "x"}, "remove": ["keep-alive"]}}}])
    from lib.weir import to_yaml
    status, text = t.command("check", "-c", t.file("bad.yaml", to_yaml(config)))
    assert status == 78, text
    for name in ("transfer-encoding", "content-length", "connection", "keep-alive"):
        assert name in text, text


@case()
def test_forwarding_fields(t):
    origin = t.origin()
    path = os.path.join(t.directory, "access.log")
    weir = t.weir(origin, log={"access": {"path": path}}, routes=[{"to": "app", "forwarded": True, "via": True}])
    lies = [("X-Forwarded-For", "6.6.6.6"), ("X-Forwarded-Proto", "https"), ("X-Forwarded-Host", "evil"), ("X-Request-Id", "mine"),
            ("Forwarded", "for=6.6.6.6")]
    answer = t.client().get("/", headers=lies)
    seen = origin.requests[-1]
    assert seen.header("x-forwarded-for") == "127.0.0.1", seen.headers
    assert (seen.header("x-forwarded-proto"), seen.header("x-forwarded-host")) == ("http", "test.example"), seen.headers
    assert seen.header("forwarded") == 'for=127.0.0.1;host="test.example";proto=http', seen.headers
    assert (seen.header("via"), answer.header("via")) == ("1.1 weir", "1.1 weir"), seen.headers
    first = seen.header("x-request-id")
    assert len(first) == 32 and first != "mine", first
    weir.write_config(t.config(origin, log={"access": {"path": path}}, listeners=[listener(t, trusted_proxies=TRUSTED)]))
    weir.hup()
    wait_until("the new configuration serves", lambda: weir.status()["config"]["generation"] == 2)
    t.client().get("/", headers=lies)
    seen = origin.requests[-1]
    assert seen.header("x-forwarded-for") == "6.6.6.6, 127.0.0.1", seen.headers
    assert (seen.header("x-forwarded-proto"), seen.header("x-forwarded-host")) == ("https", "evil"), seen.headers
    assert seen.header("x-request-id") == "mine" and seen.header("forwarded") == "for=6.6.6.6", seen.headers
    lines = wait_until("two lines in the access log", lambda: len(open(path, encoding="utf-8").read().splitlines()) >= 2 and
                       [json.loads(line) for line in open(path, encoding="utf-8")])
    assert [line["request_id"] for line in lines] == [first, "mine"], lines
    assert [(line["client_ip"], line["peer_ip"]) for line in lines] == [("127.0.0.1", "127.0.0.1"), ("6.6.6.6", "127.0.0.1")], lines


@case(engines=ONE)
def test_ten_thousand_routes(t):
    """They load, and the last one is found."""
    routes = [{"match": {"host": f"h{i}.example", "path_prefix": f"/p{i}"}, "respond": {"status": 200, "body": str(i)}}
              for i in range(10000)]
    t.weir(t.origin(), routes=routes + [{"to": "app"}])
    client = t.client()
    for i in (0, 5000, 9999):
        client.send(head_bytes("GET", f"/p{i}/x", host=f"h{i}.example"))
        assert client.response().body == str(i).encode()

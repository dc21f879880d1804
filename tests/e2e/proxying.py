"""Requests and answers without large bodies: routing, keep-alive, order, framing, header rules, refusals."""
from lib.case import case
from lib.weir import free_port
from lib.wire import Client, head_bytes, wait_until


def hello(request, answer):
    answer.reply(200, [("Content-Type", "text/plain"), ("X-Seen", request.target)], b"hello " + request.target.encode())


@case()
def test_get(t):
    origin = t.origin(hello)
    t.weir(origin)
    answer = t.client().get("/a/b?c=d")
    assert (answer.status, answer.body) == (200, b"hello /a/b?c=d"), answer
    assert answer.header("x-seen") == "/a/b?c=d" and answer.header("content-type") == "text/plain", answer.headers
    seen = origin.requests[-1]
    assert (seen.method, seen.target, seen.header("host")) == ("GET", "/a/b?c=d", "test.example"), (seen.line, seen.headers)


@case()
def test_keep_alive(t):
    """500 requests on one client connection, and one origin connection serves them all."""
    origin = t.origin(hello)
    t.weir(origin)
    client = t.client()
    for i in range(500):
        answer = client.get(f"/{i}")
        assert (answer.status, answer.body) == (200, b"hello /%d" % i), answer
    assert len(origin.requests) == 500
    assert origin.connections == 1, f"{origin.connections} origin connections for one request after another"


@case()
def test_many_connections(t):
    origin = t.origin(hello)
    t.weir(origin, workers=2)
    clients = [t.client() for _ in range(100)]
    for turn in range(5):
        for i, client in enumerate(clients):
            client.request("GET", f"/{i}/{turn}")
        for i, client in enumerate(clients):
            assert client.response().body == b"hello /%d/%d" % (i, turn)


@case(ids=["H4"])
def test_pipelined(t):
    """Sixty requests in one write, GET and POST mixed, come back in order and whole."""
    origin = t.origin(lambda q, a: a.reply(200, [("X-Target", q.target)], q.target.encode() + b"=" + q.body()))
    t.weir(origin)
    client = t.client()
    out = b""
    for i in range(60):
        body = b"x" * i
        head = head_bytes("POST", f"/{i}", [("Content-Length", str(i))]) if i % 3 == 0 else head_bytes("GET", f"/{i}")
        out += head + (body if i % 3 == 0 else b"")
    client.send(out)
    for i in range(60):
        want = b"/%d=" % i + (b"x" * i if i % 3 == 0 else b"")
        answer = client.response()
        assert answer.body == want, (i, answer)


@case()
def test_head_request(t):
    origin = t.origin(lambda q, a: a.head(200, [("Content-Length", "12345")]) if q.method == "HEAD" else a.reply(200, [], b"next"))
    t.weir(origin)
    client = t.client()
    client.request("HEAD", "/h")
    answer = client.response("HEAD")
    assert answer.status == 200 and answer.header("content-length") == "12345", answer.headers
    assert client.get("/after").body == b"next", "the connection lost its framing after HEAD"


@case(ids=["H9"])
def test_answers_without_body(t):
    def handler(request, answer):
        if request.target == "/204":
            answer.head(204)
        elif request.target == "/304":
            answer.head(304, [("ETag", '"x"'), ("Content-Length", "77")])
        else:
            answer.reply(200, [], b"")
    t.weir(t.origin(handler))
    client = t.client()
    for target, status in (("/204", 204), ("/304", 304), ("/empty", 200), ("/204", 204)):
        answer = client.get(target)
        assert (answer.status, answer.body) == (status, b""), answer
        assert not (status == 204 and (answer.header("content-length") or answer.header("transfer-encoding"))), answer.headers


@case(ids=["H2"])
def test_methods_pass(t):
    origin = t.origin(lambda q, a: a.reply(200, [("X-Method", q.method)], q.body()))
    t.weir(origin)
    client = t.client()
    for method in ("GET", "POST", "PUT", "DELETE", "PATCH", "OPTIONS", "PURGE", "M-SEARCH"):
        client.request(method, "/m", body=b"abc" if method in ("POST", "PUT", "PATCH") else None)
        answer = client.response()
        assert (answer.status, answer.header("x-method")) == (200, method), (method, answer)


@case(ids=["H5"])
def test_hop_by_hop(t):
    sent = [("Connection", "keep-alive, x-gone"), ("Keep-Alive", "timeout=50"), ("X-Gone", "1"), ("X-Stays", "1")]
    origin = t.origin(lambda q, a: a.reply(200, sent, b"ok"))
    t.weir(origin)
    answer = t.client().get("/", [("Connection", "keep-alive, X-Hop"), ("X-Hop", "1"), ("Keep-Alive", "5"), ("TE", "gzip"),
                                  ("X-End", "1")])
    seen = origin.requests[-1]
    for name in ("x-hop", "keep-alive", "te", "proxy-connection"):
        assert seen.header(name) is None, f"{name} reached the origin: {seen.headers}"
    assert seen.header("x-end") == "1"
    assert answer.header("x-gone") is None and answer.header("x-stays") == "1", answer.headers
    assert "x-gone" not in (answer.header("connection") or "").lower(), answer.headers


@case()
def test_forwarded_fields(t):
    origin = t.origin(hello)
    t.weir(origin)
    t.client().get("/", [("X-Forwarded-For", "6.6.6.6")])
    seen = origin.requests[-1]
    assert seen.header("x-forwarded-for") == "127.0.0.1", f"an untrusted client's value was kept: {seen.headers}"
    assert seen.header("x-forwarded-proto") == "http" and seen.header("x-forwarded-host") == "test.example", seen.headers


@case()
def test_connection_close(t):
    origin = t.origin(hello)
    t.weir(origin)
    client = t.client()
    answer = client.get("/", [("Connection", "close")])
    assert answer.body == b"hello /" and "close" in (answer.header("connection") or ""), answer.headers
    client.expect_eof()


@case()
def test_http_1_0(t):
    origin = t.origin(lambda q, a: a.reply(200, [], b"old times", framing="chunked"))
    t.weir(origin)
    client = t.client()
    client.send(b"GET /old HTTP/1.0\r\nHost: test.example\r\n\r\n")
    answer = client.response()
    assert (answer.status, answer.body) == (200, b"old times"), answer
    assert answer.framing != "chunked", "a chunked answer to an HTTP/1.0 client"
    client.expect_eof()
    assert origin.requests[-1].version == "HTTP/1.1"


@case()
def test_no_route(t):
    origin = t.origin(hello)
    t.weir(origin, routes=[{"match": {"path_prefix": "/only/"}, "to": "app"}])
    client = t.client()
    assert client.get("/other").status == 404
    assert client.get("/only/x").status == 200, "the connection must outlive a 404"
    assert client.get("/onlyx").status == 404, "a prefix matches whole segments"


@case()
def test_routes_in_order(t):
    a, b, c = (t.origin(lambda q, r, n=n: r.reply(200, [], n)) for n in (b"a", b"b", b"c"))
    t.weir(upstreams={n: {"servers": [o.address]} for n, o in (("a", a), ("b", b), ("c", c))},
           routes=[{"to": "c"}, {"match": {"host": "one.example", "path": "/x"}, "to": "a"},
                   {"match": {"host": "one.example"}, "to": "b"}])
    client = t.client()
    got = [client.get(p, [("Host", h)]).body for h, p in (("one.example", "/x"), ("one.example", "/y"), ("two.example", "/x"),
                                                        ("ONE.example:80", "/x"))]
    assert got == [b"a", b"b", b"c", b"a"], got


@case()
def test_respond(t):
    origin = t.origin(hello)
    t.weir(origin, routes=[{"match": {"path": "/ping"}, "respond": {"status": 200, "body": "pong"}}, {"to": "app"}])
    client = t.client()
    answer = client.get("/ping")
    assert (answer.status, answer.body) == (200, b"pong"), answer
    client.request("HEAD", "/ping")
    assert client.response("HEAD").status == 200
    client.request("POST", "/ping", body=b"y" * 5000)
    assert client.response().body == b"pong"
    assert client.get("/x").body == b"hello /x"
    assert len(origin.requests) == 1


@case()
def test_round_robin(t):
    origins = [t.origin(hello) for _ in range(3)]
    t.weir(*origins)
    client = t.client()
    for _ in range(30):
        assert client.get().status == 200
    assert [len(o.requests) for o in origins] == [10, 10, 10], [len(o.requests) for o in origins]


@case()
def test_origin_down(t):
    dead = free_port()
    weir = t.weir(f"127.0.0.1:{dead}")
    client = t.client()
    answer = client.get()
    assert answer.status == 502, answer
    assert client.get().status == 502, "the connection must outlive a 502"
    assert weir.metric("weir_requests_total", code_class="5xx") == 2


@case()
def test_origin_comes_back(t):
    origin = t.origin(hello)
    t.weir(origin)
    client = t.client()
    assert client.get().status == 200
    origin.stop()
    wait_until("the origin's connections are gone", lambda: origin.open_connections == 0)
    assert client.get().status == 502
    t.origin(hello, port=origin.port)
    assert client.get("/back").body == b"hello /back"


@case(ids=["H3"])
def test_bad_requests(t):
    """Each is refused with its status on a connection of its own, and none reaches the origin."""
    origin = t.origin(hello)
    t.weir(origin)
    bad = {
        b"GET / HTTP/1.1\r\n\r\n": 400,
        b"GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n": 400,
        b"GET / HTTP/1.1\r\nHost : a\r\n\r\n": 400,
        b"GET / HTTP/1.1\r\nHost: a\r\n folded: x\r\n\r\n": 400,
        b"GET / HTTP/1.1\nHost: a\n\n": 400,
        b"G@T / HTTP/1.1\r\nHost: a\r\n\r\n": 400,
        b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n": 400,
        b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: +3\r\n\r\nabc": 400,
        b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\nContent-Length: 4\r\n\r\nabc": 400,
        b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: gzip\r\n\r\n": 400,
        b"GET /\x01 HTTP/1.1\r\nHost: a\r\n\r\n": 400,
        b"GET / HTTP/1.1\r\nHost: a\r\nX: a\0b\r\n\r\n": 400,
        b"GET / HTTP/3.7\r\nHost: a\r\n\r\n": None,
        b"GET /" + b"a" * 70000 + b" HTTP/1.1\r\nHost: a\r\n\r\n": 414,
        b"GET / HTTP/1.1\r\nHost: a\r\nX: " + b"b" * 70000 + b"\r\n\r\n": 431,
        b"GET / HTTP/1.1\r\nHost: a\r\n" + b"".join(b"X-%d: y\r\n" % i for i in range(300)) + b"\r\n": 431,
    }
    for text, status in bad.items():
        client = t.client()
        client.send(text)
        answer = client.response()
        assert answer.status == status or status is None and answer.status in (400, 505), (text[:80], answer)
        client.expect_eof()
        client.close()
    assert not origin.requests, [r.line for r in origin.requests]
    assert t.client().get("/still").status == 200


@case()
def test_split_request(t):
    """A request that arrives byte by byte is one request."""
    origin = t.origin(lambda q, a: a.reply(200, [], q.body()))
    t.weir(origin)
    client = t.client()
    for byte in head_bytes("POST", "/slow", [("Transfer-Encoding", "chunked")]) + b"5\r\nhello\r\n1;x=y\r\n!\r\n0\r\n\r\n":
        client.send(bytes([byte]))
    assert client.response().body == b"hello!"
    assert len(origin.requests) == 1


@case(engines=("epoll",))
def test_engines_side_by_side(t):
    """Both engines in one worker, each on its own listener, share one pool of origin connections."""
    origin = t.origin(hello)
    ports = [free_port(), free_port()]
    weir = t.weir(origin, listeners=[{"name": "left", "bind": f"127.0.0.1:{ports[0]}", "engine": "epoll"},
                                     {"name": "right", "bind": f"127.0.0.1:{ports[1]}", "engine": "io_uring"}])
    clients = [Client(("127.0.0.1", p)) for p in ports * 4]
    for turn in range(50):
        for i, client in enumerate(clients):
            client.request("GET", f"/{i}-{turn}")
        for i, client in enumerate(clients):
            assert client.response().body == b"hello /%d-%d" % (i, turn)
    assert weir.metric("weir_requests_total", listener="left", code_class="2xx") == 200
    assert weir.metric("weir_requests_total", listener="right", code_class="2xx") == 200
    for client in clients:
        client.close()


@case()
def test_connect_is_refused(t):
    """No route opens a tunnel: 501, and nothing reaches the origin."""
    origin = t.origin()
    t.weir(origin)
    client = t.client()
    client.send(b"CONNECT a.example:443 HTTP/1.1\r\nHost: a.example:443\r\n\r\n")
    answer = client.response()
    assert answer.status == 501 and answer.header("connection") == "close", answer
    client.expect_eof()
    assert not origin.requests


@case(engines=("epoll",))
def test_no_interim_answer_to_http10(t):
    def interim(q, a):
        a.raw(b"HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
    t.weir(t.origin(interim))
    client = t.client()
    client.send(b"GET / HTTP/1.0\r\nHost: a\r\n\r\n")
    answer = client.response()
    assert (answer.status, answer.body) == (200, b"ok"), answer

"""HTTP/1.1 to the letter: what is refused is sent raw, and the origin's log shows that it saw nothing of it.

What the parser alone decides is the same on every engine and runs on one; what depends on how a connection ends runs on both.
"""
import threading
import time

from lib.case import case, free_port
from lib.weir import to_yaml
from lib.wire import chunks_of, head_bytes, wait_until

BODY = b"0123456789abcdef" * 65536  # 1 MiB


def hello(request, answer):
    answer.reply(200, [("X-Seen", request.target)], request.body())


def refused(t, rows, origin):
    """Each row on a connection of its own: this status, `connection: close`, an orderly end, and nothing at the origin."""
    for text, status in rows:
        client = t.client()
        client.send(text)
        answer = client.response()
        assert answer.status == status, (text[:120], answer)
        assert answer.header("connection") == "close", (text[:120], answer.headers)
        rest, orderly = client.rest()
        assert rest == b"" and orderly, (text[:120], rest[:200], orderly)
        client.close()
    assert not origin.requests and origin.connections == 0, [r.line for r in origin.requests]
    assert t.client().get("/still").status == 200, "nothing is served after the refusals"


# ---- H1

@case(ids=["H1"])
def test_preface(t):
    """What begins like h2's preface is waited for until it differs or is whole; then 400, for h2 is not spoken here."""
    origin = t.origin(hello)
    t.port = free_port()
    t.weir(origin, listeners=[{"bind": f"127.0.0.1:{t.port}", "engine": t.engine, "protocols": ["h1"]}])
    preface = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
    for cut in (1, 3, 4, 14, 16, 18, 23):
        client = t.client()
        client.send(preface[:cut])
        assert client.quiet(0.1), f"an answer to {cut} bytes: {bytes(client.reader.buffer)!r}"
        client.send(preface[cut:] + b"\0\0\0\4\0\0\0\0\0")
        answer = client.response()
        assert answer.status == 400 and answer.header("connection") == "close", (cut, answer)
        assert client.rest() == (b"", True), cut
        client.close()
    refused(t, [(preface, 400), (b"PRI / HTTP/1.1\r\nHost: a\r\n\r\n", 400), (b"PRI * HTTP/1.1\r\nHost: a\r\n\r\n", 400),
                (b"PRI * HTTP/2.0\r\n\r\nXX\r\n\r\n", 400)], origin)
    client = t.client()
    for piece in (b"P", b"UT", b" /x HTTP/1.1\r\nHost: a\r\n", b"Content-Length: 2\r\n\r\nok"):
        client.send(piece)
        time.sleep(0.02)
    assert client.response().body == b"ok"


@case(ids=["H1", "T1"], engines=("epoll",))
def test_preface_timeout(t):
    """Under four bytes, or a part of the preface, wait under client_header."""
    origin = t.origin(hello)
    weir = t.weir(origin, timeouts={"client_header": "300ms"})
    for text in (b"G", b"PR", b"PRI ", b"PRI * HTTP/2.0\r\n\r\n"):
        client = t.client()
        client.send(text)
        assert client.response().status == 408, text
        client.expect_eof()
    assert origin.connections == 0
    assert weir.metric("weir_timeouts_total", kind="client_header") == 4


# ---- H2, H4

@case(ids=["H2", "H4"], engines=("epoll",))
def test_limits(t):
    origin = t.origin(hello)
    t.weir(origin, limits={"request_head": "1KiB", "header_count": 10, "request_body": "1KiB"})
    fields = b"".join(b"X-%d: y\r\n" % i for i in range(9))
    post = b"POST / HTTP/1.1\r\nHost: a\r\n"
    chunked = post + b"Transfer-Encoding: chunked\r\n\r\n"
    refused(t, [
        (b"GET /" + b"a" * 1100 + b" HTTP/1.1\r\nHost: a\r\n\r\n", 414),
        (b"GET /" + b"a" * 1100, 414),
        (b"A" * 1100, 414),
        (b"GET / HTTP/1.1\r\nHost: a\r\nX: " + b"b" * 1100 + b"\r\n\r\n", 431),
        (b"GET / HTTP/1.1\r\nHost: a\r\nX: " + b"b" * 1100, 431),
        (b"GET / HTTP/1.1\r\nHost: a\r\n" + fields + b"One: more\r\n\r\n", 431),
        (post + b"Content-Length: 1025\r\n\r\n", 413),
        (post + b"Content-Length: 18446744073709551615\r\n\r\n", 413),
        (post + b"Content-Length: 18446744073709551616\r\n\r\n", 400),
        (b"G@T / HTTP/1.1\r\nHost: a\r\n\r\n", 400),
        (b"G\xc3\xa9T / HTTP/1.1\r\nHost: a\r\n\r\n", 400),
    ], origin)
    seen = len(origin.requests)
    for body in (b"401\r\n", b"3ff\r\n" + b"x" * 1023 + b"\r\n2\r\n", b"ffffffffffffffff\r\n"):
        client = t.client()
        client.send(chunked + body)  # the size alone decides: none of that chunk's bytes is waited for
        answer = client.response()
        assert answer.status == 413 and answer.header("connection") == "close", (body[:9], answer)
        client.expect_eof()
    wait_until("no origin connection is left in the middle of those", lambda: origin.open_connections <= 1)
    assert all(r.body_bytes <= 1023 and not r.body_done for r in origin.requests[seen:]), "an unfinished body was terminated"
    client = t.client()
    client.send(b"GET / HTTP/1.1\r\nHost: a\r\n" + fields + b"\r\n")
    assert client.response().status == 200
    for method in ("PURGE", "M-SEARCH", "get", "!#$%&'*+-.^_`|~09"):
        client.send(head_bytes(method, "/m"))
        assert client.response().status == 200
        assert origin.requests[-1].method == method
    client.request("POST", "/fits", body=b"x" * 1024)
    assert len(client.response().body) == 1024
    client.request("POST", "/fits", body=b"x" * 1024, chunked=100)
    assert len(client.response().body) == 1024


@case(ids=["H4"], engines=("epoll",))
def test_pipelined_beyond_a_slab(t):
    """More than one read of pipelined requests, heads across its boundaries and one above a slab among them: in order, and whole."""
    origin = t.origin(lambda q, a: a.reply(200, [], b"%s %d %d" % (q.target.encode(), len(q.header("x-pad")), len(q.body()))))
    t.weir(origin)
    client = t.client()
    wants, out = [], b""
    for i in range(300):
        pad = 20000 if i == 150 else (i * 37) % 400
        body = b"z" * ((i * 91) % 700 if i % 4 == 0 else 0)
        out += head_bytes("POST" if body else "GET", f"/{i}", [("X-Pad", "p" * pad)] +
                          ([("Content-Length", str(len(body)))] if body else [])) + body
        wants.append(b"/%d %d %d" % (i, pad, len(body)))
    threading.Thread(target=client.send, args=(out,), daemon=True).start()
    for want in wants:
        assert client.response().body == want, want


@case(ids=["H3", "H4"], engines=("epoll",))
def test_good_then_bad(t):
    """Answers to what came before a fault are whole; the fault is answered last; what follows it is never read."""
    origin = t.origin(hello)
    t.weir(origin)
    client = t.client()
    client.send(head_bytes("GET", "/1") + head_bytes("GET", "/2") + b"GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n" +
                head_bytes("GET", "/never"))
    assert [client.response().header("x-seen"), client.response().header("x-seen")] == ["/1", "/2"]
    assert client.response().status == 400
    assert client.rest() == (b"", True)
    assert [r.target for r in origin.requests] == ["/1", "/2"]


# ---- H3

def smuggling():
    """(what, bytes): two parsers could read each of these as different requests, or as requests to different hosts."""
    get, post = b"GET / HTTP/1.1\r\n", b"POST / HTTP/1.1\r\nHost: a\r\n"
    smuggled = b"0\r\n\r\nGET /smuggled HTTP/1.1\r\nHost: a\r\n\r\n"
    codings = [b"xchunked", b"chunked, identity", b"identity", b"gzip, chunked", b"chunked, chunked", b"chunked;q=1", b"\x0bchunked",
               b"chunked\x00", b'"chunked"', b"chunked,", b",chunked", b"", b"chun ked", b"c\xc4\xb1hunked", b"deflate"]
    lengths = [b"+5", b"-5", b"0x5", b"5 5", b"5,5", b"5, 5", b"", b" ", b"5;", b"5.0", b"five", b"5\x00", b"\xb5", b"1e1",
               b"99999999999999999999", b"5\t5", b"_5", b"00 "[0:2] + b" 5"]
    rows = [
        (b"CL and TE", post + b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n" + smuggled),
        (b"TE and CL", post + b"Transfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n" + smuggled),
        (b"TE twice", post + b"Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n" + smuggled),
        (b"TE twice, differing", post + b"Transfer-Encoding: chunked\r\nTransfer-Encoding: cow\r\n\r\n" + smuggled),
        (b"CL twice, equal", post + b"Content-Length: 5\r\nContent-Length: 5\r\n\r\nhello"),
        (b"CL twice, differing", post + b"Content-Length: 5\r\nContent-Length: 50\r\n\r\nhello"),
        (b"TE in HTTP/1.0", b"POST / HTTP/1.0\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n" + smuggled),
        (b"blank before the colon", post + b"Transfer-Encoding : chunked\r\n\r\n" + smuggled),
        (b"tab before the colon", post + b"Transfer-Encoding\t: chunked\r\n\r\n" + smuggled),
        (b"NUL in the name", post + b"Transfer-\0Encoding: chunked\r\n\r\n" + smuggled),
        (b"CR in the value", post + b"X: a\rTransfer-Encoding: chunked\r\n\r\n" + smuggled),
        (b"LF in the value", post + b"X: a\nTransfer-Encoding: chunked\r\n\r\n" + smuggled),
        (b"CR CR LF", post + b"Content-Length: 5\r\r\n\r\nhello"),
        (b"LF ends a line", b"POST / HTTP/1.1\nHost: a\nContent-Length: 5\n\nhello"),
        (b"LF ends the head", get + b"Host: a\r\n\n"),
        (b"CR ends the head", get + b"Host: a\r\n\rX"),
        (b"obs-fold", post + b"Transfer-Encoding:\r\n chunked\r\n\r\n" + smuggled),
        (b"obs-fold with a tab", post + b"X: a\r\n\tb\r\n\r\n"),
        (b"first field line begins with a blank", get + b" Host: a\r\n\r\n"),
        (b"field without a name", get + b"Host: a\r\n: b\r\n\r\n"),
        (b"field without a colon", get + b"Host: a\r\nabc\r\n\r\n"),
        (b"NUL in a value", get + b"Host: a\r\nX: a\0b\r\n\r\n"),
        (b"DEL in a value", get + b"Host: a\r\nX: a\x7fb\r\n\r\n"),
        (b"not ASCII in a name", get + b"Host: a\r\nX\xff: a\r\n\r\n"),
        (b"no Host", get + b"\r\n"),
        (b"Host twice", get + b"Host: a\r\nHost: a\r\n\r\n"),
        (b"Host empty", get + b"Host:\r\n\r\n"),
        (b"Host with a path", get + b"Host: a/b\r\n\r\n"),
        (b"Host with user information", get + b"Host: u@a\r\n\r\n"),
        (b"Host with a blank", get + b"Host: a b\r\n\r\n"),
        (b"Host with a list", get + b"Host: a, b\r\n\r\n"),
        (b"Host with an empty port", get + b"Host: a:\r\n\r\n"),
        (b"Host with a port too large", get + b"Host: a:65536\r\n\r\n"),
        (b"absolute-form against Host", b"GET http://b/ HTTP/1.1\r\nHost: a\r\n\r\n"),
        (b"absolute-form with another port", b"GET http://a:81/ HTTP/1.1\r\nHost: a\r\n\r\n"),
        (b"absolute-form without Host", b"GET http://a/ HTTP/1.1\r\n\r\n"),
        (b"absolute-form of another scheme", b"GET ftp://a/ HTTP/1.1\r\nHost: a\r\n\r\n"),
        (b"authority-form for GET", b"GET a:80 HTTP/1.1\r\nHost: a:80\r\n\r\n"),
        (b"relative target", b"GET index.html HTTP/1.1\r\nHost: a\r\n\r\n"),
        (b"fragment", b"GET /#x HTTP/1.1\r\nHost: a\r\n\r\n"),
        (b"blank in the target", b"GET /a b HTTP/1.1\r\nHost: a\r\n\r\n"),
        (b"two blanks", b"GET  / HTTP/1.1\r\nHost: a\r\n\r\n"),
        (b"tab as separator", b"GET\t/ HTTP/1.1\r\nHost: a\r\n\r\n"),
        (b"control byte in the target", b"GET /\x01 HTTP/1.1\r\nHost: a\r\n\r\n"),
        (b"HTTP/0.9", b"GET /\r\n"),
        (b"HTTP/2.0", b"GET / HTTP/2.0\r\nHost: a\r\n\r\n"),
        (b"HTTP/1.10", b"GET / HTTP/1.10\r\nHost: a\r\n\r\n"),
        (b"lower-case version", b"GET / http/1.1\r\nHost: a\r\n\r\n"),
        (b"two empty lines first", b"\r\n\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\n"),
        (b"LF first", b"\nGET / HTTP/1.1\r\nHost: a\r\n\r\n"),
        (b"TLS hello", b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03"),
        (b"Connection no token", get + b"Host: a\r\nConnection: close; x\r\n\r\n"),
    ]
    rows += [(b"TE: " + c, post + b"Transfer-Encoding: " + c + b"\r\n\r\n" + smuggled) for c in codings]
    rows += [(b"CL: " + n, post + b"Content-Length: " + n + b"\r\n\r\nhello") for n in lengths]
    return rows


@case(ids=["H3"], engines=("epoll",))
def test_smuggling_heads(t):
    origin = t.origin(hello)
    t.weir(origin)
    for what, text in smuggling():
        client = t.client()
        client.send(text)
        answer = client.response()
        assert answer.status == 400 and answer.header("connection") == "close", (what, answer)
        assert client.rest() == (b"", True), what
        client.close()
        assert origin.connections == 0, (what, [r.line for r in origin.requests])
    assert t.client().get("/still").status == 200


@case(ids=["H3"], engines=("epoll",))
def test_smuggling_bodies(t):
    """A fault in a chunked body: 400, the origin's request stays without an end, and its connection serves nobody else."""
    ends = []

    def handler(request, answer):
        if request.target == "/next":
            return answer.reply(200, [], b"next")
        try:
            request.body()
            ends.append(request.target)
        finally:
            answer.close()
        return None
    origin = t.origin(handler)
    t.weir(origin)
    smuggled = b"\r\nGET /smuggled HTTP/1.1\r\nHost: a\r\n\r\n"
    faults = [b"5\nhello", b"5\rhello", b"5 \r\nhello\r\n", b" 5\r\nhello\r\n", b"5\t\r\nhello\r\n", b"+5\r\nhello\r\n", b"-5\r\nhello\r\n",
              b"0x5\r\nhello\r\n", b"5h\r\nhello\r\n", b"\r\nhello\r\n", b";x\r\nhello\r\n", b"5 ;x\r\nhello\r\n", b"5;x\ny\r\nhello\r\n",
              b"5;x\ry\r\nhello\r\n", b"5;\x00\r\nhello\r\n", b"5;a=\x01\r\nhello\r\n", b"5;\x7f\r\nhello\r\n",
              b"5\r\nhello0\r\n\r\n", b"5\r\nhello\n0\r\n\r\n", b"5\r\nhello\r0\r\n\r\n", b"5\r\nhello!\r\n0\r\n\r\n",
              b"00000000000000005\r\nhello\r\n", b"10000000000000005\r\nhello\r\n", b"0\n\n", b"0\r\nX : y\r\n\r\n", b"0\r\nX: y\n\r\n",
              b"0\r\n folded\r\n\r\n", b"0\r\nX: a\0b\r\n\r\n", b"0\r\nno colon\r\n\r\n", b"5;" + b"e" * 5000 + b"\r\nhello\r\n"]
    for fault in faults:
        client = t.client()
        client.send(head_bytes("POST", "/bad", [("Transfer-Encoding", "chunked")]) + b"3\r\nabc\r\n" + fault + smuggled)
        answer = client.response()
        assert answer.status == 400 and answer.header("connection") == "close", (fault[:40], answer)
        assert client.rest() == (b"", True), fault[:40]
        client.close()
        assert t.client().get("/next").body == b"next"
    assert not ends, f"the origin saw a whole body: {ends}"
    assert {r.target for r in origin.requests} <= {"/bad", "/next"}
    bad = {r.connection_index for r in origin.requests if r.target == "/bad"}
    assert not bad & {r.connection_index for r in origin.requests if r.target == "/next"}, "a broken origin connection was used again"


@case(ids=["H3"], engines=("epoll",))
def test_normalised_heads(t):
    """What RFC 9112 tells a recipient to mend, or takes with grace."""
    origin = t.origin(hello)
    t.weir(origin)
    client = t.client()
    client.send(b"\r\nGET http://A.example/x?y HTTP/1.1\r\nhost:a.Example\r\nX-Padded: \t v \t\r\n\r\n")
    assert client.response().header("x-seen") == "/x?y"
    seen = origin.requests[-1]
    assert seen.header("host") == "a.example" and seen.header("x-padded") == "v", seen.headers
    client.send(b"POST / HTTP/1.1\r\nHost: a\r\nTRANSFER-ENCODING: Chunked\r\n\r\n03;x=\"y\"\r\nabc\r\n000\r\n\r\n")
    assert client.response().body == b"abc"
    client.send(b"OPTIONS * HTTP/1.1\r\nHost: a\r\n\r\n")
    assert client.response().header("x-seen") == "*"
    client.send(b"GET / HTTP/1.5\r\nHost: a\r\n\r\n")
    assert client.response().status == 200
    assert origin.requests[-1].version == "HTTP/1.1"


# ---- H5, H9

@case(ids=["H5", "H9"], engines=("epoll",))
def test_hop_by_hop_everywhere(t):
    """Requests, answers and trailers, both ways: no field of one hop reaches the next, and framing is written anew."""
    origin = t.origin(lambda q, a: (q.body(), a.raw(
        b"HTTP/1.1 200 OK\r\nConnection: x-gone, keep-alive\r\nX-Gone: 1\r\nKeep-Alive: timeout=9\r\nProxy-Authenticate: Basic\r\n"
        b"Upgrade: h2c\r\nTE: trailers\r\nTrailer: X-Sum\r\nTransfer-Encoding: chunked\r\nX-End: 1\r\n\r\n2\r\nok\r\n0\r\nX-Sum: 2\r\n"
        b"Content-Length: 2\r\nTransfer-Encoding: chunked\r\nConnection: x\r\nKeep-Alive: 5\r\nSet-Cookie: a=b\r\n\r\n")))
    t.weir(origin)
    client = t.client()
    client.send(b"POST / HTTP/1.1\r\nHost: a\r\nConnection: close-not, X-Hop ,\tTE, host, content-length\r\nX-Hop: 1\r\nx-HOP: 2\r\n"
                b"Keep-Alive: 5\r\nProxy-Connection: keep-alive\r\nTE: trailers\r\nUpgrade: h2c\r\nHTTP2-Settings: x\r\n"
                b"Proxy-Authorization: p\r\nX-End: 1\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nx\r\n0\r\nX-Up: 7\r\nHost: evil\r\n"
                b"Authorization: evil\r\nContent-Length: 5\r\nX-Hop: 3\r\n\r\n")
    answer = client.response()
    seen = origin.requests[-1]
    for name in ("x-hop", "keep-alive", "proxy-connection", "te", "upgrade", "http2-settings", "proxy-authorization", "connection"):
        assert seen.header(name) is None, (name, seen.headers)
    assert seen.header("host") == "a" and seen.header("x-end") == "1" and seen.header("transfer-encoding") == "chunked"
    assert ("X-Up", "7") in seen.trailers, seen.trailers
    assert not {n.lower() for n, _ in seen.trailers} & {"host", "authorization", "content-length"}, seen.trailers
    for name in ("x-gone", "keep-alive", "upgrade", "te", "connection", "proxy-authenticate"):
        assert answer.header(name) is None, (name, answer.headers)
    assert answer.header("x-end") == "1" and answer.body == b"ok"
    assert answer.trailers == [("X-Sum", "2")], answer.trailers


@case(ids=["H9"], engines=("epoll",))
def test_interim_answers(t):
    def handler(request, answer):
        answer.raw(b"HTTP/1.1 103 Early Hints\r\nLink: </a.css>; rel=preload\r\nConnection: x-one\r\nX-One: 1\r\n\r\n")
        answer.raw(b"HTTP/1.1 102 Processing\r\n\r\nHTTP/1.1 199 Odd\r\nX: y\r\n\r\n")
        answer.reply(200, [], request.body())
    t.weir(t.origin(handler))
    client = t.client()
    for _ in range(2):
        answer = client.get("/")
        assert [i.status for i in answer.interim] == [103, 102, 199], answer.interim
        assert answer.interim[0].header("link") == "</a.css>; rel=preload" and answer.interim[0].header("x-one") is None
        assert answer.interim[2].header("x") == "y"


@case(ids=["H9"], engines=("epoll",))
def test_expectations(t):
    def handler(request, answer):
        if request.target == "/refuse":
            return answer.reply(401, [], b"not you")
        if request.header("expect"):
            answer.raw(b"HTTP/1.1 100 Continue\r\n\r\n")
        return answer.reply(200, [("X-Expect", request.header("expect") or "none")], request.body())
    origin = t.origin(handler)
    t.weir(origin, routes=[{"match": {"path": "/ping"}, "respond": {"status": 200, "body": "pong"}}, {"to": "app"}])
    client = t.client()
    client.send(head_bytes("POST", "/", [("Transfer-Encoding", "chunked"), ("Expect", "100-Continue")]))
    assert client.reader.until(b"\r\n\r\n", "100").startswith(b"HTTP/1.1 100")
    client.send(b"2\r\nok\r\n0\r\n\r\n")
    answer = client.response()
    assert answer.body == b"ok" and answer.header("x-expect") == "100-Continue"
    client.send(head_bytes("GET", "/", [("Expect", "100-continue")]))
    assert client.response().header("x-expect") == "none", "nothing to continue with"
    client.send(b"POST / HTTP/1.0\r\nContent-Length: 2\r\nExpect: 100-continue\r\nConnection: keep-alive\r\n\r\nok")
    answer = client.response()
    assert not answer.interim and answer.header("x-expect") == "none" and answer.body == b"ok"
    # A final answer instead: the client may never send its body, so the connection ends.
    for target, status in (("/refuse", 401), ("/ping", 200)):
        client = t.client()
        client.send(head_bytes("POST", target, [("Content-Length", "5"), ("Expect", "100-continue")]))
        answer = client.response()
        assert answer.status == status and answer.header("connection") == "close", answer
        client.expect_eof()
    client = t.client()
    client.send(head_bytes("POST", "/", [("Content-Length", "5"), ("Expect", "tea")]))
    assert client.response().status == 417
    client.expect_eof()


@case(ids=["H9"], engines=("epoll",))
def test_upgrades(t):
    """An upgrade that is not offered is 501, and the connection goes on; h2c and TLS are offers that may be passed over."""
    origin = t.origin(hello)
    t.weir(origin)
    client = t.client()
    for upgrade in ("foo", "IRC/6.9, h2c", "websocket", "HTTP/3.0"):
        client.request("GET", "/u", [("Connection", "keep-alive, Upgrade"), ("Upgrade", upgrade)])
        answer = client.response()
        assert answer.status == 501 and answer.header("connection") is None, (upgrade, answer)
    assert not origin.requests
    for headers in ([("Connection", "Upgrade, HTTP2-Settings"), ("Upgrade", "h2c"), ("HTTP2-Settings", "AAMAAABkAAQAoAAA")],
                    [("Connection", "upgrade"), ("Upgrade", "TLS/1.0")], [("Upgrade", "foo")]):
        assert client.get("/plain", headers).status == 200, headers
        assert origin.requests[-1].header("upgrade") is None and origin.requests[-1].header("http2-settings") is None


@case(ids=["H9"], engines=("epoll",))
def test_http_1_0_keep_alive(t):
    origin = t.origin(lambda q, a: a.reply(200, [], b"chunks", framing="chunked") if q.target == "/c" else hello(q, a))
    t.weir(origin)
    client = t.client()
    for _ in range(3):
        client.send(b"GET /k HTTP/1.0\r\nConnection: Keep-Alive\r\n\r\n")
        answer = client.response()
        assert answer.status == 200 and answer.header("connection") == "keep-alive", answer.headers
    client.send(b"GET /c HTTP/1.0\r\nConnection: keep-alive\r\n\r\n")  # its length is not known: only the close can tell its end
    answer = client.response()
    assert answer.framing == "close" and answer.body == b"chunks" and answer.header("connection") == "close", answer.headers
    client = t.client()
    client.send(b"GET /k HTTP/1.0\r\n\r\n")
    assert client.response().header("connection") == "close"
    assert client.rest() == (b"", True)


@case(ids=["H9"], engines=("epoll",))
def test_no_body_whatever_the_origin_sends(t):
    """Body bytes after a HEAD's answer, a 204 or a 304 are no answer to anything."""
    def handler(request, answer):
        head = {"/head": b"200 OK\r\nContent-Length: 5", "/204": b"204 No Content\r\nContent-Length: 5",
                "/304": b"304 Not Modified\r\nContent-Length: 5", "/204c": b"204 No Content\r\nTransfer-Encoding: chunked"}
        if request.target in head:
            return answer.raw(b"HTTP/1.1 " + head[request.target] + b"\r\n\r\nhello")
        return answer.reply(200, [], b"fine")
    t.weir(t.origin(handler))
    client = t.client()
    for target in ("/head", "/204", "/304", "/204c"):
        client.request("HEAD" if target == "/head" else "GET", target)
        assert client.response("HEAD").body == b""
        assert client.get("/fine").body == b"fine", target


# ---- H6, and answers that come before the whole request

@case(ids=["H6"])
def test_early_answers_end_in_order(t):
    """A body that nobody wants and that no buffers on the way hold: the answer, `connection: close`, an orderly end; whoever it was that answered."""
    def handler(request, answer):
        answer.reply(413, [], b"too much")
        answer.close(linger=True)
    t.weir(t.origin(handler, rcvbuf=65536), limits={"request_body": "16MiB"},
           routes=[{"match": {"path": "/ping"}, "respond": {"status": 200, "body": "pong"}},
                   {"match": {"path": "/moved"}, "redirect": {"status": 308, "location": "/new"}},
                   {"match": {"path": "/app"}, "to": "app"}])
    for target, status, size in (("/ping", 200, 1 << 20), ("/moved", 308, 1 << 20), ("/nothing", 404, 1 << 20), ("/app", 413, 12 << 20),
                                 ("/app", 413, 20 << 20), ("/a%2fb", 400, 1 << 20)):
        for chunk in (0, 100000):
            client = t.client()
            body = BODY * (size >> 20)
            client.request("POST", target, body=body, chunked=chunk)
            answer = client.response()
            assert answer.status == status and answer.header("connection") == "close", (target, chunk, answer)
            assert client.rest() == (b"", True), (target, chunk)
            client.close()


@case(ids=["H6"])
def test_short_bodies_keep_the_connection(t):
    """A local answer to a request with a short body: the body is dropped, the next request is served."""
    origin = t.origin(hello)
    t.weir(origin, routes=[{"match": {"path": "/ping"}, "respond": {"status": 200, "body": "pong"}},
                           {"match": {"path": "/moved"}, "redirect": {"status": 308, "location": "/new"}},
                           {"match": {"path": "/app"}, "to": "app"}])
    for target, status in (("/ping", 200), ("/moved", 308), ("/nothing", 404), ("/a%2fb", 400)):
        client = t.client()
        for turn in range(3):
            client.request("POST", target, body=BODY[:5000])  # in one piece with its head
            answer = client.response()
            assert answer.status == status and answer.header("connection") is None, (target, turn, answer)
            body = b"".join(chunks_of(BODY[:3000], 700))[:-2] + b"X-Sum: 1\r\n\r\n"
            client.send(head_bytes("POST", target, [("Transfer-Encoding", "chunked")]) + body)
            answer = client.response()
            assert answer.status == status and answer.header("connection") is None, (target, turn, answer)
        client.send(head_bytes("POST", target, [("Content-Length", "60000")]))  # the answer is there before the body
        answer = client.response()
        assert answer.status == status and answer.header("connection") is None, (target, answer)
        client.send(BODY[:30000])
        client.send(BODY[:30000] + head_bytes("GET", "/app"))
        assert client.response().header("x-seen") == "/app", target
        client.send(head_bytes("POST", target, [("Transfer-Encoding", "chunked")]) + b"3\r\nabc\r\n")  # how much more is not known
        answer = client.response()
        assert answer.status == status and answer.header("connection") == "close", (target, answer)
        client.expect_eof()
    assert {r.target for r in origin.requests} == {"/app"}


@case(ids=["H6", "T1"])
def test_short_body_that_never_comes(t):
    origin = t.origin(hello)
    weir = t.weir(origin, timeouts={"client_body": "300ms", "linger": "300ms"},
                  routes=[{"match": {"path": "/ping"}, "respond": {"status": 200, "body": "pong"}}, {"to": "app"}])
    client = t.client()
    client.send(head_bytes("POST", "/ping", [("Content-Length", "100")]) + b"half")
    assert client.response().body == b"pong"
    assert client.rest() == (b"", True)
    assert weir.metric("weir_timeouts_total", kind="client_body") == 1


# ---- H10

@case(ids=["H10"], engines=("epoll",))
def test_paths(t):
    """The origin sees the bytes that were matched."""
    api, rest = t.origin(lambda q, a: a.reply(200, [("X-Seen", q.target)], b"api")), t.origin(hello)
    t.weir(upstreams={"api": {"servers": [api.address]}, "rest": {"servers": [rest.address]}},
           routes=[{"match": {"path_prefix": "/api/"}, "to": "api"}, {"to": "rest"}])
    client = t.client()
    for target, seen, is_api in (
            ("/api/x", "/api/x", True), ("/%61pi/x", "/api/x", True), ("/a/../api/x", "/api/x", True), ("/./api/./x?/../y", "/api/x?/../y", True),
            ("/api/../x", "/x", False), ("/api/%2e%2E/x", "/x", False), ("/api/x/..", "/api/", True), ("/../../api/x", "/api/x", True),
            ("/x%20y%e2%82%ac", "/x%20y%E2%82%AC", False), ("/api/a//b", "/api/a//b", True), ("/?%2F%00%5c", "/?%2F%00%5c", False)):
        answer = client.get(target)
        assert (answer.header("x-seen"), answer.body == b"api") == (seen, is_api), (target, answer)
    count = len(api.requests) + len(rest.requests)
    for target in ("/api/%2fx", "/api/%5Cx", "/api/x%00", "/a\\b", "/%zz", "/%4"):
        answer = client.get(target)
        assert answer.status == 400 and "bad_path" in (answer.header("proxy-status") or ""), (target, answer)
    assert len(api.requests) + len(rest.requests) == count
    assert client.get("/api/x").body == b"api", "the connection must outlive a refused path"


@case(ids=["H10"], engines=("epoll",))
def test_hosts(t):
    one, two = (t.origin(lambda q, a, n=n: a.reply(200, [("X-Host", q.header("host"))], n)) for n in (b"one", b"two"))
    t.weir(upstreams={"one": {"servers": [one.address]}, "two": {"servers": [two.address]}},
           routes=[{"match": {"host": "one.example"}, "to": "one"}, {"to": "two"}])
    client = t.client()
    for host, seen, body in (("one.example", "one.example", b"one"), ("ONE.Example", "one.example", b"one"),
                             ("one.example.", "one.example", b"one"), ("one.example:80", "one.example", b"one"),
                             ("One.Example.:8080", "one.example:8080", b"one"), ("one.example.org", "one.example.org", b"two"),
                             ("[::1]:80", "[::1]", b"two")):
        answer = client.get("/", [("Host", host)])
        assert (answer.header("x-host"), answer.body) == (seen, body), (host, answer)
    client.send(b"GET http://ONE.example.:80/x HTTP/1.1\r\nHost: one.EXAMPLE.:80\r\n\r\n")
    assert client.response().body == b"one"


@case(ids=["H10"], engines=("epoll",))
def test_config_tests_see_the_same_form(t):
    """A configuration's own tests ask for the form in which requests are routed."""
    config = t.config("127.0.0.1:1", upstreams={"api": {"servers": ["127.0.0.1:1"]}, "rest": {"servers": ["127.0.0.1:2"]}},
                      routes=[{"match": {"host": "one.example", "path_prefix": "/api/"}, "to": "api"}, {"to": "rest"}],
                      tests=[{"get": "http://One.Example./x/../api/y", "expect": {"upstream": "api"}},
                             {"get": "http://one.example/%61pi/y", "expect": {"upstream": "api"}},
                             {"get": "http://one.example/api/../y", "expect": {"upstream": "rest"}},
                             {"get": "http://one.example/api%2fy", "expect": {"status": 400}}])
    status, output = t.command("check", "-c", t.file("tests.yaml", to_yaml(config)))
    assert status == 0, output

"""Every cause of the table (docs/errors.md) that a peer can provoke: status, sentence, Proxy-Status, log line and counter.

The page is the source of what is expected; a unit test holds it against the program's own table.
"""
import json
import os
import re
import signal
import socket
import struct
import threading

from lib.case import case
from lib.wire import Incomplete, head_bytes, wait_until

ONE = ("epoll",)
ROW = re.compile(r"^\| `(\w+)` \| (\d*) \| (?:`(\w+)`)? ?\| \w+ \| [\w ]+ \| (.*) \|$", re.M)
PAGE = os.path.join(os.path.dirname(__file__), "..", "..", "docs", "errors.md")


def table():
    with open(PAGE, encoding="utf-8") as page:
        rows = {m[1]: (int(m[2] or 0), m[3], m[4]) for m in ROW.finditer(page.read())}
    assert len(rows) > 40, f"the page has only {len(rows)} rows that this case can read"
    return rows


def expect(weir, code, answer=None, path=None, count=1):
    """What the table promises about `code`; `answer` is what the client got, None where it gets none."""
    status, token, sentence = table()[code]
    if answer is not None:
        assert answer.status == status, f"{code}: {answer}, expected {status}"
        assert answer.header("proxy-status") == f'weir; error={token}; details="{code}"', f"{code}: {answer}"
        assert sentence in answer.body.decode(), f"{code}: {answer.body}"
    wait_until(f"{code} is counted", lambda: weir.metric("weir_request_errors_total", cause=code) == count)
    if path:
        lines = wait_until(f"{code} is logged", lambda: [e for e in entries(path) if e["end"] == code])
        assert lines[-1]["error"] == sentence, lines[-1]


def entries(path):
    if not os.path.exists(path):
        return []
    with open(path, encoding="utf-8") as source:
        return [json.loads(line) for line in source.read().splitlines()]


def sums_add_up(weir):
    """O2: the causes add up to the failed ones, and the classes to all that ended."""
    samples = weir.metrics()

    def total(name):
        return sum(v for n, _, v in samples if n == name)
    assert total("weir_request_errors_total") == total("weir_requests_failed_total"), "the causes do not add up"
    assert total("weir_requests_total") == total("weir_request_duration_seconds_count"), "the classes do not add up"


RAW = {
    "bad_request_line": b"GET /\r\nHost: a\r\n\r\n",
    "bad_header_field": b"GET / HTTP/1.1\r\nHost: a\r\nX y: z\r\n\r\n",
    "bad_host": b"GET / HTTP/1.1\r\n\r\n",
    "bad_framing": b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n",
    "bad_version": b"GET / HTTP/3.7\r\nHost: a\r\n\r\n",
    "bad_method": b"G(T / HTTP/1.1\r\nHost: a\r\n\r\n",
    "uri_too_long": b"GET /" + b"a" * 3000 + b" HTTP/1.1\r\nHost: a\r\n\r\n",
    "head_too_large": b"GET / HTTP/1.1\r\nHost: a\r\nX: " + b"a" * 3000 + b"\r\n\r\n",
    "too_many_fields": b"GET / HTTP/1.1\r\nHost: a\r\n" + b"X: y\r\n" * 40 + b"\r\n",
    "body_too_large": b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5000\r\n\r\n",
    "expectation_failed": b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\nExpect: a-pony\r\n\r\n",
    "upgrade_refused": b"CONNECT a.example:443 HTTP/1.1\r\nHost: a.example:443\r\n\r\n",
    "no_route": b"GET /nowhere HTTP/1.1\r\nHost: a\r\n\r\n",
}


@case(ids=["O2"])
def test_refused_requests(t):
    path = os.path.join(t.directory, "access.log")
    weir = t.weir(t.origin(), routes=[{"match": {"path": "/"}, "to": "app"}], log={"access": {"path": path}},
                  limits={"request_head": "1KiB", "header_count": 30, "request_body": "1KiB"})
    for code, request in RAW.items():
        client = t.client()
        client.send(request)
        expect(weir, code, client.response(), path)
    client = t.client()
    client.send(head_bytes("POST", "/", [("Transfer-Encoding", "chunked")]) + b"zz\r\n")
    expect(weir, "bad_chunk", client.response(), path)
    assert t.client().get().status == 200
    wait_until("all are logged", lambda: len(entries(path)) == len(RAW) + 2)
    sums_add_up(weir)
    # The bodies (one declared, one chunked) are judged by the limit of the route that took their request.
    assert weir.metric("weir_requests_total", route="") == len(RAW) - 1, "a request that no route took counts all the same"


ORIGIN = {
    "bad_response": b"HELO origin\r\n\r\n",
    "response_head_too_large": b"HTTP/1.1 200 OK\r\nX: " + b"a" * 3000 + b"\r\n\r\n",
    "origin_closed": b"",
}
BROKEN = {  # the answer has begun: it breaks off
    "response_short": b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nabc",
    "response_framing": b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\nzz\r\n",
}


@case(ids=["O2"])
def test_origins_answers(t):
    def handler(request, answer):
        code = request.target[1:]
        answer.raw({**ORIGIN, **BROKEN}.get(code, b""))
        answer.close()
        if code == "origin_reset":
            answer.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            answer.sock.close()
    path = os.path.join(t.directory, "access.log")
    weir = t.weir(t.origin(handler), log={"access": {"path": path}}, limits={"response_head": "1KiB"})
    for code in ORIGIN:
        expect(weir, code, t.client().get(f"/{code}"), path)
    for code in BROKEN:
        client = t.client()
        client.request("GET", f"/{code}")
        try:
            raise AssertionError(f"{code}: a complete-looking answer: {client.response()}")
        except Incomplete as short:
            assert short.response.status == 200, short.response
        expect(weir, code, None, path)
    expect(weir, "origin_reset", t.client().get("/origin_reset"), path)
    sums_add_up(weir)


@case(ids=["O2"])
def test_origins_that_cannot_be_reached(t):
    path = os.path.join(t.directory, "access.log")
    upstreams = {"down": {"servers": ["127.0.0.1:1"]}, "nobody": {"servers": ["no-such-name.invalid:80"]}}
    weir = t.weir(upstreams=upstreams, log={"access": {"path": path}},
                  routes=[{"match": {"path": "/down"}, "to": "down"}, {"match": {"path": "/nobody"}, "to": "nobody"}])
    expect(weir, "connect_failed", t.client().get("/down"), path)
    expect(weir, "name_unresolved", t.client().get("/nobody"), path)
    assert weir.metric("weir_upstream_connects_failed_total", upstream="down") == 1
    sums_add_up(weir)


@case(ids=["O2"])
def test_deadlines(t):
    gate = threading.Event()

    def handler(request, answer):
        if request.target == "/body":
            answer.raw(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhalf")
        elif request.target == "/stream":
            answer.raw(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nhalf\r\n")
        gate.wait(60)
    path = os.path.join(t.directory, "access.log")
    weir = t.weir(t.origin(handler), log={"access": {"path": path}},
                  timeouts={"client_header": "300ms", "client_body": "300ms", "response": "600ms", "origin_body": "300ms",
                            "stream_idle": "300ms"})
    client = t.client()
    client.send(b"GET / HTTP/1.1\r\nHost")
    expect(weir, "client_header_timeout", client.response(), path)
    client = t.client()
    client.send(head_bytes("POST", "/", [("Content-Length", "10")]) + b"abc")
    expect(weir, "client_body_timeout", client.response(), path)
    expect(weir, "response_timeout", t.client().get("/"), path)
    for target, code in (("/body", "origin_body_timeout"), ("/stream", "stream_idle_timeout")):
        client = t.client()
        client.request("GET", target)
        try:
            raise AssertionError(f"{code}: a complete-looking answer: {client.response()}")
        except Incomplete:
            expect(weir, code, None, path)
    gate.set()
    sums_add_up(weir)


@case(ids=["O2"], engines=ONE)
def test_clients_that_leave(t):
    gate = threading.Event()
    path = os.path.join(t.directory, "access.log")
    weir = t.weir(t.origin(lambda q, a: (gate.wait(60), a.reply(200, [], b"x"))), log={"access": {"path": path}})
    client = t.client()
    client.send(head_bytes("POST", "/", [("Content-Length", "10")]) + b"abc")
    client.fin()
    expect(weir, "client_closed", None, path)
    client = t.client()
    client.send(head_bytes("POST", "/", [("Content-Length", "10")]) + b"abc")
    wait_until("it reached the origin", lambda: weir.metric("weir_connections", state="active") == 1)
    client.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    client.close()
    expect(weir, "client_reset", None, path)
    line = [e for e in entries(path) if e["end"] == "client_reset"][0]
    assert "status" not in line, f"no answer was sent: {line}"
    gate.set()
    sums_add_up(weir)


@case(ids=["O2"], engines=ONE)
def test_cut_by_a_stop(t):
    gate, asked = threading.Event(), threading.Event()
    path = os.path.join(t.directory, "access.log")
    weir = t.weir(t.origin(lambda q, a: (asked.set(), gate.wait(60))), log={"access": {"path": path}},
                  shutdown={"grace": "100ms"})
    client = t.client()
    client.request("GET", "/")
    assert asked.wait(20)
    weir.signal(signal.SIGTERM)
    assert weir.wait_exit() == 0
    gate.set()
    lines = entries(path)
    assert [e["end"] for e in lines] == ["shutting_down"] and lines[0]["error"] == table()["shutting_down"][2], lines

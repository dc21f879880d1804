"""Deadlines on real sockets: their order and outcome. Their exact times are shown in virtual time on the simulated engine."""
import socket
import threading

from lib.case import case
from lib.wire import Incomplete, head_bytes, wait_until


def counted(weir, kind):
    return weir.metric("weir_timeouts_total", kind=kind)


@case(ids=["T1"])
def test_response(t):
    gate = threading.Event()
    origin = t.origin(lambda q, a: (gate.wait(60) if q.target == "/slow" else None, a.reply(200, [], b"ok")))
    weir = t.weir(origin, timeouts={"response": "250ms"})
    client = t.client()
    assert client.get("/slow").status == 504
    assert client.get("/fast").body == b"ok", "the client's connection must outlive a 504"
    assert counted(weir, "response") == 1
    gate.set()


@case(ids=["T1"])
def test_response_per_route(t):
    gate = threading.Event()
    origin = t.origin(lambda q, a: (gate.wait(60) if q.target.startswith("/short") else None, a.reply(200, [], b"ok")))
    t.weir(origin, timeouts={"response": "0s"},
           routes=[{"match": {"path": "/short"}, "to": "app", "timeouts": {"response": "250ms"}}, {"to": "app"}])
    assert t.client().get("/short").status == 504
    other = t.client()
    other.request("GET", "/short-not")
    assert other.quiet(1.0), "the route's timeout cut another route's request"
    gate.set()
    assert other.response().body == b"ok"


@case(ids=["T1"])
def test_client_header(t):
    origin = t.origin()
    weir = t.weir(origin, timeouts={"client_header": "300ms"})
    client = t.client()
    client.send(b"GET / HTTP/1.1\r\nHost: te")
    assert client.response().status == 408
    client.expect_eof()
    assert counted(weir, "client_header") == 1 and not origin.requests


@case(ids=["T1"])
def test_client_header_is_absolute(t):
    """Bytes that trickle in do not move the deadline."""
    t.weir(t.origin(), timeouts={"client_header": "500ms"})
    client = t.client()
    client.send(b"GET / HTTP/1.1\r\nHost: test.example\r\n")
    sent = 0
    while client.quiet(0.05):
        client.send(b"X-%d: y\r\n" % sent)
        sent += 1
        assert sent < 100, "a trickling head was never ended"
    assert client.response().status == 408


@case(ids=["T1"])
def test_keepalive(t):
    weir = t.weir(t.origin(), timeouts={"keepalive": "300ms"})
    client = t.client()
    assert client.get().status == 200
    client.expect_eof()
    assert counted(weir, "keepalive") == 1


@case(ids=["T1"])
def test_client_body(t):
    """A client that stops in its body gets 408, and the origin's request is not completed."""
    done = []
    origin = t.origin(lambda q, a: (done.append(q.body()), a.reply(200, [], b"ok")))
    weir = t.weir(origin, timeouts={"client_body": "300ms"})
    client = t.client()
    client.send(head_bytes("POST", "/", [("Content-Length", "10")]) + b"abc")
    assert client.response().status == 408
    client.expect_eof()
    assert counted(weir, "client_body") == 1 and not done


@case(ids=["T1", "H7"])
def test_origin_body(t):
    gate = threading.Event()
    origin = t.origin(lambda q, a: (a.raw(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhalf"), gate.wait(60)))
    weir = t.weir(origin, timeouts={"origin_body": "300ms"})
    client = t.client()
    client.request("GET", "/")
    try:
        answer = client.response()
        raise AssertionError(f"a complete-looking answer: {answer}")
    except Incomplete as short:
        assert short.response is None or short.response.body == b"half"
    assert counted(weir, "origin_body") == 1
    gate.set()


@case(ids=["T1"])
def test_connect(t):
    """An origin whose backlog is full never answers the handshake."""
    full = socket.socket()
    full.bind(("127.0.0.1", 0))
    full.listen(0)
    fillers = []
    for _ in range(8):
        filler = socket.socket()
        filler.setblocking(False)
        filler.connect_ex(full.getsockname())
        fillers.append(filler)
    weir = t.weir(f"127.0.0.1:{full.getsockname()[1]}", timeouts={"connect": "300ms"})
    answer = t.client().get()
    assert answer.status == 504, answer
    assert counted(weir, "connect") == 1, "the only origin is not tried again"
    for sock in [full, *fillers]:
        sock.close()


@case(ids=["T1"])
def test_zero_switches_off(t):
    """0s switches off that one timeout alone."""
    gate = threading.Event()
    origin = t.origin(lambda q, a: (gate.wait(60), a.reply(200, [], b"late")))
    t.weir(origin, timeouts={"response": "0s", "client_header": "300ms", "keepalive": "0s"})
    waiting = t.client()
    waiting.request("GET", "/")
    headless = t.client()
    headless.send(b"GET / HT")
    assert headless.response().status == 408
    gate.set()
    assert waiting.response().body == b"late"
    assert waiting.quiet(0.5)
    assert waiting.get("/again").body == b"late"


@case(ids=["T2"])
def test_write_not_reading(t):
    """A client that reads nothing of 16 MiB is closed, counted, and the origin's connection does not hang on it."""
    origin = t.origin(lambda q, a: a.reply(200, [], b"z" * (16 << 20)))
    weir = t.weir(origin, timeouts={"write": "700ms"})
    client = t.client(rcvbuf=16384)
    client.request("GET", "/big")
    wait_until("the write timeout is counted", lambda: counted(weir, "write") == 1)
    got, _ = client.rest()
    assert len(got) < 16 << 20, "the whole answer came although nobody read in time"
    wait_until("the origin connection ends", lambda: origin.open_connections == 0)


@case(ids=["T2"])
def test_write_progress(t):
    """A client that takes little at a time, but something within each timeout, gets everything."""
    size = 3 << 20
    origin = t.origin(lambda q, a: a.reply(200, [], b"z" * size))
    weir = t.weir(origin, timeouts={"write": "1s"})
    client = t.client(rcvbuf=65536)
    client.request("GET", "/big")
    response, got, pause = client.head(), 0, threading.Event()
    for piece in client.pieces(response):
        got += len(piece)
        if got < size - (1 << 20):
            pause.wait(len(piece) / (512 << 10))
    assert got == size
    assert not counted(weir, "write")


@case(ids=["T1"])
def test_origin_idle(t):
    """An idle origin connection is given up; the next request opens a new one and loses nothing."""
    origin = t.origin(lambda q, a: a.reply(200, [], b"ok"))
    t.weir(origin, timeouts={"origin_idle": "300ms"})
    client = t.client()
    assert client.get().body == b"ok"
    wait_until("the idle origin connection is closed", lambda: origin.open_connections == 0)
    assert client.get().body == b"ok"
    assert origin.connections == 2

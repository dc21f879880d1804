"""Ends of connections and of the process: half-close, aborts, drain, grace."""
import os
import signal
import threading
import time

from lib.case import case
from lib.weir import listening_inode
from lib.wire import head_bytes, knocking, wait_until

LARGE = b"x" * (64 << 20)


def gated(gate, size=0):
    """An origin that sends half of its answer, waits for the gate, then the rest."""
    def handler(request, answer):
        if request.target == "/fast":
            return answer.reply(200, [], b"fast")
        answer.raw(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\nfirst half," % (22 + size))
        gate.wait(60)
        return answer.raw(b"second half" + b"." * size)
    return handler


@case(ids=["E9"])
def test_request_and_fin_in_one(t):
    """The FIN travels with the request: the full answer comes."""
    origin = t.origin(lambda q, a: a.reply(200, [], b"y" * (2 << 20)))
    t.weir(origin)
    for _ in range(20):
        client = t.client()
        client.sock.setsockopt(6, 3, 1)  # TCP_CORK: request and FIN leave together
        client.sock.send(head_bytes("GET", "/"))
        client.fin()
        assert len(client.response().body) == 2 << 20
        client.expect_eof()
        client.close()


@case(ids=["E9"])
def test_half_close_midway(t):
    """A client that half-closes while the origin is silent still gets everything, and weir does not spin meanwhile."""
    gate = threading.Event()
    weir = t.weir(t.origin(gated(gate, 300000)))
    client = t.client()
    client.request("GET", "/")
    response = client.head()
    client.fin()
    before = weir.cpu_seconds()
    time.sleep(1.0)  # the length of the measurement, not a wait for anything
    spent = weir.cpu_seconds() - before
    t.note(f"{spent * 100:.1f} % CPU while half-closed")
    assert spent < 0.2, f"{spent:.2f} s of CPU in one second with nothing to do"
    gate.set()
    body = b"".join(client.pieces(response))
    assert body == b"first half,second half" + b"." * 300000
    client.expect_eof()


@case(ids=["E9"])
def test_half_close_after_upload(t):
    t.weir(t.origin())
    client = t.client()
    body = os.urandom(200000)
    client.send(head_bytes("POST", "/", [("Content-Length", str(len(body)))]) + body[:1000])
    client.send(body[1000:])
    client.fin()
    assert client.response().body == body


@case(ids=["E9"])
def test_pipelined_and_fin(t):
    t.weir(t.origin(lambda q, a: a.reply(200, [], q.target.encode())))
    client = t.client()
    client.send(b"".join(head_bytes("GET", f"/{i}") for i in range(10)))
    client.fin()
    for i in range(10):
        assert client.response().body == b"/%d" % i
    client.expect_eof()


@case()
def test_client_leaves(t):
    """A client that goes away in the middle: the origin's connection ends too, and nothing leaks."""
    origin = t.origin(lambda q, a: a.reply(200, [], LARGE) if q.target == "/big" else a.reply(200, [], b"ok"))
    weir = t.weir(origin)
    assert t.client().get("/").body == b"ok"
    t.clients[0].close()
    sockets = len(weir.socket_inodes())
    for _ in range(20):
        client = t.client(rcvbuf=16384)
        client.request("GET", "/big")
        client.head()
        client.close()
    wait_until("the origin's big answers are given up", lambda: origin.open_connections <= 1)
    wait_until("weir closed what belonged to them", lambda: len(weir.socket_inodes()) <= sockets)
    assert t.client().get("/").body == b"ok"


@case()
def test_client_resets(t):
    import socket
    import struct
    origin = t.origin()
    t.weir(origin)
    for size in (0, 10, 100000):
        client = t.client()
        client.send(head_bytes("POST", "/", [("Content-Length", "200000")]) + b"x" * size)
        client.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        client.close()
    assert t.client().get("/").status == 200


@case()
def test_term_idle(t):
    weir = t.weir(t.origin())
    client = t.client()
    assert client.get().status == 200
    weir.term()
    client.expect_eof()
    assert weir.wait_exit() == 0


@case()
def test_term_completes_answer(t):
    """TERM in the middle of a slow answer: it completes, no new connection is taken, and the exit status is 0."""
    gate = threading.Event()
    weir = t.weir(t.origin(gated(gate)), shutdown={"grace": "30s"})
    client, idle = t.client(), t.client()
    assert idle.get("/fast").status == 200
    client.request("GET", "/")
    response = client.head()
    weir.term()
    idle.expect_eof()
    idle.close()
    assert weir.alive(), "weir ended before its answer did"
    gate.set()
    assert b"".join(client.pieces(response)) == b"first half,second half"
    client.expect_eof()
    client.close()
    assert weir.wait_exit() == 0


@case()
def test_term_before_answer(t):
    """TERM while the origin still thinks: the answer comes, and says that the connection ends."""
    gate, asked = threading.Event(), threading.Event()

    def handler(request, answer):
        asked.set()
        gate.wait(60)
        answer.reply(200, [], b"at last")
    weir = t.weir(t.origin(handler), shutdown={"grace": "30s"})
    client = t.client()
    client.request("GET", "/")
    assert asked.wait(20)
    weir.term()
    wait_until("the workers know", lambda: listening_inode(t.port) is None)  # the log tells only what they are told
    gate.set()
    answer = client.response()
    assert answer.body == b"at last" and "close" in (answer.header("connection") or "").lower(), answer.headers
    client.expect_eof()
    client.close()  # weir would wait for that
    assert weir.wait_exit() == 0


@case(ids=["T4"])
def test_term_grace_ends(t):
    """A stuck origin does not hold up the shutdown beyond its grace."""
    gate = threading.Event()
    weir = t.weir(t.origin(gated(gate)), shutdown={"grace": "500ms"})
    client = t.client()
    client.request("GET", "/")
    client.head()
    weir.term()
    weir.wait_exit(20)
    body, _ = client.rest()
    assert len(body) < 22, "the cut answer looks complete"
    gate.set()


@case()
def test_second_term(t):
    for second in (signal.SIGTERM, signal.SIGINT):
        gate = threading.Event()
        weir = t.weir(t.origin(gated(gate)), shutdown={"grace": "1h"})
        client = t.client()
        client.request("GET", "/")
        client.head()
        mark = len(weir.log())
        weir.term()
        weir.wait_log(r"(?i)drain|shut|stop|TERM", after=mark)
        assert weir.alive()
        weir.signal(second)
        weir.wait_exit(20)
        gate.set()
        client.close()


@case()
def test_origin_resets(t):
    """An origin that dies by reset before its head: 502; the client's connection lives."""
    import socket
    import struct

    def handler(request, answer):
        if request.target == "/die":
            answer.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            answer.sock.close()
            answer.close()
        else:
            answer.reply(200, [], b"ok")
    t.weir(t.origin(handler))
    client = t.client()
    client.request("POST", "/die", body=b"x")
    assert client.response().status == 502
    assert client.get("/fine").body == b"ok"


@case()
def test_idle_origin_closes(t):
    """An origin that closes idle connections costs no request, POST included when nothing of it was sent."""
    origin = t.origin(lambda q, a: (a.reply(200, [], b"ok"), a.close()))
    t.weir(origin)
    client = t.client()
    for i in range(30):
        answer = client.get(f"/{i}")
        assert (answer.status, answer.body) == (200, b"ok"), (i, answer)
        wait_until("the origin closed", lambda: origin.open_connections == 0)


@case(ids=["T4"])
def test_ends_under_new_connections(t):
    """TERM and QUIT end the process though new connections never pause: it stops accepting and does not serve them for ever."""
    for number in (signal.SIGTERM, signal.SIGQUIT):
        weir = t.weir(t.origin(), shutdown={"grace": "60s"})
        with knocking(t.port):
            wait_until("some were accepted", lambda: weir.metric("weir_connections_accepted_total") > 50)
            weir.signal(number)
            assert weir.wait_exit(20) == 0
        assert "did not end" not in weir.log(), weir.log()


@case(engines=("epoll",))
def test_quit_lifts_the_grace(t):
    """QUIT after TERM: what is still being answered has all the time it needs."""
    gate = threading.Event()
    weir = t.weir(t.origin(gated(gate)), shutdown={"grace": "300ms"})
    client = t.client()
    client.request("GET", "/")
    response = client.head()
    weir.term()
    weir.wait_log(r"stage=refusing")
    weir.signal(signal.SIGQUIT)
    weir.wait_log(r"draining to the end")
    time.sleep(0.6)  # longer than the grace: it must have passed
    assert weir.alive() and "stage=cutting" not in weir.log(), weir.log()
    gate.set()
    assert b"".join(client.pieces(response)) == b"first half,second half"
    client.close()
    assert weir.wait_exit() == 0

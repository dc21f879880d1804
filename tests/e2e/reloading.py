"""HUP: a new snapshot at a tick boundary, unchanged sockets kept, what is in flight ends under what it began with."""
import os
import re
import signal
import socket
import threading

from lib.case import case
from lib.weir import free_port, listening_inode, peers_inodes
from lib.wire import Client, knocking, wait_until


def said(text):
    return lambda q, a: a.reply(200, [], text)


def generation(weir):
    return weir.metric("weir_config_generation")


def reload_with(weir, config):
    before = generation(weir)
    weir.write_config(config)
    weir.hup()
    wait_until("the new generation is in service", lambda: generation(weir) != before)


@case()
def test_new_route(t):
    a, b = t.origin(said(b"a")), t.origin(said(b"b"))
    weir = t.weir(a)
    inode = listening_inode(t.port)
    client = t.client()
    assert client.get("/b/x").body == b"a"
    reload_with(weir, t.config(upstreams={"app": {"servers": [a.address]}, "bee": {"servers": [b.address]}},
                               routes=[{"match": {"path_prefix": "/b/"}, "to": "bee"}, {"to": "app"}]))
    assert client.get("/b/x").body == b"b", "the keep-alive connection must use the new routes"
    assert client.get("/").body == b"a"
    assert t.client().get("/b/y").body == b"b"
    assert listening_inode(t.port) == inode, "the listening socket was replaced"
    assert weir.metric("weir_config_last_reload_success") == 1


@case()
def test_in_flight_ends_under_old(t):
    gate = threading.Event()

    def slow(request, answer):
        answer.raw(b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nfirst")
        gate.wait(60)
        answer.raw(b"later")
    a, b = t.origin(slow), t.origin(said(b"b"))
    weir = t.weir(a)
    client = t.client()
    client.request("GET", "/")
    response = client.head()
    reload_with(weir, t.config(b))
    assert t.client().get().body == b"b"
    gate.set()
    assert b"".join(client.pieces(response)) == b"firstlater"
    assert client.get().body == b"b", "the next request on the same connection belongs to the new config"


@case()
def test_not_yet_answered_ends_under_old(t):
    gate, asked = threading.Event(), threading.Event()

    def slow(request, answer):
        asked.set()
        gate.wait(60)
        answer.reply(200, [], b"old")
    weir = t.weir(t.origin(slow))
    client = t.client()
    client.request("GET", "/")
    assert asked.wait(20)
    reload_with(weir, t.config(t.origin(said(b"new"))))
    gate.set()
    assert client.response().body == b"old"
    assert client.get().body == b"new"


@case()
def test_bad_file_keeps_old(t):
    weir = t.weir(t.origin(said(b"still")))
    client = t.client()
    assert client.get().body == b"still"
    before = generation(weir)
    mark = len(weir.log())
    weir.write_config("version: 1\nlisteners:\n  - bind: \"127.0.0.1:1\"\n    engin: epoll\nroutes:\n  - to: nowhere\n")
    weir.hup()
    weir.wait_log(r"weir\.yaml:4:5", after=mark)
    weir.wait_log(r"weir\.yaml:6:\d+", after=mark)
    wait_until("the failure shows in the metrics", lambda: weir.metric("weir_config_last_reload_success") == 0)
    assert generation(weir) == before
    assert client.get().body == b"still" and t.client().get().body == b"still"
    reload_with(weir, t.config(t.origin(said(b"mended"))))
    assert client.get().body == b"mended"
    assert weir.metric("weir_config_last_reload_success") == 1


@case()
def test_reloaded_means_in_service(t):
    """Once the log or the metric says so, neither an old connection nor a new one is served by the routes of before."""
    origins = [t.origin(said(b"even")), t.origin(said(b"odd"))]
    weir = t.weir(origins[0], workers=2)
    old = t.client()
    for turn in range(1, 40):
        mark = len(weir.log())
        weir.write_config(t.config(origins[turn % 2], workers=2))
        weir.hup()
        weir.wait_log(f"reloaded generation={turn + 1}", after=mark)
        assert generation(weir) == turn + 1
        assert [c.get().body for c in (old, t.client())] == [(b"even", b"odd")[turn % 2]] * 2, f"reload {turn}"


@case()
def test_listeners_come_and_go(t):
    origin = t.origin(said(b"ok"))
    weir = t.weir(origin)
    inode = listening_inode(t.port)
    extra = free_port()
    both = [{"bind": f"127.0.0.1:{t.port}", "engine": t.engine}, {"bind": f"127.0.0.1:{extra}", "engine": t.engine}]
    reload_with(weir, t.config(origin, listeners=both))
    late = Client(("127.0.0.1", extra))
    assert late.get().body == b"ok"
    reload_with(weir, t.config(origin))
    wait_until("the removed listener is closed", lambda: listening_inode(extra) is None)
    assert listening_inode(t.port) == inode
    assert t.client().get().body == b"ok"
    late.close()


@case()
def test_reload_under_load(t):
    """Twenty reloads while eight connections work: no request fails."""
    a, b = t.origin(said(b"ok")), t.origin(said(b"ok"))
    weir = t.weir(a, workers=2)
    stop, trouble, done = threading.Event(), [], [0] * 8

    def work(index):
        try:
            client = Client(("127.0.0.1", t.port))
            while not stop.is_set():
                answer = client.get()
                assert (answer.status, answer.body) == (200, b"ok"), answer
                done[index] += 1
            client.close()
        except Exception as error:
            trouble.append(repr(error))
    threads = [threading.Thread(target=work, args=(i,), daemon=True) for i in range(8)]
    for thread in threads:
        thread.start()
    for turn in range(20):
        reload_with(weir, t.config(b if turn % 2 == 0 else a, workers=2))
        mark = list(done)
        wait_until("every connection made progress", lambda: trouble or all(d > m for d, m in zip(done, mark)))
    stop.set()
    for thread in threads:
        thread.join(30)
    assert not trouble, trouble
    t.note(f"{sum(done)} requests")


@case(engines=("epoll",))
def test_winch_then_hup(t):
    """WINCH stops accepting and frees the port; a reload brings it back."""
    weir = t.weir(t.origin(said(b"x")))
    kept = t.client()
    assert kept.get("/").body == b"x"
    weir.signal(signal.SIGWINCH)

    def refused():
        try:
            socket.create_connection(("127.0.0.1", t.port), 1).close()
            return False
        except ConnectionRefusedError:
            return True
    wait_until("new connections are refused", refused)
    assert kept.get("/").body == b"x", "those inside are served on"
    weir.hup()
    wait_until("accepting again", lambda: not refused())
    assert t.client().get("/").body == b"x"


@case()
def test_dropped_listener_serves_out(t):
    """A reload that drops a listener and its upstream: a request on a connection that is still open goes where it always went."""
    a, b = t.origin(said(b"a")), t.origin(said(b"b"))
    extra = free_port()
    main = {"bind": f"127.0.0.1:{t.port or free_port()}", "engine": t.engine, "name": "main"}
    t.port = int(main["bind"].rsplit(":", 1)[1])
    going = {"bind": f"127.0.0.1:{extra}", "engine": t.engine, "name": "going"}
    both = dict(listeners=[main, going], upstreams={"app": {"servers": [a.address]}, "bee": {"servers": [b.address]}},
                routes=[{"match": {"listener": "going"}, "to": "bee"}, {"to": "app"}])
    one = dict(listeners=[main], upstreams={"app": {"servers": [a.address]}}, routes=[{"to": "app"}])
    weir = t.weir(**both)
    for _ in range(2):
        client = t.client(extra)
        assert client.get().body == b"b"
        reload_with(weir, t.config(**one))
        # Idle connections to that origin are gone at once; what comes now needs its pool all the same.
        answer = client.get()
        assert (answer.status, answer.body) == (200, b"b"), answer
        client.expect_eof()
        client.close()
        wait_until("the old configuration is let go", lambda: weir.status()["config"]["live_generations"] == 1)
        reload_with(weir, t.config(**both))
    assert t.client().get().body == b"a"


def in_epoll(weir):
    """Inodes of the sockets in any of its epoll sets."""
    found = set()
    for fd in os.listdir(f"/proc/{weir.pid}/fdinfo"):
        try:
            with open(f"/proc/{weir.pid}/fdinfo/{fd}", encoding="ascii") as source:
                for line in source:
                    if line.startswith("tfd:"):
                        target = re.search(r"tfd:\s+(\d+)", line)[1]
                        found.add(os.readlink(f"/proc/{weir.pid}/fd/{target}"))
        except OSError:
            continue
    return {int(name[8:-1]) for name in found if name.startswith("socket:[")}


@case(engines=("epoll",))
def test_listener_changes_engine(t):
    """Its socket and its connections go on with the other engine at their next operation; none is closed and no request fails."""
    origin = t.origin(said(b"x" * 1000))
    other = free_port()
    t.port = free_port()

    def config(engine, also):
        return t.config(origin, listeners=[{"bind": f"127.0.0.1:{t.port}", "engine": engine, "name": "main"},
                                           {"bind": f"127.0.0.1:{other}", "engine": also, "name": "other"}])
    weir = t.launch(config("epoll", "io_uring"))
    weir.wait_ready([t.port, other])
    kept = [t.client() for _ in range(4)]
    for client in kept:
        assert client.get().status == 200
    mine = listening_inode(t.port)
    clients = peers_inodes(weir, t.port)
    assert len(clients) == 4 and clients | {mine} <= in_epoll(weir), "they begin on epoll"
    for turn in range(4):
        engine = ("io_uring", "epoll")[turn % 2]
        reload_with(weir, config(engine, "io_uring" if engine == "epoll" else "epoll"))
        if engine == "io_uring":
            wait_until("nothing of it is left in an epoll set", lambda: not (clients | {mine}) & in_epoll(weir))
        else:
            wait_until("all of it is back in an epoll set", lambda: clients | {mine} <= in_epoll(weir))
        for client in kept:
            assert client.get().body == b"x" * 1000
        fresh = t.client()
        assert fresh.get().status == 200
        fresh.close()
        status = {one["name"]: one["engine"] for one in weir.status()["listeners"]}
        assert status["main"] == engine, status
        assert listening_inode(t.port) == mine and peers_inodes(weir, t.port) >= clients


@case()
def test_dropped_listener_closes_under_load(t):
    """New connections without a pause do not keep a listener open that a reload dropped."""
    origin = t.origin(said(b"ok"))
    extra = free_port()
    t.port = free_port()
    both = [{"bind": f"127.0.0.1:{port}", "engine": t.engine} for port in (t.port, extra)]
    weir = t.weir(origin, listeners=both)
    with knocking(extra):
        reload_with(weir, t.config(origin, listeners=both[:1]))
        wait_until("the dropped listener is closed", lambda: listening_inode(extra) is None)
    assert t.client().get().body == b"ok"
    reload_with(weir, t.config(origin, listeners=both))
    assert t.client(extra).get().body == b"ok"


@case(engines=("epoll",))
def test_engine_changes_under_load(t):
    """Twenty changes of engine under small and large answers, uploads and new connections: nothing fails, nothing is refused."""
    large, body = os.urandom(1 << 20), os.urandom(200000)

    def handler(request, answer):
        answer.reply(200, [], large if request.target == "/large" else request.body() or b"small")
    origin = t.origin(handler)
    t.port, other = free_port(), free_port()

    def config(engine):
        return t.config(origin, listeners=[{"bind": f"127.0.0.1:{t.port}", "engine": engine, "name": "main"},
                                           {"bind": f"127.0.0.1:{other}", "engine": "io_uring" if engine == "epoll" else "epoll",
                                            "name": "other"}])

    def small(client):
        assert client.get().body == b"small"

    def download(client):
        assert client.get("/large").body == large

    def upload(client):
        assert client.duplex("POST", "/", body).body == body

    def fresh(_):
        with Client(("127.0.0.1", t.port)) as client:
            assert client.get().body == b"small"
    weir = t.launch(config("epoll"))
    weir.wait_ready([t.port, other])
    stop, trouble, kinds = threading.Event(), [], [small, download, upload, fresh] * 2
    done = [0] * len(kinds)

    def work(index):
        try:
            with Client(("127.0.0.1", t.port)) as client:
                while not stop.is_set():
                    kinds[index](client)
                    done[index] += 1
        except Exception as error:
            trouble.append(f"{kinds[index].__name__}: {error!r}")
    threads = [threading.Thread(target=work, args=(i,), daemon=True) for i in range(len(kinds))]
    for thread in threads:
        thread.start()
    for turn in range(20):
        reload_with(weir, config(("io_uring", "epoll")[turn % 2]))
        mark = list(done)
        wait_until("everyone made progress", lambda: trouble or all(d > m for d, m in zip(done, mark)))
    stop.set()
    for thread in threads:
        thread.join(30)
    assert not trouble, trouble
    assert weir.metric("weir_accept_refused_total") == 0
    t.note(f"{sum(done)} requests")

"""The memory budget on real sockets: what idle, slow and stalled peers cost, and that everyone who reads finishes."""
import contextlib
import re
import selectors
import socket
import threading

from lib.case import Skip, case
from lib.wire import wait_until

KIB, MIB = 1 << 10, 1 << 20
BLOCK = bytes(range(256)) * 256  # 64 KiB


class ManyOrigin:
    """An origin of one thread, for thousands of connections. GET: `body` bytes, as fast as they are taken. POST: it reads no more."""

    def __init__(self, body):
        self.payload = memoryview(b"z" * body)
        self.head = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % body
        self.listening = socket.create_server(("127.0.0.1", 0), backlog=4096)
        self.listening.setblocking(False)
        self.address = "127.0.0.1:%d" % self.listening.getsockname()[1]
        self.selector = selectors.DefaultSelector()
        self.selector.register(self.listening, selectors.EVENT_READ, None)
        self.over = threading.Event()
        self.kept = []
        self.thread = threading.Thread(target=self.run, daemon=True)
        self.thread.start()

    def run(self):
        while not self.over.is_set():
            for key, _ in self.selector.select(0.1):
                if key.data is None:
                    with contextlib.suppress(OSError):
                        sock, _ = self.listening.accept()
                        sock.setblocking(False)
                        self.selector.register(sock, selectors.EVENT_READ, [b"", 0])
                    continue
                try:
                    self.serve(key.fileobj, key.data)
                except BlockingIOError:
                    pass
                except OSError:
                    self.drop(key.fileobj)
        for key in list(self.selector.get_map().values()):
            self.drop(key.fileobj)

    def serve(self, sock, state):
        if state[0] is not None:
            got = sock.recv(65536)
            if not got:
                return self.drop(sock)
            state[0] += got
            if b"\r\n\r\n" not in state[0]:
                return None
            if state[0].startswith(b"POST"):
                self.selector.unregister(sock)
                self.kept.append(sock)
                return None
            state[0], state[1] = None, 0
            sock.send(self.head)
            self.selector.modify(sock, selectors.EVENT_WRITE, state)
        state[1] += sock.send(self.payload[state[1]:state[1] + 65536])
        if state[1] == len(self.payload):
            state[0] = b""
            self.selector.modify(sock, selectors.EVENT_READ, state)
        return None

    def drop(self, sock):
        with contextlib.suppress(KeyError, ValueError):
            self.selector.unregister(sock)
        sock.close()

    def stop(self):
        self.over.set()
        self.thread.join(20)
        for sock in self.kept:
            sock.close()


class Stalled:
    """Clients that send a request and never read. Each takes little of the kernel's memory: what they cost is the proxy's."""

    def __init__(self, port):
        self.port, self.socks = port, []

    def start(self, readers, uploads):
        for i in range(readers + uploads):
            sock = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            sock.settimeout(60)
            sock.connect(("127.0.0.1", self.port))
            sock.setblocking(False)
            with contextlib.suppress(BlockingIOError, ConnectionError):
                if i % (readers // uploads + 1) == 0:
                    sock.send(b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 4000000\r\n\r\n" + BLOCK)
                    sock.send(BLOCK * 4)
                else:
                    sock.send(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")
            self.socks.append(sock)

    def close(self):
        for sock in self.socks:
            sock.close()


class Peak:
    """Samples a number from the side until stopped; `most` is the largest."""

    def __init__(self, read):
        self.read, self.most, self.over = read, 0, threading.Event()
        self.thread = threading.Thread(target=self.run, daemon=True)
        self.thread.start()

    def run(self):
        while not self.over.is_set():
            with contextlib.suppress(OSError, AssertionError):
                self.most = max(self.most, self.read())
            self.over.wait(0.02)

    def stop(self):
        self.over.set()
        self.thread.join(20)
        return self.most


def read_whole(t, count, trouble):
    """Starts clients that read an answer of 1 MiB to its end; whatever goes wrong stands in `trouble`."""
    def read():
        try:
            client = t.client()
            client.reader.limit_s = 240
            answer = client.get()
            assert answer.status == 200 and len(answer.body) == MIB, (answer.status, len(answer.body))
        except Exception as error:  # whatever it is, the case must say so
            trouble.append(repr(error))
    threads = [threading.Thread(target=read, daemon=True) for _ in range(count)]
    for thread in threads:
        thread.start()
    return threads


def join_all(threads, what):
    for thread in threads:
        thread.join(240)
        assert not thread.is_alive(), f"{what} never finished"


def judge_memory(t, weir, budget_mib, most, before=0):
    """What is always so: never more than the budget, neither by weir's count nor by the kernel's."""
    assert most <= budget_mib * MIB, f"{most} bytes leased of {budget_mib} MiB"
    assert weir.metric("weir_memory_budget_bytes") == budget_mib * MIB
    if not t.sanitized:
        peak = weir.peak_rss_kib() - before
        assert peak <= budget_mib * KIB, f"peak RSS {peak} KiB, {before} KiB before"
    return f"at most {most / MIB:.1f} of {budget_mib} MiB leased, peak RSS {weir.peak_rss_kib() >> 10} MiB"


def keep_budget(t, budget_mib, readers, uploads, reading):
    """M7: with so many stalled readers and uploads, `reading` clients get their whole answers, and weir keeps its budget."""
    origin = ManyOrigin(MIB)
    stalled = None
    try:
        weir = t.weir(origin.address, limits={"memory": f"{budget_mib}MiB"}, timeouts={"write": "300s", "client_body": "300s",
                                                                                     "response": "300s"})
        peak = Peak(lambda: weir.metric("weir_memory_leased_bytes"))
        stalled = Stalled(t.port)
        starter = threading.Thread(target=stalled.start, args=(readers, uploads), daemon=True)
        starter.start()
        trouble = []
        for _ in range(4):
            join_all(read_whole(t, reading // 4, trouble), "a reader")
        join_all([starter], "the start of those that stall")
        assert not trouble, trouble
        wait_until("exchanges ended for memory", lambda: weir.metric("weir_memory_ended_total") > 0, 60)
        join_all(read_whole(t, reading // 4, trouble), "a reader")   # while all of the stalled ones are here
        assert not trouble, trouble
        said = judge_memory(t, weir, budget_mib, peak.stop())
        wait_until("it is logged", lambda: re.search(r"exchanges were ended to make room.*memory_pressure", weir.log()))
        assert re.search("no connections are accepted", weir.log())
        ended = weir.metric("weir_memory_ended_total")
        stalled.close()
        wait_until("the stalled ones are gone", lambda: weir.metric("weir_connections") <= 2 * reading, 60)
        wait_until("there is room again", lambda: weir.status()["memory"]["level"] == "normal", 60)
        weir.wait_log("connections are accepted again")
        assert t.client().get().status == 200
        t.note(f"{said}, {ended:.0f} ended")
    finally:
        if stalled is not None:
            stalled.close()
        origin.stop()


@case(ids=["M7"])
def test_readers_wait_for_room_and_finish(t):
    """At 95 % nobody is accepted; when those that stall have gone everyone who waited gets the whole answer, and nobody an error."""
    origin = ManyOrigin(MIB)
    stalled = None
    try:
        weir = t.weir(origin.address, limits={"memory": "16MiB"})
        before = weir.rss_kib()
        peak = Peak(lambda: weir.metric("weir_memory_leased_bytes"))
        stalled = Stalled(t.port)
        stalled.start(250, 50)
        wait_until("accepting stops", lambda: weir.status()["memory"]["level"] == "critical")
        trouble = []
        threads = read_whole(t, 20, trouble)
        weir.wait_log("no connections are accepted")
        stalled.close()
        join_all(threads, "a reader")
        assert not trouble, trouble
        wait_until("there is room again", lambda: weir.status()["memory"]["level"] == "normal")
        t.note(judge_memory(t, weir, 16, peak.stop(), before))
    finally:
        if stalled is not None:
            stalled.close()
        origin.stop()


def idle_cost(t, count):
    """M3: bytes of RSS for each of `count` idle keep-alive connections that have had one answer."""
    if t.sanitized:
        raise Skip("a sanitizer's memory is not the daemon's")
    weir = t.weir(t.origin(lambda request, answer: answer.reply(200, [], b"7 bytes")))
    socks = []

    def more(n):
        for _ in range(n):
            sock = socket.create_connection(("127.0.0.1", t.port))
            sock.sendall(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")
            got = b""
            while not got.endswith(b"7 bytes"):
                got += sock.recv(4096)
            socks.append(sock)
    try:
        more(50)
        held, before = weir.metric("weir_buffered_bytes"), weir.rss_kib()
        more(count)
        assert weir.metric("weir_buffered_bytes") <= held, "idle connections hold buffers"
        cost = (weir.rss_kib() - before) * KIB / count
        assert weir.metric("weir_connections") == count + 50
        assert cost <= 2 * KIB, f"an idle connection costs {cost:.0f} bytes"
        t.note(f"{cost:.0f} bytes for each of {count} idle connections")
    finally:
        for sock in socks:
            sock.close()


@case(ids=["M3"])
def test_idle_connections_cost_little(t):
    idle_cost(t, 1000)


def slow_down(t, count, size, chunked):
    """M4: `count` slow readers of `size` bytes each; buffers grow by at most 896 KiB each, and 10 %."""
    def handler(_, answer):
        answer.head(200, [("Transfer-Encoding", "chunked") if chunked else ("Content-Length", str(size))])
        for _ in range(size // len(BLOCK)):
            answer.raw(b"10000\r\n" + BLOCK + b"\r\n" if chunked else BLOCK)
        if chunked:
            answer.raw(b"0\r\n\r\n")
    weir = t.weir(t.origin(handler))
    before = weir.metric("weir_buffered_bytes")
    peak = Peak(lambda: weir.metric("weir_buffered_bytes"))
    clients = [t.client() for _ in range(count)]
    for client in clients:
        client.request("GET", "/")
    bodies = [iter(client.pieces(client.head())) for client in clients]
    got = [0] * count
    while bodies:
        for i, body in enumerate(bodies):   # a piece each, one after another: all of them are slow
            piece = next(body, None) if body is not None else None
            if piece is None:
                bodies[i] = None
            else:
                got[i] += len(piece)
        if all(body is None for body in bodies):
            break
    assert got == [size] * count
    grown = peak.stop() - before
    assert grown <= count * 896 * KIB * 1.1, f"{grown / count / KIB:.0f} KiB each"
    t.note(f"{'chunked' if chunked else 'length'}: {grown / count / KIB:.0f} KiB for each of {count} slow readers")


def slow_up(t, count, size, chunked):
    """M4: `count` uploads of `size` bytes to an origin that reads slowly; at most 1.25 MiB each, and 10 %."""
    lock = threading.Lock()

    def handler(request, answer):
        for _ in request.pieces():
            with lock:   # one piece at a time for all of them
                pass
        answer.reply(200, [], str(request.body_bytes).encode())
    weir = t.weir(t.origin(handler))
    before = weir.metric("weir_buffered_bytes")
    peak = Peak(lambda: weir.metric("weir_buffered_bytes"))
    trouble = []

    def push():
        try:
            client = t.client()
            client.reader.limit_s = 240
            client.send(b"POST / HTTP/1.1\r\nHost: a\r\n" + (b"Transfer-Encoding: chunked\r\n\r\n" if chunked
                                                          else b"Content-Length: %d\r\n\r\n" % size))
            for _ in range(size // len(BLOCK)):
                client.send(b"10000\r\n" + BLOCK + b"\r\n" if chunked else BLOCK)
            if chunked:
                client.send(b"0\r\n\r\n")
            answer = client.response()
            assert answer.body == str(size).encode(), answer
        except Exception as error:
            trouble.append(repr(error))
    threads = [threading.Thread(target=push, daemon=True) for _ in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(300)
        assert not thread.is_alive(), "an upload never finished"
    assert not trouble, trouble
    grown = peak.stop() - before
    assert grown <= count * 1.25 * MIB * 1.1, f"{grown / count / KIB:.0f} KiB each"
    t.note(f"{'chunked' if chunked else 'length'}: {grown / count / KIB:.0f} KiB for each of {count} uploads")


@case(ids=["M4"])
def test_slow_readers_grow_little(t):
    slow_down(t, 16, 4 * MIB, False)


@case(ids=["M4"])
def test_slow_readers_of_chunks_grow_little(t):
    slow_down(t, 16, 4 * MIB, True)


@case(ids=["M4"])
def test_uploads_to_a_slow_origin_grow_little(t):
    slow_up(t, 24, 2 * MIB, False)


@case(ids=["M4"])
def test_chunked_uploads_to_a_slow_origin_grow_little(t):
    slow_up(t, 24, 2 * MIB, True)


@case(engines=("epoll",), ids=["M5"])
def test_worst_case_is_said_and_must_fit(t):
    """/status prints what a connection may cost; a budget that cannot carry it is refused with its place."""
    weir = t.weir(t.origin(), limits={"memory": "256MiB", "pipe": "1MiB"})
    assert t.client().get().status == 200
    memory = weir.status()["memory"]
    assert memory["budget_bytes"] == 256 * MIB and memory["level"] == "normal", memory
    assert 8 * MIB < memory["worst_connection_bytes"] < 16 * MIB and memory["idle_connection_bytes"] <= 2 * KIB, memory
    assert 0 < memory["leased_bytes"] < 64 * MIB, memory
    status, text = t.command("status", "--admin", f"unix:{weir.admin_path}")
    assert status == 0 and f"a connection may cost {memory['worst_connection_bytes']} bytes" in text, (status, text)
    path = t.file("small.yaml", open(weir.config_path, encoding="utf-8").read().replace("pipe: 1MiB", "pipe: 64MiB"))
    status, text = t.command("check", "-c", path)
    assert status == 78 and re.search(r"small.yaml:\d+:\d+: memory: one connection may need \d+ bytes", text), (status, text)
    config = t.config(t.origins[0], limits={"memory": "256MiB", "pipe": "64MiB"})
    weir.write_config(config)
    weir.hup()
    weir.wait_log("reload failed")
    assert t.client().get().status == 200
    assert weir.status()["memory"]["budget_bytes"] == 256 * MIB


@case(engines=("epoll",), ids=["M7"])
def test_budget_follows_a_reload(t):
    weir = t.weir(t.origin(), limits={"memory": "256MiB"})
    weir.write_config(t.config(t.origins[0], limits={"memory": "64MiB"}))
    weir.hup()
    weir.wait_log("reloaded")
    assert weir.metric("weir_memory_budget_bytes") == 64 * MIB
    assert t.client().get().status == 200

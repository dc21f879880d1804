"""Cells that measure memory, not speed: what a connection costs that does nothing, or whose other side is slow."""
import resource
import selectors
import socket
import threading
import time

IDLE = 4000                     # connections
SLOW = 32                       # transfers
SLOW_BYTES = 64 << 20           # each; it is not waited for
SLOW_SECONDS = 4
SIP_BYTES, SIP_SECONDS = 16 << 10, 0.05


def allow_descriptors(count):
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < count:
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(count, hard), hard))


def ask(connection, request):
    """One request on a raw socket, its whole answer read; Content-Length only."""
    connection.sendall(request)
    data = b""
    while b"\r\n\r\n" not in data:
        data += receive(connection)
    head, _, body = data.partition(b"\r\n\r\n")
    length = next(int(line[15:]) for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:"))
    while len(body) < length:
        body += receive(connection)
    return head, body


def receive(connection):
    data = connection.recv(65536)
    if not data:
        raise ConnectionError("closed in mid-answer")
    return data


def idle_cell(process, count=IDLE):
    """Bytes of resident memory for each keep-alive connection that has had one answer and waits. The first quarter does not count:
    it has what earlier cells left behind."""
    allow_descriptors(count + 500)
    request = b"GET / HTTP/1.1\r\nHost: bench\r\n\r\n"
    held = []
    before = 0
    try:
        for number in range(count):
            if number == count // 4:
                before = process.rss_kib()
            held.append(socket.create_connection(("127.0.0.1", process.ports["main"]), timeout=20))
            ask(held[-1], request)
        after = process.rss_kib()
    finally:
        for connection in held:
            connection.close()
    return {"connections": count, "rss_before_kib": before, "rss_after_kib": after, "bytes_each": (after - before) * 1024 / (count - count // 4)}


class SlowOrigin:
    """Answers GET with a body without end at full speed, and reads what is sent to it in sips. One thread, on any CPU."""

    def __init__(self):
        self.listener = socket.create_server(("127.0.0.1", 0), backlog=256)
        self.port = self.listener.getsockname()[1]
        self.closing = False
        self.thread = threading.Thread(target=self._accept, daemon=True)
        self.thread.start()

    def _accept(self):
        while not self.closing:
            try:
                connection, _ = self.listener.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection):
        try:
            head = b""
            while b"\r\n\r\n" not in head:
                data = connection.recv(4096)
                if not data:
                    return
                head += data
            if head.startswith(b"GET"):
                connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % SLOW_BYTES)
                piece = b"s" * 65536
                for _ in range(SLOW_BYTES // len(piece)):
                    connection.sendall(piece)
                return
            while not self.closing and connection.recv(SIP_BYTES):
                time.sleep(SIP_SECONDS)
        except OSError:
            pass
        finally:
            connection.close()

    def stop(self):
        self.closing = True
        self.listener.close()


def transfers(process, up):
    """SLOW transfers at once for SLOW_SECONDS, their slow side the client (down) or the origin (up): the most memory meanwhile."""
    selector = selectors.DefaultSelector()
    held, moved = [], 0
    before = most = process.rss_kib()
    try:
        for _ in range(SLOW):
            connection = socket.create_connection(("127.0.0.1", process.ports["slow"]), timeout=20)
            held.append(connection)
            head = b"POST / HTTP/1.1\r\nHost: bench\r\nContent-Length: %d\r\n\r\n" % SLOW_BYTES if up else \
                b"GET / HTTP/1.1\r\nHost: bench\r\n\r\n"
            connection.sendall(head)
            connection.setblocking(False)
            selector.register(connection, selectors.EVENT_WRITE if up else selectors.EVENT_READ)
        piece, end = b"u" * 65536, time.monotonic() + SLOW_SECONDS
        while time.monotonic() < end:
            for key, _ in selector.select(0.05):
                try:
                    moved += key.fileobj.send(piece) if up else len(key.fileobj.recv(SIP_BYTES))
                except BlockingIOError:
                    continue
            if not up:
                time.sleep(SIP_SECONDS)
            most = max(most, process.rss_kib())
    finally:
        selector.close()
        for connection in held:
            connection.close()
    return {"transfers": SLOW, "moved_bytes": moved, "rss_before_kib": before, "rss_most_kib": most,
            "kib_each": (most - before) / SLOW}


def down_cell(process):
    return transfers(process, up=False)


def up_cell(process):
    return transfers(process, up=True)

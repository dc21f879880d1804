"""A raw HTTP/1.1 client for tests: it sends exactly the bytes it is given and says exactly how each answer ended.

It never retries, never hides an early close and never waits without a limit (LIMIT_S bounds every read; it is a safety net and no
assertion: cases assert order and outcome).
"""
import contextlib
import select
import socket
import threading
import time

LIMIT_S = 30.0


class Incomplete(Exception):
    """The connection ended inside an answer. `response` holds what came."""

    def __init__(self, why, response=None):
        super().__init__(why)
        self.response = response


class Response:
    def __init__(self):
        self.version = ""
        self.status = 0
        self.reason = ""
        self.headers = []
        self.trailers = []
        self.body = b""
        self.framing = ""  # none, length, chunked, close
        self.interim = []  # 1xx answers that came before

    def header(self, name, default=None):
        found = [v for n, v in self.headers if n.lower() == name.lower()]
        return ", ".join(found) if found else default

    def __repr__(self):
        return f"<{self.status} {self.framing} {len(self.body)} bytes {self.headers}>"


def head_bytes(method, target, headers=(), version="HTTP/1.1", host="test.example"):
    lines = [f"{method} {target} {version}"]
    names = {n.lower() for n, _ in headers}
    if "host" not in names and host is not None:
        lines.append(f"Host: {host}")
    lines += [f"{n}: {v}" for n, v in headers]
    return ("\r\n".join(lines) + "\r\n\r\n").encode("latin1")


def chunks_of(data, size):
    for at in range(0, len(data), size):
        piece = data[at:at + size]
        yield b"%x\r\n%s\r\n" % (len(piece), piece)
    yield b"0\r\n\r\n"


class Reader:
    """Buffered reading of HTTP/1.1 messages from a socket; used by the client and by the scripted origin."""

    def __init__(self, sock, limit_s=LIMIT_S):
        self.sock = sock
        self.buffer = bytearray()
        self.eof = False
        self.limit_s = limit_s
        self.read_bytes = 0

    def fill(self):
        if self.eof:
            return False
        self.sock.settimeout(self.limit_s)
        data = self.sock.recv(262144)
        if not data:
            self.eof = True
            return False
        self.read_bytes += len(data)
        self.buffer += data
        return True

    def until(self, mark, what):
        at = 0
        while True:
            found = self.buffer.find(mark, max(0, at - len(mark)))
            if found >= 0:
                out = bytes(self.buffer[:found])
                del self.buffer[:found + len(mark)]
                return out
            at = len(self.buffer)
            if not self.fill():
                raise Incomplete(f"connection closed in {what}, after {bytes(self.buffer[:200])!r}")

    def some(self, at_most):
        if not self.buffer and not self.fill():
            return b""
        out = bytes(self.buffer[:at_most])
        del self.buffer[:at_most]
        return out

    def length_body(self, length):
        left = length
        while left:
            piece = self.some(min(left, 1 << 20))
            if not piece:
                raise Incomplete(f"connection closed with {left} of {length} body bytes missing")
            left -= len(piece)
            yield piece

    def chunked_body(self, trailers):
        while True:
            line = self.until(b"\r\n", "a chunk size").split(b";")[0]
            size = int(line, 16)
            if size == 0:
                break
            yield from self.length_body(size)
            if self.until(b"\r\n", "a chunk end") != b"":
                raise Incomplete("bytes after a chunk's data")
        while True:
            line = self.until(b"\r\n", "trailers")
            if not line:
                return
            name, _, value = line.decode("latin1").partition(":")
            trailers.append((name, value.strip()))

    def close_body(self):
        while True:
            piece = self.some(1 << 20)
            if not piece:
                return
            yield piece


def parse_fields(lines):
    fields = []
    for line in lines:
        name, colon, value = line.partition(":")
        assert colon and name == name.strip(), f"malformed field line {line!r}"
        fields.append((name, value.strip()))
    return fields


class Client:
    def __init__(self, address, rcvbuf=None, sndbuf=None, limit_s=LIMIT_S, tls=None):
        """tls: (an ssl.SSLContext, the name that is asked for or None, a session to resume or None)."""
        self.sock = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        if rcvbuf:
            self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, rcvbuf)
        if sndbuf:
            self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, sndbuf)
        self.sock.settimeout(limit_s)
        self.sock.connect(address)
        self.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if tls:
            context, name, session = tls
            self.sock = context.wrap_socket(self.sock, server_hostname=name, session=session)
        self.reader = Reader(self.sock, limit_s)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def close(self):
        self.sock.close()

    def fin(self):
        self.sock.shutdown(socket.SHUT_WR)

    def send(self, data):
        self.sock.settimeout(self.reader.limit_s)
        self.sock.sendall(data)

    def request(self, method, target, headers=(), body=None, chunked=0):
        """Sends one request; `chunked` is the chunk size, 0 for content-length."""
        headers = list(headers)
        if body is None:
            return self.send(head_bytes(method, target, headers))
        if not chunked:
            headers.append(("Content-Length", str(len(body))))
            return self.send(head_bytes(method, target, headers) + body)
        headers.append(("Transfer-Encoding", "chunked"))
        self.send(head_bytes(method, target, headers))
        for piece in chunks_of(body, chunked):
            self.send(piece)

    def head(self, method="GET"):
        """Reads one final response head; the body stays on the socket."""
        interim = []
        while True:
            text = self.reader.until(b"\r\n\r\n", "a response head").decode("latin1")
            lines = text.split("\r\n")
            response = Response()
            response.version, status, response.reason = (lines[0] + "  ").split(" ", 2)
            response.reason = response.reason.strip()
            response.status = int(status)
            response.headers = parse_fields(lines[1:])
            if 100 <= response.status < 200 and response.status != 101:
                interim.append(response)
                continue
            response.interim = interim
            response.framing = self.framing_of(response, method)
            return response

    @staticmethod
    def framing_of(response, method):
        coding, length = response.header("transfer-encoding"), response.header("content-length")
        assert not (coding and length), f"both framings in one answer: {response.headers}"
        if method == "HEAD" or response.status in (101, 204, 304):
            return "none"
        if coding:
            assert coding.lower() == "chunked", coding
            return "chunked"
        return "length" if length is not None else "close"

    def pieces(self, response):
        if response.framing == "none":
            return iter(())
        if response.framing == "length":
            return self.reader.length_body(int(response.header("content-length")))
        if response.framing == "chunked":
            return self.reader.chunked_body(response.trailers)
        return self.reader.close_body()

    def response(self, method="GET"):
        response = self.head(method)
        got = bytearray()
        try:
            for piece in self.pieces(response):
                got += piece
        except Incomplete as short:
            response.body = bytes(got)
            raise Incomplete(str(short), response) from None
        except ConnectionError as broken:
            response.body = bytes(got)
            raise Incomplete(str(broken), response) from None
        response.body = bytes(got)
        return response

    def get(self, target="/", headers=()):
        self.request("GET", target, headers)
        return self.response()

    def duplex(self, method, target, body, chunked=0, headers=()):
        """Sends a request from a second thread while this one reads the answer, so that no large echo can deadlock."""
        trouble = []

        def push():
            try:
                self.request(method, target, headers, body, chunked)
            except OSError as error:
                trouble.append(error)

        thread = threading.Thread(target=push, daemon=True)
        thread.start()
        response = self.response(method)
        thread.join(self.reader.limit_s)
        assert not thread.is_alive(), "the request was never sent whole"
        assert not trouble, f"sending the request failed: {trouble[0]!r}"
        return response

    def expect_eof(self):
        """The peer closes (orderly or by reset) and sends nothing more."""
        try:
            rest = self.reader.some(4096)
        except ConnectionError:
            return
        assert rest == b"", f"expected the end of the connection, got {rest[:200]!r}"

    def rest(self):
        """All bytes until the end of the connection, and whether the end was orderly."""
        got = bytearray()
        try:
            for piece in self.reader.close_body():
                got += piece
        except ConnectionError:
            return bytes(got), False
        return bytes(got), True

    def quiet(self, seconds):
        """True when nothing arrives for so long; used only to show that something did not happen."""
        ready, _, _ = select.select([self.sock], [], [], seconds)
        return not ready and not self.reader.buffer


def push_until_stalled(sock, data, idle_s=1.5, limit_s=60.0):
    """Writes from `data` until the peer accepted nothing for `idle_s`; returns the bytes that left this socket for the peer."""
    import fcntl
    import struct
    import termios
    view, sent, last = memoryview(data), 0, time.monotonic()
    deadline = time.monotonic() + limit_s
    acked = 0
    sock.setblocking(False)
    while time.monotonic() < deadline:
        try:
            if sent < len(view):
                sent += sock.send(view[sent:sent + 65536])
        except BlockingIOError:
            select.select([], [sock], [], 0.05)
        queued = struct.unpack("i", fcntl.ioctl(sock.fileno(), termios.TIOCOUTQ, b"\0\0\0\0"))[0]
        if sent - queued > acked:
            acked, last = sent - queued, time.monotonic()
        if sent == len(view) and queued == 0:
            break
        if time.monotonic() - last > idle_s:
            break
    sock.setblocking(True)
    return sent, acked


def wait_until(what, condition, limit_s=LIMIT_S):
    """Waits for progress: returns the first true value of `condition`, fails with `what` after the limit."""
    end = time.monotonic() + limit_s
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() > end:
            raise AssertionError(f"never happened within {limit_s:.0f} s: {what}")
        time.sleep(0.005)


@contextlib.contextmanager
def knocking(port, threads=4):
    """New connections that never pause, each closed again at once, as long as the block runs."""
    stop = threading.Event()

    def knock():
        while not stop.is_set():
            try:
                with socket.create_connection(("127.0.0.1", port), 1) as sock:
                    sock.settimeout(1)
            except OSError:
                time.sleep(0.001)
    running = [threading.Thread(target=knock, daemon=True) for _ in range(threads)]
    for thread in running:
        thread.start()
    try:
        yield
    finally:
        stop.set()
        for thread in running:
            thread.join(10)

"""A threaded HTTP/1.1 origin whose behaviour is a Python function: handler(request, answer).

One thread a connection. It records every request head, counts connections, and keeps what a handler raised in `trouble`, which the
harness turns into a failed case. Connections that the proxy or the case ends early are no trouble.
"""
import socket
import threading

from .wire import Incomplete, LIMIT_S, Reader, chunks_of, parse_fields


class Request:
    def __init__(self, reader, connection_index):
        lines = reader.until(b"\r\n\r\n", "a request head").decode("latin1").split("\r\n")
        self.line = lines[0]
        self.method, self.target, self.version = lines[0].split(" ")
        self.headers = parse_fields(lines[1:])
        self.connection_index = connection_index
        self.trailers = []
        self.body_bytes = 0
        self.body_done = False
        self._reader = reader
        self._pieces = None

    def header(self, name, default=None):
        found = [v for n, v in self.headers if n.lower() == name.lower()]
        return ", ".join(found) if found else default

    def pieces(self):
        """The body, piece by piece; asking again goes on where the last reader stopped."""
        if self._pieces is None:
            self._pieces = self._counted()
        return self._pieces

    def _counted(self):
        coding, length = self.header("transfer-encoding"), self.header("content-length")
        assert not (coding and length), f"both framings reached the origin: {self.headers}"
        if coding:
            source = self._reader.chunked_body(self.trailers)
        else:
            source = self._reader.length_body(int(length or 0))
        for piece in source:
            self.body_bytes += len(piece)
            yield piece
        self.body_done = True

    def body(self):
        return b"".join(self.pieces())


class Answer:
    def __init__(self, sock):
        self.sock = sock
        self.closing = False
        self.lingering = False

    def raw(self, data):
        self.sock.sendall(data)

    def head(self, status=200, headers=(), reason="Said"):
        lines = [f"HTTP/1.1 {status} {reason}"] + [f"{n}: {v}" for n, v in headers]
        self.raw(("\r\n".join(lines) + "\r\n\r\n").encode("latin1"))

    def reply(self, status=200, headers=(), body=b"", framing="length", chunk=8192):
        headers = list(headers)
        if framing == "length":
            headers.append(("Content-Length", str(len(body))))
            lines = [f"HTTP/1.1 {status} Said"] + [f"{n}: {v}" for n, v in headers]
            head = ("\r\n".join(lines) + "\r\n\r\n").encode("latin1")
            if len(body) <= 65536:
                return self.raw(head + body)
            self.raw(head)
            return self.raw(body)
        if framing == "chunked":
            headers.append(("Transfer-Encoding", "chunked"))
            self.head(status, headers)
            for piece in chunks_of(body, chunk):
                self.raw(piece)
            return None
        assert framing == "close"
        headers.append(("Connection", "close"))
        self.head(status, headers)
        self.raw(body)
        return self.close()

    def close(self, linger=False):
        """Ends this connection once the handler returns; with `linger` what the peer still sends is read first, so no reset."""
        self.closing = True
        self.lingering = linger


def echo(request, answer):
    answer.reply(200, [("Content-Type", "application/octet-stream"), ("X-Method", request.method)], request.body())


class Origin:
    def __init__(self, handler=echo, rcvbuf=None, port=0):
        self.handler = handler
        self.requests = []
        self.connections = 0
        self.open_connections = 0
        self.trouble = []
        self._socks = set()
        self._lock = threading.Lock()
        self.listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        self.listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if rcvbuf:
            self.listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, rcvbuf)
        self.listener.bind(("127.0.0.1", port))
        self.listener.listen(512)
        self.port = self.listener.getsockname()[1]
        self.address = f"127.0.0.1:{self.port}"
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self):
        while True:
            try:
                sock, _ = self.listener.accept()
            except OSError:
                return
            with self._lock:
                self.connections += 1
                self.open_connections += 1
                self._socks.add(sock)
                index = self.connections
            threading.Thread(target=self._serve, args=(sock, index), daemon=True).start()

    def _serve(self, sock, index):
        try:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            reader = Reader(sock, limit_s=4 * LIMIT_S)
            while reader.buffer or reader.fill():
                request = Request(reader, index)
                with self._lock:
                    self.requests.append(request)
                answer = Answer(sock)
                self.handler(request, answer)
                if answer.closing:
                    if answer.lingering:
                        sock.shutdown(socket.SHUT_WR)
                        for _ in reader.close_body():
                            pass
                    break
                for _ in request.pieces():
                    pass
        except (ConnectionError, Incomplete, TimeoutError, OSError):
            pass
        except Exception as error:  # a handler's own mistake, or a malformed request from the proxy
            self.trouble.append(repr(error))
        finally:
            with self._lock:
                self.open_connections -= 1
                self._socks.discard(sock)
            try:
                sock.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass
            sock.close()

    def stop(self):
        try:
            self.listener.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass
        self.listener.close()
        with self._lock:
            socks = list(self._socks)
        for sock in socks:
            try:
                sock.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass

"""A name server in the hands of a case, and the wrapper that makes one process ask it: a resolv.conf of its own in a mount
namespace of its own (needs root). It answers A queries from `names`; a name that is not there does not exist.
"""
import random
import socket
import struct
import threading

SERVFAIL, NXDOMAIN = 2, 3


class Dns:
    def __init__(self, t, **names):
        self.names = {name.replace("_", "."): address for name, address in names.items()}
        self.mode = "answer"  # or "fail" (SERVFAIL), or "silent"
        self.asked = []
        self._held = []
        self._lock = threading.Lock()
        self.sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        address = f"127.{random.randrange(1, 250)}.{random.randrange(250)}.{random.randrange(1, 250)}"
        self.sock.bind((address, 53))
        self.conf = t.file("resolv.conf", f"nameserver {address}\noptions timeout:30 attempts:1\n")
        threading.Thread(target=self._serve, daemon=True).start()

    @property
    def wrapper(self):
        return ("unshare", "--mount", "sh", "-c", 'mount --bind "$0" /etc/resolv.conf && exec "$@"', self.conf)

    def speak(self):
        """Answers again, first what was held back while silent."""
        with self._lock:
            self.mode = "answer"
            held, self._held = self._held, []
        for query, peer in held:
            self.sock.sendto(self._answer(query), peer)

    def close(self):
        self.sock.close()

    def _serve(self):
        while True:
            try:
                query, peer = self.sock.recvfrom(4096)
            except OSError:
                return
            self.asked.append(self._name(query)[0])
            with self._lock:
                if self.mode == "silent":
                    self._held.append((query, peer))
                    continue
            self.sock.sendto(self._answer(query), peer)

    @staticmethod
    def _name(query):
        labels, at = [], 12
        while query[at]:
            labels.append(query[at + 1:at + 1 + query[at]].decode())
            at += 1 + query[at]
        return ".".join(labels).lower(), at + 1

    def _answer(self, query):
        name, at = self._name(query)
        kind = struct.unpack(">H", query[at:at + 2])[0]
        question = query[12:at + 4]
        address = self.names.get(name)
        code = SERVFAIL if self.mode == "fail" else NXDOMAIN if address is None else 0
        found = b""
        if code == 0 and kind == 1:
            found = b"\xc0\x0c" + struct.pack(">HHIH", 1, 1, 0, 4) + socket.inet_aton(address)
        flags = 0x8180 | code
        return query[:2] + struct.pack(">HHHHH", flags, 1, 1 if found else 0, 0, 0) + question + found

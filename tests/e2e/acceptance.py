"""Long runs for acceptance, with nginx as the origin and wrk as the load. Not in CI: tests/e2e/run --acceptance"""
import hashlib
import os
import re
import shutil
import subprocess
import threading

from lib.case import Skip, case
from lib.weir import free_port
from lib.wire import head_bytes, wait_until

CONNECTIONS = (1, 64, 512, 2000)
SECONDS = int(os.environ.get("WEIR_ACCEPTANCE_SECONDS", "10"))
BIG = 256 << 20
RSS_LIMIT_KIB = 64 << 10

NGINX = """daemon off; worker_processes 1; worker_rlimit_nofile 16384; pid {dir}/nginx.pid; error_log {dir}/nginx.log warn;
events {{ worker_connections 8192; }}
http {{
  access_log off; keepalive_requests 100000000; keepalive_timeout 1h;
  client_body_temp_path {dir}/1; proxy_temp_path {dir}/2;
  fastcgi_temp_path {dir}/3; uwsgi_temp_path {dir}/4; scgi_temp_path {dir}/5;
  server {{ listen 127.0.0.1:{port} backlog=8192; root {dir}/www; }}
}}
"""


def need(*programs):
    for program in programs:
        if not shutil.which(program, path=os.environ["PATH"] + ":/usr/sbin:/sbin"):
            raise Skip(f"needs {program}")


class Nginx:
    def __init__(self, t):
        need("nginx")
        self.port = free_port()
        www = os.path.join(t.directory, "www")
        os.mkdir(www)
        with open(os.path.join(www, "index.html"), "w", encoding="ascii") as out:
            out.write("hello from the origin\n")
        config = t.file("nginx.conf", NGINX.format(dir=t.directory, port=self.port))
        self.process = subprocess.Popen([shutil.which("nginx") or "/usr/sbin/nginx", "-c", config, "-p", t.directory])
        wait_until("nginx listens", lambda: os.path.exists(t.directory + "/nginx.pid"))

    def stop(self):
        self.process.terminate()
        self.process.wait(20)


@case()
def test_wrk(t):
    """1 to 2,000 connections: no socket error, no answer but 200."""
    need("wrk")
    nginx = Nginx(t)
    try:
        weir = t.weir(f"127.0.0.1:{nginx.port}", workers=1)
        for connections in CONNECTIONS:
            text = subprocess.run(["wrk", "-t1", f"-c{connections}", f"-d{SECONDS}s", f"http://127.0.0.1:{t.port}/"],
                                  stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=True).stdout.decode()
            requests = int(re.search(r"(\d+) requests in", text)[1])
            t.note(f"{connections}: {requests} requests")
            assert "Socket errors" not in text and "Non-2xx" not in text, text
            assert requests > SECONDS * 100, text
        assert not weir.metric("weir_requests_total", code_class="5xx")
    finally:
        nginx.stop()


def block(index):
    return hashlib.sha256(b"%d" % index).digest() * 2048  # 64 KiB


def whole():
    digest = hashlib.sha256()
    for i in range(BIG // 65536):
        digest.update(block(i))
    return digest.hexdigest()


@case()
def test_256_mib_down(t):
    def handler(request, answer):
        chunked = request.target == "/chunked"
        answer.head(200, [("Transfer-Encoding", "chunked") if chunked else ("Content-Length", str(BIG))])
        for i in range(BIG // 65536):
            answer.raw(b"10000\r\n" + block(i) + b"\r\n" if chunked else block(i))
        if chunked:
            answer.raw(b"0\r\n\r\n")
    weir, want = t.weir(t.origin(handler)), whole()
    for target in ("/length", "/chunked"):
        client = t.client()
        client.request("GET", target)
        digest = hashlib.sha256()
        for piece in client.pieces(client.head()):
            digest.update(piece)
        assert digest.hexdigest() == want, f"{target}: sha256 differs"
        t.note(f"{target}: peak RSS {weir.peak_rss_kib() >> 10} MiB")
    assert weir.peak_rss_kib() < RSS_LIMIT_KIB, weir.peak_rss_kib()


@case()
def test_256_mib_up(t):
    seen = []

    def handler(request, answer):
        digest = hashlib.sha256()
        for piece in request.pieces():
            digest.update(piece)
        seen.append(digest.hexdigest())
        answer.reply(200, [], b"ok")
    weir, want = t.weir(t.origin(handler)), whole()
    for chunked in (False, True):
        client = t.client()

        def push(client=client, chunked=chunked):
            client.send(head_bytes("POST", "/", [("Transfer-Encoding", "chunked") if chunked else ("Content-Length", str(BIG))]))
            for i in range(BIG // 65536):
                client.send(b"10000\r\n" + block(i) + b"\r\n" if chunked else block(i))
            if chunked:
                client.send(b"0\r\n\r\n")
        sender = threading.Thread(target=push, daemon=True)
        sender.start()
        client.reader.limit_s = 120
        assert client.response().status == 200
        sender.join(10)
        t.note(f"{'chunked' if chunked else 'length'}: peak RSS {weir.peak_rss_kib() >> 10} MiB")
    assert seen == [want, want], "sha256 differs"
    assert weir.peak_rss_kib() < RSS_LIMIT_KIB, weir.peak_rss_kib()

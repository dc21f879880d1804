"""Long runs for acceptance, with nginx as the origin and wrk as the load. Not in CI: tests/e2e/run --acceptance"""
import collections
import hashlib
import json
import os
import re
import shutil
import subprocess
import threading
import time

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
    def __init__(self, t, name="nginx"):
        need("nginx")
        self.port = free_port()
        directory = os.path.join(t.directory, name)
        www = os.path.join(directory, "www")
        os.makedirs(www)
        with open(os.path.join(www, "index.html"), "w", encoding="ascii") as out:
            out.write("hello from the origin\n")
        config = t.file(name + ".conf", NGINX.format(dir=directory, port=self.port))
        self.command = [shutil.which("nginx") or "/usr/sbin/nginx", "-c", config, "-p", directory]
        self.start()
        wait_until("nginx listens", lambda: os.path.exists(directory + "/nginx.pid"))

    def stop(self):
        self.process.terminate()
        self.process.wait(20)

    def kill(self):
        """Its master and its worker, at once: their connections are reset."""
        children = open(f"/proc/{self.process.pid}/task/{self.process.pid}/children", encoding="ascii").read().split()
        for pid in (str(self.process.pid), *children):
            os.kill(int(pid), 9)
        self.process.wait(20)

    def start(self):
        self.process = subprocess.Popen(self.command)


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


@case()
def test_origin_killed_under_load(t):
    """One of two origins is killed and restarted under load: only requests that were with it can fail, each logged with its cause."""
    need("wrk")
    stays, dies = Nginx(t, "stays"), Nginx(t, "dies")
    address = f"127.0.0.1:{dies.port}"
    try:
        for connections in (64, 512, 2000):
            path = os.path.join(t.directory, f"access-{connections}.log")
            weir = t.weir(f"127.0.0.1:{stays.port}", address, workers=1, log={"access": {"path": path}})
            load = subprocess.Popen(["wrk", "-t1", f"-c{connections}", f"-d{SECONDS}s", f"http://127.0.0.1:{t.port}/"],
                                    stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
            time.sleep(SECONDS / 3)
            dies.kill()
            time.sleep(SECONDS / 3)
            dies.start()
            back_at = time.time()
            text = load.communicate()[0].decode()
            again = weir.metric("weir_retries_total")
            weir.term()
            assert weir.wait_exit() == 0
            with open(path, encoding="utf-8") as source:
                lines = [json.loads(line) for line in source]
            failed = [line for line in lines if line["end"] != "ok" and not line["end"].startswith("client_")]
            causes = collections.Counter(line["end"] for line in failed)
            t.note(f"{connections}: {len(lines)} requests, {len(failed)} failed {dict(causes)}, {again:.0f} tried again")
            assert len(failed) + again > 0, "nothing was with the origin when it was killed"
            assert len(failed) <= connections, causes
            assert all(line["origin"] == address and line["error"] for line in failed), failed[:3]
            assert all(line["status"] == 200 for line in lines if line["end"] == "ok"), text
            refused = re.search(r"Non-2xx or 3xx responses: (\d+)", text)
            errors = re.search(r"Socket errors: connect (\d+), read (\d+), write (\d+), timeout (\d+)", text)
            seen = (int(refused[1]) if refused else 0) + (sum(map(int, errors.groups()[:3])) if errors else 0)
            assert seen <= len(failed), (text, causes)
            back = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(back_at))
            assert any(line["ts"] > back for line in lines if line["origin"] == address and line["end"] == "ok"), "it never came back"
    finally:
        stays.stop()
        dies.stop()


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

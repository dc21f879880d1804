"""Long runs for acceptance: nginx and Python's http.server as origins, wrk as the load. Not in CI: tests/e2e/run --acceptance"""
import collections
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import time

from lib.case import Skip, case
from lib.weir import free_port, listening_inode
from lib.wire import head_bytes, wait_until
from memory import MIB, keep_budget, slow_down, slow_up

CONNECTIONS = (1, 64, 512, 2000)
SECONDS = int(os.environ.get("WEIR_ACCEPTANCE_SECONDS", "6"))
BIG = 1 << 30
PIECE = 256 << 10
SLOW = 32  # connections with an answer that takes a second, beside those that take none
RSS_LIMIT_KIB = 64 << 10

NGINX = """daemon off; worker_processes 1; worker_rlimit_nofile 16384; pid {dir}/nginx.pid; error_log {dir}/nginx.log warn;
events {{ worker_connections 8192; }}
http {{
  access_log off; keepalive_requests 100000000; keepalive_timeout 1h;
  client_body_temp_path {dir}/1; proxy_temp_path {dir}/2;
  fastcgi_temp_path {dir}/3; uwsgi_temp_path {dir}/4; scgi_temp_path {dir}/5;
  client_max_body_size 0;
  server {{ listen 127.0.0.1:{port} backlog=8192; root {dir}/www;
    location /up/ {{ dav_methods PUT; }}
    location /slow {{ limit_rate 64k; }}
    location /chunked/ {{ alias {dir}/www/; ssi on; ssi_types *; }}
  }}
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
        os.makedirs(os.path.join(www, "up"))
        os.chmod(os.path.join(www, "up"), 0o777)  # its worker is nobody where this is root
        self.www = www
        with open(os.path.join(www, "index.html"), "w", encoding="ascii") as out:
            out.write("hello from the origin\n")
        with open(os.path.join(www, "slow"), "wb") as out:
            out.write(b"s" * (128 << 10))
        config = t.file(name + ".conf", NGINX.format(dir=directory, port=self.port))
        self.command = [shutil.which("nginx") or "/usr/sbin/nginx", "-c", config, "-p", directory]
        self.start()
        wait_until("nginx listens", lambda: os.path.exists(directory + "/nginx.pid"))

    def taken(self, name, _answer):
        """The sha256 of an upload, which goes."""
        path = os.path.join(self.www, name)
        digest = file_digest(path)
        os.remove(path)
        return digest

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


def start_wrk(t, connections, target, seconds=SECONDS):
    return subprocess.Popen(["wrk", "-t1", "--timeout", "20s", f"-c{connections}", f"-d{seconds}s",
                             f"http://127.0.0.1:{t.port}{target}"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT)


@case()
def test_wrk(t):
    """1 to 2,000 connections: no socket error, no answer but 200."""
    need("wrk")
    nginx = Nginx(t)
    try:
        weir = t.weir(f"127.0.0.1:{nginx.port}", workers=1)
        for connections in CONNECTIONS:
            text = start_wrk(t, connections, "/").communicate()[0].decode()
            requests = int(re.search(r"(\d+) requests in", text)[1])
            t.note(f"{connections}: {requests} requests")
            assert "Socket errors" not in text and "Non-2xx" not in text, text
            assert requests > SECONDS * 100, text
        assert not weir.metric("weir_requests_total", code_class="5xx")
    finally:
        nginx.stop()


def sentences():
    """The table of causes: {code: sentence}."""
    with open(os.path.join(os.path.dirname(__file__), "..", "..", "docs", "errors.md"), encoding="utf-8") as page:
        rows = [[cell.strip() for cell in line.split("|")] for line in page if line.startswith("| `")]
    return {row[1].strip("`"): row[6] for row in rows}


def figures(weir):
    samples = weir.metrics()

    def total(name):
        return sum(value for n, _, value in samples if n == name)
    return {"requests": total("weir_requests_total"), "failed": total("weir_requests_failed_total"),
            "retries": total("weir_retries_total"), "dropped": total("weir_access_log_dropped_total"),
            "causes": {have["cause"]: value for n, have, value in samples if n == "weir_request_errors_total" and value},
            "classes": {c: sum(v for n, have, v in samples if n == "weir_requests_total" and have["code_class"] == c)
                        for c in ("2xx", "5xx", "none")}}


def begun(weir, origin):
    """How many slow answers of that origin are on their way."""
    rows = json.loads(weir.get("/connections?state=active&limit=10000")[1])["connections"]
    return sum(row["request"].get("origin") == origin and row["request"]["path"] == "/slow" and "status" in row["request"] for row in rows)


def agree(lines, counted, texts, connections):
    """The access log, the metrics and wrk tell of the same requests and the same failures, each with its cause."""
    known = sentences()
    failed = [line for line in lines if line["end"] != "ok"]
    for line in failed:
        assert line["error"] == known[line["end"]], line
    assert counted["dropped"] == 0 and counted["requests"] == len(lines), (counted, len(lines))
    assert counted["causes"] == collections.Counter(line["end"] for line in failed), (counted, len(failed))
    assert counted["failed"] == sum(counted["causes"].values()) == len(failed), counted
    status = collections.Counter(f"{line['status'] // 100}xx" if "status" in line else "none" for line in lines)
    assert counted["classes"] == {c: status.get(c, 0) for c in ("2xx", "5xx", "none")}, (counted, status)
    # What wrk cut off when its time was over is the client's doing, and may be answered or not.
    ours = [line for line in failed if not line["end"].startswith("client_")]

    def told(pattern):
        return sum(int(found) for text in texts for found in re.findall(pattern, text))
    assert told(r"connect (\d+), read") == told(r"write (\d+), timeout") == told(r"timeout (\d+)\n") == 0, texts
    assert told(r"Non-2xx or 3xx responses: (\d+)") == sum(line.get("status", 0) >= 500 for line in ours), (texts, counted)
    assert told(r", read (\d+), write") == sum(line.get("status", 0) < 500 for line in ours), (texts, counted)  # in mid-answer
    done = told(r"(\d+) requests in")
    whole = sum(line["end"] == "ok" or line.get("status", 0) >= 500 for line in lines)
    assert done <= whole <= done + connections, (texts, whole)


@case()
def test_origin_killed_under_load(t):
    """One of two origins is killed and restarted under load: only requests that were with it can fail, each logged with its cause."""
    need("wrk")
    stays, dies = Nginx(t, "stays"), Nginx(t, "dies")
    address = f"127.0.0.1:{dies.port}"
    try:
        cut = 0
        for connections in (64, 512, 2000):
            path = os.path.join(t.directory, f"access-{connections}.log")
            weir = t.weir(f"127.0.0.1:{stays.port}", address, workers=1, log={"access": {"path": path}})
            loads = [start_wrk(t, count, target, SECONDS + 4) for count, target in ((connections, "/"), (SLOW, "/slow"))]
            time.sleep(SECONDS / 4)
            wait_until("slow answers of that origin have begun", lambda weir=weir: begun(weir, address) >= SLOW // 4)
            dies.kill()
            time.sleep(SECONDS / 4)
            dies.start()
            back_at = time.time()
            texts = [load.communicate()[0].decode() for load in loads]
            wait_until("the last requests have ended", lambda weir=weir: weir.metric("weir_connections") == 0)
            counted = figures(weir)
            weir.term()
            assert weir.wait_exit() == 0
            with open(path, encoding="utf-8") as source:
                lines = [json.loads(line) for line in source]
            agree(lines, counted, texts, connections + SLOW)
            failed = [line for line in lines if line["end"] != "ok" and not line["end"].startswith("client_")]
            causes = collections.Counter(line["end"] for line in failed)
            t.note(f"{connections}: {len(lines)} requests, {len(failed)} failed {dict(causes)}, {counted['retries']:.0f} tried again")
            assert counted["retries"], "nothing was with the origin when it was killed"
            cut += len(failed)
            assert len(failed) <= connections + SLOW, causes
            assert all(line["origin"] == address for line in failed), failed[:3]
            assert all(line["status"] == 200 for line in lines if line["end"] == "ok"), texts
            back = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(back_at))
            assert any(line["ts"] > back for line in lines if line["origin"] == address and line["end"] == "ok"), "it never came back"
        assert cut, "not one answer was on its way when its origin was killed"
    finally:
        stays.stop()
        dies.stop()


def file_digest(path):
    with open(path, "rb") as source:
        return hashlib.file_digest(source, "sha256").hexdigest()


def make_big(path):
    """A file of BIG bytes that repeat nowhere near; its sha256."""
    digest = hashlib.sha256()
    with open(path, "wb") as out:
        for i in range(BIG // PIECE):
            piece = hashlib.sha256(b"%d" % i).digest() * (PIECE // 32)
            digest.update(piece)
            out.write(piece)
    return digest.hexdigest()


class HttpServer:
    """Python's http.server, serving a folder and taking uploads (lib/http_server.py)."""

    def __init__(self, t, folder):
        self.port = free_port()
        script = os.path.join(os.path.dirname(__file__), "lib", "http_server.py")
        self.process = subprocess.Popen([sys.executable, script, str(self.port), folder], cwd=t.directory)
        wait_until("http.server listens", lambda: listening_inode(self.port))

    @staticmethod
    def taken(_name, answer):
        return answer.body.decode()

    def stop(self):
        self.process.kill()
        self.process.wait(20)


def download(t, target):
    """(framing, sha256) of an answer."""
    client = t.client()
    client.request("GET", target)
    answer = client.head()
    assert answer.status == 200, answer
    digest, size = hashlib.sha256(), 0
    for piece in client.pieces(answer):
        digest.update(piece)
        size += len(piece)
    client.close()
    assert size == BIG, f"{target}: {size} bytes"
    return answer.framing, digest.hexdigest()


def upload(t, target, path, chunked):
    client = t.client()
    client.reader.limit_s = 60
    client.send(head_bytes("PUT", target, [("Transfer-Encoding", "chunked") if chunked else ("Content-Length", str(BIG))]))
    with open(path, "rb") as source:
        while piece := source.read(PIECE):
            client.send(b"%x\r\n%s\r\n" % (len(piece), piece) if chunked else piece)
    if chunked:
        client.send(b"0\r\n\r\n")
    answer = client.response()
    client.close()
    assert answer.status == 201, answer
    return answer


@case()
def test_1_gib(t):
    """Down and up, both framings, against nginx and http.server: the same bytes, and the daemon's memory stays small."""
    nginx = Nginx(t)
    path = os.path.join(nginx.www, "big")
    python = HttpServer(t, nginx.www)
    try:
        want = make_big(path)
        for origin, name in ((nginx, "nginx"), (python, "http.server")):
            weir = t.weir(f"127.0.0.1:{origin.port}", workers=1)
            for framing, target in (("length", "/big"), ("chunked", "/chunked/big")):
                began = time.monotonic()
                assert download(t, target) == (framing, want), f"{name}, {framing}, down: sha256 differs"
                middle = time.monotonic()
                answer = upload(t, f"/up/{framing}", path, framing == "chunked")
                assert origin.taken(f"up/{framing}", answer) == want, f"{name}, {framing}, up: sha256 differs"
                peak = weir.peak_rss_kib()
                t.note(f"{name} {framing}: down {middle - began:.1f} s, up {time.monotonic() - middle:.1f} s, "
                       f"peak RSS {peak / 1024:.1f} MiB")
                assert peak < RSS_LIMIT_KIB, peak
            weir.term()
            assert weir.wait_exit() == 0
    finally:
        nginx.stop()
        python.stop()


@case(ids=["M7"])
def test_stalled_peers_keep_the_budget(t):
    keep_budget(t, 256, 10_000, 2_000, 200)


@case(ids=["M4"])
def test_slow_readers_of_64_mib_grow_little(t):
    slow_down(t, 32, 64 * MIB, False)


@case(ids=["M4"])
def test_slow_readers_of_64_mib_in_chunks_grow_little(t):
    slow_down(t, 32, 64 * MIB, True)


@case(ids=["M4"])
def test_uploads_of_64_mib_to_a_slow_origin_grow_little(t):
    slow_up(t, 96, 64 * MIB, False)

"""The access log, and the configuration's own tests."""
import datetime
import fcntl
import json
import os
import re
import signal
import struct
import termios
import threading
import time

from lib.case import case
from lib.weir import to_yaml
from lib.wire import Client, head_bytes, wait_until

ONE = ("epoll",)
KEYS = {"ts", "request_id", "listener", "protocol", "client_ip", "peer_ip", "method", "host", "path", "status", "scheme", "user_agent", "bytes_in",
        "bytes_out", "duration_ms", "connect_ms", "first_byte_ms", "route", "upstream", "origin", "reused", "attempts", "end", "generation",
        "engine"}


def lines_of(path, count):
    def enough():
        return os.path.exists(path) and len(open(path, encoding="utf-8").read().splitlines()) >= count
    wait_until(f"{count} lines in the access log", enough)
    return open(path, encoding="utf-8").read().splitlines()


@case()
def test_access_json(t):
    origin = t.origin()
    path = os.path.join(t.directory, "access.log")
    t.weir(origin, log={"access": {"path": path}})
    client = t.client()
    assert client.get("/a?b=1", headers=[("User-Agent", 'a "b"'), ("Cookie", "secret=1")]).status == 200
    client.request("POST", "/up", [("Authorization", "Basic secret"),
                                   ("traceparent", "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01")], body=b"12345")
    assert client.response().status == 200
    first, second = [json.loads(line) for line in lines_of(path, 2)]
    assert set(first) - {"stall_origin_ms"} == KEYS, set(first) ^ KEYS
    assert (first["method"], first["path"], first["status"], first["end"]) == ("GET", "/a?b=1", 200, "ok"), first
    assert first["user_agent"] == 'a "b"' and first["origin"] == origin.address and first["engine"] == t.engine, first
    assert (second["method"], second["bytes_in"], second["reused"]) == ("POST", 5, True), second
    assert "connect_ms" not in second, "what does not apply is left out"
    assert second["trace_id"] == "4bf92f3577b34da6a3ce929d0e0e4736" and second["span_id"] == "00f067aa0ba902b7", second
    assert "secret" not in open(path, encoding="utf-8").read()


@case(engines=ONE)
def test_access_says_why(t):
    path = os.path.join(t.directory, "access.log")
    t.weir("127.0.0.1:1", log={"access": {"path": path}})
    assert t.client().get("/").status == 502
    raw = t.client()
    raw.send(b"GET / HTTP/1.1\r\n\r\n")
    assert raw.response().status == 400
    down, bad = [json.loads(line) for line in lines_of(path, 2)]
    assert (down["status"], down["end"]) == (502, "connect_failed") and down["error"], down
    assert (bad["status"], bad["end"]) == (400, "bad_host") and "route" not in bad and "origin" not in bad, bad


COMBINED = re.compile(r'^(?P<host>\S+) (?P<ident>\S+) (?P<user>\S+) \[(?P<time>[^\]]+)\] "(?P<line>(?:[^"\\]|\\.)*)" '
                      r'(?P<status>\d{3}) (?P<bytes>\d+|-) "(?P<referer>(?:[^"\\]|\\.)*)" "(?P<agent>(?:[^"\\]|\\.)*)"$')


@case(engines=ONE)
def test_access_combined(t):
    path = os.path.join(t.directory, "access.log")
    t.weir(t.origin(), log={"access": {"path": path, "format": "combined"}})
    client = t.client()
    client.get("/x", headers=[("User-Agent", 'u "quoted" \xe9'), ("Referer", "r")])
    old = t.client()
    old.send(b"GET /old HTTP/1.0\r\nHost: a\r\n\r\n")
    assert old.response().status == 200
    bad = t.client()
    bad.send(b"nonsense\r\n\r\n")
    assert bad.response().status == 400
    got = [COMBINED.match(line) for line in lines_of(path, 3)]
    assert all(got), open(path, encoding="ascii").read()
    for one in got:
        datetime.datetime.strptime(one["time"], "%d/%b/%Y:%H:%M:%S %z")
    first, second, third = got
    assert (first["host"], first["line"], first["status"]) == ("127.0.0.1", "GET /x HTTP/1.1", "200"), first[0]
    assert (first["referer"], first["agent"]) == ("r", "u \\x22quoted\\x22 \\xe9"), first[0]
    assert second["line"] == "GET /old HTTP/1.0", second[0]
    assert (third["line"], third["status"]) == ("-", "400"), third[0]


@case(engines=ONE)
def test_logrotate(t):
    """Rename, USR1, again and again while clients work: every request has its line in one of the files, none in two."""
    path = os.path.join(t.directory, "access.log")
    weir = t.weir(t.origin(), workers=2, log={"access": {"path": path}})
    stop, asked, trouble = threading.Event(), [0] * 4, []

    def work(index):
        try:
            client = Client(("127.0.0.1", t.port))
            while not stop.is_set():
                assert client.get(f"/{index}/{asked[index]}").status == 200
                asked[index] += 1
            client.close()
        except Exception as error:
            trouble.append(repr(error))
    threads = [threading.Thread(target=work, args=(i,), daemon=True) for i in range(4)]
    for thread in threads:
        thread.start()
    rotated = []
    for turn in range(4):
        lines_of(path, 1)
        os.rename(path, f"{path}.{turn}")
        rotated.append(f"{path}.{turn}")
        weir.signal(signal.SIGUSR1)
        wait_until("the log is reopened", lambda: os.path.exists(path))
    lines_of(path, 1)
    stop.set()
    for thread in threads:
        thread.join(30)
    assert not trouble, trouble
    files = [*rotated, path]

    def logged():
        lines = []
        for name in files:
            lines += open(name, encoding="utf-8").read().splitlines()
        return lines
    wait_until("every line is written", lambda: len(logged()) >= sum(asked))
    paths = [json.loads(line)["path"] for line in logged()]
    assert sorted(paths) == sorted(f"/{i}/{n}" for i in range(4) for n in range(asked[i])), "a line is lost, doubled or torn"
    assert weir.metric("weir_access_log_dropped_total") == 0


@case()
def test_stalls(t):
    """Whom a body waited for. The origin pauses inside its answer, the client inside its request; no time has an upper bound here."""
    def handler(request, answer):
        request.body()
        answer.raw(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n")
        if request.target == "/pause":
            time.sleep(0.1)  # what is measured
        answer.raw(b"1\r\nb\r\n0\r\n\r\n")
    path = os.path.join(t.directory, "access.log")
    t.weir(t.origin(handler), log={"access": {"path": path}})
    client = t.client()
    assert client.get("/pause").body == b"ab"
    client.send(head_bytes("POST", "/", [("Content-Length", "2")]) + b"x")
    time.sleep(0.1)  # what is measured
    client.send(b"y")
    assert client.response().body == b"ab"
    origins, clients = [json.loads(line) for line in lines_of(path, 2)]
    assert origins["stall_origin_ms"] >= 80 and "stall_client_ms" not in origins, origins
    assert clients["stall_client_ms"] >= 80, clients


@case(engines=ONE)
def test_own_tests_guard_start_and_reload(t):
    good = t.config("127.0.0.1:9", tests=[{"get": "http://a.example/x", "expect": {"upstream": "app"}}])
    path = t.file("good.yaml", to_yaml(good))
    status, text = t.command("check", "-c", path)
    assert status == 0, text
    bad = dict(good, tests=[{"get": "http://a.example/x", "expect": {"status": 404}}])
    path = t.file("bad.yaml", to_yaml(bad))
    status, text = t.command("check", "-c", path)
    assert status == 78 and "expected status 404, got upstream app" in text and "bad.yaml:" in text, (status, text)
    status, text = t.command("run", "-c", path)
    assert status == 78 and "expected status 404, got upstream app" in text, (status, text)


class Unread:
    """A pipe that is held open and never read."""

    def __init__(self, t, descriptor):
        self.path = os.path.join(t.directory, "unread")
        os.mkfifo(self.path)
        self.reader = os.open(self.path, os.O_RDONLY | os.O_NONBLOCK)
        fcntl.fcntl(self.reader, fcntl.F_SETPIPE_SZ, 4096)
        self.wrapper = ("sh", "-c", f'exec "$@" {descriptor}>"$0"', self.path)

    def held(self):
        return struct.unpack("i", fcntl.ioctl(self.reader, termios.FIONREAD, b"\0\0\0\0"))[0]

    def close(self):
        os.close(self.reader)


@case(ids=["T4"], engines=ONE)
def test_stuck_stdout(t):
    """Standard output that takes nothing costs lines: requests, reloads, the reopening of logs and the end of the process go on."""
    pipe = Unread(t, 1)
    weir = t.weir(t.origin(), log={"access": {"path": "stdout"}}, wrapper=pipe.wrapper)
    client = t.client()
    target = "/" + "x" * 5000
    while pipe.held() < 4096:
        assert client.get(target).status == 200
    for number, said in ((signal.SIGUSR1, "logs reopened"), (signal.SIGHUP, r"\breloaded\b")):
        mark = len(weir.log())
        weir.signal(number)
        weir.wait_log(said, after=mark)
        assert client.get(target).status == 200
    weir.term()
    assert weir.wait_exit(20) == 0
    assert "its last lines are lost" in weir.log(), weir.log()
    pipe.close()


@case(ids=["T4"], engines=ONE)
def test_stuck_stderr(t):
    """The same of standard error and the daemon's own log."""
    pipe = Unread(t, 2)
    weir = t.weir(t.origin(), wrapper=pipe.wrapper)
    client = t.client()
    for _ in range(2000):  # each a line of less than 100 bytes, unless the one before has not been looked at yet
        weir.signal(signal.SIGUSR1)
        assert client.get().status == 200
        if pipe.held() > 3996:
            break
    for _ in range(50):
        weir.signal(signal.SIGUSR1)
        assert client.get().status == 200
    assert 3996 < pipe.held() <= 4096, pipe.held()
    weir.term()
    assert weir.wait_exit(20) == 0
    pipe.close()


@case(engines=ONE)
def test_full_disk_is_counted(t):
    weir = t.weir(t.origin(), log={"access": {"path": "/dev/full"}})
    client = t.client()
    for _ in range(3):
        assert client.get().status == 200
    wait_until("the lost lines are counted", lambda: weir.metric("weir_access_log_dropped_total") == 3)
    weir.wait_log(r"access log lines are lost .*error=\"No space left on device\"")

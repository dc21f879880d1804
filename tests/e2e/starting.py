"""Starting, refusing to start, and what a running weir says about itself."""
import itertools
import os
import re
import shutil
import socket
import subprocess
import time

from lib.case import MUST_BE_ZERO, Case, case
from lib.weir import free_port, to_yaml
from lib.wire import wait_until

NOBODY = 65534
USERS = itertools.count(61000)  # users of their own: the kernel counts locked memory by user, and gives it back late
ONE = ("epoll",)
LARGE = b"x" * (8 << 20)


@case(engines=ONE)
def test_version(t):
    status, text = t.command("version")
    assert status == 0 and re.search(r"weir \d+\.\d+", text), (status, text)


@case(engines=ONE)
def test_usage(t):
    for args in (["no-such-verb"], ["run", "--no-such-flag"], ["run", "-c"]):
        status, text = t.command(*args)
        assert status == 2 and text.strip(), (args, status, text)


@case(engines=ONE)
def test_check_good(t):
    path = t.file("good.yaml", to_yaml(t.config("127.0.0.1:9")))
    status, text = t.command("check", "-c", path)
    assert status == 0, text


BAD = """version: 1
listeners:
  - bind: "127.0.0.1:8080"
    engin: epoll
    protocols: yes
routes:
  - to: shopp
    match: {path: 7x, pth: /}
upstreams:
  shop: {servers: ["127.0.0.1:1"]}
timeouts: {response: 30}
"""


@case(engines=ONE)
def test_check_bad(t):
    """All problems, each with file:line:column and the nearest valid spelling, and status 78; nothing but these."""
    path = t.file("bad.yaml", BAD)
    status, text = t.command("check", "-c", path)
    assert status == 78, (status, text)
    want = ((4, 5, "engin", "engine"), (5, 16, "protocols", "list"), (7, 9, "shopp", "shop"), (8, 19, "7x", ""), (8, 23, "pth", "path"),
            (11, 22, "30", "unit"))
    lines = text.splitlines()
    assert len(lines) == len(want), text
    for said, (line, column, wrong, instead) in zip(lines, want):
        assert said.startswith(f"{path}:{line}:{column}: ") and wrong in said and instead in said, (said, line, column, wrong, instead)


@case(engines=ONE)
def test_check_runs_the_tests(t):
    """The configuration's own tests: those that fail are printed with place, expected and got, and make it 78."""
    routes = [{"name": "api", "match": {"path_prefix": "/api"}, "to": "app"}, {"match": {"path": "/old"}, "redirect": {
        "status": 308, "location": "/new"}}, {"name": "rest", "respond": {"status": 404, "body": "no"}}]
    good = [{"get": "http://a/api/x", "expect": {"upstream": "app", "route": "api"}}, {"get": "http://a/old", "expect": {"status": 308}}]
    bad = [{"get": "http://a/apis", "expect": {"upstream": "app"}}, {"get": "http://a/old", "expect": {"status": 301}}]

    def check(tests):
        return t.command("check", "-c", t.file("tested.yaml", to_yaml(t.config("127.0.0.1:9", routes=routes, tests=tests))))
    status, text = check(good)
    assert status == 0, (status, text)
    status, text = check([*good, *bad])
    assert status == 78, (status, text)
    lines = text.splitlines()
    assert len(lines) == 2, text
    for said, url, expected, got in ((lines[0], "http://a/apis", "upstream app", "status 404"),
                                     (lines[1], "http://a/old", "status 301", "status 308")):
        assert re.match(r".*/tested\.yaml:\d+:\d+: ", said) and url in said, said
        assert re.search(f"expected {expected}, got .*{got}", said), said


@case(engines=ONE)
def test_run_bad(t):
    path = t.file("bad.yaml", BAD)
    status, text = t.command("run", "-c", path)
    assert status == 78 and re.search(r"bad\.yaml:4:5", text), (status, text)
    status, text = t.command("run", "-c", path + ".none")
    assert status == 78 and "bad.yaml.none" in text, (status, text)
    path = t.file("broken.yaml", "version: 1\nlisteners: [\n")
    status, text = t.command("check", "-c", path)
    assert status == 78 and re.search(r"broken\.yaml:\d+:\d+", text), (status, text)


@case(ids=["E4"])
def test_bind_conflict(t):
    taken = socket.socket()
    taken.bind(("127.0.0.1", 0))
    taken.listen()
    port = taken.getsockname()[1]
    weir = t.launch(t.config("127.0.0.1:9", listeners=[{"bind": f"127.0.0.1:{port}", "engine": t.engine}]))
    assert weir.wait_exit() == 75
    text = weir.log()
    assert re.search(rf"127\.0\.0\.1:{port}", text) and re.search(r"(?i)address already in use|EADDRINUSE", text), text
    taken.close()


def as_nobody(t, memlock, config, user=NOBODY):
    """The binary and the config where nobody can read them, and weir started with this RLIMIT_MEMLOCK."""
    become = ("setpriv", f"--reuid={user}", f"--regid={user}", "--clear-groups", "--inh-caps=-all", "--bounding-set=-all")
    binary = os.path.join(t.directory, "weir")
    if t.binary != binary:
        shutil.copy(t.binary, binary)
        os.chmod(binary, 0o755)
        t.binary = binary
    os.chmod(t.directory, 0o777)
    return t.launch(config, wrapper=("prlimit", f"--memlock={memlock}:{memlock}", *become))


@case(ids=["E3", "E4"], engines=("io_uring",), root=True)
def test_memlock_io_uring_refuses(t):
    """64 KiB of locked memory: the start is refused, naming limit, need and remedy."""
    weir = as_nobody(t, 65536, t.config(t.origin()))
    status = weir.wait_exit()
    text = weir.log()
    t.note(f"refused after {time.monotonic() - weir.started_at:.2f} s with status {status}")
    assert status not in (0, 2, 78), status
    assert re.search(r"RLIMIT_MEMLOCK|memlock", text), text
    assert re.search(r"64 ?KiB|65536", text), "the limit is not named: " + text
    assert re.search(r"(?i)need", text) and re.search(r"LimitMEMLOCK|ulimit -l", text), "need or remedy is not named: " + text


@case(ids=["E3", "A1"], engines=("adaptive",), root=True)
def test_memlock_adaptive_serves(t):
    weir = as_nobody(t, 65536, t.config(t.origin()))
    weir.wait_ready([t.port])
    assert t.client().get().status == 200
    text = weir.log()
    told = [line for line in text.splitlines() if "RLIMIT_MEMLOCK" in line and "listening" not in line]
    t.note(told[0].strip() if told else "nothing said")
    assert len(told) == 1 and "INFO" in told[0] and "epoll" in told[0], f"want one INFO line, got {told}"
    assert not re.search(r"\b(WARN|ERROR)\b", text), text


def may_set_memlock(size):
    return subprocess.run(["prlimit", f"--memlock={size}:{size}", "true"], stderr=subprocess.DEVNULL, check=False).returncode == 0


@case(ids=["E3"], engines=("io_uring", "adaptive"), root=True)
def test_memlock_larger(t):
    """8 MiB and 128 MiB: io_uring serves, or says at once what it lacks; adaptive always serves."""
    for memlock in (8 << 20, 128 << 20):
        if not may_set_memlock(memlock):
            t.note(f"{memlock >> 20} MiB cannot be set here: the hard limit is lower and this root may not raise it")
            continue
        weir = as_nobody(t, memlock, t.config(t.origin()), next(USERS))
        if t.engine == "io_uring" and memlock == 8 << 20:
            wait_until("it serves or ends", lambda: not weir.alive() or "admin.sock" in os.listdir(t.directory))
            if not weir.alive():
                assert weir.wait_exit() not in (0, 2, 78)
                assert re.search(r"(?i)memlock", weir.log()), weir.log()
                t.note("8 MiB refused")
                os.remove(weir.log_path)
                continue
        weir.wait_ready([t.port])
        assert t.client().get().status == 200
        t.end(weir)


@case(ids=["E1", "O3"])
def test_says_what_it_is(t):
    """Engine and identity in the log and in /status."""
    weir = t.weir(t.origin())
    assert t.client().get().status == 200
    first = next(line for line in weir.log().splitlines() if line.strip())
    assert re.search(r"weir", first) and str(weir.pid) in first, f"the first log line lacks identity: {first}"
    assert re.search(t.engine, weir.log()), "the engine is not in the log"
    status = weir.status()
    flat = repr(status)
    assert str(weir.pid) in flat and t.engine in flat, status
    assert status["version"] and status["workers"] == 1 and status["config"]["hash"], status
    assert status["commit"] and status["commit"] in first, f"the first log line lacks the commit: {first}"
    assert status["config"]["hash"] in first, f"the first log line lacks the config's hash: {first}"


@case(ids=["O2"])
def test_metrics(t):
    origin = t.origin(lambda q, a: a.reply(int(q.target[1:]), [], b"x" * 10))
    weir = t.weir(origin)
    client = t.client()
    for code in (200, 201, 302, 404, 404, 500):
        assert client.get(f"/{code}").status == code
    got = {c: weir.metric("weir_requests_total", code_class=c) for c in ("2xx", "3xx", "4xx", "5xx")}
    assert got == {"2xx": 2, "3xx": 1, "4xx": 2, "5xx": 1}, got
    assert weir.metric("weir_upstream_requests_total", upstream="app", code_class="2xx") == 2
    assert weir.metric("weir_build_info") == 1
    assert weir.metric("weir_config_generation") is not None
    assert weir.metric("weir_connections", engine=t.engine) == 1
    assert weir.metric("weir_bytes_total", direction="in") > 200 and weir.metric("weir_bytes_total", direction="out") > 300


@case(ids=["O1"])
def test_zero_counters(t):
    """Every name that the harness watches exists, so that watching it means something."""
    weir = t.weir(t.origin())
    names = {name for name, _, _ in weir.metrics()}
    missing = [name for name in MUST_BE_ZERO if name not in names]
    assert not missing, f"not in /metrics: {missing}"


@case(ids=["O1", "X3"], engines=ONE)
def test_harness_control(t):
    """The check of the zero counters can fire: a fake process with one at 1 is found out."""
    class Fake:
        @staticmethod
        def alive():
            return True

        @staticmethod
        def metrics():
            return [(MUST_BE_ZERO[0], {"worker": "0"}, 1.0)]
    try:
        Case._finish_one(Fake)
    except AssertionError as error:
        assert MUST_BE_ZERO[0] in str(error)
    else:
        raise AssertionError("a counter at 1 went unnoticed")


@case(engines=ONE)
def test_admin_refusals(t):
    weir = t.weir(t.origin())
    assert weir.get("/no-such-thing")[0] == 404
    assert weir.get("/status", method="POST")[0] in (404, 405)
    mode = os.stat(weir.admin_path).st_mode & 0o777
    assert mode & 0o007 == 0, f"the admin socket is open to everybody: {mode:o}"


@case()
def test_notify(t):
    """systemd's protocol: READY=1, RELOADING=1 with MONOTONIC_USEC then READY=1, STOPPING=1."""
    path = os.path.join(t.directory, "notify.sock")
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    sock.bind(path)
    sock.settimeout(20)
    got = []

    def expect(*wanted):
        """Reads until a message has all of these; what comes on the way is kept."""
        while True:
            got.append(sock.recv(4096).decode())
            lines = got[-1].splitlines()
            if all(any(re.fullmatch(w, line) for line in lines) for w in wanted):
                return
    weir = t.weir(t.origin(), env={"NOTIFY_SOCKET": path})
    expect("READY=1")
    assert t.client().get().status == 200
    before = time.clock_gettime_ns(time.CLOCK_MONOTONIC) // 1000
    weir.hup()
    expect("RELOADING=1", r"MONOTONIC_USEC=\d+")
    stamp = int(re.search(r"MONOTONIC_USEC=(\d+)", got[-1])[1])
    assert before <= stamp <= time.clock_gettime_ns(time.CLOCK_MONOTONIC) // 1000, (before, stamp)
    expect("READY=1")
    weir.write_config("nonsense: [")
    weir.hup()
    expect("RELOADING=1", r"MONOTONIC_USEC=\d+")
    expect("READY=1")
    weir.term()
    expect("STOPPING=1")
    assert weir.wait_exit() == 0
    sock.close()


@case(ids=["E8", "E13"])
def test_out_of_descriptors(t):
    """More clients than descriptors: no spinning, those inside are served on, refusals are counted, and it recovers."""
    origin = t.origin()
    weir = t.weir(origin, wrapper=("prlimit", "--nofile=100:100"))
    inside = t.client()
    assert inside.get().status == 200
    crowd = []
    for _ in range(300):
        sock = socket.socket()
        sock.setblocking(False)
        sock.connect_ex(("127.0.0.1", t.port))
        crowd.append(sock)
    wait_until("descriptors are used up or refused", lambda: weir.open_fds() >= 60 or
               (weir.metric("weir_accept_refused_total") or 0) > 0)
    before = weir.cpu_seconds()
    time.sleep(1.0)  # the length of the measurement
    share = (weir.cpu_seconds() - before) / 1.0
    t.note(f"{share * 100:.1f} % CPU, {weir.open_fds()} descriptors")
    assert share < 0.05 or t.sanitized and share < 0.2, f"{share * 100:.0f} % CPU with no descriptor left"
    assert inside.get("/still").status == 200
    for sock in crowd:
        sock.close()

    def again():
        try:
            return t.client().get("/after").status == 200
        except OSError:
            return False  # the crowd's ends have not all been noticed yet
    wait_until("a new client is served", again)
    refused = weir.metric("weir_accept_refused_total")
    assert refused is not None and refused > 0, "nothing was counted as refused"
    assert len(re.findall(r"(?i)EMFILE|too many open files|descriptors|connection limit", weir.log())) <= 10, weir.log()


@case(engines=ONE)
def test_free_port_control(t):
    """The identity check can fire: a port held by another process is not taken for weir's."""
    other = socket.socket()
    port = free_port()
    other.bind(("127.0.0.1", port))
    other.listen()
    weir = t.weir(t.origin())
    try:
        weir.wait_ready([port])
    except AssertionError as error:
        assert "another process" in str(error)
    else:
        raise AssertionError("a foreign listener went unnoticed")
    other.close()


@case(ids=["E10"])
def test_stalled_readers(t):
    """200 readers that read nothing cost nothing."""
    weir = t.weir(t.origin(lambda q, a: a.reply(200, [], LARGE)))
    for _ in range(200):
        client = t.client(rcvbuf=4096)
        client.request("GET", "/")
    moved = [-1, 0]

    def settled():
        now = weir.cpu_seconds()
        moved[1] = moved[1] + 1 if now - moved[0] < 0.0005 else 0
        moved[0] = now
        return moved[1] > 40
    wait_until("everything that fits has moved", settled)
    before = weir.cpu_seconds()
    time.sleep(1.0)  # the length of the measurement
    share = (weir.cpu_seconds() - before) / 1.0
    t.note(f"{share * 100:.2f} % CPU")
    assert share < 0.02 or t.sanitized and share < 0.1, f"{share * 100:.1f} % CPU for readers that read nothing"

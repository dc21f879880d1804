"""/metrics: its form, its names against docs/metrics.md, and that no client can make it grow."""
import os
import re
import shutil
import subprocess
import threading

from lib.case import case
from lib.wire import wait_until

ONE = ("epoll",)
PAGE = os.path.join(os.path.dirname(__file__), "..", "..", "docs", "metrics.md")


def documented():
    """{name: (type, labels)} of the page's table."""
    found = {}
    with open(PAGE, encoding="utf-8") as page:
        for line in page:
            match = re.match(r"^\| ((?:`weir_\w+`(?:, )?)+) \| (\w+) \| ([^|]*)\|", line)
            if match:
                for name in re.findall(r"`(\w+)`", match[1]):
                    found[name] = (match[2], set(re.findall(r"`(\w+)`", match[3])))
    assert len(found) > 25, found
    return found


def exercise(t):
    origin = t.origin(lambda q, a: a.reply(int(q.target[1:4]), [], b"x" * 10))
    weir = t.weir(origin, routes=[{"match": {"path_prefix": "/"}, "to": "app"}])
    client = t.client()
    for code in (200, 201, 302, 404, 500):
        assert client.get(f"/{code}").status == code
    bad = t.client()
    bad.send(b"GET / HTTP/1.1\r\n\r\n")
    assert bad.response().status == 400
    return weir


@case(ids=["O2"], engines=ONE)
def test_names_are_documented(t):
    weir = exercise(t)
    _, text = weir.get("/metrics")
    types = dict(re.findall(r"^# TYPE (\S+) (\S+)$", text, re.M))
    pages = documented()
    assert {n: k for n, (k, _) in pages.items()} == types, set(pages.items()) ^ set(types.items())
    for name, labels, _ in weir.metrics():
        family = name if name in pages else re.sub(r"_(bucket|sum|count)$", "", name)
        assert set(labels) - {"le"} == pages[family][1], (name, labels, pages[family][1])


@case(engines=ONE)
def test_form(t):
    """Each family once, with HELP and TYPE before its samples; no series twice; and promtool, where there is one, agrees."""
    weir = exercise(t)
    _, text = weir.get("/metrics")
    family, seen, series = None, set(), set()
    for line in text.splitlines():
        if line.startswith("# HELP "):
            family = line.split(" ")[2]
            assert family not in seen, f"{family} comes twice"
            seen.add(family)
        elif line.startswith("# TYPE "):
            assert line.split(" ")[2] == family, line
        else:
            name = line.rsplit(" ", 1)[0]
            assert name not in series, f"{name} comes twice"
            series.add(name)
            assert name.startswith(family), f"{name} stands under {family}"
    promtool = shutil.which("promtool")
    if promtool is None:
        t.note("no promtool here")
        return
    done = subprocess.run([promtool, "check", "metrics"], input=text, text=True, capture_output=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@case()
def test_histograms(t):
    weir = exercise(t)
    for name, label, count in (("weir_request_duration_seconds", "listener", 6), ("weir_upstream_connect_seconds", "upstream", 1)):
        buckets = [(have["le"], v) for n, have, v in weir.metrics() if n == name + "_bucket"]
        assert buckets[-1][0] == "+Inf" and [v for _, v in buckets] == sorted(v for _, v in buckets), buckets
        bounds = [float(bound) for bound, _ in buckets]
        assert bounds == sorted(bounds) and len(set(bounds)) == len(bounds), bounds
        assert buckets[-1][1] == weir.metric(name + "_count") == count, (name, buckets)
        assert 0 < weir.metric(name + "_sum") < 60, weir.metric(name + "_sum")


@case(ids=["O2"], engines=ONE)
def test_no_client_makes_it_grow(t):
    weir = exercise(t)
    before = {(n, str(labels)) for n, labels, _ in weir.metrics()}
    for turn in range(50):
        client = t.client()
        client.request(f"M{turn}", f"/200/{turn}", [("Host", f"h{turn}.example"), ("User-Agent", f"u{turn}"), (f"X-{turn}", "y")])
        assert client.response().status == 200
    after = {(n, str(labels)) for n, labels, _ in weir.metrics()}
    assert after == before, after - before


@case()
def test_active_and_idle(t):
    gate = threading.Event()
    weir = t.weir(t.origin(lambda q, a: (gate.wait(60) if q.target == "/slow" else None, a.reply(200, [], b"x"))))
    idle, active = t.client(), t.client()
    assert idle.get().status == 200
    active.request("GET", "/slow")

    def now():
        return weir.metric("weir_connections", state="active"), weir.metric("weir_connections", state="idle")
    wait_until("one is active, one idle", lambda: now() == (1, 1))
    gate.set()
    assert active.response().status == 200
    wait_until("both are idle", lambda: now() == (0, 2))
    idle.close()
    active.close()
    wait_until("both are gone", lambda: now() == (0, 0))


@case(engines=ONE)
def test_requests_by_origin(t):
    a, b = t.origin(), t.origin()
    weir = t.weir(a, b)
    for _ in range(4):
        assert t.client().get().status == 200
    for origin in (a, b):
        assert weir.metric("weir_upstream_requests_total", upstream="app", origin=origin.address, code_class="2xx") == 2
    assert weir.metric("weir_upstream_connect_seconds_count", upstream="app") == weir.metric("weir_upstream_connects_total") == 2

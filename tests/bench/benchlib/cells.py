"""The cells: what is done to an arm in one slice, and what is kept of it. Every cell gives one dictionary a slice."""
import json
import os
import pathlib
import signal
import subprocess
import threading

from . import memory
from .arms import LOAD_CPU, Void, which

HERE = pathlib.Path(__file__).resolve().parent.parent

# Closed loop, by wrk: connections, path, what wrk sends, the arm's port.
CLOSED = {
    "get1": (1, "/", {}, "main"),
    "get8": (8, "/", {}, "main"),
    "get64": (64, "/", {}, "main"),
    "get512": (512, "/", {}, "main"),
    "get64unix": (64, "/", {}, "unix"),
    "1k": (64, "/1k", {}, "main"),
    "10k": (64, "/10k", {}, "main"),
    "post4k": (64, "/post", {"BENCH_METHOD": "POST", "BENCH_BODY": "4096"}, "main"),
    "churn": (64, "/", {"BENCH_CLOSE": "1"}, "main"),
    "1m": (16, "/1m", {}, "main"),
    "reload": (64, "/", {}, "main"),
}
# Open loop, at 70 % of what the same arm did just before in a closed loop with as many connections.
OPEN = {"p99": (64, "/")}
OPEN_SHARE, OPEN_SECONDS = 0.7, 5
MEMORY = {"idle": memory.idle_cell, "down64m": memory.down_cell, "up64m": memory.up_cell}
RELOADS_EVERY_S = 0.2
ALL = [*CLOSED, *OPEN, *MEMORY]


def can(cell, arm):
    """Some arms have no such cell: nothing to reload, no second origin, or no proxy at all."""
    kind = arm.split(".")[0]
    if cell == "reload":
        return kind in ("nginx", "weir-epoll", "weir-uring")
    if cell in ("get64unix", "down64m", "up64m"):
        return kind not in ("direct", "relay", "nghttpx")
    return not (cell == "idle" and kind in ("direct", "relay"))


def wrk(port, cell, seconds):
    connections, path, sends, _ = CLOSED[cell]
    text = subprocess.run(["taskset", "-c", LOAD_CPU, which("wrk"), "-t1", f"-c{connections}", f"-d{seconds}s", "--timeout", "10s",
                           "-s", str(HERE / "peers/load.lua"), f"http://127.0.0.1:{port}{path}"], env=dict(os.environ, **sends),
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False).stdout.decode("utf-8", "replace")
    line = next((line for line in text.splitlines() if line.startswith("BENCH ")), None)
    if line is None:
        raise Void(f"wrk gave no result: {text[-500:]}")
    return json.loads(line[6:])


class Reloading:
    """HUP to a process, again and again, while this lives."""

    def __init__(self, process):
        self.process, self.over, self.count = process, threading.Event(), 0
        self.thread = threading.Thread(target=self._run, daemon=True)

    def _run(self):
        while not self.over.wait(RELOADS_EVERY_S):
            self.process.signal(signal.SIGHUP)
            self.count += 1

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.over.set()
        self.thread.join()


def closed_slice(process, cell, seconds):
    growth, before = process.metric("weir_pool_growth_total"), process.cpu_ns()
    port = process.ports[CLOSED[cell][3]]
    if cell == "reload":   # workers come and go, so their CPU time is no figure here
        with Reloading(process) as reloading:
            got = wrk(port, cell, seconds)
        got["reloads"] = reloading.count
    else:
        got = wrk(port, cell, seconds)
        got["cpu_ns"] = process.cpu_ns() - before
    got["growth"] = process.metric("weir_pool_growth_total") - growth
    got["rss_kib"] = process.rss_kib()
    return got


def open_slice(process, cell, seconds, tool, samples):
    """The pilot, then the schedule. Its samples stay in the file `samples`: uint32, tenths of a microsecond."""
    connections, path = OPEN[cell]
    pilot = wrk(process.port, "get64", seconds)
    rate = max(1, int(pilot["requests"] / pilot["us"] * 1e6 * OPEN_SHARE))
    stalls, growth = process.metric("weir_loop_stalls_total"), process.metric("weir_pool_growth_total")
    done = subprocess.run(["taskset", "-c", LOAD_CPU, tool, str(process.port), path, str(rate), str(connections), str(OPEN_SECONDS),
                           samples], stdout=subprocess.PIPE, stderr=subprocess.PIPE, check=False)
    if done.returncode != 0:
        raise Void(f"bench_load: {done.stderr.decode()[-500:]}")
    got = json.loads(done.stdout.decode().splitlines()[-1])
    got.update(rate=rate, samples=os.path.basename(samples), stalls=process.metric("weir_loop_stalls_total") - stalls,
               growth=process.metric("weir_pool_growth_total") - growth)
    return got


def memory_slice(process, cell):
    return MEMORY[cell](process)

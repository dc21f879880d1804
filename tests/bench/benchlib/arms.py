"""The programs of a run: how each starts, that it is the one that listens, its CPU time, what it must not have counted."""
import hashlib
import os
import pathlib
import shutil
import socket
import subprocess
import sys
import time

HERE = pathlib.Path(__file__).resolve().parent.parent
ROOT = HERE.parent.parent
sys.path.insert(0, str(ROOT / "tests/e2e"))
from lib.case import MUST_BE_ZERO  # noqa: E402
from lib.weir import UnixHttp, listening_inode, parse_metrics  # noqa: E402

PROXY_CPU, LOAD_CPU = "0", "1"


class Void(Exception):
    """The run proves nothing: a wrong process, a failed start, a counter that must be zero."""


def which(program):
    found = shutil.which(program, path=os.environ.get("PATH", "") + ":/usr/sbin:/sbin:/usr/local/sbin")
    if not found:
        raise Void(f"{program} is not installed (apt-get install {program})")
    return found


def sha256(path):
    with open(path, "rb") as source:
        return hashlib.sha256(source.read()).hexdigest()


def template(name, directory, out, **values):
    text = (HERE / "peers" / name).read_text(encoding="utf-8")
    for key, value in dict(values, DIR=directory).items():
        text = text.replace(f"@{key}@", str(value))
    path = os.path.join(directory, out)
    with open(path, "w", encoding="utf-8") as file:
        file.write(text)
    return path


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class Process:
    """A program with all its children, pinned to one CPU."""

    def __init__(self, name, command, port, directory, cpu, ports=None):
        self.name, self.port, self.directory = name, port, directory
        self.ports = {"main": port, **(ports or {})}   # what a cell may ask for: main, unix, slow
        self.log_path = os.path.join(directory, "log")
        with open(self.log_path, "wb") as log:
            self.process = subprocess.Popen(["taskset", "-c", cpu, *command], stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        self._wait()

    def _wait(self):
        end = time.monotonic() + 20
        while not listening_inode(self.port):
            if self.process.poll() is not None or time.monotonic() > end:
                raise Void(f"{self.name} did not start (status {self.process.poll()}): {self.log()[-800:]}")
            time.sleep(0.01)
        if not self.owns(listening_inode(self.port)):
            raise Void(f"{self.name}: port {self.port} belongs to another process")

    def pids(self):
        found, todo = [], [self.process.pid]
        while todo:
            pid = todo.pop()
            found.append(pid)
            try:
                for task in os.listdir(f"/proc/{pid}/task"):
                    with open(f"/proc/{pid}/task/{task}/children", encoding="ascii") as source:
                        todo += [int(child) for child in source.read().split()]
            except OSError:
                continue
        return found

    def owns(self, inode):
        for pid in self.pids():
            for fd in os.listdir(f"/proc/{pid}/fd"):
                try:
                    if os.readlink(f"/proc/{pid}/fd/{fd}") == f"socket:[{inode}]":
                        return True
                except OSError:
                    continue
        return False

    def cpu_ns(self):
        """Run time of all threads of all its processes, from the scheduler's own count. A thread that ended in between is an error
        of at most its last slice; none of these programs ends threads under load."""
        total = 0
        for pid in self.pids():
            for task in os.listdir(f"/proc/{pid}/task"):
                with open(f"/proc/{pid}/task/{task}/schedstat", encoding="ascii") as source:
                    total += int(source.read().split()[0])
        return total

    def signal(self, number):
        self.process.send_signal(number)

    def rss_kib(self):
        total = 0
        for pid in self.pids():
            with open(f"/proc/{pid}/statm", encoding="ascii") as source:
                total += int(source.read().split()[1]) * os.sysconf("SC_PAGESIZE") // 1024
        return total

    def log(self):
        with open(self.log_path, encoding="utf-8", errors="replace") as source:
            return source.read()

    def first_line(self):
        return next((line.strip() for line in self.log().splitlines() if line.strip()), "")

    def metrics(self):
        path = os.path.join(self.directory, "admin.sock")
        if not os.path.exists(path):
            return []
        connection = UnixHttp(path)
        try:
            connection.request("GET", "/metrics")
            return parse_metrics(connection.getresponse().read().decode())
        finally:
            connection.close()

    def metric(self, name):
        return sum(value for n, _, value in self.metrics() if n == name)

    def check_counters(self):
        bad = {n: v for n, _, v in self.metrics() if n in MUST_BE_ZERO and v}
        if bad:
            raise Void(f"{self.name}: counters that must be zero: {bad}")

    def stop(self):
        if self.process.poll() is None:
            self.process.terminate()
            try:
                self.process.wait(15)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()


def unix_path(directory):
    """Where the origin listens too."""
    return os.path.join(directory, "origin.sock")


def start_origin(directory):
    www = os.path.join(directory, "www")
    os.makedirs(www, exist_ok=True)
    for name, size in (("1k", 1024), ("10k", 10240), ("1m", 1 << 20)):
        with open(os.path.join(www, name), "wb") as out:
            out.write(b"0123456789abcde\n" * (size // 16))
    port = free_port()
    config = template("origin.conf.in", directory, "origin.conf", PORT=port, UNIX=unix_path(directory))
    return Process("origin", [which("nginx"), "-e", "stderr", "-c", config, "-p", directory], port, directory, LOAD_CPU)


class Arms:
    """How an arm's name becomes a program. NAME.aa is a second instance of NAME."""

    def __init__(self, weir, relay):
        self.weir, self.relay = weir, relay

    def binary(self, arm):
        kind = arm.split(".")[0]
        ours = {"relay": self.relay, "weir-epoll": self.weir, "weir-uring": self.weir}
        return ours[kind] if kind in ours else which(kind)

    def version(self, arm):
        kind = arm.split(".")[0]
        flag = {"nginx": "-v", "haproxy": "-v", "h2o": "--version", "nghttpx": "--version"}.get(kind, "version")
        if kind == "relay":
            return "bench_relay"
        done = subprocess.run([self.binary(arm), flag], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)
        return done.stdout.decode().strip().splitlines()[0]

    def start(self, arm, directory, origin, slow_port):
        kind, port = arm.split(".")[0], free_port()
        os.makedirs(directory, exist_ok=True)
        ports = {} if kind in ("relay", "nghttpx") else {"unix": free_port(), "slow": free_port()}
        values = {"PORT": port, "ORIGIN": origin.port, "LOG": "stderr", "ORIGIN_UNIX": unix_path(origin.directory),
                  "ORIGIN_SLOW": slow_port, "PORT_UNIX": ports.get("unix"), "PORT_SLOW": ports.get("slow")}
        binary = self.binary(arm)
        if kind == "nginx":
            command = [binary, "-e", "stderr", "-c", template("nginx.conf.in", directory, "nginx.conf", **values), "-p", directory]
        elif kind == "haproxy":
            command = [binary, "-db", "-f", template("haproxy.cfg.in", directory, "haproxy.cfg", **values)]
        elif kind == "relay":
            command = [binary, str(port), str(origin.port)]
        elif kind == "h2o":
            command = [binary, "-m", "worker", "-c", template("h2o.conf.in", directory, "h2o.conf", **values)]
        elif kind == "nghttpx":
            command = [binary, "--conf=" + template("nghttpx.conf.in", directory, "nghttpx.conf", **values)]
        else:
            engine = {"weir-epoll": "epoll", "weir-uring": "io_uring"}[kind]
            command = [binary, "run", "-c", template("weir.yaml.in", directory, "weir.yaml", ENGINE=engine, **values)]
        return Process(arm, command, port, directory, PROXY_CPU, ports)

"""One weir process under test: its config, its log, its admin socket and what the kernel says about it."""
import http.client
import json
import os
import random
import re
import signal
import socket
import subprocess
import threading
import time

from .wire import wait_until

_ports_lock = threading.Lock()
_ports_given = set()


def free_port():
    """A port that nothing uses now and that no other case was given. Below the kernel's range for outgoing connections."""
    with _ports_lock:
        for _ in range(1000):
            port = random.randrange(12000, 31000)
            if port in _ports_given:
                continue
            with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
                try:
                    probe.bind(("127.0.0.1", port))
                except OSError:
                    continue
            _ports_given.add(port)
            return port
    raise AssertionError("no free port found")


def to_yaml(value, indent=0):
    """Plain values as block YAML; text is quoted only where YAML would read it as something else."""
    pad = "  " * indent
    if isinstance(value, dict):
        if not value:
            return " {}\n"
        out = "\n" if indent else ""
        return out + "".join(f"{pad}{key}:{to_yaml(item, indent + 1)}" for key, item in value.items())
    if isinstance(value, list):
        if not value:
            return " []\n"
        out = "\n"
        for item in value:
            text = to_yaml(item, indent + 1)
            if isinstance(item, dict) and item:
                text = " " + text.lstrip("\n")[2 * (indent + 1):]
            out += f"{pad}-{text}"
        return out
    return f" {scalar(value)}\n"


def scalar(value):
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (int, float)):
        return str(value)
    plain = re.fullmatch(r"[A-Za-z/][A-Za-z0-9_./-]*|[0-9]+(ms|s|m|h|B|KiB|MiB|GiB|%)", value)
    if plain and value not in ("true", "false", "null"):
        return value
    return json.dumps(value)


class UnixHttp(http.client.HTTPConnection):
    def __init__(self, path):
        super().__init__("localhost", timeout=20)
        self.path = path

    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self.path)


METRIC = re.compile(r'^([a-zA-Z_:][a-zA-Z0-9_:]*)(?:\{(.*)\})?\s+(\S+)(?:\s+\d+)?$')
LABEL = re.compile(r'([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\]|\\.)*)"')


def parse_metrics(text):
    """Prometheus text as a list of (name, labels, value); a line that is neither a comment nor a sample is an error."""
    samples = []
    for line in text.splitlines():
        if not line or line.startswith("#"):
            continue
        match = METRIC.match(line)
        assert match, f"not a line of Prometheus text: {line!r}"
        samples.append((match[1], dict(LABEL.findall(match[2] or "")), float(match[3])))
    return samples


class Weir:
    def __init__(self, binary, directory, config, wrapper=(), env=None, args=("run", "-c")):
        self.binary, self.directory = binary, directory
        self.config_path = os.path.join(directory, "weir.yaml")
        self.log_path = os.path.join(directory, "weir.log")
        self.admin_path = os.path.join(directory, "admin.sock")
        self.write_config(config)
        self.stopped = False  # the case ended it and has judged how
        self.env = dict(os.environ, **(env or {}))
        self.started_at = time.monotonic()
        with open(self.log_path, "ab") as log:
            self.process = subprocess.Popen([*wrapper, binary, *args, self.config_path], stdin=subprocess.DEVNULL, stdout=log,
                                            stderr=subprocess.STDOUT, env=self.env, cwd=directory)

    @property
    def pid(self):
        return self.process.pid

    def write_config(self, config):
        """Replaces the file in one step, as an editor or a deployment does."""
        text = config if isinstance(config, str) else to_yaml(config)
        with open(self.config_path + ".new", "w", encoding="utf-8") as out:
            out.write(text)
        os.chmod(self.config_path + ".new", 0o644)
        os.rename(self.config_path + ".new", self.config_path)

    def log(self):
        with open(self.log_path, "r", encoding="utf-8", errors="replace") as source:
            return source.read()

    def wait_log(self, pattern, after=0):
        def look():
            found = re.search(pattern, self.log()[after:])
            assert found or self.alive(), f"weir ended (status {self.process.poll()}) without logging /{pattern}/"
            return found
        return wait_until(f"log line /{pattern}/", look)

    def alive(self):
        return self.process.poll() is None

    def wait_ready(self, ports):
        """Ready means: the admin socket answers and every port of the config listens, in this process."""
        def ready():
            assert self.alive(), f"weir ended at its start with status {self.process.poll()}"
            try:
                self.get("/status")
            except (OSError, http.client.HTTPException):
                return False
            return all(listening_inode(port) for port in ports)
        wait_until("weir is ready", ready)
        mine = self.socket_inodes()
        for port in ports:
            assert listening_inode(port) in mine, f"port {port} is served by another process"

    def get(self, path, method="GET", body=None):
        connection = UnixHttp(self.admin_path)
        try:
            connection.request(method, path, body)
            answer = connection.getresponse()
            return answer.status, answer.read().decode("utf-8")
        finally:
            connection.close()

    def status(self):
        code, text = self.get("/status")
        assert code == 200, f"/status answered {code}"
        return json.loads(text)

    def metrics(self):
        code, text = self.get("/metrics")
        assert code == 200, f"/metrics answered {code}"
        return parse_metrics(text)

    def metric(self, name, **labels):
        """The sum over all samples of that name that carry these labels; None when there is none."""
        found = [v for n, have, v in self.metrics() if n == name and all(have.get(k) == w for k, w in labels.items())]
        return sum(found) if found else None

    def signal(self, number):
        self.process.send_signal(number)

    def hup(self):
        self.signal(signal.SIGHUP)

    def term(self):
        self.signal(signal.SIGTERM)

    def wait_exit(self, limit_s=30):
        """Waits for the end and gives the exit status; from here on the harness does not stop the process."""
        try:
            code = self.process.wait(limit_s)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"weir did not end within {limit_s} s") from None
        self.stopped = True
        return code

    def kill(self):
        if self.alive():
            self.process.kill()
        self.process.wait()
        self.stopped = True

    def rss_kib(self):
        with open(f"/proc/{self.pid}/status", encoding="ascii") as source:
            return int(re.search(r"VmRSS:\s+(\d+)", source.read())[1])

    def peak_rss_kib(self):
        with open(f"/proc/{self.pid}/status", encoding="ascii") as source:
            return int(re.search(r"VmHWM:\s+(\d+)", source.read())[1])

    def cpu_seconds(self):
        total = 0
        for task in os.listdir(f"/proc/{self.pid}/task"):
            with open(f"/proc/{self.pid}/task/{task}/schedstat", encoding="ascii") as source:
                total += int(source.read().split()[0])
        return total / 1e9

    def socket_inodes(self):
        found = set()
        for fd in os.listdir(f"/proc/{self.pid}/fd"):
            try:
                target = os.readlink(f"/proc/{self.pid}/fd/{fd}")
            except OSError:
                continue
            if target.startswith("socket:["):
                found.add(int(target[8:-1]))
        return found

    def open_fds(self):
        return len(os.listdir(f"/proc/{self.pid}/fd"))


def listening_inode(port):
    """The inode of the socket that listens on a TCP port (v4 or v6), or None."""
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        with open(table, encoding="ascii") as source:
            for line in source.readlines()[1:]:
                fields = line.split()
                if fields[3] == "0A" and int(fields[1].rsplit(":", 1)[1], 16) == port:
                    return int(fields[9])
    return None


def peers_inodes(weir, port):
    """The inodes of weir's ends of the connections that were accepted on a TCP port and stand."""
    found = set()
    with open("/proc/net/tcp", encoding="ascii") as source:
        for line in source.readlines()[1:]:
            fields = line.split()
            if fields[3] == "01" and int(fields[1].rsplit(":", 1)[1], 16) == port:
                found.add(int(fields[9]))
    return found & weir.socket_inodes()

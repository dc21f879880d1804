"""What a case is, the fixtures it is given, and what every case must leave behind.

A case is a function test_*(t) in tests/e2e/*.py, decorated with @case. It runs once for each engine it names. After it, every
weir it started must still be alive, have zero in all counters of MUST_BE_ZERO, end with status 0 on TERM, and have printed no
sanitizer report.
"""
import os
import re
import shutil
import signal
import subprocess
import tempfile

from .origin import Origin, echo
from .weir import Weir, free_port
from .wire import Client

BOTH = ("epoll", "io_uring")

# O1: the counters that must be zero at the end of every case and of a bench. A name that /metrics does not have fails
# starting.test_zero_counters.
MUST_BE_ZERO = (
    "weir_pipe_audit_failures_total",
    "weir_uring_stale_completions_total",
    "weir_uring_lost_completions_total",
)

SANITIZER = re.compile(r"AddressSanitizer|LeakSanitizer|runtime error:|check failed|Assertion `")


class Skip(Exception):
    pass


def case(ids=(), engines=BOTH, root=False):
    def mark(function):
        function.case_ids, function.case_engines, function.case_root = tuple(ids), tuple(engines), root
        return function
    return mark


class Case:
    """The fixtures. `engine` is the engine under test; everything started here is stopped at the end."""

    def __init__(self, binary, engine, sanitized):
        self.binary, self.engine, self.sanitized = binary, engine, sanitized
        self.directory = tempfile.mkdtemp(prefix="weir-e2e-")
        os.chmod(self.directory, 0o755)
        self.weirs, self.origins, self.clients, self.notes = [], [], [], []
        self.port = 0

    def note(self, text):
        self.notes.append(text)

    def origin(self, handler=echo, **options):
        self.origins.append(Origin(handler, **options))
        return self.origins[-1]

    def config(self, *origins, routes=None, upstreams=None, listeners=None, **more):
        """The smallest config for these origins (one upstream `app`); any top-level key can be replaced."""
        if listeners is None:
            self.port = self.port or free_port()
            listeners = [{"bind": f"127.0.0.1:{self.port}", "engine": self.engine}]
        if upstreams is None:
            upstreams = {"app": {"servers": [o if isinstance(o, str) else o.address for o in origins]}}
        config = {"version": 1, "workers": 1, "listeners": listeners, "routes": [{"to": "app"}] if routes is None else routes,
                  "upstreams": upstreams, "admin": {"bind": f"unix:{self.directory}/admin.sock"}}
        config.update(more)
        return config

    def launch(self, config, **options):
        """Starts weir without waiting for it; for cases about starting."""
        self.weirs.append(Weir(self.binary, self.directory, config, **options))
        return self.weirs[-1]

    def weir(self, *origins, wrapper=(), env=None, **config):
        full = self.config(*origins, **config)
        weir = self.launch(full, wrapper=wrapper, env=env)
        ports = [int(listener["bind"].rsplit(":", 1)[1]) for listener in full["listeners"]]
        weir.wait_ready(ports)
        return weir

    def end(self, weir):
        """TERM, and the status 0. The clients go first: weir would wait for those that keep their side open."""
        for client in self.clients:
            client.close()
        weir.term()
        assert weir.wait_exit() == 0

    def client(self, port=None, **options):
        self.clients.append(Client(("127.0.0.1", port or self.port), **options))
        return self.clients[-1]

    def command(self, *args, wrapper=(), limit_s=20):
        """Runs `weir ARGS` to its end: (status, all output)."""
        done = subprocess.run([*wrapper, self.binary, *args], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, timeout=limit_s, cwd=self.directory, check=False)
        return done.returncode, done.stdout.decode("utf-8", "replace")

    def file(self, name, text):
        path = os.path.join(self.directory, name)
        with open(path, "w", encoding="utf-8") as out:
            out.write(text)
        return path

    def finish(self):
        """The promises that hold for every case; raises when one is broken."""
        for client in self.clients:
            client.close()
        for weir in self.weirs:
            if not weir.stopped:
                self._finish_one(weir)
        for weir in self.weirs:
            bad = SANITIZER.search(weir.log())
            assert not bad, f"weir's log has {bad[0]!r}"
        for origin in self.origins:
            assert not origin.trouble, f"the origin's handler failed: {origin.trouble}"

    @staticmethod
    def _finish_one(weir):
        assert weir.alive(), f"weir died with status {weir.process.poll()}"
        bad = {}
        for name, labels, value in weir.metrics():
            if name in MUST_BE_ZERO and value != 0:
                bad[name + str(labels or "")] = value
        assert not bad, f"counters that must be zero: {bad}"
        weir.signal(signal.SIGTERM)
        status = weir.wait_exit()
        assert status == 0, f"weir ended with status {status} on TERM"

    def cleanup(self):
        for client in self.clients:
            client.close()
        for weir in self.weirs:
            weir.kill()
        for origin in self.origins:
            origin.stop()

    def log_tail(self, lines=30):
        out = []
        for weir in self.weirs:
            text = weir.log().splitlines()
            out.append(f"--- last lines of weir's log ({len(text)} in all, status {weir.process.poll()}):")
            out += ["    " + line for line in text[-lines:]]
        return "\n".join(out)

    def remove(self):
        shutil.rmtree(self.directory, ignore_errors=True)

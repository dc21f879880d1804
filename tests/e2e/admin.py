"""The admin API, and the words of the command line that use it."""
import json
import os
import signal
import socket
import threading

from lib.case import case
from lib.weir import free_port, listening_inode, to_yaml
from lib.wire import LIMIT_S, Client, Incomplete, Reader, head_bytes, wait_until

ONE = ("epoll",)


def ask(weir, path, method="GET", body=None):
    status, text = weir.get(path, method, body)
    return status, json.loads(text)


def admin(weir):
    return f"unix:{weir.admin_path}"


@case(engines=ONE)
def test_errors_say_why(t):
    weir = t.weir(t.origin())
    for path, method, body, status, word in (
            ("/nothing", "GET", None, 404, "nothing"),
            ("/status", "POST", None, 405, "method"),
            ("/reload", "GET", None, 405, "method"),
            ("/connections?colour=red", "GET", None, 400, "colour"),
            ("/connections?limit=many", "GET", None, 400, "limit"),
            ("/connections?state=tired", "GET", None, 400, "active or idle"),
            ("/connections?listener=nobody", "GET", None, 404, "nobody"),
            ("/status?x=1", "GET", None, 400, "x"),
            ("/log-level", "POST", "loud", 400, "debug"),
            ("/log-level", "POST", '{"level": "loud"}', 400, "loud"),
            ("/log-level", "POST", '{"level": "info", "x": 1}', 400, "level"),
            ("/log-level", "POST", None, 400, "level")):
        got, answer = ask(weir, path, method, body)
        assert got == status and word in answer["error"], (path, got, answer)


@case(engines=ONE)
def test_405_names_what_there_is(t):
    weir = t.weir(t.origin())
    client = Unix(weir.admin_path)
    client.send(head_bytes("DELETE", "/reload"))
    answer = client.response()
    assert answer.status == 405 and answer.header("allow") == "POST", answer
    client.close()


class Unix(Client):
    """The raw client, on a unix socket."""

    def __init__(self, path):
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(LIMIT_S)
        self.sock.connect(path)
        self.reader = Reader(self.sock, LIMIT_S)


@case()
def test_connections(t):
    gate = threading.Event()
    origin = t.origin(lambda q, a: (gate.wait(60) if q.target.startswith("/slow") else None, a.reply(200, [], b"x")))
    weir = t.weir(origin, workers=2)
    idle, busy = t.client(), t.client()
    assert idle.get().status == 200
    busy.request("GET", "/slow?" + "q" * 1000, [("Host", "shop.example")])

    def active():
        return ask(weir, "/connections?state=active")[1]
    wait_until("the busy one is listed", lambda: active()["matching"] == 1 and "origin" in active()["connections"][0]["request"])
    one = active()["connections"][0]
    assert one["client"] == "127.0.0.1:%d" % busy.sock.getsockname()[1] and one["engine"] == t.engine, one
    request = one["request"]
    assert (request["method"], request["host"], request["origin"]) == ("GET", "shop.example", origin.address), request
    assert request["path"].startswith("/slow?") and len(request["path"]) == 256, "what a client sent is bounded"
    both = ask(weir, "/connections?client=127.0.0.1")[1]
    assert (both["matching"], both["shown"]) == (2, 2), both
    few = ask(weir, "/connections?limit=1")[1]
    assert (few["matching"], few["shown"], len(few["connections"])) == (2, 1, 1), few
    assert ask(weir, "/connections?client=192.0.2.1")[1]["matching"] == 0
    gate.set()
    assert busy.response().status == 200
    wait_until("both are idle", lambda: ask(weir, "/connections?state=idle")[1]["matching"] == 2)


@case()
def test_views(t):
    origin = t.origin()
    weir = t.weir(origin, workers=2)
    assert t.client().get().status == 200
    status, config = ask(weir, "/config")
    assert status == 200 and config["listeners"][0]["engine"] == t.engine and config["timeouts"]["connect"] == "5s", config
    path = t.file("again.yaml", weir.get("/config")[1])
    assert t.command("check", "-c", path)[0] == 0, "the effective configuration is a configuration"
    _, upstreams = ask(weir, "/upstreams")
    app = upstreams["upstreams"][0]
    assert app["name"] == "app" and app["servers"][0]["address"] == origin.address, app
    assert app["servers"][0]["resolved"] == [origin.address] and app["servers"][0]["answers"]["2xx"] == 1, app
    _, engines = ask(weir, "/engines")
    assert [l["engine"] for l in engines["listeners"]] == [t.engine] and engines["listeners"][0]["reason"], engines
    running = {e["engine"]: e["running"] for e in engines["engines"]}
    assert running[t.engine] is True, engines
    tier = next(e["tier"] for e in engines["engines"] if e["engine"] == t.engine)
    for part in (engines["listeners"][0], *engines["listeners"][0]["workers"]):
        assert (part["engine"], part["tier"], part["reason"]) == (t.engine, tier, "configured"), engines
    assert [w["worker"] for w in engines["listeners"][0]["workers"]] == [0, 1], engines
    assert sum(w["connections"] for w in engines["listeners"][0]["workers"]) == 1, engines


@case(engines=ONE)
def test_config_tells_no_secret(t):
    """Not those of headers that are set, nor those that a route or a test asks for."""
    edits = {"request": {"set": {"Authorization": "s3cret-b", "x-gitlab-token": "s3cret-c", "x-plain": "seen"}},
             "response": {"add": {"x-internal-secret": "s3cret-d"}}}
    weir = t.weir(t.origin(), routes=[{"match": {"path": "/x", "header": {"x-api-key": "s3cret-a"}, "query": {"token": "s3cret-e"}},
                                       "to": "app"}, {"to": "app", "headers": edits}],
                  tests=[{"get": "http://a/x?token=s3cret-e", "header": {"x-api-key": "s3cret-a"}, "expect": {"upstream": "app"}}])
    status, text = weir.get("/config")
    assert status == 200 and "s3cret" not in text and "seen" in text and text.count("(redacted)") == 7, text


@case(engines=ONE)
def test_reload_by_admin(t):
    weir = t.weir(t.origin(lambda q, a: a.reply(200, [], b"old")))
    new = t.origin(lambda q, a: a.reply(200, [], b"new"))
    weir.write_config(t.config(new))
    status, answer = ask(weir, "/reload", "POST")
    assert status == 200 and answer["ok"] and answer["generation"] == 2, answer
    assert t.client().get().body == b"new", "the answer came before the new configuration served"
    weir.write_config("version: 1\nlisteners: 5\n")
    status, answer = ask(weir, "/reload", "POST")
    assert status == 400 and answer["generation"] == 2 and answer["problems"] and "weir.yaml:2:" in answer["problems"][0], answer
    assert t.client().get().body == b"new"


@case(engines=ONE)
def test_log_level(t):
    weir = t.weir(t.origin())
    assert ask(weir, "/log-level", "POST", '{"level": "error"}')[0] == 200
    mark = len(weir.log())
    weir.hup()  # the reload sets the file's level again; what it says before that is not logged
    wait_until("reloaded", lambda: weir.metric("weir_config_generation") == 2)
    weir.wait_log("reloaded", after=mark)
    assert "reloading" not in weir.log()[mark:], weir.log()[mark:]


@case()
def test_drain_and_back(t):
    weir = t.weir(t.origin())
    client = t.client()
    assert client.get().header("connection") != "close"
    assert weir.get("/readyz") == (200, "ready\n")
    assert ask(weir, "/drain", "POST")[0] == 200
    assert weir.get("/readyz") == (503, "draining\n") and weir.get("/healthz")[0] == 200

    def closes():
        answer = t.client().get()
        assert answer.status == 200, "everything is served on"
        return answer.header("connection") == "close"
    wait_until("answers say close", closes)
    weir.write_config(t.config(t.origins[0], timeouts={"connect": "4s"}))
    assert ask(weir, "/reload", "POST")[0] == 200, "a drained process reloads"
    assert weir.get("/readyz")[0] == 503, "and stays drained"
    assert closes()
    assert ask(weir, "/undrain", "POST")[0] == 200
    assert weir.get("/readyz")[0] == 200
    wait_until("answers keep the connection", lambda: not closes())


@case(engines=ONE)
def test_ready_during_delay(t):
    """shutdown.delay: still accepting and answering while /readyz says 503."""
    weir = t.weir(t.origin(), shutdown={"delay": "60s"})
    weir.term()
    wait_until("not ready", lambda: weir.get("/readyz")[0] == 503)
    assert t.client().get().status == 200
    assert ask(weir, "/reload", "POST")[0] == 503 and ask(weir, "/undrain", "POST")[0] == 503
    weir.term()
    assert weir.wait_exit() == 0


@case(engines=ONE)
def test_metrics_bind(t):
    """The read-only side: metrics and probes, nothing that tells or changes more."""
    port = free_port()
    t.weir(t.origin(), metrics={"bind": f"127.0.0.1:{port}"})
    own = [("Host", "localhost")]
    with Client(("127.0.0.1", port)) as client:
        assert b"weir_build_info" in client.get("/metrics", own).body
        assert client.get("/healthz", own).status == 200 and client.get("/readyz", own).status == 200
        for path in ("/status", "/config", "/connections"):
            assert client.get(path, own).status == 404, path
        for path in ("/reload", "/drain", "/stop"):
            client.request("POST", path, own)
            assert client.response().status == 404, path


@case(ids=["O3"])
def test_status_command(t):
    origin = t.origin()
    weir = t.weir(origin)
    assert t.client().get().status == 200
    status, text = t.command("status", "--admin", admin(weir))
    assert status == 0, text
    for part in (f"pid {weir.pid}, serving", weir.config_path, "generation 1", t.engine, f"127.0.0.1:{t.port}", origin.address):
        assert part in text, (part, text)
    status, text = t.command("status", "--json", "--admin", admin(weir))
    told = json.loads(text)
    assert status == 0 and told["pid"] == weir.pid and told["commit"] and told["config"]["hash"], told
    assert t.command("status", "-c", weir.config_path)[0] == 0, "the socket is found by the configuration"


@case(engines=ONE)
def test_unreachable(t):
    for verb in ("status", "reload", "drain", "stop"):
        status, text = t.command(verb, "--admin", f"unix:{t.directory}/nobody.sock")
        assert status == 69 and "cannot be reached" in text and "nobody.sock" in text, (verb, status, text)
    status, text = t.command("status", "--admin", "nonsense")
    assert status == 2 and "unix:PATH" in text, (status, text)
    origin = t.origin(lambda q, a: (a.raw(b"what?\r\n\r\n"), a.close()))
    status, text = t.command("status", "--admin", origin.address)
    assert status == 69 and "no Weir" in text, (status, text)


@case(engines=ONE)
def test_reload_command(t):
    weir = t.weir(t.origin())
    weir.write_config(t.config(t.origin(lambda q, a: a.reply(200, [], b"new"))))
    status, text = t.command("reload", "--admin", admin(weir))
    assert status == 0 and "generation 2" in text, (status, text)
    assert t.client().get().body == b"new", "it returned before the new configuration served"
    weir.write_config("version: 1\nlisteners: 5\nroots: []\n")
    status, text = t.command("reload", "--admin", admin(weir))
    assert status == 78 and "weir.yaml:2:" in text and "weir.yaml:3:" in text, (status, text)
    bad = t.config(t.origins[0], log={"access": {"path": os.path.join(t.directory, "no", "such", "folder.log")}})
    weir.write_config(bad)
    status, text = t.command("reload", "--admin", admin(weir))
    assert status == 1 and "folder.log" in text, (status, text)
    assert t.client().get().body == b"new"


@case(engines=ONE)
def test_drain_command(t):
    weir = t.weir(t.origin())
    assert t.command("drain", "--admin", admin(weir))[0] == 0
    assert weir.get("/readyz")[0] == 503
    assert "draining" in t.command("status", "--admin", admin(weir))[1]
    assert t.command("drain", "--undo", "--admin", admin(weir))[0] == 0
    assert weir.get("/readyz")[0] == 200


@case()
def test_stop_command(t):
    """It returns once the process is gone, having served out what was in flight."""
    gate, asked = threading.Event(), threading.Event()
    weir = t.weir(t.origin(lambda q, a: (asked.set(), gate.wait(60), a.reply(200, [], b"whole"))))
    client = t.client()
    client.request("GET", "/")
    assert asked.wait(20)
    ended = []
    thread = threading.Thread(target=lambda: ended.append(t.command("stop", "--admin", admin(weir), limit_s=60)), daemon=True)
    thread.start()
    weir.wait_log("asked to stop")
    assert not ended, "it must wait"
    gate.set()
    assert client.response().body == b"whole"
    client.close()
    assert weir.wait_exit() == 0
    thread.join(30)
    assert ended and ended[0][0] == 0 and "stopped" in ended[0][1], ended


def admin_of_another(t, pids):
    """What takes a daemon's place on an admin socket: /status tells one pid after the other, the last one for good."""
    path = os.path.join(t.directory, "other.sock")
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    listener.bind(path)
    listener.listen()
    asked = []

    def serve():
        while True:
            try:
                sock, _ = listener.accept()
            except OSError:
                return
            with sock:
                try:
                    asked.append(Reader(sock).until(b"\r\n\r\n", "a head").split(b"\r\n")[0].decode())
                except Incomplete:
                    continue  # only looked whether somebody is there
                looks = sum(line.startswith("GET /status ") for line in asked)
                body = json.dumps({"pid": pids[min(looks, len(pids)) - 1], "message": "stopping", "stops_within_s": 9}).encode()
                sock.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
    threading.Thread(target=serve, daemon=True).start()
    return f"unix:{path}", listener


@case(engines=ONE)
def test_stop_where_another_takes_the_place(t):
    """A service manager that starts the next one at once does not keep `weir stop` waiting."""
    where, listener = admin_of_another(t, [1001, 1001, 1002])
    status, text = t.command("stop", "--admin", where)
    assert status == 0 and "stopped" in text, (status, text)
    listener.shutdown(socket.SHUT_RDWR)
    listener.close()


@case(engines=ONE)
def test_stop_has_an_end(t):
    where, listener = admin_of_another(t, [1001])
    status, text = t.command("stop", "--timeout", "0.1", "--admin", where)
    assert status == 1 and "1001" in text and "0.1 s" in text, (status, text)
    listener.shutdown(socket.SHUT_RDWR)
    listener.close()
    assert t.command("stop", "--timeout", "never", "--admin", where)[0] == 2


@case(engines=ONE)
def test_stop_ends_a_drain_without_limit(t):
    asked = threading.Event()
    gate = threading.Event()
    weir = t.weir(t.origin(lambda q, a: (asked.set(), gate.wait(60), a.reply())), shutdown={"grace": "50ms"})
    assert weir.status()["stops_within_s"] == 6
    t.client().request("GET", "/")
    assert asked.wait(20)
    weir.signal(signal.SIGQUIT)
    weir.wait_log("stage.*refusing")
    status, text = t.command("stop", "--admin", admin(weir))
    assert status == 0 and "stopped" in text, (status, text)
    assert weir.wait_exit() == 0
    gate.set()


@case(engines=ONE)
def test_failed_reload_changes_no_mode(t):
    path = os.path.join(t.directory, "app.sock")

    def config(mode, **more):
        return t.config(t.origins[0], listeners=[{"bind": [f"127.0.0.1:{t.port}", f"unix:{path}"], "unix": {"mode": mode}}], **more)

    def mode():
        return os.stat(path).st_mode & 0o777
    t.origin()
    t.port = free_port()
    weir = t.launch(config("0640"))
    weir.wait_ready([t.port])
    assert mode() == 0o640
    weir.write_config(config("0666", log={"access": {"path": os.path.join(t.directory, "no", "such", "folder.log")}}))
    status, answer = ask(weir, "/reload", "POST")
    assert status == 503 and "folder.log" in answer["error"] and mode() == 0o640, (status, answer, oct(mode()))
    weir.write_config(config("0666"))
    assert ask(weir, "/reload", "POST")[0] == 200 and mode() == 0o666


@case(engines=ONE)
def test_metrics_tell_no_foreign_page(t):
    port = free_port()
    t.weir(t.origin(), metrics={"bind": f"127.0.0.1:{port}"})
    for host, want in (("evil.example", 403), (f"localhost:{port}", 200), (f"127.0.0.1:{port}", 200)):
        with Client(("127.0.0.1", port)) as client:
            assert client.get("/metrics", [("Host", host)]).status == want, host


@case(engines=ONE)
def test_large_and_broken_bodies(t):
    """The admin server's own limits: a body that is too large, one that never ends, one that breaks off."""
    weir = t.weir(t.origin())
    big = Unix(weir.admin_path)
    big.send(head_bytes("POST", "/log-level", [("Content-Length", str(2 << 20))]))
    assert big.response().status == 413
    half = Unix(weir.admin_path)
    half.send(head_bytes("POST", "/log-level", [("Content-Length", "20")]) + b'{"level"')
    half.close()
    slow = Unix(weir.admin_path)
    for piece in (head_bytes("POST", "/log-level", [("Content-Length", "17")]), b'{"level": ', b'"info"}'):
        slow.send(piece)
    assert slow.response().status == 200
    assert weir.get("/healthz")[0] == 200


@case(engines=ONE)
def test_over_tcp(t):
    """A TCP address for the API: only with the token, only by a Host that no foreign page can bring along."""
    port = free_port()
    bind = f"127.0.0.1:{port}"
    status, text = t.command("check", "-c", t.file("open.yaml", to_yaml(t.config("127.0.0.1:9", admin={"bind": bind}))))
    assert status == 78 and "token: FILE" in text, (status, text)
    token = t.file("token", "s3cret\n")
    weir = t.launch(t.config(t.origin(), admin={"bind": bind, "token": token}))
    weir.wait_log("weir .* started")

    def ask_tcp(path, host, *headers):
        with Client(("127.0.0.1", port)) as client:
            client.request("GET", path, [("Host", host), *headers])
            return client.response().status
    right = ("Authorization", "Bearer s3cret")
    wait_until("it listens", lambda: listening_inode(port))
    assert ask_tcp("/status", f"localhost:{port}", right) == 200
    assert ask_tcp("/status", bind) == 401 and ask_tcp("/status", bind, ("Authorization", "Bearer guess")) == 401
    assert ask_tcp("/status", "evil.example", right) == 403
    status, text = t.command("status", "--admin", bind, "--token", token)
    assert status == 0 and f"pid {weir.pid}" in text, (status, text)
    assert t.command("status", "-c", weir.config_path)[0] == 0, "socket and token are found by the configuration"
    status, text = t.command("status", "--admin", bind)
    assert status == 1 and "token" in text, (status, text)
    status, text = t.command("stop", "-c", weir.config_path)
    assert status == 0, text
    assert weir.wait_exit() == 0


@case(engines=ONE)
def test_no_token_no_start(t):
    weir = t.launch(t.config("127.0.0.1:9", admin={"bind": f"127.0.0.1:{free_port()}", "token": os.path.join(t.directory, "none")}))
    assert weir.wait_exit() == 1 and "admin token" in weir.log(), weir.log()

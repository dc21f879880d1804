"""Names of origins: what a name server that fails, or says nothing, may and may not do to the process."""
import os
import socket
import threading

from lib.case import case
from lib.dns import Dns
from lib.wire import wait_until

ONE = ("epoll",)


def by_name(t, handler):
    origin = t.origin(handler)
    return origin, f"app.test:{origin.port}"


def refused(port):
    try:
        socket.create_connection(("127.0.0.1", port), 1).close()
        return False
    except ConnectionRefusedError:
        return True


def threads_of(weir):
    names = set()
    for task in os.listdir(f"/proc/{weir.pid}/task"):
        try:
            with open(f"/proc/{weir.pid}/task/{task}/comm", encoding="utf-8") as source:
                names.add(source.read().strip())
        except OSError:
            continue  # it ended meanwhile
    return names


@case(engines=ONE, root=True)
def test_failed_look_up_keeps_addresses(t):
    """A name server that fails at a reload costs no origin: the last addresses stay, and the log says so."""
    dns = Dns(t, app_test="127.0.0.1")
    _, server = by_name(t, lambda q, a: a.reply(200, [], b"here"))
    weir = t.weir(server, wrapper=dns.wrapper)
    client = t.client()
    assert client.get().body == b"here"
    dns.mode = "fail"
    for turn in range(2):
        mark = len(weir.log())
        weir.hup()
        weir.wait_log(r"\breloaded\b", after=mark)
        answer = client.get()
        assert (answer.status, answer.body) == (200, b"here"), answer
        told = weir.log()[mark:].count("does not resolve now; its last addresses are kept")
        assert told == (1 if turn == 0 else 0), f"said {told} times"
    dns.speak()
    mark = len(weir.log())
    weir.hup()
    weir.wait_log(r"\breloaded\b", after=mark)
    assert client.get().body == b"here"
    dns.close()


@case(ids=["T4"], engines=ONE, root=True)
def test_stop_does_not_wait_for_names(t):
    """TERM while a look-up hangs: the process ends all the same, with 0."""
    dns = Dns(t, app_test="127.0.0.1")
    _, server = by_name(t, lambda q, a: a.reply(200, [], b"here"))
    weir = t.weir(server, wrapper=dns.wrapper)
    assert t.client().get().body == b"here"
    for client in t.clients:
        client.close()
    dns.mode, before = "silent", len(dns.asked)
    weir.hup()
    wait_until("the name server is asked", lambda: len(dns.asked) > before)
    weir.term()
    assert weir.wait_exit(20) == 0  # the look-up itself would take 30 s
    assert "stopped" in weir.log(), weir.log()
    dns.close()


@case(engines=ONE, root=True)
def test_stop_overtakes_reload(t):
    """A reload whose look-up ends while the process refuses new connections changes nothing: above all it binds nothing again."""
    gate = threading.Event()

    def slow(request, answer):
        answer.raw(b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nfirst")
        gate.wait(60)
        answer.raw(b"later")
    dns = Dns(t, app_test="127.0.0.1")
    _, server = by_name(t, slow)
    weir = t.weir(server, wrapper=dns.wrapper, shutdown={"grace": "60s"})
    client = t.client()
    client.request("GET", "/")
    response = client.head()
    dns.mode, before = "silent", len(dns.asked)
    weir.hup()
    wait_until("the name server is asked", lambda: len(dns.asked) > before)
    weir.term()
    weir.wait_log(r"stage=refusing")
    wait_until("new connections are refused", lambda: refused(t.port))
    assert "weir-helper" in threads_of(weir)
    dns.speak()
    wait_until("the look-up is over", lambda: "weir-helper" not in threads_of(weir))
    weir.status()  # by then its answer has been taken; what that did shows in the log and the port
    assert refused(t.port), "it accepts again"
    assert "reloaded" not in weir.log(), weir.log()
    gate.set()
    assert b"".join(client.pieces(response)) == b"firstlater"
    assert weir.wait_exit() == 0
    dns.close()

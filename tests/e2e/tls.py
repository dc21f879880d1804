"""TLS towards clients: certificates by name, versions, tickets, refusals, and that what HTTP/1.1 promises holds over it."""
import hashlib
import json
import os
import re
import shutil
import socket
import ssl
import struct
import subprocess
import threading
import time

from lib.case import Skip, case
from lib.certs import certificate
from lib.weir import free_port
from lib.wire import Incomplete, head_bytes, wait_until

BODY = os.urandom(1 << 20)


def context(*trusted, version=None, ciphers=None, alpn=None):
    made = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    made.check_hostname = bool(trusted)
    made.verify_mode = ssl.CERT_REQUIRED if trusted else ssl.CERT_NONE
    for file in trusted:
        made.load_verify_locations(file)
    if version:
        made.minimum_version = made.maximum_version = version
    if ciphers:
        made.set_ciphers(ciphers)
    if alpn:
        made.set_alpn_protocols(alpn)
    return made


def listener(t, *pairs, **more):
    t.port = t.port or free_port()
    tls = {"certificates": [{"cert": cert, "key": key} for cert, key in pairs]}
    tls.update(more.pop("tls", {}))
    return {"bind": f"127.0.0.1:{t.port}", "engine": t.engine, "tls": tls, **more}


def serve(t, *origins, pairs=None, listener_more=None, **config):
    pairs = pairs or [certificate("localhost")]
    return t.weir(*origins, listeners=[listener(t, *pairs, **(listener_more or {}))], **config)


def secure(t, made=None, name="localhost", session=None, **options):
    client = t.client(tls=(made or context(), name, session), **options)
    return client


@case()
def test_both_versions(t):
    """A request over TLS is https: to the origin, to the routes and in the access log."""
    origin = t.origin()
    path = os.path.join(t.directory, "access.log")
    weir = serve(t, origin, routes=[{"match": {"path": "/secure", "scheme": "https"}, "respond": {"body": "so it is"}}, {"to": "app"}],
                 listener_more={"protocols": ["h1"]}, log={"access": {"path": path}})
    cert, _ = certificate("localhost")
    for version, name in ((ssl.TLSVersion.TLSv1_2, "TLSv1.2"), (ssl.TLSVersion.TLSv1_3, "TLSv1.3")):
        client = secure(t, context(cert, version=version, alpn=["h2", "http/1.1"]))
        assert client.sock.version() == name and client.sock.selected_alpn_protocol() == "http/1.1"
        assert client.get("/secure").body == b"so it is"
        client.request("POST", "/", body=BODY)
        assert client.response().body == BODY
        client.request("POST", "/", body=BODY, chunked=70000)
        assert client.response().body == BODY
        assert origin.requests[-1].header("x-forwarded-proto") == "https"
        client.close()
    assert weir.metric("weir_tls_handshakes_total", result="full") == 2

    def lines():
        with open(path, encoding="utf-8") as source:
            found = [json.loads(line) for line in source]
        return len(found) == 6 and found
    for line, version in zip(wait_until("the access log has its lines", lines), ["TLSv1.2"] * 3 + ["TLSv1.3"] * 3):
        assert (line["scheme"], line["tls_version"], line["tls_server_name"]) == ("https", version, "localhost"), line
        assert "AES" in line["tls_cipher"], line


@case()
def test_curl(t):
    if not shutil.which("curl"):
        raise Skip("needs curl")
    weir = serve(t, t.origin())
    cert, _ = certificate("localhost")
    source = os.path.join(t.directory, "body")
    with open(source, "wb") as out:
        out.write(BODY)
    for more in ([], ["--tls-max", "1.2"]):
        done = subprocess.run(["curl", "-sS", "--cacert", cert, "--data-binary", "@" + source, *more, f"https://localhost:{t.port}/up"],
                              capture_output=True, check=True)
        assert done.stdout == BODY
    assert weir.metric("weir_tls_handshakes_total", result="failed") == 0


@case(engines=("epoll",))
def test_certificate_by_name(t):
    one, wild, rsa = certificate("localhost"), certificate("*.example.com"), certificate("localhost", rsa=True)
    serve(t, t.origin(), pairs=[one, wild, rsa])

    def served(name, **options):
        made = context(**options)
        client = secure(t, made, name)
        return ssl.DER_cert_to_PEM_cert(client.sock.getpeercert(binary_form=True)).strip()

    def text(pair):
        with open(pair[0], encoding="ascii") as source:
            return source.read().strip()
    assert served("localhost") == text(one)
    assert served("shop.example.com") == text(wild)
    assert served("a.shop.example.com") == text(one)
    assert served(None) == text(one)
    old = {"version": ssl.TLSVersion.TLSv1_2, "ciphers": "ECDHE-RSA-AES128-GCM-SHA256"}
    assert served("localhost", **old) == text(rsa)


@case()
def test_tickets(t):
    """A ticket is good at every worker, and after a reload."""
    weir = serve(t, t.origin(), workers=2)
    made = context(version=ssl.TLSVersion.TLSv1_2)  # whose sessions Python hands out when the handshake is done
    first = secure(t, made)
    assert first.get().status == 200
    session = first.sock.session
    for turn in range(8):
        if turn == 4:
            weir.hup()
            weir.wait_log(r"reloaded")
        client = secure(t, made, session=session)
        assert client.sock.session_reused, turn
        assert client.get().status == 200
        client.close()
    assert weir.metric("weir_tls_handshakes_total", result="resumed") == 8
    newest = context()
    client = secure(t, newest)
    assert client.get().status == 200
    again = secure(t, newest, session=client.sock.session)
    assert again.get().status == 200 and again.sock.session_reused


@case(engines=("epoll",))
def test_refusals_are_counted_by_reason(t):
    weir = serve(t, t.origin(), listener_more={"tls": {"min_version": "1.3"}, "protocols": ["h1"]}, log={"level": "debug"})

    def failed(reason):
        return weir.metric("weir_tls_handshake_failures_total", reason=reason)
    for made, reason in ((context(version=ssl.TLSVersion.TLSv1_2), "version"), (context(alpn=["h2"]), "alpn"),
                         (context(certificate("localhost", mark="other")[0]), "peer_alert")):
        try:
            secure(t, made)
            raise AssertionError(f"{reason}: the handshake was done")
        except ssl.SSLError:
            pass
        wait_until(f"{reason} is counted", lambda reason=reason: failed(reason) == 1)
    plain = t.client()
    plain.send(head_bytes("GET", "/"))
    wait_until("plain HTTP is counted", lambda: failed("not_tls") == 1)
    plain.expect_eof()
    gone = t.client()
    gone.send(b"\x16\x03\x01")
    gone.close()
    wait_until("one that left is counted", lambda: failed("closed") == 1)
    weir.wait_log(r"TLS handshake failed.*reason=version")
    assert weir.metric("weir_tls_handshakes_total", result="failed") == 5


@case(ids=["T1"])
def test_client_header_bounds_the_handshake(t):
    weir = serve(t, t.origin(), timeouts={"client_header": "300ms"})
    client = t.client()
    client.send(b"\x16\x03\x01\x02")
    client.expect_eof()
    assert weir.metric("weir_timeouts_total", kind="client_header") == 1
    assert weir.metric("weir_tls_handshake_failures_total", reason="timeout") == 1


@case(ids=["H6"])
def test_early_answer(t):
    """As in the clear: the answer, then an orderly end, with 1 MiB of the request unread."""
    serve(t, t.origin(), routes=[{"match": {"path": "/ping"}, "respond": {"status": 200, "body": "pong"}}])
    for chunk in (0, 100000):
        client = secure(t)
        client.request("POST", "/ping", body=BODY, chunked=chunk)
        answer = client.response()
        assert answer.status == 200 and answer.header("connection") == "close", answer
        assert client.rest() == (b"", True)
        client.close()


@case(ids=["T2"])
def test_write_timeout(t):
    """One who reads nothing of 4 MiB is cut; one who reads slowly, for longer than the timeout, gets everything."""
    big = os.urandom(4 << 20)
    weir = serve(t, t.origin(lambda q, a: a.reply(200, [], big)), timeouts={"write": "1s"})
    stuck = secure(t, rcvbuf=65536)
    stuck.request("GET", "/")
    slow = secure(t, rcvbuf=65536)
    slow.request("GET", "/")
    answer = slow.head()
    digest = hashlib.sha256()
    began = time.monotonic()
    for piece in slow.pieces(answer):
        digest.update(piece)
        if time.monotonic() - began < 2.5:
            time.sleep(0.02)  # the window opens by 64 KiB at a time
    assert digest.digest() == hashlib.sha256(big).digest()
    wait_until("the one who does not read is cut", lambda: weir.metric("weir_timeouts_total", kind="write") == 1)


@case(ids=["E9"])
def test_half_close(t):
    """A client that ends its side, with close_notify or without, gets its whole answer; nobody spins meanwhile."""
    gate = threading.Event()

    def handler(request, answer):
        answer.head(200, [("Content-Length", "300000")])
        answer.raw(BODY[:1000])
        gate.wait(60)
        answer.raw(BODY[1000:300000])
    weir = serve(t, t.origin(handler))
    client = secure(t)
    client.request("GET", "/")
    answer = client.head()
    raw = socket.socket(fileno=os.dup(client.sock.fileno()))
    raw.shutdown(socket.SHUT_WR)
    raw.close()
    before = weir.cpu_seconds()
    time.sleep(0.5)
    assert weir.cpu_seconds() - before < 0.2, "it spins"
    gate.set()
    assert b"".join(client.pieces(answer)) == BODY[:300000]


@case()
def test_close_notify(t):
    """An answer that only the end of the connection ends: whole with close_notify, and an origin's that was cut off is cut off too."""
    def handler(request, answer):
        answer.head(200, [("Connection", "close"), ("Content-Length", "100")] if request.target == "/cut" else [("Connection", "close")])
        answer.raw(b"x" * 50)
        if request.target == "/cut":
            answer.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            answer.sock.close()
        answer.close()
    serve(t, t.origin(handler))
    client = secure(t)
    client.send(head_bytes("GET", "/", version="HTTP/1.0"))
    assert client.response().body == b"x" * 50
    client = secure(t)
    client.send(head_bytes("GET", "/cut"))
    try:
        client.response()
        raise AssertionError("the answer that was cut off looks whole")
    except Incomplete:
        pass


@case()
def test_clients_leave(t):
    """In every state: nothing leaks, and the next one is served."""
    weir = serve(t, t.origin(lambda q, a: a.reply(200, [], BODY)))
    assert secure(t).get().status == 200
    t.clients[0].close()
    wait_until("the first is gone", lambda: weir.metric("weir_connections") == 0)
    sockets = len(weir.socket_inodes())
    for turn in range(24):
        client = t.client(rcvbuf=16384) if turn % 3 == 0 else secure(t, rcvbuf=16384)
        if turn % 3 == 0:
            client.send(b"\x16\x03\x01\x02\x00")
        elif turn % 3 == 1:
            client.request("GET", "/")
            client.head()
        if turn % 2:
            client.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        client.close()
    wait_until("weir closed what belonged to them", lambda: weir.metric("weir_connections") == 0)
    wait_until("and its sockets", lambda: len(weir.socket_inodes()) <= sockets)
    assert secure(t).get().body == BODY


@case()
def test_term_completes_answer(t):
    gate, asked = threading.Event(), threading.Event()

    def handler(request, answer):
        asked.set()
        gate.wait(60)
        answer.reply(200, [], BODY)
    weir = serve(t, t.origin(handler), shutdown={"grace": "30s"})
    client, idle = secure(t), secure(t)
    client.request("GET", "/")
    assert asked.wait(20)
    weir.term()
    idle.expect_eof()
    idle.close()
    gate.set()
    assert client.response().body == BODY
    client.expect_eof()
    client.close()
    assert weir.wait_exit() == 0


@case(engines=("epoll",))
def test_reload_takes_new_files(t):
    """A reload reads the files again; what is wrong with them is said, and the old ones serve on."""
    first, second, other = certificate("localhost"), certificate("localhost", mark="second"), certificate("localhost", mark="third")
    cert, key = os.path.join(t.directory, "own.pem"), os.path.join(t.directory, "own.key")

    def put(pair):
        shutil.copy(pair[0], cert)
        shutil.copy(pair[1], key)
    put(first)
    weir = serve(t, t.origin(), pairs=[(cert, key)])
    old = secure(t, context(first[0]))
    assert old.get().status == 200
    put(second)
    weir.hup()
    weir.wait_log(r"reloaded")
    assert secure(t, context(second[0])).get().status == 200
    assert old.get().status == 200, "a connection of before goes on"
    shutil.copy(other[1], key)
    weir.hup()
    weir.wait_log(r"own\.key` is the key of another certificate")
    weir.wait_log(r"reload failed")
    assert secure(t, context(second[0])).get().status == 200


def refused(t, made):
    """What a client hears that is not let in: at once, or (TLS 1.3) with its first read."""
    try:
        secure(t, made).get()
    except (ssl.SSLError, Incomplete, ConnectionError) as refusal:
        return str(refusal)
    raise AssertionError("it was let in")


@case()
def test_client_certificates(t):
    good, stranger = certificate("client.test"), certificate("client.test", mark="stranger")
    weir = serve(t, t.origin(), pairs=[certificate("localhost")], log={"level": "debug"},
                 listener_more={"tls": {"client_ca": good[0]}})
    for version in (ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3):
        made = context(version=version)
        heard = refused(t, made)
        assert version == ssl.TLSVersion.TLSv1_2 or "certificate required" in heard.lower().replace("_", " "), heard
        made = context(version=version)
        made.load_cert_chain(*stranger)
        assert "unknown ca" in refused(t, made).lower().replace("_", " ")
        made = context(version=version)
        made.load_cert_chain(*good)
        client = secure(t, made)
        client.request("GET", "/", [("Host", "localhost")])
        assert client.response().status == 200
        client.request("GET", "/", [("Host", "elsewhere.test")])
        assert client.response().status == 421, "a host that the listener's certificates do not name"
    for reason in ("certificate_missing", "certificate_unknown_ca"):
        assert weir.metric("weir_tls_handshake_failures_total", reason=reason) == 2
        weir.wait_log("TLS handshake failed.*reason=" + reason)


@case(engines=("epoll",))
def test_client_certificates_that_may_be_missing(t):
    good = certificate("client.test")
    serve(t, t.origin(), listener_more={"tls": {"client_ca": good[0], "client_auth": "request"}})
    client = secure(t)
    client.request("GET", "/", [("Host", "localhost")])
    assert client.response().status == 200
    made = context()
    made.load_cert_chain(*certificate("client.test", mark="stranger"))
    refused(t, made)


@case(engines=("epoll",))
def test_changed_files_are_taken(t):
    """Without a reload; a pair that does not belong together is said and changes nothing."""
    first, second, third = (certificate("localhost", mark=mark) for mark in ("", "second", "third"))
    cert, key = os.path.join(t.directory, "own.pem"), os.path.join(t.directory, "own.key")

    def put(source, target):  # as renewal tools do it: never half a file
        shutil.copy(source, target + ".new")
        os.rename(target + ".new", target)
    put(first[0], cert)
    put(first[1], key)
    weir = serve(t, t.origin(), pairs=[(cert, key)])
    expiry = weir.metric("weir_tls_cert_not_after_seconds", cert=cert)
    assert 89 * 86400 < expiry - time.time() < 91 * 86400
    put(third[0], cert)
    weir.wait_log(r"changed certificate files cannot be used.*own\.key` is the key of another certificate")
    assert secure(t, context(first[0])).get().status == 200
    put(second[0], cert)
    put(second[1], key)
    weir.wait_log(r"changed certificate files were taken")
    assert secure(t, context(second[0])).get().status == 200


@case(engines=("epoll",))
def test_check(t):
    pair, other = certificate("localhost"), certificate("localhost", mark="other")
    old = t.file("old.pem", "")

    def check(cert, key, **more):
        config = t.config("127.0.0.1:1", listeners=[listener(t, (cert, key))], **more)
        return t.command("check", "-c", t.file("check.yaml", json.dumps(config)))
    code, text = check(*pair)
    assert code == 0, text
    code, text = check(pair[0], other[1])
    assert code == 78 and f"key: `{other[1]}` is the key of another certificate" in text and "check.yaml:1:" in text, text
    code, text = check(old, pair[1])
    assert code == 78 and "holds no certificate in PEM form" in text, text
    code, text = check("/nowhere.pem", pair[1])
    assert code == 78 and "cert: `/nowhere.pem` cannot be read: no such file" in text, text
    code, text = check(*certificate("localhost", days=10))
    assert code == 0 and re.search(r"in (9|10) day\(s\) \(warning\)", text), text
    code, text = check(*pair, routes=[{"match": {"host": "shop.example.com"}, "to": "app"}])
    assert code == 0 and "no route of this listener has a host that it covers (warning)" in text, text

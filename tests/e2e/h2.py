"""HTTP/2 with curl, in plain text by prior knowledge and over TLS. What the protocol asks is shown in simulated time: tests/sim/h2_*."""
import hashlib
import json
import os
import shutil
import subprocess

from lib.case import Skip, case
from lib.certs import certificate
from lib.weir import free_port
from lib.wire import wait_until

BODY = os.urandom(1 << 20) * 3


def curl(*args, data=None, how=("--http2-prior-knowledge",)):
    if shutil.which("curl") is None:
        raise Skip("no curl")
    if "HTTP2" not in subprocess.run(["curl", "-V"], capture_output=True, text=True, check=True).stdout:
        raise Skip("curl without HTTP/2")
    done = subprocess.run(["curl", "-sS", "--max-time", "20", *how, *args], input=data, capture_output=True,
                          check=False)
    assert done.returncode == 0, (args, done.returncode, done.stderr)
    return done.stdout


@case(ids=["H1"])
def test_curl(t):
    """Both directions, the same listener for both protocols; log and metrics say which."""
    log = os.path.join(t.directory, "access.log")
    weir = t.weir(t.origin(), log={"access": {"path": log}})
    base = f"http://127.0.0.1:{t.port}"
    assert curl("-X", "POST", "--data-binary", "@-", base + "/echo", data=BODY[:5]) == BODY[:5]
    answer = curl("-T", "-", "-X", "POST", base + "/chunked", data=BODY)
    assert hashlib.sha256(answer).digest() == hashlib.sha256(BODY).digest(), len(answer)
    assert curl("-w", "%{http_version} %{http_code}", base + "/get") == b"2 200"   # curl 7.88 cannot go on by prior knowledge
    assert t.client().get("/h1").status == 200
    wait_until("all are logged", lambda: open(log, encoding="utf-8").read().count("\n") == 4)
    protocols = [json.loads(line)["protocol"] for line in open(log, encoding="utf-8")]
    assert protocols == ["h2"] * 3 + ["h1"], protocols
    assert weir.metric("weir_requests_total", protocol="h2", code_class="2xx") == 3
    assert weir.metric("weir_requests_total", protocol="h1", code_class="2xx") == 1


@case()
def test_curl_over_tls(t):
    """ALPN chooses: h2 where the client offers it, h1 where it does not; a listener may have h2 alone."""
    cert, key = certificate("localhost")
    log = os.path.join(t.directory, "access.log")
    t.port, alone = free_port(), free_port()
    common = {"engine": t.engine, "tls": {"cert": cert, "key": key}}
    t.weir(t.origin(), log={"access": {"path": log}},
           listeners=[{"bind": f"127.0.0.1:{t.port}", **common}, {"bind": f"127.0.0.1:{alone}", "protocols": ["h2"], **common}])
    for port, flag, version in ((t.port, "--http2", b"2"), (t.port, "--http1.1", b"1.1"), (alone, "--http2", b"2")):
        how = ("--cacert", cert, "--resolve", f"localhost:{port}:127.0.0.1", flag)
        url = f"https://localhost:{port}/"
        assert curl("-T", "-", "-X", "POST", url, data=BODY, how=how) == BODY
        assert curl("-w", "%{http_version} %{num_connects} ", url, url, how=how) == version + b" 1 " + version + b" 0 ", (port, flag)
    wait_until("all are logged", lambda: open(log, encoding="utf-8").read().count("\n") == 9)
    lines = [json.loads(line) for line in open(log, encoding="utf-8")]
    assert [line["protocol"] for line in lines] == ["h2"] * 3 + ["h1"] * 3 + ["h2"] * 3, lines
    assert all(line["scheme"] == "https" and line["tls_version"] == "TLSv1.3" for line in lines), lines

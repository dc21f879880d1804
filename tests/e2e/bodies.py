"""Bodies: every framing, both directions, byte-exact, bounded memory, and no short body that looks complete."""
import hashlib
import random
import threading

from lib.case import case
from lib.wire import Incomplete, head_bytes, push_until_stalled, wait_until

SIZES = (0, 1, 2, 1023, 4096, 16384, 65535, 65536, 65537, (1 << 20) + 3, 8 << 20)
PATTERN = random.Random(7).randbytes(8 << 20)


def sha(data):
    return hashlib.sha256(data).hexdigest()[:16]


@case()
def test_post_content_length(t):
    t.weir(t.origin())
    client = t.client()
    for size in SIZES:
        answer = client.duplex("POST", f"/{size}", PATTERN[:size])
        assert (answer.status, len(answer.body), sha(answer.body)) == (200, size, sha(PATTERN[:size])), (size, answer)


@case()
def test_post_chunked(t):
    t.weir(t.origin())
    client = t.client()
    for size in SIZES:
        for chunk in ((1, 7) if size <= 4096 else (4096, 100000)):
            answer = client.duplex("POST", f"/{size}", PATTERN[:size], chunked=chunk)
            assert (answer.status, len(answer.body), sha(answer.body)) == (200, size, sha(PATTERN[:size])), (size, chunk, answer)


@case()
def test_answer_chunked(t):
    def handler(request, answer):
        size, chunk = map(int, request.target[1:].split("-"))
        answer.reply(200, [], PATTERN[:size], framing="chunked", chunk=chunk)
    origin = t.origin(handler)
    t.weir(origin)
    client = t.client()
    for size in SIZES:
        for chunk in ((1, 1000) if size <= 4096 else (8192, 1 << 20)):
            answer = client.get(f"/{size}-{chunk}")
            assert answer.framing == "chunked", (size, chunk, answer)
            assert (len(answer.body), sha(answer.body)) == (size, sha(PATTERN[:size])), (size, chunk, answer)
    assert origin.connections == 1, f"{origin.connections} origin connections: chunked answers were not reused"


@case()
def test_answer_until_close(t):
    """The origin ends its body by closing; the client gets it whole, framed so that its end is certain."""
    origin = t.origin(lambda q, a: a.reply(200, [], PATTERN[:int(q.target[1:])], framing="close"))
    t.weir(origin)
    client = t.client()
    for size in SIZES:
        answer = client.get(f"/{size}")
        assert (len(answer.body), sha(answer.body)) == (size, sha(PATTERN[:size])), (size, answer)
        assert answer.framing == "chunked", f"an HTTP/1.1 client can be told the end, got {answer.framing}"


@case()
def test_answer_split_everywhere(t):
    """The origin's head and body arrive cut at odd places."""
    text = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nX-A: b\r\n\r\n5;e=1\r\nhello\r\n6\r\n world\r\n0\r\nX-T: 1\r\n\r\n"

    def handler(request, answer):
        step = int(request.target[1:])
        for at in range(0, len(text), step):
            answer.raw(text[at:at + step])
    t.weir(t.origin(handler))
    client = t.client()
    for step in (1, 2, 3, 5, 17, 60, 1000):
        answer = client.get(f"/{step}")
        assert answer.body == b"hello world" and answer.header("x-a") == "b", (step, answer)


@case()
def test_large_bodies_by_relay(t):
    """A large body of known length goes through the kernel, up and down; one in chunks or until close is re-framed, byte-exact."""
    def handler(request, answer):
        body = request.body()
        assert sha(body) == sha(PATTERN), "the upload changed on its way"
        answer.reply(200, [], PATTERN, framing=request.target[1:])
    weir = t.weir(t.origin(handler))
    client = t.client()
    for chunked, framing, relays in ((0, "length", 2), (0, "chunked", 1), (100000, "length", 1), (100000, "chunked", 0), (0, "close", 1)):
        before = weir.metric("weir_relay_bytes_total")
        client.request("POST", f"/{framing}", body=PATTERN, chunked=chunked)
        answer = client.response()
        assert (len(answer.body), sha(answer.body)) == (len(PATTERN), sha(PATTERN)), (chunked, framing, answer)
        moved = weir.metric("weir_relay_bytes_total") - before  # all but what came together with the head, or before it was sent on
        assert (relays - 1) * len(PATTERN) * 1.1 < moved <= relays * len(PATTERN), (chunked, framing, moved)
        assert relays == 0 or moved > relays * len(PATTERN) * 0.8, (chunked, framing, moved)


def short_case(t, head, body, looks):
    """The origin sends less than it declared and closes: the client must not see a complete answer (H7)."""
    def handler(request, answer):
        if request.target == "/fine":
            return answer.reply(200, [], b"fine")
        answer.raw(head + body)
        return answer.close()
    origin = t.origin(handler)
    t.weir(origin)
    client = t.client()
    client.request("GET", "/short")
    try:
        answer = client.response()
    except Incomplete as short:
        assert short.response is None or len(short.response.body) <= looks, short.response
    else:
        assert answer.status == 502, f"a complete-looking answer: {answer}"
    assert t.client().get("/fine").body == b"fine"
    assert origin.requests[-1].connection_index != origin.requests[0].connection_index, "the broken origin connection was reused"


@case(ids=["H7"])
def test_origin_short_length(t):
    short_case(t, b"HTTP/1.1 200 OK\r\nContent-Length: 200000\r\n\r\n", PATTERN[:100000], 100000)


@case(ids=["H7"])
def test_origin_short_small(t):
    """Head and part of the body fit one read: nothing may be sent as if it were whole."""
    short_case(t, b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n", PATTERN[:50], 50)


@case(ids=["H7"])
def test_origin_short_chunked(t):
    short_case(t, b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", b"ffff\r\n" + PATTERN[:100], 100)


@case(ids=["H7"])
def test_origin_chunked_without_last(t):
    short_case(t, b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", b"5\r\nhello\r\n", 5)


@case(ids=["H7"])
def test_origin_bad_chunk(t):
    short_case(t, b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", b"5\r\nhello\r\nnonsense\r\n", 5)


@case(ids=["H7"])
def test_origin_too_long(t):
    """Bytes after the declared body are no answer to anything: the connection is not reused, the next client sees none of them."""
    def handler(request, answer):
        if request.target == "/long":
            answer.raw(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhelloHTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nevil")
        else:
            answer.reply(200, [], b"fine")
    origin = t.origin(handler)
    t.weir(origin)
    client = t.client()
    assert client.get("/long").body == b"hello"
    for _ in range(3):
        assert client.get("/fine").body == b"fine"
    assert origin.requests[1].connection_index != 1, "a connection with bytes left over was reused"


@case(ids=["H7"])
def test_origin_no_answer(t):
    """The origin takes the request and closes: 502, and never a silent retry of a POST."""
    origin = t.origin(lambda q, a: (q.body(), a.close()))
    t.weir(origin)
    client = t.client()
    client.request("POST", "/p", body=b"abc")
    assert client.response().status == 502
    assert len(origin.requests) == 1, f"the POST was sent {len(origin.requests)} times"


@case()
def test_origin_bad_head(t):
    texts = [b"nonsense\r\n\r\n", b"HTTP/1.1 abc OK\r\n\r\n", b"HTTP/1.1 200 OK\r\nA b: c\r\n\r\n",
             b"HTTP/1.1 200 OK\r\nX: a\0b\r\n\r\n",
             b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\nContent-Length: 4\r\n\r\nabc",
             b"HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n",
             b"HTTP/1.1 200 OK\r\nX: " + b"y" * 100000 + b"\r\nContent-Length: 0\r\n\r\n"]

    def handler(request, answer):
        answer.raw(texts[int(request.target[1:])])
        answer.close()
    t.weir(t.origin(handler))
    client = t.client()
    for i, text in enumerate(texts):
        answer = client.get(f"/{i}")
        assert answer.status == 502, (text[:60], answer)


@case(ids=["H8", "M3"])
def test_stalled_origin_upload(t):
    """32 MiB up to an origin that stops reading: a bounded part is taken, and after it reads again all arrives byte-exact."""
    size = 32 << 20
    data = PATTERN * 4
    for chunked in (False, True):
        resume, seen = threading.Event(), []

        def handler(request, answer):
            resume.wait(120)
            digest = hashlib.sha256()
            for piece in request.pieces():
                digest.update(piece)
            seen.append(digest.hexdigest())
            answer.reply(200, [], b"got it")
        weir = t.weir(t.origin(handler, rcvbuf=65536))
        before = weir.rss_kib()
        client = t.client(sndbuf=65536)
        if chunked:
            text = head_bytes("POST", "/up", [("Transfer-Encoding", "chunked")]) + b"%x\r\n" % size + data + b"\r\n0\r\n\r\n"
        else:
            text = head_bytes("POST", "/up", [("Content-Length", str(size))]) + data
        sent, accepted = push_until_stalled(client.sock, text, idle_s=0.7)
        t.note(f"{'chunked' if chunked else 'length'}: {accepted >> 10} KiB accepted, RSS +{weir.rss_kib() - before} KiB")
        assert accepted <= 8 << 20, f"{accepted} bytes were taken for an origin that reads nothing"
        if not t.sanitized:
            assert weir.rss_kib() - before < 12 << 10, f"RSS grew by {weir.rss_kib() - before} KiB"
        resume.set()
        client.send(text[sent:])
        assert client.response().body == b"got it"
        assert seen == [hashlib.sha256(data).hexdigest()], "the upload changed on its way"
        client.close()
        weir.term()
        assert weir.wait_exit() == 0


@case(ids=["M3"])
def test_slow_reader(t):
    """64 MiB down to a client that reads nothing at first: the origin is held back, then all arrives byte-exact."""
    size, sent = 64 << 20, [0]

    def handler(request, answer):
        answer.head(200, [("Content-Length", str(size))])
        while sent[0] < size:
            answer.raw(PATTERN[:65536])
            sent[0] += 65536
    weir = t.weir(t.origin(handler))
    before = weir.rss_kib()
    client = t.client(rcvbuf=65536)
    client.request("GET", "/down")
    response = client.head()
    last = [-1, 0]

    def stalled():
        last[1] = last[1] + 1 if sent[0] == last[0] else 0
        last[0] = sent[0]
        return last[1] > 200
    wait_until("the origin is held back", stalled)
    t.note(f"{sent[0] >> 10} KiB left the origin, RSS +{weir.rss_kib() - before} KiB")
    assert sent[0] <= 24 << 20, f"{sent[0]} bytes were taken for a client that reads nothing"
    if not t.sanitized:
        assert weir.rss_kib() - before < 12 << 10, f"RSS grew by {weir.rss_kib() - before} KiB"
    digest, whole = hashlib.sha256(), 0
    for piece in client.pieces(response):
        digest.update(piece)
        whole += len(piece)
    want = hashlib.sha256()
    for _ in range(size // 65536):
        want.update(PATTERN[:65536])
    assert (whole, digest.digest()) == (size, want.digest())


@case(ids=["H6"])
def test_early_answer(t):
    """The origin refuses without reading the body: the client, which sends all of 1 MiB first, still reads the whole answer."""
    origin = t.origin(lambda q, a: (a.reply(413, [], b"too much for me"), a.close(linger=True)))
    t.weir(origin)
    client = t.client()
    try:
        client.request("POST", "/early", body=PATTERN[:1 << 20])
    except ConnectionError:
        pass  # weir may stop reading; the answer must be there all the same
    answer = client.response()
    assert (answer.status, answer.body) == (413, b"too much for me"), answer


@case(ids=["H6"])
def test_early_answer_without_origin(t):
    t.weir(t.origin(), routes=[{"match": {"path": "/nothing"}, "to": "app"}])
    client = t.client()
    try:
        client.request("POST", "/early", body=PATTERN[:1 << 20])
    except ConnectionError:
        pass
    assert client.response().status == 404


@case(ids=["H9"])
def test_expect_continue(t):
    origin = t.origin(lambda q, a: (a.raw(b"HTTP/1.1 100 Continue\r\n\r\n"), a.reply(200, [], q.body())))
    t.weir(origin)
    client = t.client()
    client.send(head_bytes("POST", "/e", [("Content-Length", "5"), ("Expect", "100-continue")]))
    line = client.reader.until(b"\r\n\r\n", "an interim answer")
    assert line.startswith(b"HTTP/1.1 100"), line
    client.send(b"abcde")
    answer = client.response()
    assert (answer.status, answer.body) == (200, b"abcde")


@case(ids=["H3"])
def test_bad_chunk_from_client(t):
    """A fault in the body: 400, and the origin's request stays unterminated on a connection that is not reused."""
    done = []

    def handler(request, answer):
        if request.method == "GET":
            return answer.reply(200, [], b"ok")
        try:
            done.append(request.body())
        finally:
            answer.close()
        return None
    origin = t.origin(handler)
    t.weir(origin)
    for bad in (b"5\r\nhelloX", b"zz\r\n", b"5\nhello\r\n", b"-1\r\n", b"ffffffffffffffffff\r\n"):
        client = t.client()
        client.send(head_bytes("POST", "/b", [("Transfer-Encoding", "chunked")]) + b"3\r\nabc\r\n" + bad)
        assert client.response().status == 400, bad
        client.expect_eof()
        client.close()
    assert not done, f"the origin saw a complete body: {done}"
    assert t.client().get("/fine").body == b"ok"

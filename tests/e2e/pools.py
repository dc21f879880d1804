"""Connections to origins: kept, limited, balanced, and what happens when they die."""
from lib.case import case
from lib.wire import wait_until

ONE = ("epoll",)


@case()
def test_keep_alive_timeout_of_the_origin(t):
    """A connection whose origin gives it one second is not used after it, and not for `origin_idle`."""
    origin = t.origin(lambda q, a: a.reply(200, [("Keep-Alive", "timeout=1")], b"x"))
    weir = t.weir(origin, timeouts={"origin_idle": "60s"})
    client = t.client()
    assert client.get("/").status == 200
    wait_until("the idle connection is closed", lambda: weir.metric("weir_upstream_connections") == 0)
    assert client.get("/").status == 200
    assert origin.connections == 2


@case()
def test_dead_idle_connection_costs_nobody_a_request(t):
    """Reused connections that the origin ends on the next request: GET and PUT without a body go out again, once."""
    def handler(request, answer):
        if request.connection_index in ends and len([r for r in origin.requests if r.connection_index == request.connection_index]) > 1:
            return answer.close()
        return answer.reply(200, [], b"ok")
    ends = {1, 2}
    origin = t.origin(handler)
    weir = t.weir(origin)
    client = t.client()
    assert client.get("/1").status == 200
    assert client.get("/2").status == 200
    client.request("PUT", "/3", body=b"")
    assert client.response().status == 200
    assert [r.target for r in origin.requests] == ["/1", "/2", "/2", "/3", "/3"], [r.target for r in origin.requests]
    assert weir.metric("weir_retries_total", reason="reused") == 2


@case(engines=ONE)
def test_post_is_not_sent_twice(t):
    def handler(request, answer):
        if request.method == "POST":
            request.body()
            return answer.close()
        return answer.reply(200, [], b"ok")
    origin = t.origin(handler)
    t.weir(origin)
    client = t.client()
    assert client.get("/").status == 200
    client.request("POST", "/", body=b"once")
    assert client.response().status == 502
    assert [r.method for r in origin.requests] == ["GET", "POST"]

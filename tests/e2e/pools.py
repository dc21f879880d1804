"""Connections to origins: kept, limited, balanced, and what happens when they die."""
import threading

from lib.case import case
from lib.weir import free_port
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
def test_max_connections(t):
    """One request more than connections is 503 with the stable code; nothing beyond the limit reaches the origin."""
    gate = threading.Event()

    def handler(request, answer):
        gate.wait(30)
        answer.reply(200, [], b"ok")
    origin = t.origin(handler)
    t.weir(upstreams={"app": {"servers": [origin.address], "max_connections": 3}})
    waiting = [t.client() for _ in range(3)]
    for client in waiting:
        client.request("GET", "/wait")
    wait_until("three requests are with the origin", lambda: len(origin.requests) == 3)
    extra = t.client()
    answer = extra.get("/more")
    assert answer.status == 503 and "origin_limit" in answer.header("proxy-status"), answer
    gate.set()
    for client in waiting:
        assert client.response().status == 200
    assert extra.get("/again").status == 200
    assert origin.connections == 3, origin.connections


@case(engines=ONE)
def test_max_connections_holds_for_the_process(t):
    """Four workers together open no more than the limit."""
    gate = threading.Event()

    def handler(request, answer):
        gate.wait(30)
        answer.reply(200, [], b"ok")
    origin = t.origin(handler)
    t.weir(workers=4, upstreams={"app": {"servers": [origin.address], "max_connections": 5}})
    clients = [t.client() for _ in range(40)]
    for client in clients:
        client.request("GET", "/")
    wait_until("five requests are with the origin", lambda: len(origin.requests) == 5)
    refused = []

    def read(client):
        refused.append(client.response().status)
    readers = [threading.Thread(target=read, args=(client,), daemon=True) for client in clients]
    for reader in readers:
        reader.start()
    wait_until("the others are refused", lambda: len(refused) == 35)
    assert set(refused) == {503}, refused
    gate.set()
    for reader in readers:
        reader.join(30)
    assert refused.count(200) == 5 and origin.connections == 5, (refused, origin.connections)


@case(engines=ONE)
def test_down_server_is_passed_over(t):
    """Ten times the weight, and down: every request is answered by the other one."""
    origin = t.origin()
    for balance in ("round_robin", "least_requests", "random"):
        weir = t.weir(upstreams={"app": {"balance": balance, "servers": [
            {"address": f"127.0.0.1:{free_port()}", "weight": 10}, origin.address]}})
        client = t.client()
        assert [client.get("/").status for _ in range(20)] == [200] * 20
        assert weir.metric("weir_retries_total", reason="connect") >= 5
        t.end(weir)


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

"""The pages, for clients that are slow, hostile or many."""

from __future__ import annotations

import http.client
import os
import resource
import socket
import threading
import time
from contextlib import ExitStack, closing, suppress
from typing import TYPE_CHECKING

import pytest

from agent.errors import Malformed, Unavailable
from agent.telemetry import server as serve
from agent.telemetry.listening import parse_address
from agent.telemetry.server import Server, Status
from tests.support import switch
from tests.support.real_parts import require

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    Start = Callable[..., Server]

HERE = "127.0.0.1", 0
GET = b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n"


@pytest.fixture
def state() -> Status:
    """Serve this text, of a loop that has just turned."""
    state = Status()
    state.publish("up 1\n")
    return state


@pytest.fixture
def start(state: Status) -> Iterator[Start]:
    """Start servers that end with the test."""
    with ExitStack() as stack:
        yield lambda address=HERE, **options: stack.enter_context(
            closing(Server(address, state, **options))
        )


def ask(server: Server, path: str = "/metrics", method: str = "GET") -> tuple[int, str]:
    """Status and body, by the standard library's client."""
    with closing(http.client.HTTPConnection(*server.address, timeout=5)) as connection:
        connection.request(method, path)
        answer = connection.getresponse()
        return answer.status, answer.read().decode()


def dial(server: Server, data: bytes = b"") -> socket.socket:
    """A connection that has sent this much."""
    sock = socket.create_connection(server.address, timeout=5)
    sock.sendall(data)
    return sock


def rest(sock: socket.socket) -> bytes:
    """All that comes until the server hangs up."""
    return b"".join(iter(lambda: sock.recv(65536), b""))


# The pages.


def test_the_published_text_is_served(start: Start, state: Status) -> None:
    """The last one, and what is known only at the scrape behind it."""
    server = start(at_scrape=lambda: "now 2\n")
    assert ask(server) == (200, "up 1\nnow 2\n")
    state.publish("up 2\n")
    assert ask(server, "/metrics?x=1") == (200, "up 2\nnow 2\n")


def test_an_addition_that_fails_is_left_out(start: Start) -> None:
    """The rest is served, now and later."""
    server = start(at_scrape=lambda: str(1 / 0))
    assert [ask(server) for _ in range(2)] == [(200, "up 1\n")] * 2


def test_health_is_that_the_loop_turns() -> None:
    """Until it has not for too long; and again when it does."""
    now = [0.0]
    state = Status(lambda: now[0], alive_within=60)
    assert state.health() == (200, "ok\n")
    now[0] = 61.0
    assert state.health() == (503, "no heartbeat of the loop for 61 s\n")
    state.heartbeat()
    assert state.health() == (200, "ok\n")


def test_ready_is_that_an_observation_was_applied(start: Start, state: Status) -> None:
    """Once, and for good; health is asked for separately."""
    server = start()
    assert ask(server, "/readyz") == (503, "no observation applied yet\n")
    assert ask(server, "/healthz") == (200, "ok\n")
    state.mark_ready()
    assert ask(server, "/readyz") == (200, "ok\n")


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/", 404),
        ("GET", "/metrics/", 404),
        ("POST", "/metrics", 405),
        ("HEAD", "/metrics", 200),
    ],
)
def test_other_requests(start: Start, method: str, path: str, status: int) -> None:
    """Unknown pages and methods are refused; HEAD has no body."""
    found, body = ask(start(), path, method)
    assert found == status
    assert (body == "") == (method == "HEAD")


@pytest.mark.parametrize(
    "data", [b"\n\n", b"GET\r\n\r\n", b"\x16\x03\x01\x02\n\n", b"GET /metrics\r\n\r\n", b"x" * 9000]
)
def test_what_is_no_request_is_told_so(start: Start, data: bytes) -> None:
    """TLS, HTTP/0.9, a header without an end."""
    with dial(start(), data) as sock:
        assert rest(sock).startswith(b"HTTP/1.1 400 Bad Request\r\n")


# Slow, hostile, many.


def test_a_request_in_pieces(start: Start) -> None:
    """Byte by byte is as good as whole."""
    with dial(start()) as sock:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for number in range(len(GET)):
            sock.send(GET[number : number + 1])
        assert rest(sock).endswith(b"\r\n\r\nup 1\n")


def test_who_trickles_is_cut_off(start: Start) -> None:
    """Patience is for the whole connection, not from byte to byte."""
    began = time.monotonic()
    with dial(start(patience=0.3)) as sock, suppress(ConnectionError):
        while time.monotonic() - began < 5:
            sock.send(b"x")
            time.sleep(0.02)
    assert 0.2 < time.monotonic() - began < 2


def test_who_never_reads_is_cut_off(start: Start, state: Status) -> None:
    """A large answer waits for nobody, and the others are served meanwhile."""
    state.publish("x" * 50_000_000)
    server = start(patience=0.5)
    with dial(server, GET) as sock:
        assert ask(server, "/healthz")[0] == 200
        time.sleep(0.8)
        assert len(rest(sock)) < 50_000_000


def test_a_large_answer_arrives_whole(start: Start, state: Status) -> None:
    """Larger than what sockets hold."""
    state.publish("x" * 5_000_000)
    assert ask(start()) == (200, "x" * 5_000_000)


def test_what_is_left_unread_does_not_cost_the_answer(start: Start) -> None:
    """A body that nobody wanted is no reason for a reset."""
    with dial(
        start(), b"POST /metrics HTTP/1.1\r\nContent-Length: 100000\r\n\r\n" + b"x" * 100_000
    ) as sock:
        assert rest(sock).startswith(b"HTTP/1.1 405")


def test_idle_connections_do_not_keep_others_out(start: Start) -> None:
    """Ten times as many as there is room for, all silent, and every honest request is answered at
    once.
    """
    server = start(patience=60)
    with ExitStack() as stack:
        for _ in range(10 * serve.CLIENTS):
            stack.enter_context(dial(server, b"GET /metr"))
            began = time.monotonic()
            assert ask(server, "/healthz") == (200, "ok\n")
            assert time.monotonic() - began < 1


def test_no_thread_and_no_descriptor_is_left(start: Start) -> None:
    """A hundred clients of all kinds cost one thread while they are there, and nothing
    afterwards.
    """
    server = start(patience=0.2)
    ask(server)
    time.sleep(0.1)  # for the farewell
    before, threads = len(os.listdir("/proc/self/fd")), threading.active_count()
    for data in (b"", b"GET", GET, b"\0" * 10_000) * 25:
        dial(server, data).close()
    assert threading.active_count() == threads
    time.sleep(0.5)
    assert ask(server)[0] == 200
    time.sleep(0.1)
    assert len(os.listdir("/proc/self/fd")) == before


def test_out_of_descriptors(start: Start) -> None:
    """It takes a breath instead of spinning, and serves again when there are some."""
    server = start()
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with dial(server) as waiting, socket.socket() as late:
        time.sleep(0.1)
        resource.setrlimit(resource.RLIMIT_NOFILE, (3, hard))
        try:
            late.connect(server.address)
            used = time.process_time()
            time.sleep(0.3)
            assert time.process_time() - used < 0.1
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        waiting.sendall(GET)
        assert rest(waiting).endswith(b"up 1\n")
        late.settimeout(5)
        late.sendall(GET)
        assert rest(late).endswith(b"up 1\n")


def test_closing_ends_the_thread_and_frees_the_port(state: Status) -> None:
    """With a client in the middle of its request; the same address can be had again at once."""
    server = Server(HERE, state)
    with dial(server, b"GET"):
        server.close()
        with closing(Server(server.address, state)) as again:
            assert ask(again)[0] == 200


# Addresses.


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("127.0.0.1:9477", ("127.0.0.1", 9477)),
        ("[::1]:9477", ("::1", 9477)),
        ("fd00::7:9477", ("fd00::7", 9477)),
        (":9477", ("", 9477)),
        ("0.0.0.0:0", ("0.0.0.0", 0)),  # noqa: S104 - what an operator may well write
    ],
)
def test_addresses(text: str, address: tuple[str, int]) -> None:
    """As people write them, and as Kubernetes puts a node's address before a port."""
    assert parse_address(text) == address


@pytest.mark.parametrize(
    "text",
    ["", "9477", "127.0.0.1", "127.0.0.1:", "host:9477", "1.2.3.4:65536", "1.2.3:-1", "[::1:1"],
)
def test_what_is_no_address(text: str) -> None:
    """No name is looked up, and the message names the value."""
    with pytest.raises(Malformed, match="is no IP:PORT"):
        parse_address(text)


@pytest.mark.parametrize("host", ["::1", ""])
def test_ipv6(start: Start, host: str) -> None:
    """Alone, and together with IPv4."""
    if not socket.has_dualstack_ipv6():
        pytest.skip("this machine has no IPv6")
    server = start((host, 0))
    for client in ["::1"] if host else ["::1", "127.0.0.1"]:
        server.address = client, server.address[1]
        assert ask(server)[0] == 200


def test_an_address_that_is_taken(start: Start, state: Status) -> None:
    """Said in one line with the address."""
    host, number = start().address
    with pytest.raises(
        Unavailable, match=f"cannot serve metrics on {host} port {number}: Address already in use"
    ):
        Server((host, number), state)


def test_an_address_that_is_not_there_yet(state: Status) -> None:
    """It is waited for, without an end and without spinning, and told as long as that lasts;
    closing does not wait.
    """
    require(switch.missing())
    address = "192.0.2.7", 9477
    with switch.Namespace() as node, closing(node.call(Server, address, state)) as server:
        said = "cannot serve metrics on 192.0.2.7 port 9477: Cannot assign requested address"
        assert server.fault == said
        node.ip("address", "add", "192.0.2.7/32", "dev", "lo")
        switch.wait_for(lambda: not server.fault)
        assert node.call(ask, server) == (200, "up 1\n")
    with switch.Namespace() as node, closing(node.call(Server, address, state)) as server:
        assert server.fault == said

"""The session with the API server over real TCP connections to peers that misbehave, and the
requests as they are sent.
"""

from __future__ import annotations

import json
import re
import shutil
import socket
import socketserver
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
import urllib3

from agent.kube import api as api_module
from agent.kube.access import Access, Misconfigured, by_service_account, credentials
from agent.kube.answers import MAX_BODY, Answer, Failure, Request, failure_of
from agent.kube.api import MAX_STUCK, Api, encode, is_exempt
from agent.kube.nodes import get_node
from tests.support import certificates
from tests.support.nodes import FLAVOR, node
from tests.support.odd_server import reply, says, serving
from tests.support.real_parts import lacks, require

NODE = json.dumps(node({FLAVOR: "roce"})).encode()
GET: Request = {"operation": "get", "node": "n1"}
APPLY: Request = {"operation": "apply", "node": "n1", "body": {"kind": "Node"}}
KEPT = reply(200, NODE).replace(b"Connection: close\r\n", b"")


@pytest.fixture(autouse=True)
def _no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.lower(), raising=False)


@contextmanager
def session(server: str, timeouts: tuple[float, float] = (2.0, 4.0)) -> Iterator[Api]:
    access = Access(server, "Bearer t")
    with closing(Api(lambda again: access, timeouts)) as kube:  # noqa: ARG005
        yield kube


def dripping(data: bytes, pause: float = 0.02) -> Callable[[socket.socket], None]:
    """Send a byte from time to time, so that no single read is late."""

    def respond(connection: socket.socket) -> None:
        with suppress(OSError):
            for byte in data:
                connection.sendall(bytes([byte]))
                time.sleep(pause)

    return respond


@pytest.mark.slow
@pytest.mark.parametrize(
    "data",
    [
        b"HTTP/1.1 200 OK\r\nX-Slow: " + b"x" * 2000,
        reply(200, b" " * 2000),
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + b"1\r\n \r\n" * 500,
    ],
    ids=["head", "body", "chunks"],
)
def test_a_peer_that_drips(data: bytes) -> None:
    """The deadline holds for the whole answer; the outcome of a write is unknown."""
    with (
        serving(dripping(data)) as server,
        session(f"http://127.0.0.1:{server.port}", (5.0, 1.0)) as kube,
    ):
        answer = kube(APPLY)
    assert (answer.error, answer.maybe_done) == ("timeout", True)
    assert answer.message == "no whole answer within 1 s"
    text = failure_of(answer, "n1").text
    assert "outcome unknown" in text
    assert "not made" not in text


class Kept:
    """A server of kept connections that closes each after so many answers, or says nothing."""

    def __init__(self, answers: int, *, silently: bool = False) -> None:
        self.connections = self.requests = 0
        self._answers, self._silently = answers, silently
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        threading.Thread(target=self._serve, daemon=True).start()

    def close(self) -> None:
        """Accept no further connection."""
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def _serve(self) -> None:
        with suppress(OSError):
            while True:
                connection, _ = self._listener.accept()
                self.connections += 1
                threading.Thread(target=self._talk, args=(connection,), daemon=True).start()

    def _talk(self, connection: socket.socket) -> None:
        with connection, suppress(OSError):
            for _ in range(self._answers):
                if not connection.recv(65536):
                    return
                self.requests += 1
                connection.sendall(KEPT)
            if self._silently:
                connection.recv(65536)  # a half-open connection: the peer is gone without a word
                time.sleep(5)
            else:
                connection.recv(65536)  # closed after the request arrived, before any byte
                self.requests += 1


def test_a_server_that_closes_each_connection() -> None:
    """A request on a kept connection that is closed before a byte of the answer is sent again."""
    with closing(Kept(1)) as server, session(server.url) as kube:
        assert all(kube(GET).succeeded for _ in range(3))
        assert kube(APPLY).succeeded
        assert server.connections == 4


def test_a_request_that_must_not_be_sent_twice() -> None:
    """A JSON patch on such a connection is not sent again, and its outcome is unknown."""
    with closing(Kept(1)) as server, session(server.url) as kube:
        assert kube(GET).succeeded
        answer = kube({"operation": "patch", "node": "n1", "body": []})
    assert (answer.error, answer.maybe_done, server.connections) == ("cut", True, 1)


def test_a_half_open_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    """A peer that is gone without a word is a timeout; an idle connection is not used again."""
    with closing(Kept(1, silently=True)) as server, session(server.url, (0.3, 4.0)) as kube:
        assert kube(GET).succeeded
        assert kube(APPLY).error == "timeout"
        assert kube(GET).succeeded
        monkeypatch.setattr(api_module, "MAX_IDLE", 0.0)
        assert kube(GET).succeeded


def test_http_1_0_and_a_redirect() -> None:
    """HTTP/1.0 is understood; no redirect is followed."""
    old = reply(200, NODE).replace(b"HTTP/1.1", b"HTTP/1.0")
    with serving(says(old)) as server, session(f"http://127.0.0.1:{server.port}") as kube:
        assert kube(GET).succeeded
    elsewhere = reply(307, b"", "Location: http://127.0.0.1:1/")
    with serving(says(elsewhere)) as server, session(f"http://127.0.0.1:{server.port}") as kube:
        answer = kube(APPLY)
        assert (answer.status, answer.error, len(server.requests)) == (307, "garbage", 1)


@pytest.mark.parametrize(
    ("status", "maybe_done"), [(500, True), (502, True), (503, True), (504, True), (429, False)]
)
def test_a_server_that_fails(status: int, *, maybe_done: bool) -> None:
    """A write may have been made before the server, or a proxy, gave up; not one that is refused
    for too many requests. A read has no outcome.
    """
    said = reply(status, b'{"message": "etcdserver: request timed out"}')
    with serving(says(said, said)) as server, session(f"http://127.0.0.1:{server.port}") as kube:
        answer, read = kube(APPLY), kube(GET)
    assert (answer.status, answer.error, answer.maybe_done) == (status, None, maybe_done)
    assert ("outcome unknown" in failure_of(answer, "n1").text) == maybe_done
    assert not read.maybe_done


def test_an_answer_of_100_mb() -> None:
    """Little more than the limit is read."""
    sent = list[int]()

    def respond(connection: socket.socket) -> None:
        connection.sendall(reply(200, b"", length=100 << 20))
        with suppress(OSError):
            for _ in range(100):
                connection.sendall(b" " * (1 << 20))
                sent.append(1)

    with serving(respond) as server, session(f"http://127.0.0.1:{server.port}") as kube:
        answer = kube(GET)
    assert (answer.error, answer.maybe_done) == ("garbage", False)
    assert "longer than" in answer.message
    assert len(sent) < (MAX_BODY >> 20) + 16


def test_a_proxy_that_asks_for_authentication(monkeypatch: pytest.MonkeyPatch) -> None:
    """407 is a failure of the proxy; the credentials of its address are sent, and not shown."""
    with serving(says(b"HTTP/1.1 407 Proxy Authentication Required\r\n\r\n")) as proxy:
        monkeypatch.setenv("HTTPS_PROXY", f"http://joe:se%63ret@127.0.0.1:{proxy.port}")
        with session("https://api.example:6443") as kube:
            answer = kube(APPLY)
    assert b"proxy-authorization: Basic am9lOnNlY3JldA==" in proxy.requests[0]
    assert (answer.error, answer.maybe_done) == ("proxy", False)
    assert "407" in answer.message
    assert "secret" not in failure_of(answer, "n1").text


CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n"
PEERS: dict[str, tuple[Callable[[socket.socket], None], str]] = {
    "silent": (lambda connection: time.sleep(0.6), "Read timed out. (read timeout=0.3)"),  # noqa: ARG005
    "closes": (says(b""), "Connection aborted: Remote end closed connection without response"),
    "SSH": (
        says(b"SSH-2.0-OpenSSH_9.2\r\n"),
        r"Connection aborted: this is no status line of HTTP: 'SSH-2.0-OpenSSH_9.2\r\n'",
    ),
    "short": (
        says(reply(200, b"{}", length=100)),
        "Connection broken: 2 bytes read, 98 more expected",
    ),
    "no chunk": (says(CHUNKED), "Connection broken: 0 bytes read"),
    "no gzip": (
        says(reply(200, b"abc", "Content-Encoding: gzip")),
        "Received response with content-encoding: gzip, but failed to decode it: Error -3",
    ),
}
NO_WORDS = re.compile(r"_\w*(Connection|Pool)|Error\(|\w\(host=|^\(")  # a repr


@pytest.mark.parametrize("peer", PEERS)
@pytest.mark.parametrize("tls", [False, True], ids=["plain", "TLS"])
def test_the_words_of_a_failure(peer: str, tls: bool, tmp_path: Path) -> None:
    """Whatever the transport raises is a sentence without the name of a class of Python."""
    respond, words = PEERS[peer]
    files = certificates.made(tmp_path, "tls", alias="IP:127.0.0.1") if tls else None
    with serving(respond, files) as server:
        url = f"http{'s' if tls else ''}://127.0.0.1:{server.port}"
        access = Access(url, verify=False)
        with closing(Api(lambda again: access, (0.3, 4.0))) as kube:  # noqa: ARG005
            answer = kube(APPLY)
    assert answer.message.startswith(words)
    assert not NO_WORDS.search(failure_of(answer, "n1").text)


@pytest.mark.parametrize(
    ("proxy", "server", "words"),
    [
        ("", "https://127.0.0.1:1", "Failed to establish a new connection: [Errno 111]"),
        ("", "https://api.invalid:6443", "Failed to resolve 'api.invalid' ("),
        (
            "http://127.0.0.1:1",
            "https://api.invalid:6443",
            "Unable to connect to proxy: Failed to establish a new connection: [Errno 111]",
        ),
        (
            "http://proxy.invalid:1",
            "https://api.invalid:6443",
            "Unable to connect to proxy: Failed to resolve 'proxy.invalid' (",
        ),
    ],
)
def test_the_words_of_no_connection(proxy: str, server: str, words: str) -> None:
    """Of a refused connection and a name without address, of the API server or of a proxy."""
    access = Access(server, proxy=proxy)
    with closing(Api(lambda again: access, (2.0, 8.0))) as kube:  # noqa: ARG005
        answer = kube(APPLY)
    assert (answer.error, answer.maybe_done) == ("proxy" if proxy else "unreachable", False)
    assert answer.message.startswith(words)
    assert not NO_WORDS.search(failure_of(answer, "n1").text)


@pytest.mark.parametrize(
    ("host", "port", "no_proxy", "exempt"),
    [
        ("10.96.0.1", 443, "10.0.0.0/8,.svc", True),
        ("11.96.0.1", 443, "10.0.0.0/8,.svc", False),
        ("fd00::1", 443, "fd00::/8", True),
        ("api.svc", 443, ".svc", True),
        ("api.example", 443, "example", True),
        ("api.example", 443, "*.example", True),
        ("myexample", 443, "example", False),
        ("api.example", 443, "api.example:6443", False),
        ("api.example", 6443, "api.example:6443", True),
        ("api.example", 443, "*", True),
        ("api.example", 443, "", False),
    ],
)
def test_no_proxy(host: str, port: int, no_proxy: str, *, exempt: bool) -> None:
    """By name, domain, address, network and port."""
    assert is_exempt(host, port, no_proxy) is exempt


@pytest.mark.slow
def test_a_name_that_does_not_resolve(monkeypatch: pytest.MonkeyPatch) -> None:
    """The resolver has no deadline: a stuck thread is replaced once, and no more pile up."""
    released, asked = threading.Event(), list[str]()

    def resolve(host: str, *_: object, **__: object) -> list[object]:
        asked.append(host)
        released.wait(20)
        raise socket.gaierror(socket.EAI_AGAIN, "try again")

    monkeypatch.setattr(socket, "getaddrinfo", resolve)
    with session("https://api.example", (2.0, 0.3)) as kube:
        answers = [kube(APPLY) for _ in range(5)]
        assert [one.error for one in answers] == ["unreachable"] * 5
        assert not any(one.maybe_done for one in answers)
        assert len(asked) == MAX_STUCK
        released.set()
        time.sleep(0.3)
        assert "try again" in kube(APPLY).message


@pytest.mark.slow
def test_what_was_given_up_is_not_sent_later(monkeypatch: pytest.MonkeyPatch) -> None:
    """A request that is in the resolver at its deadline would undo the one after it."""
    resolve, released = socket.getaddrinfo, threading.Event()

    def slowly(*arguments: Any) -> Any:
        if not released.is_set():
            released.wait(20)
        return resolve(*arguments)

    with serving(says(reply(200, NODE))) as server:
        monkeypatch.setattr(socket, "getaddrinfo", slowly)
        with session(f"http://localhost:{server.port}", (2.0, 0.3)) as kube:
            answer = kube(APPLY)
            assert (answer.error, answer.maybe_done) == ("unreachable", False)
            released.set()
            for thread in threading.enumerate():
                if thread.name == "request":
                    thread.join(10)
            assert kube(GET).succeeded
            assert [one.split()[0] for one in server.requests if one] == [b"GET"]


def test_a_repeated_request_that_cannot_connect() -> None:
    """The first one may have been served, so the outcome is unknown."""
    server = Kept(1)
    with session(server.url) as kube:
        assert kube(GET).succeeded
        server.close()
        answer = kube(APPLY)
        assert (answer.error, answer.maybe_done) == ("unreachable", True)


@pytest.mark.parametrize("url", ["http://joe:s3cr#t@127.0.0.1:1", "http://joe:s3cr/t@127.0.0.1:1"])
def test_a_proxy_that_is_no_url(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The password, in whatever part of the address it seems to be, is not shown."""
    monkeypatch.setenv("HTTPS_PROXY", url)
    with session("https://api.example") as kube:
        answer = kube(GET)
    assert answer.error
    assert "s3cr" not in failure_of(answer, "n1").text


@pytest.mark.parametrize("ca", ["", "no certificate", "\N{EURO SIGN}"])
def test_a_ca_without_a_certificate(ca: str) -> None:
    """It is an answer, and the credentials are read again for the next request."""
    asked = list[bool]()

    def access(*, again: bool) -> Access:
        asked.append(again)
        return Access("https://127.0.0.1:1", ca=ca)

    with closing(Api(access)) as kube:
        answers = [kube(GET) for _ in range(2)]
    assert {one.error for one in answers} == {"tls"}
    assert "no certificate" in answers[0].message
    assert asked == [False, True]


@pytest.mark.slow
def test_credentials_are_resolved_once_for_requests_that_are_rejected_together() -> None:
    """An answer to older credentials says nothing about those that replaced them."""
    asked, arrived, gate = list[bool](), threading.Barrier(4), threading.Semaphore(0)

    def access(*, again: bool) -> Access:
        asked.append(again)
        return new if again or True in asked else old

    class Server(socketserver.BaseRequestHandler):
        def handle(self) -> None:
            if b"Bearer new" in self.request.recv(65536):
                self.request.sendall(reply(200, NODE))
                return
            arrived.wait(10)
            gate.acquire(timeout=10)
            self.request.sendall(reply(401, b'{"message": "no"}'))

    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Server) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        old = Access(f"http://127.0.0.1:{server.server_address[1]}", "Bearer old")
        new = old._replace(authorization="Bearer new")
        with closing(Api(access)) as kube:
            threads = [threading.Thread(target=kube, args=(GET,)) for _ in range(3)]
            for thread in threads:
                thread.start()
            arrived.wait(10)
            gate.release()
            while all(thread.is_alive() for thread in threads):
                time.sleep(0.01)
            assert kube(GET).succeeded
            gate.release(2)
            for thread in threads:
                thread.join(10)
            assert kube(GET).succeeded
        server.shutdown()
    assert asked.count(True) == 1


@pytest.fixture(scope="module")
def tls(tmp_path_factory: pytest.TempPathFactory) -> list[tuple[Path, Path]]:
    """Two self-signed certificates with their keys."""
    require(lacks("openssl"))
    folder = tmp_path_factory.mktemp("tls")
    return [certificates.made(folder, name, alias="IP:127.0.0.1") for name in ("one", "two")]


def test_a_ca_without_key_identifiers(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is trusted as by kubectl, also where urllib3 would ask for them (Python 3.13)."""

    def strict() -> ssl.SSLContext:
        context = ssl.create_default_context()
        context.verify_flags |= ssl.VERIFY_X509_STRICT
        return context

    monkeypatch.setattr(api_module, "create_urllib3_context", strict)
    made = list[ssl.SSLContext]()
    pool = urllib3.PoolManager

    def seen(**options: Any) -> urllib3.PoolManager:
        made.append(options["ssl_context"])
        return pool(**options)

    monkeypatch.setattr(urllib3, "PoolManager", seen)
    with session("https://127.0.0.1:1") as kube:
        kube(GET)
    (context,) = made
    assert not context.verify_flags & ssl.VERIFY_X509_STRICT


def account(folder: Path, port: int, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "127.0.0.1")
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", str(port))
    (folder / "token").write_text("t\n")
    return folder


def test_a_certificate_that_is_rotated(
    tls: list[tuple[Path, Path]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A server with another certificate is refused until the Pod has the new CA, which is read for
    each request.
    """
    with serving(says(reply(200, NODE)), tls[0]) as server:
        assert server.context
        folder = account(tmp_path, server.port, monkeypatch)
        # System bundles have comments in all languages.
        (folder / "ca.crt").write_text(
            f"# F\N{LATIN SMALL LETTER O WITH DOUBLE ACUTE}\n{tls[0][0].read_text()}"
        )
        with closing(Api(credentials(None, None, str(folder)), (2.0, 4.0))) as kube:
            assert kube(GET).succeeded
            server.context.load_cert_chain(*tls[1])
            answer = kube(APPLY)
            assert (answer.error, answer.maybe_done) == ("tls", False)
            shutil.copy(tls[1][0], folder / "ca.crt")
            assert kube(GET).succeeded


def test_a_token_that_is_rotated_or_empty(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is read for each request; an empty one is no access, and no header without a token."""
    folder = account(tmp_path, 1, monkeypatch)
    (folder / "ca.crt").write_text("a CA")
    access = credentials(None, None, str(folder))
    assert access(again=False).authorization == "Bearer t"
    (folder / "token").write_text("u\n")
    assert access(again=False) == Access("https://127.0.0.1:1", "Bearer u", "a CA")
    for text in ("", "\n"):
        (folder / "token").write_text(text)
        with pytest.raises(Misconfigured, match="is empty"):
            by_service_account(str(folder))
    with closing(Api(access)) as kube:
        found = get_node(kube, "n1")
    assert isinstance(found, Failure)
    assert found.kind == "configuration"
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "fd00::1")
    (folder / "token").write_text("t")
    assert access(again=False).server == "https://[fd00::1]:1"


def test_credentials_are_asked_for_again_after_a_401() -> None:
    """And after a failure that others might mend, not otherwise."""
    asked = list[bool]()

    def access(*, again: bool) -> Access:
        asked.append(again)
        return Access(f"http://127.0.0.1:{server.port}", "Bearer t")

    answers = [reply(401, b'{"message": "no"}'), reply(200, NODE)]
    with serving(says(*answers)) as server, closing(Api(access)) as kube:
        assert [kube(GET).status for _ in range(3)] == [401, 200, 200]
    assert asked == [False, True, False]


def test_a_thread_that_cannot_be_started(monkeypatch: pytest.MonkeyPatch) -> None:
    """The request was not made."""

    def start(_thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(api_module, "start_thread", start)
    with session("http://127.0.0.1:1") as kube:
        assert kube(APPLY) == Answer(
            error="helper", message="can't start new thread", server="http://127.0.0.1:1"
        )


def test_requests_about_events() -> None:
    """They are in namespace `default`, and the name of an Event is escaped."""
    created = encode({"operation": "create-event", "body": {"a": "b"}})
    events = "/api/v1/namespaces/default/events"
    assert (created.method, created.target) == ("POST", f"{events}?fieldManager=bwagent")
    assert json.loads(created.body or b"") == {"a": "b"}
    changed = encode({"operation": "patch-event", "event": "n1/1", "body": {}})
    assert (changed.method, changed.target) == ("PATCH", f"{events}/n1%2F1?fieldManager=bwagent")
    assert changed.headers["Content-Type"] == "application/merge-patch+json"


def test_a_page_of_a_survey() -> None:
    """It has a size, where it goes on, and the selectors."""
    found = encode({"operation": "survey", "continue": "x", "selectors": [("a", "b=c")]}, 7)
    assert found.target == "/api/v1/nodes?limit=7&continue=x&a=b%3Dc"
    assert "PartialObjectMetadataList" in found.headers["Accept"]


def test_an_apply() -> None:
    """Force is a query parameter, as the manager is. A GET is of the metadata, or of the whole."""
    found = encode({"operation": "apply", "node": "n1", "body": {}, "force": True})
    assert found.target == "/api/v1/nodes/n1?fieldManager=bwagent&force=true"
    read = encode({"operation": "get", "node": "n1"})
    assert read.target == "/api/v1/nodes/n1"
    assert read.headers["Accept"].startswith("application/json;as=PartialObjectMetadata;")
    whole = encode({"operation": "get", "node": "n1", "whole": True})
    assert (whole.target, whole.headers["Accept"]) == (read.target, "application/json")
    patch = encode({"operation": "patch", "node": "n1", "body": []})
    assert (patch.method, patch.headers["Content-Type"]) == ("PATCH", "application/json-patch+json")

"""Kept connections to a server that is no API server: few of them, and a reply to each request."""

from __future__ import annotations

import json
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, closing, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs, urlsplit

import pytest

from agent.kube.access import Access, credentials
from agent.kube.answers import MAX_PAGE_BODY, Failure
from agent.kube.api import (
    FIRST_PAGE,
    MAX_CONNECTIONS,
    MAX_PAGE,
    PAGE_BYTES,
    Api,
    connect,
    fitting,
)
from agent.kube.listing import pages
from agent.kube.negotiation import get_node
from tests.support.nodes import FLAVOR, node

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


class Server(ThreadingHTTPServer):
    """An API server with Nodes of some size; `said` are its answers before it has any."""

    daemon_threads = True

    def __init__(self, count: int = 1, size: int = 100) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.nodes = [fat(f"n{number}", size) for number in range(count)]
        self.said: list[int] = []
        self.tokens: list[str] = []
        self.limits: list[int] = []
        self.connections = 0


class Handler(BaseHTTPRequestHandler):
    """Answers the requests of one connection."""

    protocol_version = "HTTP/1.1"  # connections stay open
    server: Server

    def setup(self) -> None:
        super().setup()
        self.server.connections += 1

    def do_GET(self) -> None:
        self.server.tokens.append(self.headers["Authorization"])
        if self.server.said:
            self._send(self.server.said.pop(0), {"kind": "Status", "message": "because"})
        elif self.path.startswith("/api/v1/nodes?"):
            self._send(200, self._page(parse_qs(urlsplit(self.path).query)))
        else:
            self._send(200, self.server.nodes[0])

    def _page(self, query: dict[str, list[str]]) -> dict[str, Any]:
        limit, start = int(query["limit"][0]), int(query.get("continue", ["0"])[0])
        self.server.limits.append(limit)
        end = start + limit
        more = {"continue": str(end)} if end < len(self.server.nodes) else {}
        return {"metadata": more, "items": self.server.nodes[start:end]}

    def _send(self, status: int, document: dict[str, Any]) -> None:
        body = json.dumps(document).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        """Log nothing."""


def fat(name: str, size: int) -> dict[str, Any]:
    """A Node with a label of the agent, and so many bytes of a site's annotation."""
    found = node({FLAVOR: "roce"})
    found["metadata"] |= {"name": name, "annotations": {"site.example/inventory": "x" * size}}
    return found


@contextmanager
def serving(server: Server) -> Iterator[Server]:
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()
        thread.join(10)


def kubeconfig(folder: Path, server: Server, token: str = "t1") -> str:  # noqa: S107 - no secret
    path = folder / "kubeconfig"
    url = f"http://127.0.0.1:{server.server_port}"
    config = {
        "current-context": "c",
        "clusters": [{"name": "c", "cluster": {"server": url}}],
        "users": [{"name": "c", "user": {"token": token}}],
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "c"}}],
    }
    path.write_text(json.dumps(config))
    return str(path)


def session(server: Server) -> AbstractContextManager[Api]:
    access = Access(f"http://127.0.0.1:{server.server_port}", "Bearer t1")
    return closing(Api(lambda again: access))  # noqa: ARG005


def test_many_requests_use_few_connections() -> None:
    """As many as threads."""
    with serving(Server()) as server, session(server) as kube:
        with ThreadPoolExecutor(MAX_CONNECTIONS) as pool:
            found = list(pool.map(lambda _: get_node(kube, "n0"), range(200)))
        assert not any(isinstance(one, Failure) for one in found)
        assert len(server.tokens) == 200
        assert 1 <= server.connections <= MAX_CONNECTIONS


@pytest.mark.parametrize(("size", "most"), [(100, MAX_PAGE), (40_000, 105), (5 << 20, 1)])
def test_a_page_has_as_many_nodes_as_fit(size: int, most: int) -> None:
    """All Nodes are listed, and no page is much longer than PAGE_BYTES."""
    count = 12 if size > PAGE_BYTES else 300
    with serving(Server(count, size)) as server, session(server) as kube:
        found = [one for page in pages(kube, with_managers=True) for one in page.nodes]
    names = [one["metadata"]["name"] for one in found]
    assert names == [f"n{number}" for number in range(count)]
    assert server.limits[0] == FIRST_PAGE
    assert server.limits[-1] <= most
    assert server.connections == 1 or size * FIRST_PAGE > MAX_PAGE_BODY


def test_a_token_is_read_again_after_a_401(tmp_path: Path) -> None:
    """As it is by a child for each request."""
    with serving(Server()) as server:
        path = kubeconfig(tmp_path, server)
        with closing(connect(path)) as kube:
            assert not isinstance(get_node(kube, "n0"), Failure)
            server.said = [401]
            kubeconfig(tmp_path, server, "t2")
            assert not isinstance(get_node(kube, "n0"), Failure)
    assert server.tokens == ["Bearer t1", "Bearer t1", "Bearer t2"]


def test_a_node_of_any_size_is_read() -> None:
    """No pipe limits the answer."""
    with serving(Server(1, 3 << 20)) as server, session(server) as k:
        assert not isinstance(get_node(k, "n0"), Failure)


def test_no_configuration_and_no_server_are_failures(tmp_path: Path) -> None:
    """Of one line each, and the next request tries again."""
    with closing(connect(str(tmp_path / "none"))) as kube:
        found = get_node(kube, "n0")
        assert isinstance(found, Failure)
        assert found.kind == "configuration"
    with serving(Server()) as server:
        path = kubeconfig(tmp_path, server)
    with closing(connect(path)) as kube:
        for _ in range(2):
            found = get_node(kube, "n0")
            assert isinstance(found, Failure)
            assert found.kind == "unreachable"


def test_inline_keys_are_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The package writes the certificates of a kubeconfig into files, in a helper."""
    temporary = tmp_path / "tmp"
    temporary.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(temporary))
    with serving(Server()) as server:
        path = kubeconfig(tmp_path, server)
        config = json.loads((tmp_path / "kubeconfig").read_text())
        config["users"][0]["user"] |= {
            "client-key-data": "a2V5",
            "client-certificate-data": "Y2VydA==",
        }
        config["clusters"][0]["cluster"]["server"] = "https://127.0.0.1:1"
        (tmp_path / "kubeconfig").write_text(json.dumps(config))
        found = credentials(path, None)(again=False)
    assert (found.certificate, found.key) == ("cert", "key")
    assert [*temporary.iterdir()] == []


def test_the_limit_of_a_page() -> None:
    """Never none, never more than MAX_PAGE."""
    assert fitting(50, 0) == MAX_PAGE
    assert fitting(50, 50 * 20_000) == PAGE_BYTES // 20_001
    assert fitting(1, 1 << 30) == 1

"""The client against servers that are no API servers: every response is a reply, never a
traceback. A listing ends whatever they do, and a command names the Node that was asked for.
"""

from __future__ import annotations

import json
import re
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Literal
from urllib.parse import parse_qs, urlsplit

import pytest

from agent.errors import Unavailable
from agent.kube.access import SERVICE_ACCOUNT, Access
from agent.kube.answers import KINDS, MAX_PAGE_BODY, Answer, Failure, Request, failure_of
from agent.kube.api import (
    FIRST_PAGE,
    MAX_CONNECTIONS,
    MAX_PAGE,
    PAGE_BYTES,
    Api,
    connect,
    fitting,
)
from agent.kube.nodes import get_node, pages
from tests.support.kernel_tree import NET, Entries, hca
from tests.support.kube.command import bwagent
from tests.support.kubeconfigs import kubeconfig
from tests.support.nodes import FLAVOR, node
from tests.support.odd_server import reply, says, serving
from tests.support.sysfs_on_disk import lay

NODE = json.dumps(node({FLAVOR: "roce"})).encode()
GET: Request = {"operation": "get", "node": "n1"}
HTML = b"<html><body>502 Bad Gateway</body></html>"


@pytest.fixture(autouse=True)
def _no_surroundings(monkeypatch: pytest.MonkeyPatch) -> None:
    """Remove the settings of a cluster and of proxies from the environment."""
    for name in (
        *("HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "ALL_PROXY", "KUBECONFIG"),
        "KUBERNETES_SERVICE_HOST",
    ):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.lower(), raising=False)


def handle(path: Path | None = None, account: str = SERVICE_ACCOUNT, **more: Any) -> Answer:
    """Send a GET as the flags of a command say."""
    with closing(
        connect(str(path) if path else None, service_account=account, timeouts=(5.0, 20.0), **more)
    ) as kube:
        return kube(GET)


@contextmanager
def api(server: str) -> Iterator[Api]:
    access = Access(server, "Bearer secret")
    with closing(Api(lambda again: access)) as kube:  # noqa: ARG005
        yield kube


def status(code: int, **details: Any) -> dict[str, Any]:
    return {"kind": "Status", "status": "Failure", "code": code, "message": "because", **details}


def as_json(value: object) -> bytes:
    return json.dumps(value).encode()


CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
CUT = {
    "garbage instead of HTTP": b"\x00\x01garbage\r\n\r\n",
    "closes at once": b"",
    "half a body": reply(200, NODE[:40], length=len(NODE)),
    "half a chunk": CHUNKED + b"40\r\n{}",
    "a chunk that is none": CHUNKED + b"zz\r\n{}",
}
# Not to be read: status, a word of the message.
GARBAGE = {
    "half a head": (200, "empty", b"HTTP/1.1 200 OK\r\nContent-Le"),
    "JSON that ends early": (200, "application/json", reply(200, NODE[:40])),
    "HTML": (200, "text/html", reply(200, HTML, kind="text/html; charset=x")),
    "HTML with 403": (403, "403", reply(403, HTML, kind="text/html")),
    "HTML with 404": (404, "404", reply(404, HTML, kind="text/html")),
    "nothing with 200": (200, "empty", reply(200, b"")),
    "bytes": (200, "image/png", reply(200, b"\xff\xfe\x00", kind="image/png")),
    "a JSON list": (200, "", reply(200, b"[]")),
    "deep JSON": (200, "", reply(200, b"[" * 100_000)),
    "something that is no Node": (200, "not a Node", reply(200, as_json(status(200)))),
    "odd metadata": (200, "not a Node", reply(200, b'{"metadata":[{"name":"n1"}]}')),
    "no uid": (200, "not a Node", reply(200, b'{"metadata":{"name":"n1","uid":null}}')),
    "a page elsewhere": (302, "302", reply(302, b"", "Location: http://127.0.0.1:1/")),
    "a new protocol": (101, "101", b"HTTP/1.1 101 Switching\r\n\r\n"),
}
CAUSES = {"causes": [{"field": "a"}, 7]}
HOOK = "failed calling webhook"
LATER = "Retry-After: 3"
# Refusals that are read.
REFUSED = {
    "HTML with 502": (502, "text/html", reply(502, HTML, kind="text/html")),
    "nothing with 503": (503, "empty", reply(503, b"", LATER)),
    "401": (401, "because", reply(401, as_json(status(401)))),
    "403": (403, "because", reply(403, as_json(status(403, reason="Forbidden")))),
    "422": (422, "because", reply(422, as_json(status(422, details=CAUSES)))),
    "429": (429, "because", reply(429, as_json(status(429)), LATER)),
    "429 of a proxy": (429, "slow down", reply(429, b"slow down", LATER, kind="text/plain")),
    "500": (500, "webhook", reply(500, as_json(status(500, message=HOOK)))),
    "odd Status": (500, "7", reply(500, b'{"message": 7, "details": [], "reason": []}')),
}
ODD: dict[str, tuple[bytes, int | None, str | None, str]] = {
    **{name: (data, None, "cut", "") for name, data in CUT.items()},
    **{name: (data, code, "garbage", word) for name, (code, word, data) in GARBAGE.items()},
    **{name: (data, code, None, word) for name, (code, word, data) in REFUSED.items()},
}


@pytest.mark.parametrize("operation", ["get", "apply", "list"])
@pytest.mark.parametrize("name", ODD)
def test_odd_answers(name: str, operation: Literal["get", "apply", "list"]) -> None:
    """Any response is an answer with the status or the kind of failure, and one line for an
    operator; the outcome of a write is unknown unless the response is readable, and no 5xx.
    """
    said, code, error, word = ODD[name]
    with serving(says(said)) as server, api(f"http://127.0.0.1:{server.port}") as kube:
        told = kube({**GET, "operation": operation, "body": {"kind": "Node"}})
    assert len(server.requests) == 1
    assert (told.status, told.error) == (code, error)
    assert word in told.message.replace("not a NodeList", "not a Node")
    lost = error in ("cut", "garbage") or ((code or 0) >= 500 and "webhook" not in word)
    assert told.maybe_done == (operation == "apply" and lost)
    failure = failure_of(told, "n1")
    assert failure.kind in KINDS
    assert failure.text.startswith("Node n1: ")


def test_what_is_sent() -> None:
    """An apply is one PATCH with field manager, media type and user agent, and asks for metadata
    only.
    """
    body = {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": "n1", "labels": {FLAVOR: "roce"}},
    }
    with (
        serving(says(reply(200, NODE))) as server,
        api(f"http://127.0.0.1:{server.port}") as kube,
    ):
        told = kube({**GET, "operation": "apply", "body": body, "force": True})
    assert told.node
    assert told.node["metadata"]["labels"] == {FLAVOR: "roce"}
    head, _, sent = server.requests[0].decode().partition("\r\n\r\n")
    lines = head.lower().split("\r\n")
    assert head.startswith("PATCH /api/v1/nodes/n1?fieldManager=bwagent&force=true HTTP/1.1\r\n")
    assert "content-type: application/apply-patch+yaml" in lines
    assert "authorization: bearer secret" in lines
    assert "user-agent: bwagent" in lines
    assert "as=partialobjectmetadata;" in head.lower()
    assert json.loads(sent) == body


def test_pages_of_nodes() -> None:
    """A list is read page by page; all Nodes are returned, whoever manages them."""
    ours, theirs = node({FLAVOR: "roce"}), node({}, observed=None)
    theirs["metadata"]["managedFields"] = [{"manager": "kubelet"}]
    first = {"items": [ours, theirs, 7], "metadata": {"continue": "more/of it"}}
    with (
        serving(says(reply(200, as_json(first)), reply(200, as_json({"items": [ours]})))) as server,
        api(f"http://127.0.0.1:{server.port}") as kube,
    ):
        found = [one for page in pages(kube, with_managers=True) for one in page.nodes]
    assert [one["metadata"]["name"] for one in found] == ["n1"] * 3
    target = server.requests[1].decode().split()[1]
    assert parse_qs(urlsplit(target).query)["continue"] == ["more/of it"]


def pod(folder: Path, port: int, monkeypatch: pytest.MonkeyPatch) -> str:
    """Set the environment of a Pod; return the folder for its token and CA."""
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "127.0.0.1")
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", str(port))
    account = folder / "account"
    account.mkdir()
    return str(account)


def test_tls_where_there_is_none() -> None:
    """A server without TLS is a TLS failure."""
    with (
        serving(says(b"HTTP/1.1 400 Bad Request\r\n\r\n")) as server,
        api(f"https://127.0.0.1:{server.port}") as kube,
    ):
        told = kube(GET)
    assert told.error == "tls"


def test_a_proxy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """HTTPS_PROXY is used unless NO_PROXY has the server; its refusal is a failure of the proxy."""
    with serving(says(b"HTTP/1.1 407 Proxy Authentication Required\r\n\r\n")) as proxy:
        monkeypatch.setenv("HTTPS_PROXY", f"http://127.0.0.1:{proxy.port}")
        path = kubeconfig(tmp_path / "config", "https://api.example:6443")
        told = handle(path)
        assert proxy.requests[0].startswith(b"CONNECT api.example:6443 ")
        assert told.error == "proxy"
        assert "407" in told.message
        monkeypatch.setenv("NO_PROXY", "api.example")
        assert handle(path).error == "unreachable"
        assert len(proxy.requests) == 1


@pytest.mark.parametrize(
    "text",
    [
        *("", "{", "\x00\x01\x02", "[]", "[1]", "7", "text", "a: b", "current-context: c"),
        '{"current-context": "c", "contexts": [], "clusters": [], "users": []}',
        '{"current-context": "c", "contexts": {"name": "c"}, "clusters": 7}',
        '{"current-context": "c", "contexts": [{"name": "c", "context": 7}], "clusters": []}',
        "&a [*a]",
    ],
)
def test_broken_kubeconfigs(text: str, tmp_path: Path) -> None:
    """A malformed kubeconfig is a failure of the configuration, in one line."""
    path = tmp_path / "kubeconfig"
    path.write_text(text)
    told = handle(path)
    assert told.error == "configuration"
    assert told.message
    assert "\n" not in told.message
    # of Python's own, which name nothing of the file
    assert not re.search(r"' object|indices|argument of type|NoneType", told.message)


@pytest.mark.parametrize(
    "server",
    ["", "no address", "https://", "https://[::1", "https://a:b", "ftp://127.0.0.1", 7, None],
)
def test_a_kubeconfig_that_points_nowhere(server: Any, tmp_path: Path) -> None:
    """A malformed address is a failure of the configuration, or unreachable."""
    told = handle(kubeconfig(tmp_path / "config", server))
    assert told.error in {"configuration", "unreachable"}


def test_a_spoilt_token(tmp_path: Path) -> None:
    """A token with characters that no header may have is a failure that does not show it."""
    for token in ("sec\nret", "sec\u00e9ret", "sec\0ret"):
        told = handle(kubeconfig(tmp_path / "config", "http://127.0.0.1:1", {"token": token}))
        assert told.error == "configuration"
        assert "sec" not in told.message


def test_kubeconfigs_that_are_not_there(tmp_path: Path) -> None:
    """A missing file, a folder, an unknown context and a missing client certificate are failures
    of the configuration.
    """
    assert handle(tmp_path / "none").error == "configuration"
    assert handle(tmp_path).error == "configuration"
    path = kubeconfig(tmp_path / "config", "https://127.0.0.1:1")
    told = handle(path, context="other")
    assert (told.error, told.message) == ("configuration", f"{path}: no context other; known: c")
    gone = {"client-certificate": "/nowhere/a", "client-key": "/nowhere/b"}
    assert handle(kubeconfig(tmp_path / "config", user=gone)).error == "configuration"


def test_outside_of_a_pod(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Outside of a Pod, and without the default kubeconfig, the message names --kubeconfig; in a
    Pod without a token, the token.
    """
    monkeypatch.setenv("HOME", str(tmp_path))
    assert "~/.kube/config does not exist: name a --kubeconfig" in handle().message
    account = pod(tmp_path, 1, monkeypatch)
    assert "token" in handle(account=account).message
    Path(account, "token").write_text("t")
    assert handle(account=account).error == "configuration"


def test_the_default_kubeconfig(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Outside of a Pod it is that of kubectl: $KUBECONFIG, a list of files, or ~/.kube/config. In a
    Pod the service account is used, unless a context is named.
    """
    monkeypatch.setenv("HOME", str(tmp_path))
    with serving(says(reply(200, NODE))) as server:
        path = kubeconfig(tmp_path / "config", f"http://127.0.0.1:{server.port}")
        monkeypatch.setenv("KUBECONFIG", f"/nowhere/config:{path}")
        codes = [handle().status]
        monkeypatch.setenv("KUBECONFIG", "")
        (tmp_path / ".kube").mkdir()
        path.rename(tmp_path / ".kube/config")
        codes.append(handle().status)
        account = pod(tmp_path, 1, monkeypatch)
        assert "no service account token" in handle(account=account).message
        codes.append(handle(context="c").status)
    assert codes == [200, 200, 200]
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST")
    monkeypatch.setenv("KUBECONFIG", "/nowhere/config")
    assert handle().message.startswith("/nowhere/config: ")


def test_by_a_kubeconfig(tmp_path: Path) -> None:
    """The session returns the Node, or a failure if there is none."""
    with serving(says(reply(200, NODE), reply(404, as_json(status(404))))) as server:
        kube = connect(str(kubeconfig(tmp_path / "config", f"http://127.0.0.1:{server.port}")))
        found, gone = get_node(kube, "n1"), get_node(kube, "n1")
    assert not isinstance(found, Failure)
    assert found["metadata"]["labels"] == {FLAVOR: "roce"}
    assert isinstance(gone, Failure)
    assert gone.text == "Node n1: not found: because"


EXEC = {
    "apiVersion": "client.authentication.k8s.io/v1",
    "interactiveMode": "Never",
    "command": "cat",
}


def test_a_credential_plugin(tmp_path: Path) -> None:
    """A kubeconfig's exec plugin runs in the helper, and its token is sent."""
    said = tmp_path / "credential"
    said.write_text(
        json.dumps(
            {"apiVersion": EXEC["apiVersion"], "kind": "ExecCredential", "status": {"token": "t"}}
        )
    )
    with serving(says(reply(200, NODE))) as server:
        plugin = {**EXEC, "args": [str(said)]}
        path = kubeconfig(tmp_path / "config", f"http://127.0.0.1:{server.port}", {"exec": plugin})
        assert not isinstance(get_node(connect(str(path)), "n1"), Failure)
    assert b"Authorization: Bearer t\r\n" in server.requests[0]


def test_modules_of_a_session() -> None:
    """A session does not load the Kubernetes client; the helper loads no generated classes."""
    names = _loaded("import agent.kube.api")
    assert not {"kubernetes", "yaml", "requests"} & names
    names = _loaded("from agent.kube.kubeconfig import resolve; resolve('/nowhere', None)")
    generated = ("kubernetes.client.api.", "kubernetes.client.models.")
    assert "kubernetes.config" in names
    assert not [name for name in names if name.startswith(generated)]


def _loaded(code: str) -> set[str]:
    """Return the modules that a new process has loaded after `code`."""
    more = "; import sys; print(*sys.modules)"
    return set(
        subprocess.run(
            [sys.executable, "-c", code + more], capture_output=True, check=True, text=True
        ).stdout.split()
    )


# Kept connections.


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
        self.url = f"http://127.0.0.1:{self.server_port}"


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
def listening(server: Server) -> Iterator[Server]:
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()
        thread.join(10)


def test_many_requests_use_few_connections() -> None:
    """As many as threads."""
    with listening(Server()) as server, api(server.url) as kube:
        with ThreadPoolExecutor(MAX_CONNECTIONS) as pool:
            found = list(pool.map(lambda _: get_node(kube, "n0"), range(200)))
        assert not any(isinstance(one, Failure) for one in found)
        assert len(server.tokens) == 200
        assert 1 <= server.connections <= MAX_CONNECTIONS


@pytest.mark.parametrize(("size", "most"), [(100, MAX_PAGE), (40_000, 105), (5 << 20, 1)])
def test_a_page_has_as_many_nodes_as_fit(size: int, most: int) -> None:
    """All Nodes are listed, and no page is much longer than PAGE_BYTES."""
    count = 12 if size > PAGE_BYTES else 300
    with listening(Server(count, size)) as server:
        with api(server.url) as kube:
            found = [one for page in pages(kube, with_managers=True) for one in page.nodes]
        names = [one["metadata"]["name"] for one in found]
    assert names == [f"n{number}" for number in range(count)]
    assert server.limits[0] == FIRST_PAGE
    assert server.limits[-1] <= most
    assert server.connections == 1 or size * FIRST_PAGE > MAX_PAGE_BODY


def test_a_token_is_read_again_after_a_401(tmp_path: Path) -> None:
    """As it is by a child for each request."""
    with listening(Server()) as server:
        path = str(kubeconfig(tmp_path / "config", server.url))
        with closing(connect(path)) as kube:
            assert not isinstance(get_node(kube, "n0"), Failure)
            server.said = [401]
            kubeconfig(tmp_path / "config", server.url, {"token": "t2"})
            assert not isinstance(get_node(kube, "n0"), Failure)
    assert server.tokens == ["Bearer t1", "Bearer t1", "Bearer t2"]


def test_the_limit_of_a_page() -> None:
    """Never none, never more than MAX_PAGE."""
    assert fitting(50, 0) == MAX_PAGE
    assert fitting(50, 50 * 20_000) == PAGE_BYTES // 20_001
    assert fitting(1, 1 << 30) == 1


def drip(connection: socket.socket) -> None:
    """Send 100 bytes a second, so that no single read is late."""
    connection.sendall(reply(200, b"", length=1 << 20))
    while True:
        connection.sendall(b" " * 5)
        time.sleep(0.05)


def session(server: str, waiting: Callable[[float], object]) -> Api:
    access = Access(server, "Bearer t")
    return Api(lambda again: access, waiting=waiting)  # noqa: ARG005


def test_a_server_that_drips() -> None:
    """A page that does not come is given up at its deadline, in one line that names the server;
    the seconds show while it is awaited.
    """
    waited = list[float]()
    with serving(drip) as server:
        url = f"http://127.0.0.1:{server.port}"
        with closing(session(url, waited.append)) as kube, pytest.raises(Unavailable) as caught:
            list(pages(kube, deadlines=(3.0, 9.0)))
    text = f"listing Nodes failed: {url} did not respond in time: no whole page within 3 s"
    assert str(caught.value) == text
    assert [round(seconds) for seconds in waited] == [1, 2]


def test_the_end_of_the_program() -> None:
    """The request that was given up does not keep the program."""
    program = (
        "import sys\n"
        "from agent.kube.access import Access\n"
        "from agent.kube.api import Api\n"
        "kube = Api(lambda again: Access(sys.argv[1]))\n"
        "print(kube({'operation': 'survey', 'deadline_s': 1.0}).error)\n"
    )
    with serving(drip) as server:
        command = [sys.executable, "-c", program, f"http://127.0.0.1:{server.port}"]
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert (done.returncode, done.stdout.splitlines()[-1], done.stderr) == (0, "timeout", "")


def test_a_listing_without_end() -> None:
    """All pages together have a deadline, too: each comes within its own."""

    def kube(_request: object) -> Answer:
        time.sleep(0.3)
        return Answer(200, following="x", server="https://k")

    with pytest.raises(Unavailable, match="https://k did not respond in time: the listing took 1"):
        list(pages(kube, deadlines=(5.0, 1.0)))


TREE: Entries = {**hca("mlx5_0", "0000:18:00.0", "InfiniBand"), f"{NET}/lo": None}
OTHER = reply(200, json.dumps(node({FLAVOR: "roce"}, name="n2")).encode())
COMMANDS: dict[str, Callable[[str], tuple[str, ...]]] = {
    "probe": lambda root: ("probe", "--node-name", "n1", "--sysfs-root", root),
    "explain": lambda root: ("explain", "flavor", "--node-name", "n1", "--sysfs-root", root),
    "cleanup": lambda _root: ("cleanup", "--node-name", "n1", "--yes"),
    "cleanup --lost": lambda _root: ("cleanup", "--lost", "--node-name", "n1", "--yes"),
}


@pytest.mark.parametrize("command", COMMANDS)
def test_the_first_get(command: str, tmp_path: Path) -> None:
    """One line that names the Node, and nothing is written; `explain` tells what it can."""
    root = str(lay(TREE, tmp_path / "node"))
    with serving(says(OTHER)) as server:
        path = kubeconfig(tmp_path / "config", f"http://127.0.0.1:{server.port}")
        done = bwagent(*COMMANDS[command](root), kubeconfig=path)
    code = 0 if command == "explain" else 1
    assert (done.returncode, {one[:4] for one in server.requests}) == (code, {b"GET "})
    told = (done.stdout + done.stderr).splitlines()
    [line] = [line for line in told if "like an API server" in line]
    assert "Node n1: " in line
    assert "Traceback" not in done.stderr

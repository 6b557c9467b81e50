"""The client against servers that are no API servers: every response is a reply, never a
traceback.
"""

from __future__ import annotations

import json
import shutil
import socket
import subprocess
import sys
import time
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal
from urllib.parse import parse_qs, urlsplit

import pytest

from agent.kube.access import SERVICE_ACCOUNT, Access
from agent.kube.answers import KINDS, Answer, Failure, Request, failure_of
from agent.kube.api import Api, connect
from agent.kube.listing import pages
from agent.kube.negotiation import get_node
from tests.support.nodes import FLAVOR, node
from tests.support.odd_server import certificate, reply, says, serving
from tests.support.real_parts import require

if TYPE_CHECKING:
    from collections.abc import Iterator

NODE = json.dumps(node({FLAVOR: "roce"})).encode()
GET: Request = {"operation": "get", "node": "n1"}
HTML = b"<html><body>502 Bad Gateway</body></html>"


@pytest.fixture(autouse=True)
def _no_surroundings(monkeypatch: pytest.MonkeyPatch) -> None:
    """Remove the settings of a cluster and of proxies from the environment."""
    for name in (
        "HTTP_PROXY",
        "HTTPS_PROXY",
        "NO_PROXY",
        "ALL_PROXY",
        "KUBECONFIG",
        "KUBERNETES_SERVICE_HOST",
    ):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.lower(), raising=False)


def kubeconfig(folder: Path, server: str, **user: object) -> str:
    """Write a kubeconfig of one cluster; return its path."""
    config: dict[str, Any] = {
        "current-context": "c",
        "clusters": [{"name": "c", "cluster": {"server": server}}],
        "users": [{"name": "c", "user": user or {"token": "secret\n"}}],
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "c"}}],
    }
    path = folder / "kubeconfig"
    path.write_text(json.dumps(config))
    return str(path)


def handle(path: str | None = None, account: str = SERVICE_ACCOUNT, **more: Any) -> Answer:
    """Send a GET as the flags of a command say."""
    with closing(connect(path, service_account=account, timeouts=(5.0, 20.0), **more)) as kube:
        return kube(GET)


@contextmanager
def api(server: str, *, timeouts: tuple[float, float] = (5.0, 20.0)) -> Iterator[Api]:
    """Yield a session with a server."""
    access = Access(server, "Bearer secret")
    with closing(Api(lambda again: access, timeouts)) as kube:  # noqa: ARG005
        yield kube


def status(code: int, **details: Any) -> dict[str, Any]:
    return {"kind": "Status", "status": "Failure", "code": code, "message": "because", **details}


def as_json(value: object) -> bytes:
    return json.dumps(value).encode()


ODD: dict[str, tuple[bytes, int | None, str | None, str]] = {
    "garbage instead of HTTP": (b"\x00\x01garbage\r\n\r\n", None, "cut", ""),
    "closes at once": (b"", None, "cut", ""),
    "half a head": (b"HTTP/1.1 200 OK\r\nContent-Le", 200, "garbage", "empty"),
    "half a body": (reply(200, NODE[:40], length=len(NODE)), None, "cut", ""),
    "half a chunk": (
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n40\r\n{}",
        None,
        "cut",
        "",
    ),
    "a chunk that is none": (
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n{}",
        None,
        "cut",
        "",
    ),
    "JSON that ends early": (reply(200, NODE[:40]), 200, "garbage", "application/json"),
    "HTML": (reply(200, HTML, kind="text/html; charset=x"), 200, "garbage", "text/html"),
    "HTML with 403": (reply(403, HTML, kind="text/html"), 403, "garbage", "403"),
    "HTML with 404": (reply(404, HTML, kind="text/html"), 404, "garbage", "404"),
    "HTML with 502": (reply(502, HTML, kind="text/html"), 502, None, "text/html"),
    "nothing with 200": (reply(200, b""), 200, "garbage", "empty"),
    "nothing with 503": (reply(503, b"", "Retry-After: 3"), 503, None, "empty"),
    "bytes": (reply(200, b"\xff\xfe\x00", kind="image/png"), 200, "garbage", "image/png"),
    "a JSON list": (reply(200, b"[]"), 200, "garbage", ""),
    "deep JSON": (reply(200, b"[" * 100_000), 200, "garbage", ""),
    "something that is no Node": (reply(200, as_json(status(200))), 200, "garbage", "not a Node"),
    "odd metadata": (reply(200, b'{"metadata":[{"name":"n1"}]}'), 200, "garbage", "not a Node"),
    "a Node without uid": (
        reply(200, b'{"metadata":{"name":"n1","uid":null}}'),
        200,
        "garbage",
        "not a Node",
    ),
    "a page elsewhere": (reply(302, b"", "Location: http://127.0.0.1:1/"), 302, "garbage", "302"),
    "a new protocol": (b"HTTP/1.1 101 Switching\r\n\r\n", 101, "garbage", "101"),
    "401": (reply(401, as_json(status(401))), 401, None, "because"),
    "403": (reply(403, as_json(status(403, reason="Forbidden"))), 403, None, "because"),
    "422": (
        reply(422, as_json(status(422, details={"causes": [{"field": "a"}, 7]}))),
        422,
        None,
        "because",
    ),
    "429": (reply(429, as_json(status(429)), "Retry-After: 3"), 429, None, "because"),
    "429 of a proxy": (
        reply(429, b"slow down", "Retry-After: 3", kind="text/plain"),
        429,
        None,
        "slow down",
    ),
    "500": (
        reply(500, as_json(status(500, message="failed calling webhook"))),
        500,
        None,
        "webhook",
    ),
    "odd Status": (
        reply(500, as_json({"message": 7, "details": [], "reason": []})),
        500,
        None,
        "7",
    ),
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


def test_nobody_there() -> None:
    """A refused connection and an unknown name are unreachable, at once."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    with api(f"http://127.0.0.1:{port}") as kube:
        told = kube({**GET, "operation": "apply", "body": {}})
    assert told.error == "unreachable"
    assert not told.maybe_done
    assert "refused" in told.message
    with api("https://nowhere.invalid") as kube:
        told = kube(GET)
    assert told.error == "unreachable"
    assert "nowhere.invalid" in told.message


def silent(connection: socket.socket) -> None:
    """Wait until the client closes the connection."""
    connection.settimeout(60)
    connection.recv(1)


def test_silence() -> None:
    """A server that sends nothing is a timeout."""
    start = time.monotonic()
    with (
        serving(silent) as server,
        api(f"http://127.0.0.1:{server.port}", timeouts=(0.2, 20.0)) as kube,
    ):
        told = kube(GET)
    assert told.error == "timeout"
    assert time.monotonic() - start < 30


def pod(folder: Path, port: int, monkeypatch: pytest.MonkeyPatch) -> str:
    """Set the environment of a Pod; return the folder for its token and CA."""
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "127.0.0.1")
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", str(port))
    account = folder / "account"
    account.mkdir()
    return str(account)


@pytest.fixture(scope="module")
def tls(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    require(
        None if shutil.which("openssl") else "a certificate needs openssl: apt-get install openssl"
    )
    return certificate(tmp_path_factory.mktemp("tls"))


def test_a_ca_that_does_not_fit(
    tls: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A certificate that the CA did not sign, and a malformed CA, are TLS failures."""
    with serving(says(reply(200, NODE)), tls) as server:
        account = pod(tmp_path, server.port, monkeypatch)
        Path(account, "token").write_text("t")
        other = tmp_path / "other"
        other.mkdir()
        shutil.copy(certificate(other)[0], f"{account}/ca.crt")
        told = handle(account=account)
        Path(account, "ca.crt").write_text("no certificate at all")
        worse = handle(account=account)
    failure = failure_of(told, "n1")
    assert failure.kind == "tls"
    assert "certificate verify failed" in failure.text
    assert worse.error == "tls"
    assert server.requests == []


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
        path = kubeconfig(tmp_path, "https://api.example:6443")
        told = handle(path)
        assert proxy.requests[0].startswith(b"CONNECT api.example:6443 ")
        assert told.error == "proxy"
        assert "407" in told.message
        monkeypatch.setenv("NO_PROXY", "api.example")
        assert handle(path).error == "unreachable"
        assert len(proxy.requests) == 1


def test_a_proxy_that_is_gone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A proxy that does not run is a failure of the proxy."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        monkeypatch.setenv("HTTPS_PROXY", f"http://127.0.0.1:{free.getsockname()[1]}")
    assert handle(kubeconfig(tmp_path, "https://api.example")).error == "proxy"


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "\x00\x01\x02",
        "[]",
        "7",
        "a: b",
        "current-context: c",
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
    told = handle(str(path))
    assert told.error == "configuration"
    assert told.message
    assert "\n" not in told.message


@pytest.mark.parametrize(
    "server",
    ["", "no address", "https://", "https://[::1", "https://a:b", "ftp://127.0.0.1", 7, None],
)
def test_a_kubeconfig_that_points_nowhere(server: Any, tmp_path: Path) -> None:
    """A malformed address is a failure of the configuration, or unreachable."""
    told = handle(kubeconfig(tmp_path, server))
    assert told.error in {"configuration", "unreachable"}


def test_a_spoilt_token(tmp_path: Path) -> None:
    """A token with characters that no header may have is a failure that does not show it."""
    for token in ("sec\nret", "sec\u00e9ret", "sec\0ret"):
        told = handle(kubeconfig(tmp_path, "http://127.0.0.1:1", token=token))
        assert told.error == "configuration"
        assert "sec" not in told.message


def test_kubeconfigs_that_are_not_there(tmp_path: Path) -> None:
    """A missing file, a folder, an unknown context and a missing client certificate are failures
    of the configuration.
    """
    assert handle(str(tmp_path / "none")).error == "configuration"
    assert handle(str(tmp_path)).error == "configuration"
    path = kubeconfig(tmp_path, "https://127.0.0.1:1")
    told = handle(path, context="other")
    assert told.error == "configuration"
    assert "other" in told.message
    gone = {"client-certificate": "/nowhere/a", "client-key": "/nowhere/b"}
    assert handle(kubeconfig(tmp_path, "https://127.0.0.1:1", **gone)).error == "configuration"


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
        path = Path(kubeconfig(tmp_path, f"http://127.0.0.1:{server.port}"))
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
        kube = connect(kubeconfig(tmp_path, f"http://127.0.0.1:{server.port}"))
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
        path = kubeconfig(tmp_path, f"http://127.0.0.1:{server.port}", exec=plugin)
        assert not isinstance(get_node(connect(path), "n1"), Failure)
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

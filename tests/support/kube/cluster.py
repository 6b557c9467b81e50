"""A real Kubernetes API server for tests: etcd and kube-apiserver, started in seconds, and ended
with the process that started them.

A `Cluster` is a control plane without machines. The API server's decisions are real: RBAC,
admission policies, server-side apply and its field ownership, bound service-account tokens. There
is no kubelet, scheduler or controller: a Node is an object that a test creates, a Pod stays where
its nodeName puts it.

    folder/etcd, folder/certificates, folder/*.log     removed after the block
    admin        system:masters, by a static token, over TLS like all clients
    a Pod's      token_for_pod_on(node): signed by the API server, bound to a Pod there, with the
                 node-name claim

None of its programs outlives the block, nor the process or thread that started it, even if that was
killed.
"""

from __future__ import annotations

import json
import secrets
import ssl
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from functools import cached_property
from http.client import HTTPResponse, HTTPSConnection
from pathlib import Path
from typing import Any, Self

from tests.support.kube.programs import (
    ClusterError,
    environment,
    free_ports,
    last_words,
    missing,
    program,
    running,
)
from tests.support.kubeconfigs import kubeconfig

ISSUER = "https://kubernetes.default.svc"
READY_LIMIT = 120  # seconds: many times what it takes, for hosts that are busy with other tests
REQUEST_LIMIT = 60  # seconds
KEPT_LIMIT = 30  # seconds; the server closes a connection that was idle for 90

APPLY = "application/apply-patch+yaml"
MERGE = "application/merge-patch+json"
STRATEGIC = "application/strategic-merge-patch+json"
JSON_PATCH = "application/json-patch+json"


class KubectlError(Exception):
    """An error of kubectl: its standard error."""


@dataclass(frozen=True, slots=True)
class Answer:
    """A response of the API server: the HTTP status, and the object or Status in its body.

    `flow_schema` is the UID of the FlowSchema that the request fell under.
    """

    status: int
    body: dict[str, Any]
    flow_schema: str = ""

    @property
    def message(self) -> str:
        """The message of a refusal; empty if there is none."""
        return str(self.body.get("message", ""))


class Cluster:
    """A running control plane; as a context manager it is there within the block.

    `url` is the API server's address, `ca` a file with the certificate that its own is signed by,
    `admin` the token of a member of system:masters, `service_account_key` a PEM file with the key
    that signs the accounts' tokens. `server` and `etcd` are the processes, `etcd_url` is where the
    latter answers; `flags` are further ones of the former.
    """

    url: str
    ca: Path
    admin: str
    folder: Path
    server: subprocess.Popen[bytes]
    etcd: subprocess.Popen[bytes]
    etcd_url: str

    def __init__(self, *flags: str) -> None:
        self.flags = flags
        self._kept: list[tuple[float, HTTPSConnection]] = []  # and when each was used last

    @property
    def service_account_key(self) -> Path:
        return self.folder / "service-accounts.key"

    def __enter__(self) -> Self:
        """Start etcd and the API server, and wait until /readyz succeeds."""
        if reason := missing():
            raise ClusterError(reason)
        with ExitStack() as stack:
            self.folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="cluster-")))
            self._start(stack)
            self._stop = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        """Kill both, and remove all their files."""
        self._forget_connections()
        self._stop.close()

    def _start(self, stack: ExitStack) -> None:
        client, peer, api = free_ports(3)
        self.admin = secrets.token_hex(16)
        self.url, self.ca = (
            f"https://127.0.0.1:{api}",
            self.folder / "certificates" / "apiserver.crt",
        )
        self.etcd_url = f"http://127.0.0.1:{client}"
        etcd = [*_etcd(client, peer), "--data-dir", str(self.folder / "etcd")]
        self.etcd = stack.enter_context(running("etcd", etcd, self.folder))
        self._command = [*self._apiserver(client, api), *self.flags]
        self._serve(stack)
        self.until_ready()

    def _serve(self, stack: ExitStack) -> None:
        self.server = stack.enter_context(running("kube-apiserver", self._command, self.folder))

    def until_ready(self) -> None:
        """Wait until the API server answers; raises ClusterError if it does not in time."""
        deadline = time.monotonic() + READY_LIMIT
        while not self._ready():
            if self.server.poll() is not None or time.monotonic() > deadline:
                raise ClusterError(f"kube-apiserver is not ready:\n{last_words(self.folder)}")
            time.sleep(0.05)

    def stop_server(self) -> None:
        """Kill the API server: connections are refused from now on; etcd keeps the data."""
        self.server.kill()
        self.server.wait()
        self._forget_connections()

    def start_server(self) -> None:
        """Start it again at the same address; it is not ready yet."""
        self._serve(self._stop)

    def _apiserver(self, etcd_port: int, port: int) -> list[str]:
        key, tokens = self.service_account_key, self.folder / "tokens.csv"
        tokens.write_text(f'{self.admin},admin,admin,"system:masters"\n')
        _sign_with(key)
        return [
            f"--etcd-servers=http://127.0.0.1:{etcd_port}",
            *("--bind-address=127.0.0.1", f"--secure-port={port}", f"--cert-dir={self.ca.parent}"),
            *(f"--service-account-issuer={ISSUER}", f"--service-account-signing-key-file={key}"),
            *(
                f"--service-account-key-file={key}",
                f"--token-auth-file={tokens}",
                "--authorization-mode=Node,RBAC",
            ),
            *("--service-cluster-ip-range=10.0.0.0/24", "--allow-privileged=true"),
        ]

    def _ready(self) -> bool:
        """The API server answers, and so do its parts; RBAC's default roles are among them."""
        try:
            return self.ca.exists() and self.request("GET", "/readyz").status == 200
        except (OSError, ssl.SSLError):
            return False

    def request(
        self,
        method: str,
        path: str,
        body: object = None,
        *,
        kind: str = "application/json",
        token: str | None = None,
    ) -> Answer:
        """Send one request as the owner of this token (the admin's when None); a refusal is an
        Answer, too.

        `kind` is the body's Content-Type: APPLY, MERGE or JSON_PATCH for a PATCH. Raises OSError
        without an answer.
        """
        headers = {"Authorization": f"Bearer {token or self.admin}", "Content-Type": kind}
        data = None if body is None else json.dumps(body).encode()
        connection = self._connection()
        try:
            connection.request(method, path, data, headers)
            answer = _answer(connection.getresponse())
        except BaseException:
            connection.close()
            raise
        self._kept.append((time.monotonic(), connection))
        return answer

    def events(self, path: str) -> Iterator[dict[str, Any]]:
        """Yield the events of a watch by the admin until the server ends it; pass a
        `timeoutSeconds`.
        """
        connection = self._connection()
        try:
            connection.request("GET", path, headers={"Authorization": f"Bearer {self.admin}"})
            yield from map(json.loads, connection.getresponse())
        finally:
            connection.close()

    def _connection(self) -> HTTPSConnection:
        """Return a connection that nobody uses: one of a moment ago, else a new one."""
        while self._kept:
            last, connection = self._kept.pop()
            if time.monotonic() - last < KEPT_LIMIT:
                return connection
            connection.close()
        host, port = self.url.removeprefix("https://").split(":")
        return HTTPSConnection(host, int(port), timeout=REQUEST_LIMIT, context=self._context)

    @cached_property
    def _context(self) -> ssl.SSLContext:
        return ssl.create_default_context(cafile=str(self.ca))

    def _forget_connections(self) -> None:
        while self._kept:
            self._kept.pop()[1].close()

    def kubeconfig(self, token: str | None = None) -> Path:
        """Write a kubeconfig file for the owner of this token; the admin's when None."""
        path = self.folder / f"{secrets.token_hex(4)}.kubeconfig"
        user = {"token": token or self.admin}
        return kubeconfig(path, self.url, user, **{"certificate-authority": str(self.ca)})

    def kubectl(self, *arguments: str, stdin: str = "", token: str | None = None) -> str:
        """Return kubectl's output, run as the owner of this token; raises KubectlError if
        it fails.
        """
        command = [program("kubectl"), "--kubeconfig", str(self.kubeconfig(token)), *arguments]
        done = subprocess.run(
            command,
            input=stdin,
            capture_output=True,
            text=True,
            check=False,
            env=environment(self.folder),
        )
        if done.returncode:
            raise KubectlError(done.stderr.strip())
        return done.stdout

    def create(self, path: str, body: object) -> dict[str, Any]:
        """POST as the admin; return the object as stored."""
        answer = self.request("POST", path, body)
        if answer.status != 201:
            raise ClusterError(f"POST {path}: {answer.message}")
        return answer.body

    def node(self, name: str, **metadata: object) -> dict[str, Any]:
        """Create a Node with these labels, annotations and other fields; return it as stored."""
        return self.create("/api/v1/nodes", {"metadata": {"name": name, **metadata}})

    def metadata(self, node: str) -> dict[str, Any]:
        """Return the metadata of a Node."""
        return dict(self.request("GET", f"/api/v1/nodes/{node}").body["metadata"])

    def labels(self, node: str) -> dict[str, str]:
        return dict(self.metadata(node).get("labels", {}))

    def merge(
        self, node: str, metadata: Mapping[str, Any], query: str = "", token: str | None = None
    ) -> Answer:
        """Change metadata of a Node by a merge patch."""
        path = f"/api/v1/nodes/{node}{query}"
        return self.request("PATCH", path, {"metadata": metadata}, kind=MERGE, token=token)

    def apply(
        self,
        node: str,
        metadata: Mapping[str, Any],
        manager: str = "bwagent",
        *,
        token: str | None = None,
        fields: Mapping[str, object] | None = None,
    ) -> Answer:
        """Apply metadata and other fields of a Node server-side, by force, as a field manager."""
        body = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": node, **metadata}}
        path = f"/api/v1/nodes/{node}?fieldManager={manager}&force=true"
        return self.request("PATCH", path, body | dict(fields or {}), kind=APPLY, token=token)

    def token_for_pod_on(
        self, node: str | None, service_account: str, namespace: str, pod_prefix: str = "agent-"
    ) -> str:
        """Return a service-account token bound to a Pod on this Node; unbound when None, as for use
        from outside.

        The namespace and the account must exist; the Pod is created for the token.
        """
        spec: dict[str, Any] = {"audiences": [ISSUER], "expirationSeconds": 3600}
        if node is not None:
            pod = self._pod(node, service_account, namespace, pod_prefix)
            spec["boundObjectRef"] = {
                "apiVersion": "v1",
                "kind": "Pod",
                "name": pod["name"],
                "uid": pod["uid"],
            }
        account = f"/api/v1/namespaces/{namespace}/serviceaccounts/{service_account}"
        return str(self.create(f"{account}/token", {"spec": spec})["status"]["token"])

    def _pod(self, node: str, service_account: str, namespace: str, prefix: str) -> dict[str, Any]:
        spec = {
            "nodeName": node,
            "serviceAccountName": service_account,
            "automountServiceAccountToken": False,
            "containers": [{"name": "none", "image": "none"}],
        }
        path = f"/api/v1/namespaces/{namespace}/pods"
        return dict(
            self.create(path, {"metadata": {"generateName": prefix}, "spec": spec})["metadata"]
        )


def _etcd(client: int, peer: int) -> list[str]:
    here, there = f"http://127.0.0.1:{client}", f"http://127.0.0.1:{peer}"
    return [
        *("--listen-client-urls", here, "--advertise-client-urls", here),
        *("--listen-peer-urls", there, "--initial-advertise-peer-urls", there),
        *("--initial-cluster", f"default={there}", "--unsafe-no-fsync", "--log-level=warn"),
    ]


def _sign_with(key: Path) -> None:
    """Write the key of the service accounts' tokens in SEC 1 form: no public key is read
    from PKCS 8.
    """
    command = ["openssl", "ecparam", "-name", "prime256v1", "-genkey", "-noout", "-out", str(key)]
    subprocess.run(command, check=True, capture_output=True)


def _answer(reply: HTTPResponse) -> Answer:
    schema = reply.headers.get("X-Kubernetes-PF-FlowSchema-UID", "")
    return Answer(reply.status, _object(reply.read()), schema)


def _object(reply: bytes) -> dict[str, Any]:
    """Return the JSON object of a reply; text, as of /readyz, becomes its `message`."""
    try:
        value = json.loads(reply)
    except ValueError:
        return {"message": reply.decode(errors="replace")}
    return value if isinstance(value, dict) else {"message": str(value)}

"""The API server from within a network namespace: a relay, and the requests in the API server's
audit log.

A socket stays in the namespace that it was opened in. So the listener is opened in the agent's
namespace and the rest runs outside, where the API server is. A relay that is `cut` closes all
connections, as if the API server were down.

Requests are counted and timed by the API server's own audit log, which identifies the agent by its
user agent.
"""

from __future__ import annotations

import json
import shutil
import socket
import threading
from collections.abc import Iterator
from contextlib import closing, suppress
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from tests.support.kube.cluster import Cluster
from tests.support.switch import Namespace

POLICY = {
    "apiVersion": "audit.k8s.io/v1",
    "kind": "Policy",
    "omitStages": ["RequestReceived"],
    "rules": [
        {"level": "Metadata", "resources": [{"group": "", "resources": ["nodes"]}]},
        {"level": "None"},
    ],
}
AGENT = "bwagent"


def audited(folder: Path) -> tuple[str, ...]:
    """Return the flags with which an API server writes an audit log of Nodes into this folder."""
    policy = folder / "audit-policy.json"
    policy.write_text(json.dumps(POLICY))
    return f"--audit-policy-file={policy}", f"--audit-log-path={folder / 'audit.log'}"


@dataclass(frozen=True, slots=True)
class Request:
    """One request of an agent; times in seconds since the epoch."""

    node: str
    verb: str
    is_dry_run: bool  # the check of the admission policy is a PATCH that changes nothing
    code: int
    began: float
    ended: float


def requests(folder: Path) -> Iterator[Request]:
    """Return the agents' requests so far, oldest first."""
    with (folder / "audit.log").open() as log:
        for line in log:
            with suppress(ValueError):  # the last line may be half written
                event = json.loads(line)
                if event.get("userAgent", "").startswith(AGENT):
                    yield _request(event)


def _request(event: dict[str, Any]) -> Request:
    times = (
        datetime.fromisoformat(event[name])
        for name in ("requestReceivedTimestamp", "stageTimestamp")
    )
    began, ended = (time.timestamp() for time in times)
    return Request(
        event["objectRef"].get("name", ""),
        event["verb"],
        "dryRun=All" in event["requestURI"],
        event["responseStatus"]["code"],
        began,
        ended,
    )


def account(cluster: Cluster, folder: Path, port: int, token: str) -> dict[str, str]:
    """Write the files of a Pod's service account, with this token; return the environment."""
    folder.mkdir()
    (folder / "token").write_text(token)
    shutil.copy(cluster.ca, folder / "ca.crt")
    return {"KUBERNETES_SERVICE_HOST": "127.0.0.1", "KUBERNETES_SERVICE_PORT": str(port)}


class Relay:
    """A forwarder from a namespace's 127.0.0.1 to the API server.

    With `installed`, the cluster has the agent's manifests: an agent has its own account, which the
    admission policy restricts, else the admin's.
    """

    def __init__(self, namespace: Namespace, cluster: Cluster, *, installed: bool = False) -> None:
        self.cut = False
        self._cluster, self._installed = cluster, installed
        self._target = int(cluster.url.rpartition(":")[2])
        self._listener = namespace.call(socket.create_server, ("127.0.0.1", 0))
        threading.Thread(target=self._accept, daemon=True).start()

    def account(self, folder: Path, node: str) -> dict[str, str]:
        """Do the same as `account` for an agent on this Node, with the address of this relay."""
        cluster, port = self._cluster, self._listener.getsockname()[1]
        own = self._installed and cluster.token_for_pod_on(node, "bwagent", "bwagent")
        return account(cluster, folder, port, own or cluster.admin)

    def _accept(self) -> None:
        while True:
            client = self._listener.accept()[0]
            if self.cut:
                client.close()
            else:
                threading.Thread(target=self._connect, args=(client,), daemon=True).start()

    def _connect(self, client: socket.socket) -> None:
        with closing(client), socket.create_connection(("127.0.0.1", self._target)) as server:
            there = threading.Thread(target=_forward, args=(client, server), daemon=True)
            there.start()
            _forward(server, client)
            there.join()


def _forward(source: socket.socket, sink: socket.socket) -> None:
    with suppress(OSError):
        while piece := source.recv(65536):
            sink.sendall(piece)
    with suppress(OSError):
        sink.shutdown(socket.SHUT_WR)

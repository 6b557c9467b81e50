"""Cost of the agent's requests to the API server in CPU milliseconds, beside those of a kubelet,
one row each.

    python -m benchmarks.api_cost [REQUESTS]

Requests are sent one at a time, so that the costs are their own; the idle load of the server is
measured before and subtracted. The agent's rows are measured with its manifests in force: a Pod's
own token, RBAC, the admission policy.
"""

from __future__ import annotations

import json
import selectors
import socket
import ssl
import sys
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace
from typing import NamedTuple, Self

from agent.kube.annotation import Annotation
from agent.kube.answers import Failure
from agent.kube.change import Desired, change_to
from agent.kube.negotiation import negotiate
from agent.kube.nodes import ask, get_node
from benchmarks.server_meter import Meter, Reading
from tests.support.kube.agents import install
from tests.support.kube.cluster import Cluster
from tests.support.kube.fleet import KEYS
from tests.support.kube.population import Member, populate
from tests.support.kube.programs import missing
from tests.support.kube.wire import Clock, Wire

IDLE = 10.0  # seconds
WATCHERS = 20
KUBELET = "application/strategic-merge-patch+json"
WATCH = (
    "GET /api/v1/nodes?watch=1&allowWatchBookmarks=true HTTP/1.1\r\nHost: x\r\n"
    "Authorization: Bearer {}\r\n"
    "Accept: application/vnd.kubernetes.protobuf;stream=watch\r\n\r\n"
)


class Row(NamedTuple):
    """The cost of one request."""

    server: float  # CPU ms
    etcd: float  # CPU ms
    wall: float  # ms
    written: float  # KiB in etcd's log
    commits: float


class Bench:
    """A cluster with a few Nodes, and the clients."""

    def __init__(self, cluster: Cluster, rounds: int) -> None:
        self.cluster, self.rounds, self.meter = cluster, rounds, Meter(cluster)
        clock = Clock()
        self.fresh, self.kept = (
            Wire(cluster.url, cluster.ca, clock),
            Wire(cluster.url, cluster.ca, clock, kept=True),
        )
        self.member = populate(cluster, 100, "cost")[7]
        self.idle = self._used(lambda: time.sleep(IDLE))

    def _used(self, does: Callable[[], object]) -> Reading:
        before = self.meter.read()
        does()
        return self.meter.read().since(before)

    def measure(self, once: Callable[[int], object]) -> Row:
        """Measure the mean cost of repeated requests."""
        once(-1)
        used = self._used(lambda: [once(number) for number in range(self.rounds)])
        server, etcd = (
            getattr(used, name) - self.idle.share(name) * used.time for name in ("server", "etcd")
        )
        per = 1000 / self.rounds
        written = (used.written - self.idle.share("written") * used.time) * 1024 / self.rounds
        return Row(server * per, etcd * per, used.time * per, written, used.commits / self.rounds)

    def get(
        self, wire: Wire, *, cached: bool = False, whole: bool = False
    ) -> Callable[[int], object]:
        """Send the agent's GET of its Node: the first one is `whole`, a look `cached`."""
        kube, name = wire.connect(self.member.token), self.member.name
        return lambda _number: ask(
            kube, {"operation": "get", "node": name, "cached": cached, "whole": whole}
        )

    def patch(self, wire: Wire, *, changes: bool = True) -> Callable[[int], object]:
        """Send the agent's apply, with other labels each time, or with another time in the
        annotation only.
        """
        kube = wire.connect(self.member.token)
        node = get_node(kube, self.member.name)

        def once(number: int) -> None:
            nonlocal node
            assert not isinstance(node, Failure), node  # noqa: S101 - what it costs to be refused is another matter
            labels = with_speed(self.member, f"{number + 1}G" if changes else "3200G")
            outcome = negotiate(change_to(node, Desired(labels, self._told(number)), KEYS), kube)
            assert outcome.node, outcome  # noqa: S101
            node = outcome.node

        return once

    def _told(self, number: int) -> Annotation:
        return replace(self.member.told, time=1_800_000_000 + number)

    def lease(self) -> Callable[[int], object]:
        """Renew a kubelet's lease."""
        path = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases"
        document = self.cluster.create(path, {"metadata": {"name": self.member.name}, "spec": {}})

        def once(number: int) -> None:
            nonlocal document
            document["spec"] = {
                "renewTime": f"2026-01-01T00:{number // 60 % 60:02}:{number % 60:02}.000000Z"
            }
            document = self._send("PUT", f"{path}/{self.member.name}", document, "application/json")

        return once

    def status(self) -> Callable[[int], object]:
        """Update the Node's status as a kubelet does."""

        def once(number: int) -> None:
            time_ = f"2026-01-02T00:{number // 60 % 60:02}:{number % 60:02}Z"
            conditions = [{"type": "Ready", "lastHeartbeatTime": time_}]
            self._send(
                "PATCH",
                f"/api/v1/nodes/{self.member.name}/status",
                {"status": {"conditions": conditions}},
                KUBELET,
            )

        return once

    def _send(self, method: str, path: str, body: object, kind: str) -> dict[str, object]:
        headers = {"Content-Type": kind, "Accept": "application/json"}
        status, _, data = self.kept.send(
            method, path, self.cluster.admin, json.dumps(body).encode(), headers
        )
        assert status == 200, data  # noqa: S101
        return dict(json.loads(data))


def with_speed(member: Member, speed: str) -> dict[str, str]:
    """Return the labels with another speed."""
    return {
        key: speed if key.endswith("speed.current") else value
        for key, value in member.labels.items()
    }


class Watchers:
    """Watch all Nodes as the parts of a control plane do, and count the bytes received,
    within the block.
    """

    def __init__(self, cluster: Cluster, count: int) -> None:
        self.received = 0
        self._cluster, self._count, self._done = cluster, count, False

    def __enter__(self) -> Self:
        self._stack, self._selector = ExitStack(), selectors.DefaultSelector()
        context = ssl.create_default_context(cafile=str(self._cluster.ca))
        address = ("127.0.0.1", int(self._cluster.url.rpartition(":")[2]))
        for _ in range(self._count):
            connection = context.wrap_socket(
                socket.create_connection(address), server_hostname="127.0.0.1"
            )
            connection.sendall(WATCH.format(self._cluster.admin).encode())
            connection.settimeout(0)
            self._selector.register(self._stack.enter_context(connection), selectors.EVENT_READ)
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()
        time.sleep(3)  # the Nodes that are there already come first
        self.received = 0
        return self

    def __exit__(self, *_: object) -> None:
        self._done = True
        self._thread.join()
        self._stack.close()

    def _read(self) -> None:
        while not self._done:
            for key, _ in self._selector.select(0.2):
                try:
                    while data := key.fileobj.recv(1 << 16):  # type: ignore[union-attr]
                        self.received += len(data)
                except ssl.SSLWantReadError:
                    pass


def main() -> None:
    """Print the table."""
    if reason := missing():
        raise SystemExit(reason)
    rounds = int(sys.argv[1]) if sys.argv[1:] else 500
    with Cluster() as cluster:
        install(cluster, "sysfs")
        bench = Bench(cluster, rounds)
        print(
            f"{rounds} requests each; idle: server {bench.idle.share('server'):.3f} cores, ", end=""
        )
        print(
            f"etcd {bench.idle.share('etcd'):.3f} cores, "
            f"all on this machine {bench.idle.share('machine'):.2f}"
        )
        print(f"{'':44}{'server ms':>10}{'etcd ms':>9}{'wall ms':>9}{'log KiB':>9}{'writes':>8}")
        rows: dict[str, Callable[[int], object]] = {
            "agent GET of the whole Node (the first one)": bench.get(bench.fresh, whole=True),
            "agent GET, a connection each (as it is)": bench.get(bench.fresh),
            "agent GET, connection kept": bench.get(bench.kept),
            "agent look, a connection each (as it is)": bench.get(bench.fresh, cached=True),
            "agent look, connection kept": bench.get(bench.kept, cached=True),
            "agent PATCH, a connection each (as it is)": bench.patch(bench.fresh),
            "agent PATCH, connection kept": bench.patch(bench.kept),
            "agent PATCH, only the annotation's time": bench.patch(bench.fresh, changes=False),
            "kubelet's Lease PUT, connection kept": bench.lease(),
            "kubelet's status PATCH, connection kept": bench.status(),
        }
        for name, once in rows.items():
            show(name, bench.measure(once))
        with Watchers(cluster, WATCHERS) as watchers:
            row = bench.measure(bench.patch(bench.fresh))
            show(f"agent PATCH, {WATCHERS} watch all Nodes", row)
            print(
                f"{watchers.received / WATCHERS / (rounds + 1) / 1024:.1f} KiB "
                "for each PATCH and watcher"
            )


def show(name: str, row: Row) -> None:
    """Print a row."""
    print(
        f"{name:44}{row.server:10.2f}{row.etcd:9.2f}{row.wall:9.1f}{row.written:9.1f}{row.commits:8.2f}",
        flush=True,
    )


if __name__ == "__main__":
    main()

"""Cost of a label change, side by side in one run: by the agent's session, and by kubectl. Prints
medians.

    python benchmarks/node_patch.py

On a real API server (tests/support/kube/build.sh), on a Node with as many images as a kubelet
reports. The session finds the server as in a Pod, and keeps its connection. Wall and CPU are those
of the client; bytes are those on the wire, TLS and its handshake included; requests are counted in
kubectl's log.
"""

from __future__ import annotations

import itertools
import json
import os
import resource
import socket
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent.parent))

from agent.encode import Naming
from agent.kube.annotation import Annotation
from agent.kube.answers import Failure
from agent.kube.api import connect
from agent.kube.change import Desired, body, change_to
from agent.kube.managed_fields import Keys
from agent.kube.negotiation import negotiate
from agent.kube.nodes import get_node
from agent.memory import Fact
from benchmarks.relay import account
from tests.support.kube.cluster import MERGE, Cluster
from tests.support.kube.programs import missing, program

ROUNDS = 15
INTERFACES = 8
IMAGES = 50  # what a kubelet reports at most (nodeStatusMaxImages)
KEYS = Keys(Naming())
PREFIX = "backend.coreweave.cloud"
speeds = itertools.cycle(["3200G", "2800G"])


@dataclass(slots=True)
class Wire:
    """A forwarder to the API server that counts bytes."""

    up: int = 0
    down: int = 0

    def listen(self, target: int) -> int:
        """Forward to a port of this host; return the port to connect to."""
        listener = socket.create_server(("127.0.0.1", 0))
        threading.Thread(target=self._accept, args=(listener, target), daemon=True).start()
        return int(listener.getsockname()[1])

    def _accept(self, listener: socket.socket, target: int) -> None:
        while True:
            client, server = listener.accept()[0], socket.create_connection(("127.0.0.1", target))
            for source, sink, name in ((client, server, "up"), (server, client, "down")):
                threading.Thread(
                    target=self._forward, args=(source, sink, name), daemon=True
                ).start()

    def _forward(self, source: socket.socket, sink: socket.socket, name: str) -> None:
        with suppress(OSError):
            sink.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)  # as both ends have it
            while piece := source.recv(65536):
                setattr(self, name, getattr(self, name) + len(piece))
                sink.sendall(piece)
        with suppress(OSError):
            sink.shutdown(socket.SHUT_WR)


def desired() -> Desired:
    """Return the labels of a node with eight rails; the speed is another each time."""
    ends = {"device": "L90.1.3", "port-id": "17", "port-name": "Ethernet1-1"}
    labels = {
        f"{PREFIX}/neighbors.current.ibp{n}.{end}": text
        for n in range(INTERFACES)
        for end, text in ends.items()
    }
    rows = tuple(Fact(f"ibp{n}", function=f"0000:{n:02x}:00.0") for n in range(INTERFACES))
    observed = Annotation(int(time.time()), "5f0492e8-40be-49e6-8717-defbd7b4b902", rows)
    return Desired(
        {**labels, f"{PREFIX}/flavor": "roce", f"{PREFIX}/speed.current": next(speeds)}, observed
    )


def a_node(cluster: Cluster) -> None:
    """Create a Node with a kubelet's status."""
    cluster.node("bench", labels={f"site.example/label-{n}": "x" * 20 for n in range(20)})
    names = [f"registry.example/team-{n}/image@sha256:{n:064x}" for n in range(IMAGES)]
    images = [
        {"names": [name, f"{name[:40]}:v1.{n}"], "sizeBytes": 10**9} for n, name in enumerate(names)
    ]
    answer = cluster.request(
        "PATCH", "/api/v1/nodes/bench/status", {"status": {"images": images}}, kind=MERGE
    )
    assert answer.status == 200, answer.message  # noqa: S101 - a benchmark of something else would mislead


def kubeconfig(cluster: Cluster, port: int) -> str:
    """Write the admin's kubeconfig, with the forwarder's address."""
    path = cluster.kubeconfig()
    config = json.loads(path.read_text())
    config["clusters"][0]["cluster"]["server"] = f"https://127.0.0.1:{port}"
    path.write_text(json.dumps(config))
    return str(path)


def kubectl(config: str, home: Path, *arguments: str, stdin: str = "") -> str:
    """Run kubectl with a persistent cache; return its log."""
    command = [program("kubectl"), "--kubeconfig", config, *arguments]
    environment = {"HOME": str(home), "PATH": os.defpath}
    done = subprocess.run(
        command, input=stdin, capture_output=True, text=True, check=True, env=environment
    )
    return done.stderr


def ways(config: str, pod: str, home: Path) -> dict[str, Callable[[], int]]:
    """Return the compared ways by name: each changes the Node once, and returns the number
    of requests.
    """
    kube = connect(service_account=pod)
    known = get_node(kube, "bench")
    if isinstance(known, Failure):
        raise SystemExit(known.text)
    node: list[Mapping[str, Any]] = [known]

    def ours() -> int:
        outcome = negotiate(change_to(node[0], desired(), KEYS), kube)
        node[0] = outcome.node or node[0]
        return outcome.requests

    def applied() -> int:
        wanted = change_to(node[0], desired(), KEYS)
        text = json.dumps(body(wanted, wanted.wanted))
        flags = ("--server-side", "--force-conflicts", "--field-manager=bwagent", "-f", "-")
        return _requests(kubectl(config, home, "apply", "-v=6", *flags, stdin=text))

    def labelled() -> int:
        flags = ("--overwrite", "--field-manager=bench", f"site.example/speed={next(speeds)}")
        return _requests(kubectl(config, home, "label", "-v=6", "node", "bench", *flags))

    return {
        "bwagent": ours,
        "kubectl apply --server-side": applied,
        "kubectl label (one label)": labelled,
    }


def _requests(log: str) -> int:
    return sum(
        "verb=" in line and "url=" in line and "Response" in line for line in log.splitlines()
    )


def measure(change: Callable[[], int], wire: Wire) -> tuple[float, ...]:
    """Return wall ms, CPU ms, requests, bytes up, bytes down."""
    wire.up = wire.down = 0
    cpu, start = _cpu(), time.perf_counter()
    requests = change()
    taken = (time.perf_counter() - start) * 1000, (_cpu() - cpu) * 1000
    time.sleep(0.05)  # the forwarder's last piece
    return *taken, requests, wire.up, wire.down


def _cpu() -> float:
    both = map(resource.getrusage, (resource.RUSAGE_CHILDREN, resource.RUSAGE_SELF))
    return sum(usage.ru_utime + usage.ru_stime for usage in both)


def main() -> None:
    """Print a row for each way; they take turns, so that the machine's load is the same for all."""
    if reason := missing():
        raise SystemExit(reason)
    with Cluster() as cluster:
        a_node(cluster)
        wire = Wire()
        port = wire.listen(int(cluster.url.rpartition(":")[2]))
        pod = cluster.folder / "account"
        os.environ |= account(cluster, pod, port, cluster.admin)
        compared = ways(kubeconfig(cluster, port), str(pod), cluster.folder)
        taken: dict[str, list[tuple[float, ...]]] = {
            name: [measure(way, wire)] for name, way in compared.items()
        }
        for name in [*compared] * ROUNDS:
            taken[name].append(measure(compared[name], wire))
    print(f"{'':29}{'wall ms':>9}{'CPU ms':>9}{'requests':>9}{'bytes up':>10}{'bytes down':>12}")
    for name, rows in taken.items():
        print(f"{name:29}{_row(rows[1:])}")
        print(f"{'  the first':29}{_row(rows[:1])}")


def _row(rows: list[tuple[float, ...]]) -> str:
    wall, cpu, requests, up, down = (
        statistics.median(column) for column in zip(*rows, strict=True)
    )
    return f"{wall:9.0f}{cpu:9.0f}{requests:9.0f}{up:10.0f}{down:12.0f}"


if __name__ == "__main__":
    main()

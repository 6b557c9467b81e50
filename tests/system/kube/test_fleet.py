"""The Nodes of a real API server, read by `bwagent fleet`: pages, expiry, permissions, cuts."""

from __future__ import annotations

import json
import math
import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager, suppress
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import pytest

from agent.errors import Unavailable
from agent.fleet.collect import Selection, read_cluster
from agent.labels.table import Naming
from tests.support.fleet_nodes import TIME, node
from tests.support.kube import in_process
from tests.support.kube.clock import Clock
from tests.support.kube.cluster import MERGE, READY_LIMIT, Cluster
from tests.support.kube.command import bwagent
from tests.support.kube.lending import encoded, of_etcd
from tests.support.kube.programs import missing
from tests.support.kube.wire import Wire
from tests.support.real_parts import require

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from agent.fleet.model import Fleet
    from agent.kube.answers import Answer, Kube, Request

COUNT = 2000  # Nodes
THREADS = 4
ALL = Selection(Naming())
NODES = "/api/v1/nodes"


@pytest.fixture(scope="module")
def crowd() -> Iterator[Cluster]:
    """An API server with COUNT labeled Nodes, and one that has nothing of the agent."""
    require(missing())
    with Cluster() as cluster:
        with closing(Wire(cluster.url, cluster.ca, Clock(), kept=True)) as wire:

            def create(number: int) -> None:
                more = {"half": "odd"} if number % 2 else None
                body = json.dumps(node(number, more)).encode()
                headers = {"Content-Type": "application/json"}
                assert wire.send("POST", NODES, cluster.admin, body, headers)[0] == 201

            with ThreadPoolExecutor(THREADS) as pool:
                list(pool.map(create, range(COUNT)))
        cluster.node("cpu-1")
        yield cluster


@contextmanager
def asking(cluster: Cluster, token: str | None = None) -> Iterator[Kube]:
    """Yield what sends the command's requests."""
    with closing(in_process.connect(cluster.kubeconfig(token))) as kube:
        yield kube


def read(cluster: Cluster, selector: str = "", selection: Selection = ALL) -> Fleet:
    """Read the fleet as the command does."""
    with asking(cluster) as kube:
        return read_cluster(kube, selector, selection, TIME)


def test_all_nodes_are_listed(crowd: Cluster) -> None:
    """By pages, with all that their labels and annotations say, and how many are to come."""
    totals = set[int | None]()
    selection = Selection(Naming(), (), lambda _read, total: totals.add(total))
    found = read(crowd, "", selection)
    assert [one.name for one in found.nodes] == [f"gpu-{number:05}" for number in range(COUNT)]
    assert (found.others, found.problems, found.source) == (1, (), crowd.url)
    assert {len(one.ports) for one in found.nodes} == {8}
    assert all(one.problems == () and one.time == TIME for one in found.nodes)
    assert all(one.far_end and one.far_end.id for each in found.nodes for one in each.ports)
    assert totals == {COUNT + 1, None}


def test_the_server_selects(crowd: Cluster) -> None:
    """By labels, and by the only name; globs are the command's."""
    assert len(read(crowd, "half=odd").nodes) == COUNT / 2
    assert len(read(crowd, "half in (odd),kubernetes.io/arch").nodes) == COUNT / 2
    assert len(read(crowd, "", Selection(Naming(), ("gpu-00007",))).nodes) == 1
    assert len(read(crowd, "", Selection(Naming(), ("gpu-0000?", "gpu-0199*"))).nodes) == 20
    with pytest.raises(Unavailable, match="no Nodes that --selector and --node select"):
        read(crowd, "half=even")
    with pytest.raises(Unavailable, match=r"listing Nodes failed: .*unable to parse"):
        read(crowd, "a in b in c")


def compact(cluster: Cluster) -> None:
    """Let etcd forget the revisions before the last, and the API server its cache of them."""
    cluster.request("PATCH", f"{NODES}/cpu-1", {"metadata": {"labels": {"x": "y"}}}, kind=MERGE)
    revision = of_etcd(cluster, "range", {"key": encoded("/")})["header"]["revision"]
    of_etcd(cluster, "compaction", {"revision": revision, "physical": True})
    cluster.stop_server()
    cluster.start_server()
    deadline = time.monotonic() + READY_LIMIT
    while not is_ready(cluster):
        assert time.monotonic() < deadline
        time.sleep(0.1)


def is_ready(cluster: Cluster) -> bool:
    """Return True if the API server answers."""
    with suppress(OSError):
        return cluster.request("GET", "/readyz").status == 200
    return False


class Recorded:
    """Requests with their replies; `between` is called after the first page."""

    def __init__(self, kube: Kube, between: Callable[[], None]) -> None:
        self._kube, self._between = kube, between
        self.statuses: list[int | None] = []

    def __call__(self, request: Request) -> Answer:
        """Send a request."""
        reply = self._kube(request)
        self.statuses.append(reply.status)
        if len(self.statuses) == 1:
            self._between()
        return reply


def test_an_expired_token_is_continued(crowd: Cluster) -> None:
    """The revision of the first page is no longer in etcd; the answer has a token that goes on."""
    with asking(crowd) as kube:
        recorded = Recorded(kube, lambda: compact(crowd))
        found = read_cluster(recorded, "", ALL, TIME)
    assert 410 in recorded.statuses
    assert recorded.statuses.count(410) == 1
    assert [one.name for one in found.nodes] == [f"gpu-{number:05}" for number in range(COUNT)]


def test_an_account_that_may_not_list_nodes(crowd: Cluster) -> None:
    """The missing right and the account are named, in one line."""
    account = {"metadata": {"name": "reader"}}
    crowd.request("POST", "/api/v1/namespaces/default/serviceaccounts", account)
    token = crowd.token_for_pod_on(None, "reader", "default")
    done = bwagent("fleet", "verify", kubeconfig=crowd.kubeconfig(token))
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith(
        "bwagent: listing Nodes failed: account system:serviceaccount:default:reader lacks the "
        "right to list nodes (all of the cluster): "
    )
    assert done.stderr.count("\n") == 1


@contextmanager
def cutting(port: int, limit: int) -> Iterator[int]:
    """Relay one connection to a port of this host; cut it after `limit` bytes of the answers."""

    def copy(source: socket.socket, target: socket.socket, left: float) -> None:
        with suppress(OSError):
            while left > 0 and (data := source.recv(65536)):
                target.sendall(data)
                left -= len(data)
        for one in (source, target):
            with suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)

    def relay(listener: socket.socket) -> None:
        near, _ = listener.accept()
        with near, socket.create_connection(("127.0.0.1", port)) as far:
            asking = threading.Thread(target=copy, args=(near, far, math.inf), daemon=True)
            asking.start()
            copy(far, near, limit)
            asking.join()

    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(60)
        thread = threading.Thread(target=relay, args=(listener,), daemon=True)
        thread.start()
        yield listener.getsockname()[1]
        thread.join()


def test_a_listing_that_is_cut_is_no_fleet(crowd: Cluster) -> None:
    """After some pages: one line, code 1, and nothing on standard output."""
    kubeconfig = crowd.kubeconfig()
    with cutting(urlsplit(crowd.url).port or 0, 3 << 20) as port:
        text = kubeconfig.read_text().replace(crowd.url, f"https://127.0.0.1:{port}")
        kubeconfig.write_text(text)
        done = bwagent("fleet", "verify", kubeconfig=kubeconfig)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("bwagent: listing Nodes failed after ")
    assert "lost: " in done.stderr
    assert done.stderr.count("\n") == 1

"""The Nodes of a real API server, read by `bwagent fleet`: pages, expiry, permissions, cuts."""

from __future__ import annotations

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager

import pytest

from agent.encode import Naming
from agent.errors import Unavailable
from agent.fleet.model import Fleet
from agent.fleet.read import Selection, read_cluster
from agent.kube.answers import Answer, Kube, Request
from tests.support.fleet_nodes import TIME, node
from tests.support.kube.cluster import Cluster
from tests.support.kube.command import bwagent, session
from tests.support.kube.lending import encoded, of_etcd
from tests.support.kube.programs import missing
from tests.support.kube.wire import Clock, Wire
from tests.support.real_parts import require

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
    with closing(session(cluster.kubeconfig(token))) as kube:
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
    cluster.merge("cpu-1", {"labels": {"x": "y"}})
    revision = of_etcd(cluster, "range", {"key": encoded("/")})["header"]["revision"]
    of_etcd(cluster, "compaction", {"revision": revision, "physical": True})
    cluster.stop_server()
    cluster.start_server()
    cluster.until_ready()


def test_an_expired_token_is_continued(crowd: Cluster) -> None:
    """The revision of the first page is no longer in etcd; the answer has a token that goes on."""
    statuses: list[int | None] = []
    with asking(crowd) as kube:

        def recorded(request: Request) -> Answer:
            reply = kube(request)
            statuses.append(reply.status)
            if len(statuses) == 1:
                compact(crowd)
            return reply

        found = read_cluster(recorded, "", ALL, TIME)
    assert statuses.count(410) == 1
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

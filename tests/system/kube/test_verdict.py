"""/verdict of `bwagent run` on a RoCE node with real cables, by the expected labels of its Node:
the contract that a readiness reporter polls.

Leaves are network namespaces with lldpd, cables are veth pairs whose far ends change places. The
RDMA devices of the node are laid out as files; their states follow the cables.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from tests.support.kube.cluster import MERGE, Cluster
from tests.support.kube.rack import BACKEND, tree
from tests.support.kube.resident import Agent, P, get
from tests.support.real_parts import require
from tests.support.relay import relayed
from tests.support.switch import Leaf, Namespace, bring_up, cable, missing

DELAY = 4.0  # seconds
PORTS = range(3)  # of the node, each planned on a leaf of its own
CURRENT, EXPECTED = f"{P}/neighbors.current.", f"{P}/neighbors.expected."


class Host:
    """The node with its two leaves, and its Node."""

    def __init__(self, cluster: Cluster, folder: Path, node: str, stack: ExitStack) -> None:
        self._cluster, self._folder, self._name = cluster, folder, node
        cluster.node(node)
        self.here = stack.enter_context(Namespace())
        self._leaves = [stack.enter_context(Leaf(f"leaf{number}")) for number in PORTS]
        for number, leaf in enumerate(self._leaves):
            cable(leaf, f"swp{number}", self.here, f"eth{number}")
        stack.enter_context(relayed(self.here, urlsplit(cluster.url).port or 0))
        self._far: list[tuple[Namespace, str]] = [
            (leaf, f"swp{number}") for number, leaf in enumerate(self._leaves)
        ]
        self._moves = 0

    def start(self) -> Agent:
        return Agent(
            *(self._cluster, self._folder, self._name, tree(PORTS)),
            *("--verdict-delay", f"{DELAY:g}s", *BACKEND),
            under=self.here.command(),
            fetch=lambda url: self.here.call(get, url),
        )

    def expect(self, agent: Agent, labels: Mapping[str, str | None]) -> None:
        """Change labels of the Node, None to remove one; the agent reads the Node."""
        body = {"metadata": {"labels": labels}}
        done = self._cluster.request("PATCH", f"/api/v1/nodes/{self._name}", body, kind=MERGE)
        assert done.status == 200, done
        agent.look()

    def golden(self, agent: Agent) -> dict[str, str]:
        """Return the devices in the labels as expected ones, when all ports have one."""

        def current() -> dict[str, str]:
            labels = agent.metadata().get("labels", {}).items()
            return {
                EXPECTED + key.removeprefix(CURRENT): value
                for key, value in labels
                if key.startswith(CURRENT) and key.endswith(".device")
            }

        agent.until(lambda: len(current()) == len(PORTS))
        return current()

    def swap(self) -> None:
        """Let the cables of eth0 and eth1 change places at their leaves."""
        (one, port), (other, other_port) = self._far[:2]
        self._far[:2] = [self._moved(one, port, other), self._moved(other, other_port, one)]
        for number, (leaf, name) in enumerate(self._far[:2]):
            bring_up(leaf, name, self.here, f"eth{number}")

    def _moved(self, leaf: Namespace, port: str, to: Namespace) -> tuple[Namespace, str]:
        """Move the end of a cable; a port of another leaf has another name and address."""
        self._moves += 1
        name, address = f"moved{self._moves}", f"02:00:00:00:01:{self._moves:02x}"
        leaf.ip("link", "set", port, "address", address, "netns", to.name, "name", name)
        return to, name

    def verdict(self, agent: Agent) -> tuple[int, dict[str, Any]]:
        """Return status and document of the page; 0 before the server answers."""
        return self.here.call(agent.verdict)

    def says(self, agent: Agent, status: int, verdict: str, *codes: str) -> dict[str, Any]:
        """Wait for this verdict with these reported findings; return its document."""

        def is_so() -> bool:
            found, document = self.verdict(agent)
            reported = tuple(one["code"] for one in document.get("findings", ()))
            return (found, document.get("verdict"), reported) == (status, verdict, codes)

        agent.until(is_so)
        return self.verdict(agent)[1]

    def stays(self, agent: Agent, status: int, seconds: float) -> None:
        """Check that the page has this status all the time."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            assert self.verdict(agent)[0] == status, agent.log.read_text()
            time.sleep(0.1)


@pytest.fixture
def host(cluster: Cluster, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Host]:
    """Cable a node; its name is that of the test."""
    require(missing())
    with ExitStack() as stack:
        yield Host(cluster, tmp_path, request.node.name.replace("_", "-")[:60], stack)


def test_a_swap_a_restart_and_a_repair(host: Host) -> None:
    """404 without expected labels, 200 with them; two cables that changed places are 503 after the
    delay, from the next agent, too; 200 after the repair.
    """
    with host.start() as agent:
        golden = host.golden(agent)
        host.says(agent, 404, "no-plan")
        assert agent.metrics().series("bwagent_plan_rows") == []
        host.expect(agent, golden)
        host.says(agent, 404, "pending")
        document = host.says(agent, 200, "pass")
        assert (document["planned"], document["as_planned"]) == (len(PORTS), len(PORTS))
        began = time.monotonic()
        host.swap()
        document = host.says(agent, 503, "fail", "swapped")
        assert time.monotonic() - began >= DELAY
        assert document["findings"][0]["text"].startswith("Exchange the far ends of mlx5_0 and ")
        scraped = agent.metrics()
        assert scraped.value("bwagent_findings", code="swapped", interface="mlx5_0") == 1
        assert scraped.value("bwagent_plan_rows") == len(PORTS)
        scraped.lint()
        agent.says("finding code=swapped interface=mlx5_0 text=")
        agent.until(lambda: '"verdict":"fail"' in str(agent.metadata()["annotations"]))
        assert agent.stop() == 0
    with host.start() as agent:
        assert first_verdicts(host, agent) <= {(0, None), (404, "pending"), (503, "fail")}
        host.stays(agent, 503, 2 * DELAY)
        assert "finding code=" not in agent.log.read_text()
        host.swap()
        host.says(agent, 200, "pass")
        agent.says("finding gone code=swapped interface=mlx5_0")
        host.expect(agent, dict.fromkeys(golden))
        host.says(agent, 404, "no-plan")
        assert agent.stop() == 0


def first_verdicts(host: Host, agent: Agent) -> set[tuple[int, str | None]]:
    """Return all that the page says from the start of an agent to its first verdict."""
    seen: set[tuple[int, str | None]] = set()
    deadline = time.monotonic() + 120
    while not {status for status, _ in seen} & {200, 503}:
        status, document = host.verdict(agent)
        seen.add((status, document.get("verdict")))
        assert time.monotonic() < deadline, agent.log.read_text()
        time.sleep(0.01)
    return seen

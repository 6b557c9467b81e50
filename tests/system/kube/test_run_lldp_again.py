"""`bwagent run` on a RoCE node over two lives: which frames count after a restart, and which
neighbors are leaves.

The frames are sent octet for octet on real veth cables, since no lldpd sends these.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from tests.support.kube.cluster import Cluster
from tests.support.kube.rack import ADDRESS, BACKEND, tree
from tests.support.kube.resident import Agent, get
from tests.support.lldp_frames import END, MAC, ethernet, identity, station, switch, tlv
from tests.support.real_parts import require
from tests.support.relay import relayed
from tests.support.switch import Namespace, cable, missing

BESIDE, SONIC, LONE, LONG, REFUSED = PORTS = range(5)
MTU = "9000"
SETTLED = 3.0  # seconds in which an agent would have written what it received
# A leaf without System Capabilities, with a BMC behind the same port
PLAIN = ethernet(identity(b"\x04" + MAC, b"\x05swp0") + tlv(5, b"leaf-0") + END)
ALIAS, BARE = switch("leaf-1", b"\x07etp1a"), switch("leaf-1", b"\x03" + MAC)
VLANS = b"".join(
    tlv(127, bytes.fromhex("0080c203") + number.to_bytes(2, "big") + b"\x07VLAN123")
    for number in range(1, 381)
)
JUMBO = ethernet(identity(b"\x04" + MAC, b"\x05swp3") + VLANS + tlv(5, b"leaf-3") + END)
CUT = JUMBO[:200]
FRAMES = {BESIDE: PLAIN, SONIC: ALIAS, LONE: station(), LONG: JUMBO, REFUSED: CUT}
DEVICES = {BESIDE: "leaf-0", SONIC: "leaf-1", LONE: "PowerEdge-R750", LONG: "leaf-3"}


class Wires:
    """The node, what is at the other ends of its cables, and its agents."""

    def __init__(self, cluster: Cluster, folder: Path, stack: ExitStack) -> None:
        self._cluster, self._folder = cluster, folder
        self.node, self._far = (stack.enter_context(Namespace()) for _ in range(2))
        for number in PORTS:
            cable(self._far, f"swp{number}", self.node, f"eth{number}")
            for namespace, name in ((self._far, f"swp{number}"), (self.node, f"eth{number}")):
                namespace.ip("link", "set", name, "mtu", MTU)
        self.node.ip("address", "add", f"{ADDRESS}/32", "dev", "lo")
        stack.enter_context(relayed(self.node, urlsplit(cluster.url).port or 0))

    def agent(self) -> Agent:
        return Agent(
            *(self._cluster, self._folder, "wires", tree(PORTS), *BACKEND),
            under=self.node.command(),
            fetch=lambda url: self.node.call(get, url),
            address=ADDRESS,
        )

    def send(self, number: int, frame: bytes) -> None:
        self._far.send(f"swp{number}", frame)


@pytest.fixture
def wires(cluster: Cluster, tmp_path: Path) -> Iterator[Wires]:
    require(missing())
    cluster.node("wires")
    with ExitStack() as stack:
        yield Wires(cluster, tmp_path, stack)


def devices(agent: Agent) -> dict[int, str]:
    """Return the device of each port that has one."""
    found = {number: agent.neighbors(f"mlx5_{number}").get("device") for number in PORTS}
    return {number: device for number, device in found.items() if device}


def test_two_lives(wires: Wires) -> None:
    """The first frame on each port counts at once; after a restart no single frame replaces one.

    A BMC is no leaf. A frame of 5,000 octets counts, and one that is refused is no silence.
    """
    with wires.agent() as agent:
        agent.until(lambda: agent.labels().get("speed.current"))
        for number, frame in FRAMES.items():
            wires.send(number, frame)
        agent.until(lambda: devices(agent) == DEVICES)
        agent.says("malformed LLDP frame")
        missing = agent.metrics().holds("bwagent_neighbor_missing", "reason", interface="mlx5_4")
        assert missing == ["malformed"]
        agent.until(lambda: "leafgroup.current" in agent.labels())  # 65 s: a port has no neighbor
        group = agent.labels()["leafgroup.current"]
        assert group == agent.labels()["leaves.current"] == "leaf-0_leaf-1_leaf-3"
        before = agent.labels()
    with wires.agent() as agent:
        agent.says("agent started")
        time.sleep(SETTLED)
        wires.send(BESIDE, station())
        wires.send(SONIC, BARE)
        time.sleep(SETTLED)
        assert agent.labels() == before
        wires.send(BESIDE, station())  # confirmed, and a lesser neighbor than the leaf
        time.sleep(SETTLED)
        assert agent.labels() == before
        for number in (BESIDE, SONIC, LONE, LONG):
            wires.send(number, FRAMES[number])
        told = "bwagent_neighbor_info"
        agent.until(lambda: len(agent.metrics().series(told, selected="true")) == len(DEVICES))
        assert agent.labels() == before
        wires.send(LONG, switch("leaf-9", b"\x05swp3"))
        time.sleep(SETTLED)
        assert agent.labels() == before
        wires.send(LONG, switch("leaf-9", b"\x05swp3"))
        agent.until(lambda: devices(agent)[LONG] == "leaf-9")
        assert agent.labels()["leafgroup.current"] == "leaf-0_leaf-1_leaf-9"

"""A NIC that joins a bridge which takes its LLDP frames, and leaves it again: a real bridge, a
switch with lldpd, packet sockets.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from tests.support.real_parts import require
from tests.support.snapshots import REPOSITORY
from tests.support.switch import Leaf, Namespace, cable, missing

# Observes port eth8 four times a second, and prints each Link that differs from the last.
OBSERVE = """
import json, time
from agent.host import Host
from agent.lldp.inbox import FrameInbox
from agent.lldp.neighbors import NeighborTable
from agent.lldp.packet_socket import Listener
from agent.lldp.reception import LldpNeighbors
from agent.sources import lldp
from agent.sysfs.reader import LiveRoot
from tests.support.devices import netdev
from tests.support.sources import read_lldp
from tests.unit.sources.test_lldp import role
table = NeighborTable(GRACE, 1)
inbox = FrameInbox(Listener(time.monotonic), table, time.monotonic)
host = Host(LiveRoot(), time.monotonic, lldp_neighbors=LldpNeighbors(inbox, table))
last = None
while True:
    [link] = read_lldp(host, (role(of=netdev("eth8")),)).outcome.value
    now = [link.neighbors[0].device if link.neighbors else None, link.missing, link.hold]
    if now != last:
        print(json.dumps(now), flush=True)
    last = now
    time.sleep(0.25)
"""


@pytest.fixture(scope="module", autouse=True)
def parts() -> None:
    """Skip without the real parts that all tests of this module need."""
    require(missing())


@contextmanager
def observing(node: Namespace, grace: int) -> Iterator[subprocess.Popen[str]]:
    command = node.command(sys.executable, "-c", OBSERVE.replace("GRACE", str(grace)))
    with subprocess.Popen(command, cwd=REPOSITORY, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield process
        finally:
            process.kill()


def said(process: subprocess.Popen[str]) -> list[Any]:
    """Return the next Link: the device, the reason why there is none, and whether that holds."""
    assert process.stdout
    link: list[Any] = json.loads(process.stdout.readline())
    return link


def test_a_neighbor_is_held_while_a_bridge_takes_its_frames() -> None:
    """Its TTL ends in the bridge, which proves nothing, then nor after the NIC has left it; a
    switch that is silent is gone.
    """
    with Namespace() as node, Leaf("leaf-1") as leaf:
        cable(leaf, "swp7", node, "eth8")
        node.ip("link", "add", "br8", "type", "bridge", "group_fwd_mask", "0x4000")
        node.ip("link", "set", "br8", "up")
        with observing(node, 1) as process:
            assert said(process) == [None, "silent", True]
            assert said(process) == ["leaf-1", None, False]
            node.ip("link", "set", "eth8", "master", "br8")
            assert said(process) == [None, "taken-by-bridge", True]
            leaf.lldpd.pause()
            node.ip("link", "set", "eth8", "nomaster")
            assert said(process) == [None, "silent", True]
            leaf.lldpd.pause("resume")
            assert said(process) == ["leaf-1", None, False]
            leaf.lldpd.pause()
            assert said(process) == [None, "expired", False]

"""Fabrics as ibnetdiscover prints them: they come out silent, or explained."""

from __future__ import annotations

from agent.fleet.model import Fleet, FleetNode, FleetPort
from agent.fleet.pattern.infer import infer
from agent.plans.reader import read_source
from agent.plans.source import Source
from agent.verify.seen import SeenEnd
from tests.support import fleets, plans
from tests.support.fleets import Cable, End

NOW = fleets.NOW
# The wiring of a public dump of a cluster of four leaves with one HCA a node: the nodes of each
# leaf in the order of its ports. A number is that of a compute node, one with `g` that of a GPU
# node, and one with `x` a login, storage or control node. `-` is an uplink.
ZIGZAG = """
18 20 14 16 10 12 6 8 2 4 g1 46 - - - - - - - - - - - - g2 g3 1 3 5 7 9 11 13 15 17 19
- - - - - - - - - - - - g45 47 45 41 42 43 44 g4 g5 g6 g7 g8 g9 g10 g11 g12 g13 g14 g15 g16 g17 \
g18 g19 g20
- - - - - - - - - - - - g41 g42 g43 g44 g21 g22 g23 g24 g25 g26 g27 g28 g29 g30 g31 g32 g33 g34 \
g35 g36 g37 g38 g39 g40
38 40 34 36 30 32 26 28 22 24 x1 x2 - - - - - - - - - - - - x3 x4 21 23 25 27 29 31 33 35 37
"""


def fleet_of(dump: str) -> Fleet:
    """Return the fleet of an ibnetdiscover topology: the hosts with their cables to switches."""
    (plan,) = read_source(Source("dump", dump.encode()), "ibnetdiscover")
    ports: dict[str, list[FleetPort]] = {}
    for one in plan.cables:
        host, leaf = sorted((one.a, one.b), key=lambda end: end.interface.isdigit())
        end = SeenEnd(leaf.node, leaf.interface)
        ports.setdefault(host.node, []).append(FleetPort(host.interface, far_end=end, last_end=end))
    nodes = [
        FleetNode(name, time=NOW, ports=tuple(sorted(found, key=lambda port: port.interface)))
        for name, found in sorted(ports.items())
    ]
    return Fleet(tuple(nodes), "dump", NOW)


def test_a_cluster_plugged_in_a_zigzag_is_silent() -> None:
    """Odd and even nodes on the two halves of a leaf, leftovers of other kinds between them."""
    cables = [
        plans.cable(f"leaf{leaf} {port}", f"node{name} mlx5_0")
        for leaf, row in enumerate(ZIGZAG.strip().splitlines())
        for port, name in enumerate(row.split(), 1)
        if name != "-"
    ]
    found = infer(fleet_of(plans.ibnetdiscover(cables)))
    assert len(cables) == 95
    assert found.findings == ()
    assert len(found.groups) == 4
    assert {group.pattern for group in found.groups} == {None}


def test_a_dump_of_rails_is_explained() -> None:
    """A crossed pair of cables in a rail-optimized pod is one finding, and the rest is regular."""
    ends = {Cable(node, slot): End(slot, node + 1) for node in range(16) for slot in range(8)}
    one, other = Cable(3, 2), Cable(3, 5)
    ends[one], ends[other] = ends[other], ends[one]
    cables = [
        plans.cable(f"leaf{end.leaf} {end.port}", f"gpu-{cable.node:02} mlx5_{cable.slot}")
        for cable, end in ends.items()
    ]
    found = infer(fleet_of(plans.ibnetdiscover(cables)))
    assert [finding.text for finding in found.findings] == [
        "Exchange the far ends of gpu-03 mlx5_2 and mlx5_5: leaf5/4 and leaf2/4."
    ]
    assert (found.covered, found.regular) == (128, 126)

"""What a fleet is judged to be without a plan, in golden/causes.txt: one cause is one finding.

A title says what the fleet has, and why that is one cause, or none.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from agent.cabling.judge import VerifyOptions
from agent.cabling.seen import SeenEnd
from agent.fleet.judge import judge as of_fleet
from agent.fleet.model import Fleet, FleetNode, Nic
from tests.support import fleets
from tests.support.documents import Golden, judged_text
from tests.support.fleet_models import model
from tests.support.fleets import Cable, End
from tests.support.planned_fleets import (
    judge,
    pulled,
)
from tests.support.small_fleets import (
    NOW,
    cabled,
    far_end,
    fleet,
    node,
    old,
    rack,
    with_errors,
)

RACK, EIGHT = rack(), rack(8, 8)


# Identities that are used twice, and what only looks so

WITHOUT_TOLERANCE = "a short and a qualified name are two without that tolerance"
ONE, OTHER = "00:1c:73:00:00:01", "00:1c:73:00:00:02"
GUIDS = "fc6a1c0300aabb00", "fc6a1c0300aabb40"
CLAIMED = cabled(RACK, "gpu-002", "mlx5_1", far_end=far_end("leaf01", "swp4"))
REPLACED = [*EIGHT, node("gpu-new", [far_end(f"leaf{rail:02}", "swp4") for rail in range(4)])]
COPIED = [*RACK, replace(RACK[1], name="gpu-copy")]
ONE_ID = far_end("leaf00", "00-1c-73-aa-bb-cc")


def seen(*ends: tuple[str, str, str | None]) -> list[FleetNode]:
    """Return one node for each of these far ends: name, port, identifier."""
    return [
        node(f"gpu-{at:03}", [SeenEnd(name, port, None, identity, name)])
        for at, (name, port, identity) in enumerate(ends, 1)
    ]


def of_two(ids: Iterable[str | None]) -> list[tuple[str, str, str | None]]:
    return [("leaf01", port, identity) for port in ("swp1", "swp2") for identity in ids]


IDENTITIES: dict[str, list[FleetNode]] = {
    "nothing is used twice": rack(20),
    "one identifier with two names at one port: their ports are not claimed besides": seen(
        ("leaf01", "swp1", ONE), ("leaf02", "swp1", ONE), ("leaf02", "swp2", ONE)
    ),
    "one identifier with two names at two ports: some agents have the former name, perhaps": seen(
        ("leaf01", "swp1", ONE), ("leaf-new", "swp2", ONE)
    ),
    "one name with two addresses at one port": seen(*of_two((ONE, OTHER))),
    "one name with two GUIDs at one port": seen(*of_two(GUIDS)),
    "two fabrics with the same names, or the Nodes of two clusters in one file": seen(
        *(
            (f"leaf{leaf:02}", port, f"00:1c:73:00:{leaf:02x}:{fabric:02x}")
            for leaf in range(1, 5)
            for port in ("swp1", "swp2")
            for fabric in (1, 2)
        )
    ),
    "one name for two ASICs of a chassis: their ports differ": seen(
        *(("leaf01", f"swp{port}", ONE if port < 33 else OTHER) for port in range(1, 65))
    ),
    "the MAC address of the port as Chassis ID": seen(
        *(("leaf01", f"swp{port}", f"00:1c:73:00:01:{port:02x}") for port in range(8))
    ),
    "the MAC address of the port as Chassis ID, and a cable was moved": seen(
        *(("leaf01", f"swp{port}", f"00:1c:73:00:01:{port:02x}") for port in range(8)),
        ("leaf01", "swp1", ONE),
    ),
    **{
        f"an identifier that identifies nothing: {identity}": seen(
            ("leaf01", "swp1", identity), ("leaf02", "swp2", identity)
        )
        for identity in ("1", "default", "00:00:00:00:00:00", "0" * 16, "f" * 16, None)
    },
    "names that differ in case are one": seen(("leaf01", "swp1", ONE), ("LEAF01", "swp2", ONE)),
    "a short and a qualified name are one": seen(
        ("leaf01", "swp1", ONE), ("leaf01.dc.example.com", "swp2", ONE)
    ),
    WITHOUT_TOLERANCE: seen(("leaf01", "swp1", ONE), ("leaf01.dc.example.com", "swp2", ONE)),
    "two qualified names are two": seen(
        ("leaf01.a.example.com", "swp1", ONE), ("leaf01.b.example.com", "swp2", ONE)
    ),
    "a port is claimed under a short and a qualified name": seen(
        ("leaf01", "swp1", ONE), ("leaf01.dc.example.com", "swp1", ONE), ("leaf01", "swp2", ONE)
    ),
    "a switch port that two nodes see": CLAIMED,
    "a switch port that two nodes see: one reported long before the other": (
        old(CLAIMED, "gpu-004", time=NOW - 5000)
    ),
    "a silent node claims no port": old(CLAIMED, "gpu-004"),
    "a silent node accuses no switch": old(
        seen(("leaf01", "swp1", ONE), ("leaf02", "swp2", ONE)), "gpu-001"
    ),
    "a machine that another one has replaced within two hours": (
        old(REPLACED, "gpu-004", time=NOW - 5000)
    ),
    "two interfaces of one node that see one port": (
        cabled(RACK, "gpu-002", "mlx5_1", far_end=far_end("leaf00", "swp2"))
    ),
    "a switch that sends one Port ID from all ports": (
        [node(f"gpu-{at}", [ONE_ID]) for at in range(6)]
    ),
    "a switch that sends one Port ID from two ports with names": (
        [node(f"gpu-{at}", [ONE_ID._replace(port_name=f"swp{at}")]) for at in range(2)]
    ),
    "one HCA on two Nodes: its ports are not claimed twice besides": COPIED,
    "one HCA on two Nodes, of which one is silent": old(COPIED, "gpu-002"),
    "HCAs with GUIDs of zeros are no clones": (
        [cabled([one], one.name, "mlx5_0", node_guid="0" * 16)[0] for one in RACK]
    ),
}

# Rates, firmware, links with errors, silent agents

GROUP = cabled(cabled(rack(8), "gpu-002", "mlx5_1", gbps=200.0), "gpu-003", "mlx5_1", gbps=0.0)
LEGS = [
    replace(one, ports=(one.ports[0]._replace(interface="mlx5_bond_0-eth2"),)) for one in rack(8)
]
USUAL, OLD = Nic("MT_0000000838", "28.39.1002"), Nic("MT_0000000838", "28.38.1900")


def flashed(nodes: list[FleetNode], nic: Nic, *names: str) -> list[FleetNode]:
    """These nodes, or all, with this NIC at each port."""
    return [
        replace(one, ports=tuple(two._replace(nic=nic) for two in one.ports))
        if not names or one.name in names
        else one
        for one in nodes
    ]


def generations(slow: int) -> list[FleetNode]:
    """Return eight nodes, of which some have a slower NIC."""
    nodes = rack(8)
    for at in range(1, slow + 1):
        nodes = cabled(nodes, f"gpu-{at:03}", "mlx5_1", gbps=200.0)
    return nodes


MIXED = flashed(flashed(rack(32), USUAL), OLD, "gpu-007")
SILENT = [
    *(replace(one, time=NOW - 10_000) for one in rack(30)),
    node("gpu-100", [], node_boot_id="another"),
    node("gpu-101", []),
]
FACTS: dict[str, list[FleetNode]] = {
    "slower than the group, and a port that is not ACTIVE": GROUP,
    **{
        f"two generations in one group, {slow} of 8 slower": generations(slow)
        for slow in (2, 3, 4, 5)
    },
    "a standby leg of a bond is not slow": (cabled(LEGS, "gpu-003", "mlx5_bond_0-eth2", gbps=0.0)),
    "a version of firmware, on a whole node and on a port": (
        cabled(MIXED, "gpu-009", "mlx5_2", nic=OLD)
    ),
    "another model of NICs has firmware of its own": (
        flashed(flashed(rack(8), USUAL), Nic("MT_0000001070", "32.1"), "gpu-007")
    ),
    "no version of firmware has a clear majority": (
        flashed(flashed(rack(32), USUAL), OLD, *(f"gpu-{at:03}" for at in range(1, 17)))
    ),
    "few NICs have no usual firmware": (
        cabled(flashed(rack(1, 3), USUAL), "gpu-001", "mlx5_0", nic=OLD)
    ),
    "a link with errors": with_errors((7, 3)),
    "links with errors of neighboring ports of a leaf": with_errors((1, 2), (4, 2)),
    "agents that are silent for two causes": SILENT,
    "nodes of which something could not be read": [
        *(replace(one, problems=("no JSON",)) for one in rack(2)),
        replace(node("gpu-003", []), problems=("no JSON", "no time")),
        *rack(1, first=9),
    ],
}

# By the pattern


def wired(after: Mapping[tuple[int, int], tuple[int, int]]) -> Fleet:
    """Return two racks, of which the cable of (node, slot) is at (leaf, port)."""
    made = fleets.Fleet(fleets.RAIL, 64)
    made.ends = {Cable(*cable): End(*end) for cable, end in after.items()}
    return model(made)


NODE_LOST = pulled(rack(8), *(("gpu-002", f"mlx5_{rail}") for rail in range(4)))
PATTERNS: dict[str, Fleet] = {
    "a swap between two nodes": wired({(0, 3): (4, 2), (1, 4): (3, 1)}),
    "a swap within a node": wired({(5, 0): (6, 6), (5, 6): (0, 6)}),
    "which port of the right leaf is right, only a plan says": wired(
        {(3, 2): (2, 77), (5, 2): (2, 4)}
    ),
    "a node in another rack is moved, or renamed": wired(
        {(3, slot): (8 + slot, 40) for slot in range(8)}
    ),
    "two nodes that exchanged their units agree each with itself": wired(
        {(4, slot): (slot, 9) for slot in range(8)} | {(8, slot): (slot, 5) for slot in range(8)}
    ),
    "a node that lost all its links": fleet(NODE_LOST),
    "a node that never had a link": (
        fleet(
            replace(one, ports=tuple(two._replace(last_end=None) for two in one.ports))
            if one.name == "gpu-002"
            else one
            for one in NODE_LOST
        )
    ),
}


def told(title: str) -> str:
    if title in PATTERNS:
        return judged_text(title, of_fleet(PATTERNS[title]))
    off = frozenset({"fqdn"}) if title == WITHOUT_TOLERANCE else frozenset[str]()
    return judged_text(title, judge({**IDENTITIES, **FACTS}[title], options=VerifyOptions(off)))


TITLES = (*IDENTITIES, *FACTS, *PATTERNS)
GOLDEN = Golden(Path(__file__).parent / "golden/causes.txt", told, TITLES)


@pytest.mark.parametrize("title", TITLES)
def test_judged(title: str, update_golden: bool) -> None:
    GOLDEN.check(title, update=update_golden)


def test_the_golden_has_no_others(update_golden: bool) -> None:
    GOLDEN.check_all(update=update_golden)

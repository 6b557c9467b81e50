"""What a fleet is judged to be, in golden/causes.txt: one cause is one finding, with one sentence.

A title says what the fleet has, and why that is one cause, or none.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from agent.cabling.findings.finding import Finding
from agent.cabling.judge import VerifyOptions
from agent.cabling.plans.model import Plan
from agent.cabling.seen import SeenEnd
from agent.fleet.judge import judge as of_fleet
from agent.fleet.model import Fleet, FleetNode, FleetPort, Nic
from agent.fleet.report import outcome
from tests.support import fleets
from tests.support.fleet_models import model
from tests.support.fleets import Cable, End
from tests.support.planned_fleets import (
    cables,
    exchanged,
    in_place_of,
    judge,
    plan_of,
    pulled,
    renamed,
    row,
)
from tests.support.small_fleets import (
    NOW,
    cabled,
    far_end,
    fleet,
    labeled,
    node,
    port,
    rack,
    with_errors,
)

GOLDEN = Path(__file__).parent / "golden/causes.txt"
RACK, EIGHT = rack(), rack(8, 8)
PLAN = plan_of(RACK)


def alike(nodes: int, *names: str) -> list[FleetNode]:
    """Return nodes with an interface at each of these leaves."""
    return [node(f"gpu-{at:03}", [far_end(name, at) for name in names]) for at in range(1, nodes)]


def old(nodes: list[FleetNode], *names: str, time: int = 1) -> list[FleetNode]:
    """Return the nodes, of which some reported long ago."""
    return [replace(one, time=time) if one.name in names else one for one in nodes]


def with_ports(other: FleetNode, ports: tuple[FleetPort, ...]) -> list[FleetNode]:
    """Return eight nodes, one of them with other ports."""
    return [replace(one, ports=ports) if one == other else one for one in EIGHT]


# With a plan

SPLIT = [node(f"gpu-{one:03}", [far_end("leaf00", f"swp{one}s1")]) for one in range(1, 5)]
IN_CAGES = tuple(one._replace(b=one.b._replace(interface=f"{at}/2"))
                 for at, one in enumerate(cables(SPLIT), 1))  # fmt: skip
STORED = [
    replace(one, ports=(*one.ports, port(one.name, 8, far_end("stor", f"swp{number}"))))
    for number, one in enumerate(RACK)
]
UNLABELED = cabled(RACK, "gpu-001", "mlx5_1", far_end=None, gbps=400.0)
DOTTED = ("L90.1.1", "L90.1.2", "L90.2.1", "leaf01.dc1")
DOTS, SIXTEEN = alike(9, *DOTTED), alike(17, *DOTTED)
WRONG = exchanged(SIXTEEN, ("gpu-001", "mlx5_1"), ("gpu-002", "mlx5_1"))
MOVED = rack(1, 8, first=60)[0].ports
SAME_SWITCH = far_end("L90.1.2", 1).id
FORMER = [
    cabled([one], one.name, "mlx5_1", far_end=one.ports[1].far_end._replace(id=SAME_SWITCH))[0]
    for one in renamed(DOTS[:6], {"L90.1.2": "L90.7.7"})
    if one.ports[1].far_end
]
SPEED = {"backend.coreweave.cloud/speed.expected": "1600G"}
TWENTY = [replace(one, labels=SPEED) for one in rack(20)]
OF_RACK = {
    "a ring over three nodes": exchanged(
        RACK, ("gpu-001", "mlx5_0"), ("gpu-002", "mlx5_1"), ("gpu-004", "mlx5_2")
    ),
    "a wrong cable, with the one to whom the port belongs": cabled(
        RACK, "gpu-002", "mlx5_3", far_end=far_end("leaf00", "swp4")
    ),
    "a node without any link": pulled(RACK, *(("gpu-002", f"mlx5_{rail}") for rail in range(4))),
    "a renamed leaf, of which no cable is to be moved": renamed(RACK, {"leaf02": "leaf42"}),
    "missing labels, which prove nothing": cabled(
        UNLABELED, "gpu-003", "mlx5_1", far_end=None, gbps=400.0
    ),
    "an interface that left the bus": cabled(RACK, "gpu-001", "mlx5_2", is_lost=True, far_end=None),
    "a storage HCA on every node that the plan lacks": STORED,
    "on two nodes it is one for each": [*STORED[:2], *RACK[2:]],
}
OF_EIGHT = {
    "two nodes in each other's place: the names are wrong, or the plan": in_place_of(
        EIGHT, {"gpu-002": "gpu-005", "gpu-005": "gpu-002"}
    ),
    "three nodes in a ring": in_place_of(
        EIGHT, {"gpu-002": "gpu-005", "gpu-005": "gpu-007", "gpu-007": "gpu-002"}
    ),
    "a node at ports that the plan does not have": with_ports(EIGHT[7], MOVED),
    "wrong cables beside a right one are of no other place": with_ports(
        EIGHT[7], (EIGHT[7].ports[0], *MOVED[1:])
    ),
}
OF_DOTS = {
    "a leaf with dots in its name is down alone": pulled(
        DOTS, *((one.name, "mlx5_1") for one in DOTS)
    ),
    "a leaf with dots in its name is renamed alone": renamed(DOTS, {"L90.1.2": "L90.7.7"}),
    "two leaves of the plan with one name, perhaps of a chassis": renamed(
        DOTS, {"L90.1.2": "chassis", "L90.2.1": "chassis"}
    ),
    "a leaf of which some agents have the former name": [*FORMER, *DOTS[6:]],
    "somebody moved cables to a leaf with another identifier": [
        *renamed(DOTS[:6], {"L90.1.2": "L90.7.7"}),
        *DOTS[6:],
    ],
}
OF_SIXTEEN = {
    "a wrong cable at a renamed leaf is the only one": renamed(WRONG, {"L90.1.2": "spine"}),
    "two leaves have each other's names, beside a wrong cable": renamed(
        WRONG, {"L90.1.2": "L90.1.1", "L90.1.1": "L90.1.2"}
    ),
}
WITH_ERRORS = {
    "links with errors of a leaf of the plan": with_errors(*((at, 2) for at in (1, 9, 17, 25, 30))),
    "links with errors of a node of the plan": with_errors((5, 0), (5, 7)),
}
PLANNED: dict[str, tuple[list[FleetNode], Plan]] = {
    **{name: (nodes, PLAN) for name, nodes in OF_RACK.items()},
    **{name: (nodes, plan_of(EIGHT)) for name, nodes in OF_EIGHT.items()},
    **{name: (nodes, plan_of(DOTS)) for name, nodes in OF_DOTS.items()},
    **{name: (nodes, plan_of(SIXTEEN)) for name, nodes in OF_SIXTEEN.items()},
    **{name: (nodes, plan_of(with_errors())) for name, nodes in WITH_ERRORS.items()},
    "split ports: the plan numbers cage and port, 1/2, where the switch says swp1s1": (
        exchanged(SPLIT, ("gpu-001", "mlx5_0"), ("gpu-002", "mlx5_0")),
        plan_of(SPLIT)._replace(cables=IN_CAGES),
    ),
    "a leaf that is down, and speeds that are low by it": (
        pulled(TWENTY, *((one.name, "mlx5_2") for one in TWENTY)),
        plan_of(TWENTY),
    ),
    "cables at another leaf of the plan are wrong, not renamed": (
        [*renamed(rack(4), {"leaf02": "leaf09"}), *rack(4, first=5)],
        plan_of(rack(8), *cables([node("gpu-020", [far_end("leaf09", "swp40")])])),
    ),
    "more than 20 reasons of one node each": (
        [node(f"gpu-{at:03}", [far_end("leaf00", f"odd {at}")]) for at in range(1, 60)],
        plan_of(rack(60, 1)),
    ),
    "rows that contradict each other": (
        RACK,
        plan_of(RACK, row(("gpu-001", "mlx5_0"), ("leaf09", "swp1"))),
    ),
    "a port that the plan gives twice": (
        [*RACK[:3], replace(RACK[3], ports=(*RACK[3].ports, port("gpu-004", 9, None)))],
        plan_of(RACK, row(("gpu-004", "mlx5_9"), ("leaf00", "swp1"))),
    ),
    "a port that the plan gives twice, also to a node whose rows contradict each other": (
        RACK,
        plan_of(RACK, row(("gpu-001", "mlx5_0"), ("leaf00", "swp4"))),
    ),
    "a node at the place of a host without a Node": (
        with_ports(EIGHT[7], rack(1, 8, first=30)[0].ports),
        plan_of([*EIGHT, *rack(1, 8, first=30)]),
    ),
    "a silent node of which nothing is expected is a remark": (
        old(rack(3), "gpu-001", "gpu-002", "gpu-003"),
        plan_of(rack(3)[1:2]),
    ),
}

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
    "labels that contradict each other": [
        replace(RACK[0], labels={**SPEED, "ib.coreweave.cloud/speed.expected": "2G"}),
        *map(labeled, RACK[1:]),
    ],
    "a node without its interfaces": (
        [replace(labeled(RACK[0]), ports=RACK[0].ports[:1]), *map(labeled, RACK[1:])]
    ),
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

SCENARIOS = (*PLANNED, *IDENTITIES, *FACTS, *PATTERNS)


def printed(found: Finding) -> str:
    """Return a finding with what is asserted of it."""
    ends = ["/".join(filter(None, end)) or "-" for end in (found.expected, found.actual)]
    counts = f"{len(found.nodes)} nodes, {len(found.ports)} ports, {len(found.moves)} moves"
    certain = "" if found.confidence is None else f", {found.confidence}: {found.majority}"
    first = f"{found.severity} {found.code} {found.id}: {counts}, {' <- '.join(ends)}{certain}"
    return f"{first}\n    {found.text}"


def told(name: str) -> str:
    if name in PATTERNS:
        judged = of_fleet(PATTERNS[name])
    else:
        nodes, *plans = PLANNED.get(name) or ({**IDENTITIES, **FACTS}[name],)
        off = frozenset({"fqdn"}) if name == WITHOUT_TOLERANCE else frozenset[str]()
        judged = judge(nodes, *plans, options=VerifyOptions(off), is_partial=True)
    verdict = f"  {outcome(judged)}: {judged.as_planned} of {judged.planned} cables"
    return "\n".join([name, verdict, *(f"  {printed(one)}" for one in judged.findings)])


@pytest.mark.parametrize("name", SCENARIOS)
def test_findings(name: str, update_golden: bool) -> None:
    """An ID is the same in every version: it is kept in baselines, tickets and alerts."""
    assert update_golden or f"{told(name)}\n\n" in GOLDEN.read_text()


def test_the_golden_has_no_others(update_golden: bool) -> None:
    if update_golden:
        GOLDEN.parent.mkdir(exist_ok=True)
        GOLDEN.write_text("".join(f"{told(name)}\n\n" for name in SCENARIOS))
    titles = [line for line in GOLDEN.read_text().splitlines() if line and line[0] != " "]
    assert titles == [*SCENARIOS]

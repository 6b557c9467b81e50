"""Judged fleets for the page: rail-optimized groups, with faults and their findings by hand."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace

from agent.cabling.finding import Finding, Move, PortRef, finding
from agent.cabling.seen import SeenEnd
from agent.fleet.model import INFINIBAND, Fleet, FleetNode, FleetPort, Group, Judged
from tests.support import small_fleets
from tests.support.small_fleets import NOW, far_end

Change = Callable[[FleetPort], FleetPort]


RAILS = 8
HOSTILE = (
    "<script>alert(1)</script>",
    "javascript:alert(1)",
    '"><img src=x onerror=alert(1)>',
    "{{ 7 * 7 }}",
    "leaf\u202e70\x1b[2J\n07",
    "'-->]]></style></title><svg/onload=alert(1)>",
    "\ud800lone",
)


def leaf(group: int, rail: int) -> str:
    """Return the name of a leaf."""
    return f"su{group + 1:02}-leaf{rail + 1:02}"


def node(name: str, group: int, place: int) -> FleetNode:
    """Return a node whose interface i is on leaf i of its group, on the port of its place."""
    ends = [far_end(leaf(group, rail), place + 1) for rail in range(RAILS)]
    return small_fleets.node(name, ends, flavor=INFINIBAND, speed_gbps=3200, time=NOW - 600)


def fleet(nodes: int, per_group: int) -> Judged:
    """Return a fleet without faults."""
    names = [f"gpu-{number:03}" for number in range(1, nodes + 1)]
    made = tuple(
        node(name, number // per_group, number % per_group) for number, name in enumerate(names)
    )
    groups = []
    for number, at in enumerate(range(0, nodes, per_group)):
        leaves = tuple(far_end(leaf(number, rail), 1).switch for rail in range(RAILS))
        name = f"{leaf(number, 0)} to {leaf(number, RAILS - 1)}"
        pattern = "rail-optimized: interface i on leaf i"
        groups.append(Group(name, tuple(names[at : at + per_group]), leaves, pattern))
    read = Fleet(made, "https://10.0.0.1:6443", NOW)
    return Judged(read, (), tuple(groups), (), nodes * RAILS, nodes * RAILS)


def changed(judged: Judged, ports: Iterable[PortRef], change: Change) -> Judged:
    """Return the fleet with some ports changed."""
    refs = set(ports)
    nodes = tuple(
        replace(
            one,
            ports=tuple(
                change(port) if PortRef(one.name, port.interface) in refs else port
                for port in one.ports
            ),
        )
        for one in judged.fleet.nodes
    )
    return judged._replace(fleet=replace(judged.fleet, nodes=nodes))


def found(judged: Judged, one: Finding, cables: int = 0) -> Judged:
    """Return the fleet with one finding more."""
    return judged._replace(findings=(*judged.findings, one), as_planned=judged.as_planned - cables)


def end_of(judged: Judged, ref: PortRef) -> SeenEnd:
    """Return the far end of a port."""
    of_node = next(one for one in judged.fleet.nodes if one.name == ref.node)
    end = next(port for port in of_node.ports if port.interface == ref.interface).far_end
    assert end
    return end


def swapped(judged: Judged, a: PortRef, b: PortRef) -> Judged:
    """Return the fleet with the far ends of two cables swapped, and the finding."""
    at_a, at_b = end_of(judged, a), end_of(judged, b)
    judged = changed(judged, [a], lambda port: port._replace(far_end=at_b, last_end=at_b))
    judged = changed(judged, [b], lambda port: port._replace(far_end=at_a, last_end=at_a))
    ends = ((at_a.device, at_a.port), (at_b.device, at_b.port))
    text = (
        f"swap the far ends of {a.node} {a.interface} and {b.node} {b.interface}: "
        f"{ends[1][0]}/{ends[1][1]} and {ends[0][0]}/{ends[0][1]}"
    )
    one = finding(
        "swapped",
        (a, b),
        text,
        moves=(Move(a, ends[1], ends[0]), Move(b, ends[0], ends[1])),
        confidence=0.97,
        majority="7 of 8 nodes of the group have interface i on leaf i",
        facts={"rack": "R12", "unit": 17},
    )
    return found(judged, one, 2)


def pulled(judged: Judged, ref: PortRef) -> Judged:
    """Return the fleet with a cable pulled, and the finding."""
    end = end_of(judged, ref)
    judged = changed(judged, [ref], lambda port: port._replace(far_end=None, gbps=0.0))
    text = f"plug {ref.node} {ref.interface} into {end.device}/{end.port}"
    move = Move(ref, (None, None), (end.device, end.port))
    one = finding("missing", (ref,), text, moves=(move,), confidence=0.91, majority="7 of 8")
    return found(judged, one, 1)


def leaf_down(judged: Judged, group: int, rail: int) -> Judged:
    """Return the fleet with a leaf that lost all of its ports, and the finding."""
    refs = [PortRef(name, f"mlx5_{rail}") for name in judged.groups[group].nodes]
    name = leaf(group, rail)
    judged = changed(judged, refs, lambda port: port._replace(far_end=None, gbps=0.0))
    text = f"look at {name}: all {len(refs)} ports of it are without a neighbor"
    one = finding("leaf-down", refs, text, key=[name], actual=(name, None))
    return found(judged, one, len(refs))


def slow(judged: Judged, ref: PortRef) -> Judged:
    """Return the fleet with a slower port, and the finding."""
    judged = changed(judged, [ref], lambda port: port._replace(gbps=200.0))
    text = f"reseat the cable of {ref.node} {ref.interface}: 200G, the others have 400G"
    return found(judged, finding("slow", (ref,), text, facts={"rate": "200G"}))


def silent(judged: Judged, *names: str) -> Judged:
    """Return the fleet with nodes that have not reported for three hours, and the finding."""
    nodes = tuple(
        replace(one, time=NOW - 11_000) if one.name in names else one for one in judged.fleet.nodes
    )
    judged = judged._replace(fleet=replace(judged.fleet, nodes=nodes))
    text = "look at the Pods of bwagent: the last report is older than two hours"
    return found(judged, finding("silent", (), text, nodes=names))


def faulty(nodes: int = 24, per_group: int = 8) -> Judged:
    """Return a fleet with faults of several kinds in its first two groups."""
    names = [f"gpu-{number:03}" for number in range(1, nodes + 1)]
    at = per_group
    judged = fleet(nodes, per_group)
    judged = swapped(judged, PortRef(names[1], "mlx5_3"), PortRef(names[2], "mlx5_4"))
    judged = pulled(judged, PortRef(names[4], "mlx5_6"))
    judged = swapped(judged, PortRef(names[at], "mlx5_0"), PortRef(names[at], "mlx5_1"))
    judged = slow(judged, PortRef(names[6], "mlx5_2"))
    judged = leaf_down(judged, 1, 7)
    judged = silent(judged, names[at + 3], names[at + 4])
    return judged._replace(notes=("group 3: 8 of 8 nodes agree",))


def _on(end: SeenEnd) -> Change:
    return lambda port: port._replace(far_end=end)


def hostile() -> Judged:
    """Return a fleet whose nodes and switches choose names to break the page."""
    judged = faulty(18, 9)
    refs = [PortRef("gpu-001", f"mlx5_{rail}") for rail in range(len(HOSTILE))]
    for ref, name in zip(refs, HOSTILE, strict=True):
        end = SeenEnd(name, name, name, name, name)
        judged = changed(judged, [ref], _on(end))
        one = finding(
            "miscabled",
            [ref],
            f"look at {name}",
            moves=(Move(ref, (name, name), (name, name)),),
            facts={name: name},
            majority=name,
            confidence=0.5,
        )
        judged = found(judged, one)
    renamed = {f"gpu-{number:03}": name for number, name in enumerate(HOSTILE, 2)}
    nodes = tuple(
        replace(one, name=renamed.get(one.name, one.name), problems=HOSTILE, agent=HOSTILE[0])
        for one in judged.fleet.nodes
    )
    groups = tuple(
        Group(
            HOSTILE[0],
            tuple(renamed.get(name, name) for name in group.nodes),
            (*group.leaves, *HOSTILE),
            HOSTILE[2],
        )
        for group in judged.groups
    )
    read = replace(judged.fleet, nodes=nodes, source=HOSTILE[2], problems=HOSTILE)
    judged = judged._replace(fleet=read, groups=groups, notes=HOSTILE)
    return found(judged, finding("silent", (), HOSTILE[0], nodes=HOSTILE))

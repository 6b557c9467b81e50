"""Small fleets, for tests of `fleet verify`: racks of nodes with one leaf for each interface."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from agent.cabling.finding import Finding
from agent.cabling.seen import SeenEnd
from agent.fleet.model import ROCE, Fleet, FleetNode, FleetPort, Group, Judged, wires
from agent.reasons import BadLink
from agent.text import natural

P = "backend.coreweave.cloud"
NOW = 1_795_000_000
BOOT = "b3ae9df5-0d0b-4a4f-8b0a-4b7a4d6f0f00"


def far_end(device: str, port: object, **facts: Any) -> SeenEnd:
    """The port of a switch whose identifier is made of its name."""
    return SeenEnd(device, str(port), None, **{"id": chassis(device), "name": device, **facts})


def chassis(device: str) -> str:
    """A MAC address that only this device has."""
    digits = f"{sum(ord(one) * 31**place for place, one in enumerate(device)) % 2**32:08x}"
    return f"00:1c:{digits[:2]}:{digits[2:4]}:{digits[4:6]}:{digits[6:]}"


def port(name: str, number: int, end: SeenEnd | None, **facts: Any) -> FleetPort:
    """An ACTIVE port at 400 Gb/s of a node; without a far end, one that is down."""
    guid = f"{sum(ord(one) * 37**place for place, one in enumerate(name)) % 2**32:08x}{number:08x}"
    return FleetPort(
        f"mlx5_{number}",
        **{
            "pci": f"0000:{0x10 + number:02x}:00.0",
            "node_guid": guid,
            "gbps": 400.0 if end else 0.0,
            "far_end": end,
            "last_end": end,
            **facts,
        },
    )


def node(name: str, ends: Iterable[SeenEnd | None], **facts: Any) -> FleetNode:
    """A node whose agent has just reported."""
    ports = tuple(port(name, number, end) for number, end in enumerate(ends))
    known = {"flavor": ROCE, "ports": ports, "time": NOW - 60, "boot_id": BOOT, "agent": "0.1.0"}
    return FleetNode(name, **{**known, **facts})


def rack(nodes: int = 4, rails: int = 4, first: int = 1) -> list[FleetNode]:
    """Nodes gpu-001, gpu-002 and so on: interface i at leaf i, every node at a port of its own."""
    return [
        node(f"gpu-{one:03}", [far_end(f"leaf{rail:02}", f"swp{one}") for rail in range(rails)])
        for one in range(first, first + nodes)
    ]


def fleet(nodes: Iterable[FleetNode], **facts: Any) -> Fleet:
    """The fleet of these nodes."""
    ordered = tuple(sorted(nodes, key=lambda one: natural(one.name)))
    return Fleet(ordered, **{"source": "nodes.json", "now": NOW, **facts})


def cabled(nodes: list[FleetNode], name: str, interface: str, **facts: Any) -> list[FleetNode]:
    """The nodes with other facts of one port."""
    return [
        replace(
            one,
            ports=tuple(
                port._replace(**facts) if port.interface == interface else port
                for port in one.ports
            ),
        )
        if one.name == name
        else one
        for one in nodes
    ]


def with_errors(*links: tuple[int, int]) -> list[FleetNode]:
    """32 nodes, interface i at leaf i, with bad links: the number of a node, the interface."""
    names = {number: f"gpu-{number:03}" for number in range(1, 33)}
    nodes = [
        node(name, [far_end(f"leaf{rail:02}", number) for rail in range(8)])
        for number, name in names.items()
    ]
    for number, rail in links:
        link = BadLink("near", NOW - 60)
        nodes = cabled(nodes, names[number], f"mlx5_{rail}", bad_link=link)
    return nodes


def old(nodes: list[FleetNode], *names: str, time: int = 1) -> list[FleetNode]:
    """The nodes, of which some reported long ago."""
    return [replace(one, time=time) if one.name in names else one for one in nodes]


def labeled(one: FleetNode, **others: str) -> FleetNode:
    """A node whose expected labels have it as it is."""
    found: dict[str, str] = {}
    for wire in wires([one]):
        key = f"{P}/neighbors.expected.{wire.port.interface}"
        found[f"{key}.device"] = wire.end.label
        found[f"{key}.port-id"] = wire.end.port_id or ""
    return replace(one, labels=found | {f"{P}/{key}": text for key, text in others.items()})


def judged(nodes: Iterable[FleetNode], *findings: Finding, **facts: Any) -> Judged:
    """What a fleet with these findings is judged to be."""
    members = fleet(nodes)
    names = tuple(one.name for one in members.nodes)
    groups = (Group("leaf00 to leaf03", names, (), "rail-optimized: interface i on leaf i"),)
    count = sum(len(one.ports) for one in members.nodes)
    known = {"groups": groups, "planned": count, "as_planned": count}
    return Judged(members, findings, **{**known, **facts})

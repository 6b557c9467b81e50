"""Nodes with backend ports and cables, for tests of `verify`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from agent.cabling.expected import Expected, from_labels
from agent.cabling.interfaces import HcaMap, map_key
from agent.cabling.judge import VerifyResult
from agent.cabling.plan_index import from_plans
from agent.cabling.plans.model import End, FilePlace, Plan, PlanCable
from agent.cabling.seen import Port, SeenEnd, SeenNode
from agent.encode import Naming

NODE = "gpu-017"
Ends = tuple[str, str]  # device, port


def lldp(device: str, port: str) -> SeenEnd:
    """The far end of an Ethernet port."""
    mac = "00:1c:73:aa:bb:cc"
    return SeenEnd(device, port, port, names=(device,), macs=(mac,))


def smp(
    device: str,
    port: int,
    guid: str = "fc6a1c0300aabb00",
    *,
    named: bool = True,
    twin: bool | None = None,
) -> SeenEnd:
    """The far end of an InfiniBand port."""
    names = (device,) if named else ()
    facts: Any = {"guids": (guid,), "infiniband": True, "twin_port": twin}
    return SeenEnd(device, str(port), names=names, **facts)


def port(interface: str, far_end: SeenEnd | None, number: int = 0, **facts: Any) -> Port:
    """An ACTIVE backend port at 400 Gb/s."""
    facts = {
        "device": interface,
        "netdev": f"eth{number}",
        "pci": f"0000:{0x10 + number:02x}:00.0",
        "state": "ACTIVE",
        "phys_state": "LinkUp",
        "rate_gbps": 400.0,
        "kind": ("MT4129", "MT_0000000838"),
        "link_layer": "Ethernet",
        "far_ends": (far_end,) if far_end else (),
        **facts,
    }
    return Port(interface, **facts)


def node(ends: Iterable[Ends | None], **facts: Any) -> SeenNode:
    """The node with ports mlx5_0, mlx5_1 and so on at these far ends."""
    ports = [
        port(f"mlx5_{number}", lldp(*end) if end else None, number)
        for number, end in enumerate(ends)
    ]
    return SeenNode(NODE, {one.interface: one for one in ports}, **facts)


def changed(seen: SeenNode, interface: str, **facts: Any) -> SeenNode:
    """The node with other facts of one port."""
    one = seen.ports[interface]._replace(**facts)
    return seen._replace(ports={**seen.ports, interface: one})


def rails(count: int = 8) -> list[Ends]:
    """One leaf for each port."""
    return [(f"leaf{number:02}", "swp5") for number in range(count)]


def plan(
    ends: Mapping[str, Ends] | Iterable[Ends], *others: PlanCable, names: Iterable[str] = (NODE,)
) -> Expected:
    """The expected half of the node: its interfaces and far ends; `others` are further cables."""
    if not hasattr(ends, "items"):
        ends = {f"mlx5_{number}": end for number, end in enumerate(ends)}
    cables = [cable(name, *end, row=row) for row, (name, end) in enumerate(ends.items(), 2)]
    return from_plans([Plan("plan.csv", "own", None, (*cables, *others))], list(names))


def labels(expected: Mapping[str, str], prefix: str = Naming().prefix) -> Expected:
    """The expected half by these labels of the node."""
    return from_labels({f"{prefix}/{key}": value for key, value in expected.items()}, Naming(), "n")


def cable(interface: str, device: str, port: str, *, row: int = 99, **facts: Any) -> PlanCable:
    """A cable of the node, or of `node`."""
    near = End(facts.pop("node", NODE), interface, None, *facts.pop("near", (None, None)))
    far = End(device, port, None, *facts.pop("far", (None, None)))
    return PlanCable(near, far, FilePlace("plan.csv", None, row), **facts)


def codes(result: VerifyResult) -> list[tuple[str, tuple[str, ...]]]:
    """The code and the interfaces of each finding."""
    return [(one.code, one.interfaces) for one in result.findings]


def hca_map(names: dict[str, str]) -> HcaMap:
    """Return the rows of --hca-map for every node."""
    return {("", map_key(text)): name for text, name in names.items()}

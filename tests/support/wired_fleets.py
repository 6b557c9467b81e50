"""Fleets of a few nodes for the tests of exports: groups of nodes, each with its leaves."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import NamedTuple

from agent.cabling.seen import SeenEnd
from agent.encode import Naming
from agent.fleet.model import INFINIBAND, Fleet, FleetNode, FleetPort
from agent.text import natural

NAMING = Naming()
NO_LABELS: Mapping[str, str] = MappingProxyType({})


class Rack(NamedTuple):
    """Nodes on the same leaves: interface i of each on leaf i."""

    nodes: tuple[str, ...]
    leaves: tuple[str, ...]
    site: Mapping[str, str] = NO_LABELS  # labels below P: fabric, superpod
    domain: str | None = None
    flavor: str = INFINIBAND


def node(  # noqa: PLR0913 - a Node has many labels
    name: str,
    group: str | None,
    *,
    domain: str | None = None,
    site: Mapping[str, str] = NO_LABELS,
    ports: Iterable[FleetPort] = (),
    flavor: str | None = INFINIBAND,
) -> FleetNode:
    """Return a Node with its labels; `site` has the site's own ones, below P."""
    labels = {f"{NAMING.prefix}/{key}": value for key, value in site.items()}
    if group is not None:
        labels[f"{NAMING.prefix}/leafgroup.current"] = group
    if domain is not None:
        labels[NAMING.accelerator] = domain
    if flavor is not None:
        labels[f"{NAMING.prefix}/flavor"] = flavor
    return FleetNode(
        name,
        flavor=flavor,
        ports=tuple(ports),
        labels=labels,
        leaf_group=group,
        accelerator=domain,
    )


def fleet(nodes: Iterable[FleetNode]) -> Fleet:
    """Return a fleet of these nodes."""
    ordered = sorted(nodes, key=lambda one: natural(one.name))
    return Fleet(tuple(ordered), source="a test", now=1_800_000_000)


def fleet_of(*racks: Rack) -> Fleet:
    """Return the fleet of some racks."""
    return fleet(one for rack in racks for one in _nodes(rack))


def _nodes(rack: Rack) -> Iterable[FleetNode]:
    for number, name in enumerate(rack.nodes, 1):
        ports = [_port(rail, leaf, number) for rail, leaf in enumerate(rack.leaves)]
        yield node(
            name,
            "_".join(rack.leaves),
            domain=rack.domain,
            site=rack.site,
            ports=ports,
            flavor=rack.flavor,
        )


def _port(rail: int, leaf: str, number: int) -> FleetPort:
    end = SeenEnd(leaf, str(number), None, f"{hash_of(leaf):016x}", leaf)
    return FleetPort(f"ibp{rail}", f"0000:{rail + 16:02x}:00.0", gbps=400.0, far_end=end)


def hash_of(text: str) -> int:
    """Return a number that is equal in every run."""
    return int.from_bytes(text.encode()[-8:].rjust(8, b"\0"), "big")


def names(first: int, last: int, pattern: str = "gpu-{:03}") -> tuple[str, ...]:
    """Return the names of successive nodes."""
    return tuple(pattern.format(number) for number in range(first, last + 1))


def flat() -> Fleet:
    """Return two leaf groups without anything above, a node without a group and one silent port."""
    racks = fleet_of(
        Rack(names(1, 4), ("L90.1.1", "L90.1.2")), Rack(names(5, 8), ("L90.2.1", "L90.2.2"))
    )
    bare = node("gpu-009", None, ports=[FleetPort("ibp0")])
    return fleet([*racks.nodes, bare])


def tall() -> Fleet:
    """Return three leaf groups in two superpods of a fabric, with NVLink domains in two of them."""
    one, two = {"fabric": "f1", "superpod": "sp1"}, {"fabric": "f1", "superpod": "sp2"}
    clique = "3f2c6a1e-0000-4000-8000-00000000000{}.1"
    return fleet_of(
        Rack(names(1, 2), ("leaf1",), one, clique.format(1)),
        Rack(names(3, 4), ("leaf1",), one, clique.format(2)),
        Rack(names(5, 6), ("leaf2",), one, clique.format(3)),
        Rack(names(7, 8), ("leaf3",), two),
    )


def tiered() -> Fleet:
    """Return four leaf groups, two below each of two spines, all below one core, as the labels of
    their agents have it; gpu-002 started while spine1 was down, gpu-005 while the core was.
    """
    nodes = []
    for at, name in enumerate(names(1, 12)):
        tiers = {"tier-1.current": f"spine{1 + at // 6 * 8}", "tier-2.current": "core1"}
        tiers |= {"gpu-002": {"tier-1.current": "spine2"}}.get(name, {})
        tiers |= {"gpu-005": {"tier-2.current": "core2"}}.get(name, {})
        nodes.append(node(name, f"leaf{1 + at // 3}", site=tiers))
    return fleet(nodes)


def mixed(product: str | None = "nvidia.com/gpu.product") -> Fleet:
    """Return six nodes in NVLink domains, and four without on leaves of their own."""
    h100 = fleet_of(Rack(names(1, 4), ("leaf1",))).nodes
    racks = (Rack(names(at, at + 1), ("leaf2",), domain=f"d{at}") for at in (5, 7, 9))
    kinds = {"NVIDIA-H100_80GB": h100, "NVIDIA-GB300": fleet_of(*racks).nodes}
    return fleet(
        replace(one, labels={**one.labels, **({product: kind} if product else {})})
        for kind, nodes in kinds.items()
        for one in nodes
    )


def hostile(text: str) -> Fleet:
    """Return a fleet whose every text is or contains `text`, beside two good nodes."""
    port = FleetPort(text, text, gbps=400.0, far_end=SeenEnd(text, text, text, text, text))
    bad = node(f"gpu-1{text}", f"leaf{text}", domain=text, ports=[port])
    site = {"fabric": f"f{text}", "superpod": text}
    good = fleet_of(Rack(names(1, 2), ("leaf1",), site))
    odd = replace(good.nodes[1], accelerator=f"domain{text}")
    return fleet([good.nodes[0], odd, bad])

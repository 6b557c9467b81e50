"""The evidence for the value of a label: the files, frames and answers that its row is read from.

The sources are those of the fields' comments in agent/model.py. A row of the label table that has
no entry in `OF_ROWS` is of another family with the same last part of its key.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from agent.labels.leaf_group import device_of
from agent.labels.values import links
from agent.model import IbNeighbor, LldpNeighbor

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from agent.model import Gpu, LastNeighbor, Link, Neighbor, Netdev, Observation, PortRole

    Of = Callable[[Observation, str | None], Iterable["Evidence"]]  # interface, or None: all

CLASS = "/sys/class/infiniband"
NET = "/sys/class/net"
PCI = "/sys/bus/pci/devices"
SUM = "part of the sum"
REMEMBERED = "remembered in the annotation"


class Evidence(NamedTuple):
    """One fact; None is unknown."""

    interface: str | None  # None: it is of no port
    via: str  # "sysfs", "lldp", "smp", "gpu", "annotation", or SUM
    subject: str  # a path, a netdev with its frame, a port with its query, a GPU, or what is summed
    fact: str  # the file, TLV, attribute or field
    value: str | None
    seen: float | None  # seconds since the epoch


def _file(role: PortRole, seen: Observation, name: str, value: str | None) -> Evidence:
    """Return the fact of a file of a port."""
    path = f"{CLASS}/{role.device.name}/ports/{role.port.number}/{name}"
    return Evidence(role.interface, "sysfs", path, name, value, seen.time)


def flavor(seen: Observation, _interface: str | None) -> Iterable[Evidence]:
    """Yield the link layer of each backend port."""
    return [_file(role, seen, "link_layer", role.port.link_layer) for role in seen.backend]


def speed(seen: Observation, _interface: str | None) -> Iterable[Evidence]:
    """Yield state and rate of each backend port, and what those count that cannot be read."""
    for role in seen.backend:
        yield _file(role, seen, "state", role.port.state)
        yield from _rates(role, seen)
        yield Evidence(role.interface, SUM, SUM, "counted_gbps", _gbps(role.counted_gbps), None)
    names = {role.interface for role in seen.backend}
    if not names:
        yield from _ignored(seen)
    for one in seen.held_counts:
        if one.interface not in names:
            yield Evidence(
                one.interface, SUM, "what it did last", "counted_gbps", _gbps(one.gbps), None
            )
    for lost in seen.lost or ():
        yield Evidence(lost.interface, "sysfs", f"{PCI}/{lost.pci}", "pci", "gone", seen.time)


def _ignored(seen: Observation) -> Iterable[Evidence]:
    """Yield the reason why each port of a node without backend port is none."""
    for role in seen.ports:
        path = f"{CLASS}/{role.device.name}/ports/{role.port.number}"
        yield Evidence(role.interface, "sysfs", path, "role", role.reason, seen.time)


def _gbps(gbps: float | None) -> str | None:
    return None if gbps is None else f"{gbps:g} Gb/s"


def _rates(role: PortRole, seen: Observation) -> Iterable[Evidence]:
    """Yield the rate, of an Ethernet port that of its netdev where it has one."""
    netdev = role.leg or role.port.netdev
    if role.port.link_layer == "Ethernet" and netdev and netdev.speed_mbps:
        yield _speed(role, seen, netdev)
    else:
        yield _file(role, seen, "rate", role.port.rate_text)
    if role.leg:
        path = f"{NET}/{role.leg.name}/bonding_slave/state"
        yield Evidence(
            role.interface, "sysfs", path, "bonding_slave/state", role.leg.bond_state, seen.time
        )


def _speed(role: PortRole, seen: Observation, netdev: Netdev) -> Evidence:
    path, value = f"{NET}/{netdev.name}/speed", f"{netdev.speed_mbps} Mb/s"
    return Evidence(role.interface, "sysfs", path, "speed", value, seen.time)


def neighbor(seen: Observation, interface: str | None) -> Iterable[Evidence]:
    """Yield the facts of the selected neighbor of the interface, or of all interfaces.

    A port without neighbor has its state instead.
    """
    for link in links(seen):
        if interface in (None, link.interface):
            first = link.neighbors[:1]
            yield from _of_neighbor(link, first[0], seen) if first else _of_state(link, seen)


def leaf_group(seen: Observation, _interface: str | None) -> Iterable[Evidence]:
    """Yield the facts of each neighbor, and what is remembered of ports without one."""
    last = dict(seen.last_neighbors.of) if seen.last_neighbors else {}
    for link in links(seen):
        yield from neighbor(seen, link.interface)
        if known := last.pop(link.interface, None):
            yield from () if link.neighbors else [_remembered(link.interface, known)]
    yield from (_remembered(interface, known) for interface, known in last.items())


def _remembered(interface: str, known: LastNeighbor) -> Evidence:
    device = device_of(known)
    return Evidence(interface, "annotation", REMEMBERED, "neighbor", device, None)


def _of_state(link: Link, seen: Observation) -> Iterable[Evidence]:
    for role in seen.ports:
        if role.interface == link.interface:
            yield _file(role, seen, "state", role.port.state)
            yield _file(role, seen, "phys_state", role.port.phys_state)


def _of_neighbor(link: Link, found: Neighbor, seen: Observation) -> Iterable[Evidence]:
    at = seen.time - (found.age or 0.0)
    facts = found.facts
    rows = _tlvs(facts) if isinstance(facts, LldpNeighbor) else _attributes(facts, found)
    via, subject = _origin(link, facts, seen)
    return [Evidence(link.interface, via, subject, name, value, at) for name, value in rows]


def _origin(link: Link, facts: LldpNeighbor | IbNeighbor, seen: Observation) -> tuple[str, str]:
    """Return protocol, and the frame or the query."""
    if isinstance(facts, LldpNeighbor):
        return "lldp", f"{link.netdev}: frame from {facts.source_mac} to {facts.destination_mac}"
    roles = [role for role in seen.ports if role.interface == link.interface]
    port = f"{roles[0].device.name} port {roles[0].port.number}" if roles else link.interface
    return "smp", f"{port}: directed route 0,{roles[0].port.number if roles else '?'}"


def _tlvs(facts: LldpNeighbor) -> list[tuple[str, str | None]]:
    return [
        ("System Name TLV", facts.system_name),
        (f"Chassis ID TLV (subtype {facts.chassis_subtype})", facts.chassis_id),
        (f"Port ID TLV (subtype {facts.port_id_subtype})", facts.port_id),
        ("Port Description TLV", facts.port_description),
        ("Time To Live TLV", f"{facts.ttl} s"),
    ]


def _attributes(facts: IbNeighbor, found: Neighbor) -> list[tuple[str, str | None]]:
    description = facts.node_description
    earlier = [] if description else [("NodeDescription, earlier", found.last_description)]
    return [
        ("NodeDescription.NodeString", description),
        *earlier,
        ("NodeInfo.NodeGUID", facts.node_guid),
        ("NodeInfo.LocalPortNum", str(facts.port)),
    ]


def accelerator(seen: Observation, _interface: str | None) -> Iterable[Evidence]:
    """Yield the place of each GPU in the NVLink fabric."""
    return [one for gpu in seen.gpus for one in _of_gpu(gpu, seen.time)]


def _of_gpu(gpu: Gpu, at: float) -> list[Evidence]:
    subject = f"GPU {gpu.index} ({gpu.pci})" if gpu.pci else f"GPU {gpu.index}"
    clique = None if gpu.clique_id is None else str(gpu.clique_id)
    facts = {
        ".state": gpu.state,
        ".status": gpu.status,
        ".clusterUuid": gpu.cluster_uuid,
        ".cliqueId": clique,
        "error": gpu.error,
    }
    return [
        Evidence(None, "gpu", subject, name, value, at)
        for name, value in facts.items()
        if value is not None
    ]


# By the last parts of a row's key.
OF_ROWS: dict[str, Of] = {
    "flavor": flavor,
    "speed.current": speed,
    "neighbors.current.{if}.device": neighbor,
    "neighbors.current.{if}.port-id": neighbor,
    "neighbors.current.{if}.port-name": neighbor,
    "leaves.current": neighbor,
    "leafgroup.current": leaf_group,
    "ports.current": neighbor,
    "ACC": accelerator,
}


def of_row(key: str) -> Of:
    """Return the function of a row of the label table, by its key there."""
    return OF_ROWS[key.partition("/")[2] or key]

"""Where one label comes from: the document of `bwagent explain`, schema 1.

Its states are

    seen         the text was read now
    held         the label stays as it is, or has a part that does; `hold` has the reason
    incomplete   the text was read now, from facts of which some are missing; so has `hold`
    absent       there is no such label now; `reason` says why

Its evidence are the files, frames and answers that the row of the label is read from; the sources
are those of the fields' comments in agent/model.py.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from difflib import get_close_matches
from typing import Any, NamedTuple

import agent
from agent.labels.leaf_group import device_of
from agent.labels.render import Rendered, Subject, keys_for, subject_of
from agent.labels.table import LABELS, Label, Naming
from agent.labels.values import link_layers, links
from agent.model import (
    Failed,
    Gpu,
    LastNeighbor,
    Link,
    LldpNeighbor,
    Neighbor,
    Observation,
    PortRole,
)
from agent.output.absent import absent_ports
from agent.reasons import SWITCHED_OFF, HoldReason, NeighborReason
from agent.text import utc

Json = dict[str, Any]

SCHEMA = 1
MAX_NEAREST = 3
MIN_LIKENESS = 0.6  # of a key that is named as a near one, see difflib
MAX_KEY = 317  # characters of a valid key: prefix, slash, name
MAX_SHOWN = 64  # characters of an unknown key in its error
MAX_ERROR = 140  # characters of that error, unless its nearest key is longer
NO_INFINIBAND = "flavor is not infiniband"
NO_PORT_NAME = "no port name in the neighbor's frame"
CLASS = "/sys/class/infiniband"
NET = "/sys/class/net"
PCI = "/sys/bus/pci/devices"
SUM = "part of the sum"
REMEMBERED = "remembered in the annotation"
FAMILIES = (  # rows that an empty flag turns off: their field of Naming
    ("ib_prefix", "--ib-label-prefix"),
    ("accelerator", "--accelerator-label"),
)


def known_interfaces(observation: Observation) -> list[str]:
    """Return the interfaces that keys may name: those of all ports, read or not."""
    names = [role.interface for role in observation.ports]
    names += [one.interface for one in absent_ports(observation)]
    return [*dict.fromkeys([*names, *(link.interface for link in links(observation))])]


def backend_interfaces(observation: Observation) -> list[str]:
    """Return the interfaces that may have labels: those of the backend ports."""
    names = {role.interface for role in observation.ports if not role.backend}
    return [name for name in known_interfaces(observation) if name not in names]


def unknown_key(key: str, naming: Naming, interfaces: Iterable[str]) -> str:
    """Return the error for a key that is none of a label: it names the nearest ones.

    Of rows that the naming turns off it names the flag.
    """
    shown = key[:MAX_SHOWN]
    if flag := _turned_off_by(key, naming):
        return f"{shown!r} is turned off by an empty {flag}"
    known = keys_for(naming, interfaces)
    full = key if "/" in key else f"{naming.prefix}/{key}"
    nearest = get_close_matches(full[:MAX_KEY], known, MAX_NEAREST, MIN_LIKENESS)
    error = f"{shown!r} is no label key of bwagent; "
    if not nearest:
        return f"{error}`bwagent probe -o labels` lists them"
    error += f"nearest: {nearest[0]}"
    for other in nearest[1:]:
        if len(error) + len(other) + 2 <= MAX_ERROR:
            error += f", {other}"
    return error


def _turned_off_by(key: str, naming: Naming) -> str | None:
    """Return the flag that turns off the rows of a key; None if the key would be no label's."""
    for field, flag in FAMILIES:
        default = getattr(Naming(), field)
        keys = (key, f"{default}/{key}", default if default.endswith(f"/{key}") else "")
        with_default = naming._replace(**{field: default})
        if not getattr(naming, field) and any(subject_of(one, with_default) for one in keys):
            return flag
    return None


def explained(
    subject: Subject, observation: Observation, rendered: Rendered, on_node: Json | None
) -> Json:
    """Return the document of a label; `on_node` are those of agent/kube/commands.py."""
    key, row, interface = subject
    hold, value = _hold(subject, observation, rendered), rendered.labels.get(key)
    evidence = list(of_row(row.key)(observation, interface))
    state = "absent"
    if key in rendered.labels:
        unsettled = "incomplete" if key in rendered.incomplete else "seen"
        state = "held" if key in rendered.held else unsettled
    # the text before it is encoded, if it was read now
    texts = (one.text for one in row.values(observation) if one.interface == interface)
    return {
        "schema": SCHEMA,
        "agent": agent.__version__,
        "node": observation.node,
        "boot_id": observation.boot_id,
        "key": key,
        # of the first row with these values; a later one may say "the same"
        "meaning": next(one.value for one in LABELS if one.values is row.values),
        "absent_when": row.absent,
        "state": state,
        "value": value,
        "raw": next((text for text in texts if text), None),
        "hold": {"reason": str(hold), "text": hold.text} if hold else None,
        "reason": _absence(row, interface, observation) if value is None else None,
        "evidence": [
            one._asdict() | {"seen": None if one.seen is None else utc(int(one.seen))}
            for one in evidence
        ],
        "problems": _problems(subject, evidence, observation, rendered),
        "on_node": on_node,
    }


def _hold(subject: Subject, observation: Observation, rendered: Rendered) -> HoldReason | None:
    """Return the reason why a label is held or incomplete."""
    if subject.key not in rendered.incomplete:
        return rendered.held.get(subject.key)
    values = subject.row.values(observation)
    return next((one.hold for one in values if one.hold), None)


def _absence(row: Label, interface: str | None, observation: Observation) -> str:
    """Return the reason why there is no label."""
    if row.key != "ACC" and isinstance(observation.rdma, Failed):
        return observation.rdma.reason
    layers = link_layers(observation)
    lacks_infiniband = row.key.startswith("IB/") and "InfiniBand" not in layers
    is_roce = lacks_infiniband and bool(layers)
    if interface and not is_roce and (reason := _of_interface(interface, observation)):
        return reason
    if lacks_infiniband:
        return SWITCHED_OFF if "rdma" in observation.off else NO_INFINIBAND
    # a source of the label that is left out is the reason of its values, to hold a published one
    covering = [
        one for one in row.values(observation) if interface is None or one.covers(interface)
    ]
    if any(one.hold is HoldReason.SOURCE_OFF for one in covering):
        return SWITCHED_OFF
    if row.key == "ACC":
        return observation.accelerator.text or observation.accelerator.reason or row.absent
    is_unnamed = row.key.endswith(".port-name") and "InfiniBand" not in layers
    return NO_PORT_NAME if is_unnamed else row.absent


def _of_interface(interface: str, observation: Observation) -> str | None:
    """Return the reason why an interface has no neighbor, or is no backend port."""
    reasons: Mapping[str, str] = {
        **{one.interface: one.reason for one in absent_ports(observation)},
        **{role.interface: role.reason for role in observation.ports if not role.backend},
        **{link.interface: _missing(link.missing) for link in links(observation) if link.missing},
    }
    return reasons.get(interface)


def _missing(word: str) -> str:
    reason = NeighborReason.of(word)
    return f"{word}: {reason.text}" if reason else word


def _problems(
    subject: Subject, evidence: Iterable[Evidence], observation: Observation, rendered: Rendered
) -> list[str]:
    """Return the problems of the key, and of the interfaces and devices of its evidence."""
    names = {subject.interface, *(one.interface for one in evidence)} - {None}
    roles = [role for role in observation.ports if role.interface in names]
    concerned = {subject.key, *names, *(role.device.name for role in roles)}
    return [
        f"{one.subject}: {one.text}"
        for one in (*rendered.problems, *rendered.notes, *observation.problems)
        if concerned.intersection([one.subject, *one.subject.split("/")])
    ]


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
    for role in seen.ports if not names else ():  # why each port of a node is no backend port
        path = f"{CLASS}/{role.device.name}/ports/{role.port.number}"
        yield Evidence(role.interface, "sysfs", path, "role", role.reason, seen.time)
    for one in seen.held_counts:
        if one.interface not in names:
            yield Evidence(
                one.interface, SUM, "what it did last", "counted_gbps", _gbps(one.gbps), None
            )
    for lost in seen.lost or ():
        yield Evidence(lost.interface, "sysfs", f"{PCI}/{lost.pci}", "pci", "gone", seen.time)


def _gbps(gbps: float | None) -> str | None:
    return None if gbps is None else f"{gbps:g} Gb/s"


def _rates(role: PortRole, seen: Observation) -> Iterable[Evidence]:
    """Yield the rate, of an Ethernet port that of its netdev where it has one."""
    netdev = role.leg or role.port.netdev
    if role.port.link_layer == "Ethernet" and netdev and netdev.speed_mbps:
        path, value = f"{NET}/{netdev.name}/speed", f"{netdev.speed_mbps} Mb/s"
        yield Evidence(role.interface, "sysfs", path, "speed", value, seen.time)
    else:
        yield _file(role, seen, "rate", role.port.rate_text)
    if role.leg:
        path = f"{NET}/{role.leg.name}/bonding_slave/state"
        yield Evidence(
            role.interface, "sysfs", path, "bonding_slave/state", role.leg.bond_state, seen.time
        )


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
    """Return the TLVs of the frame, or the attributes in the answer to the query."""
    facts = found.facts
    rows: list[tuple[str, str | None]]
    if isinstance(facts, LldpNeighbor):
        via = "lldp"
        subject = f"{link.netdev}: frame from {facts.source_mac} to {facts.destination_mac}"
        rows = [
            ("System Name TLV", facts.system_name),
            (f"Chassis ID TLV (subtype {facts.chassis_subtype})", facts.chassis_id),
            (f"Port ID TLV (subtype {facts.port_id_subtype})", facts.port_id),
            ("Port Description TLV", facts.port_description),
            ("Time To Live TLV", f"{facts.ttl} s"),
        ]
    else:
        role = next((role for role in seen.ports if role.interface == link.interface), None)
        port, number = link.interface, "?"
        if role:
            port, number = f"{role.device.name} port {role.port.number}", str(role.port.number)
        via, subject = "smp", f"{port}: directed route 0,{number}"
        rows = [("NodeDescription.NodeString", facts.node_description)]
        if not facts.node_description:
            rows.append(("NodeDescription, earlier", found.last_description))
        rows.append(("NodeInfo.NodeGUID", facts.node_guid))
        rows.append(("NodeInfo.LocalPortNum", str(facts.port)))
    at = seen.time - (found.age or 0.0)
    return [Evidence(link.interface, via, subject, name, value, at) for name, value in rows]


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


# By the last parts of a row's key: the evidence of an interface, or of all (None). A row of the
# label table that has no entry here is of another family with the same last parts.
OF_ROWS: dict[str, Callable[[Observation, str | None], Iterable[Evidence]]] = {
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


def of_row(key: str) -> Callable[[Observation, str | None], Iterable[Evidence]]:
    """Return the function of a row of the label table, by its key there."""
    return OF_ROWS[key.partition("/")[2] or key]

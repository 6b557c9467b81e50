"""Build the JSON document of an observation: schema 2, docs/probe.schema.json.

A part of it is the *node document*: what a comparison of cables needs (agent/cabling/seen.py).

Invariants:
- Data is never in keys, except in `labels`.
- Unknown is null.
- Text is unaltered; an output for people makes it printable (agent/text.py).
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from operator import attrgetter
from types import MappingProxyType
from typing import Any, NamedTuple

import agent
from agent.encode import Naming
from agent.ids import is_named
from agent.labels.render import Rendered, render
from agent.memory import Known
from agent.model import (
    Absent,
    Failed,
    Observation,
    PortRole,
    Problem,
    RdmaDevice,
    Seen,
)
from agent.output.backend import ABSENT, absent_ports, is_suspect, speed_gbps
from agent.reasons import HoldReason
from agent.sources.interfaces import is_unread
from agent.sources.observe import SOURCES
from agent.sources.pci import PciePath
from agent.text import Json, natural, utc

SCHEMA = 2
# Facts that a neighbor sent, fields of LldpNeighbor or IbNeighbor; None: its protocol lacks it.
NEIGHBOR_FACTS = (
    "node_guid",
    "sys_image_guid",
    "node_type",
    "node_description",
    "chassis_id",
    "chassis_subtype",
    "port_id_subtype",
    "port_description",
    "system_name",
    "ttl",
)
LAYER_UNREAD = "the link layer of a port could not be read"


# The keys of a row of `ports`, and their facts.
PORT_FACTS: Mapping[str, Callable[[PortRole], Any]] = {
    "interface": attrgetter("interface"),
    "device": attrgetter("device.name"),
    "port": attrgetter("port.number"),
    "leg": lambda role: role.leg.name if role.leg else None,
    "pci": attrgetter("device.pci"),
    "netdev": lambda role: netdev.name if (netdev := role.netdev) else None,
    "link_layer": attrgetter("port.link_layer"),
    "state": attrgetter("port.state"),
    "phys_state": attrgetter("port.phys_state"),
    "rate_gbps": attrgetter("port.rate_gbps"),
    "rate_text": attrgetter("port.rate_text"),
    "counted_gbps": attrgetter("counted_gbps"),
    "suspect": is_suspect,
    "role": lambda role: "backend" if role.backend else "ignored",
    "reason": attrgetter("reason"),
    "evidence": lambda role: {
        "rule": role.rule,
        "text": role.reason,
        "gpu": role.gpu,
        "distance": role.distance,
    },
    "node_guid": attrgetter("device.node_guid"),
    "port_guid": attrgetter("port.port_guid"),
    "sys_image_guid": attrgetter("device.sys_image_guid"),
    "hca_type": attrgetter("device.hca_type"),
    "board_id": attrgetter("device.board_id"),
    "fw_ver": attrgetter("device.fw_ver"),
    "numa_node": attrgetter("device.numa_node"),
    "link_downed": attrgetter("port.link_downed"),
}


class Choices(NamedTuple):
    """The flags that shape the document of an observation."""

    backend_devices: tuple[str, ...] = ()  # globs
    excluded_devices: tuple[str, ...] = ()  # globs
    naming: Naming = Naming()
    node_name: str | None = None  # None: the host name in lower case


class Hardware(NamedTuple):
    """What a comparison of cables needs beside an observation; None, or empty: not read."""

    paths: Mapping[str, PciePath] | None = None  # of the backend NICs, by PCI address
    functions: frozenset[str] = frozenset()  # on the PCI bus
    netdevs: frozenset[str] = frozenset()
    counters: Mapping[str, Mapping[str, int]] = MappingProxyType({})  # of sysfs, by interface


NOT_READ = Hardware()


def document(  # noqa: PLR0913, PLR0917 - all but three are often left out
    observation: Observation,
    known: Known,
    choices: Choices,
    notes: Iterable[Problem] = (),
    rendered: Rendered | None = None,
    hardware: Hardware = NOT_READ,
) -> Json:
    """Return the JSON document of an observation, and of what is known after it.

    `notes` are further problems; `rendered` are the labels if published ones may be held.
    """
    rendered = rendered or render(known, choices.naming)
    facts = node_document(observation, known, choices.node_name, hardware)
    accelerator = observation.accelerator
    flavors = (text for key, text in rendered.labels.items() if key.endswith("/flavor"))
    kept = (
        Problem("labels", key, None, f"label kept: {reason.text}")
        for key, reason in rendered.held.items()
    )
    problems = (
        *_hints(observation, choices),
        *notes,
        *kept,
        *rendered.notes,
        *rendered.problems,
        *observation.problems,
    )
    nics = None  # the drivers did not tell
    if isinstance(observation.nics, Seen):
        nics = [
            {
                "pci": nic.pci,
                "driver": nic.driver,
                "fault": nic.fault,
                "reporters": [reporter._asdict() for reporter in nic.reporters],
                "firmware": [
                    version._asdict() | {"pending": version.is_pending} for version in nic.firmware
                ],
            }
            for nic in observation.nic_health
        ]
    return {
        "schema": SCHEMA,
        "agent": agent.__version__,
        "node": facts["node"],
        "flavor": next(flavors, None),
        "speed_gbps": speed_gbps(observation, known),
        "labels": rendered.labels,
        **facts,
        "accelerator": {
            "value": accelerator.value,
            "reason": accelerator.reason,
            "text": accelerator.text,
            "gpus": [
                {
                    "uuid": gpu.uuid,
                    "cluster_uuid": gpu.cluster_uuid,
                    "clique_id": gpu.clique_id,
                    "state": gpu.state,
                    "status": gpu.status,
                    "module_id": gpu.module_id,
                    # the decoded bits of the fabric health mask, and their summary
                    "health": None
                    if gpu.health_mask is None
                    else {**dict(gpu.health), "summary": gpu.health_summary},
                }
                for gpu in observation.gpus
            ],
        },
        "position": observation.position and observation.position._asdict(),
        "tiers": _tiers(observation),
        "link_errors": _link_errors(observation),
        "nics": nics,
        "problems": [problem._asdict() for problem in problems],
    }


def _tiers(observation: Observation) -> Json | None:
    """Return the switches above the leaves; None if they were not asked for."""
    match observation.tiers:
        case None:
            return None
        case Seen(explored):
            tiers = explored.tiers
            switches = dict(enumerate((tiers.tier_1, (tiers.tier_2,) if tiers.tier_2 else ()), 1))
            return {
                "reason": tiers.reason,
                "text": tiers.reason and tiers.reason.text,
                "tiers": [
                    {
                        "tier": tier,
                        "value": tiers.label(tier),
                        "switches": [{"guid": g, "name": tiers.names.get(g)} for g in guids],
                    }
                    for tier, guids in switches.items()
                    if guids
                ],
                "uplinks": [
                    {"leaf": leaf, "port": port, "switch": guid}
                    for leaf, ports in tiers.uplinks.items()
                    for port, guid in sorted(ports.items())
                ],
                "paths": [[hop._asdict() for hop in path] for path in tiers.paths],
                "walked": [*explored.walked],
            }
        case Failed(reason) | Absent(reason) as missing:
            word = "failed" if isinstance(missing, Failed) else "absent"
            empty = {name: list[Json]() for name in ("tiers", "uplinks", "paths", "walked")}
            return {"reason": word, "text": reason} | empty


def _link_errors(observation: Observation) -> list[Json]:
    """Return the error counters of links as they were read last, and the verdicts."""
    return [
        {
            "interface": link.interface,
            "far": link.far_name,
            "verdict": link.verdict and link.verdict.end,
            "unstable": link.verdict is not None and link.verdict.is_unstable,
            "text": link.verdict and link.verdict.text,
            "seconds": link.seconds,
            "ends": [
                {
                    "end": name,
                    "error": end if isinstance(end, str) else None,
                    "counters": None if isinstance(end, str) else end.counters._asdict(),
                }
                for name, end in (("near", link.near), ("far", link.far_end))
            ],
        }
        for link in observation.read_links
    ]


def node_document(
    observation: Observation, known: Known, node_name: str | None, hardware: Hardware
) -> Json:
    """Return the part of the document that a comparison of cables needs."""
    links = observation.links
    devices = observation.rdma.value if isinstance(observation.rdma, Seen) else ()
    return {
        "node": node_name or (observation.node and observation.node.lower()),
        "ports": _ports(observation, known, hardware.counters),
        "neighbors": [
            {
                "interface": link.interface,
                "via": neighbor.via,
                "netdev": link.netdev,
                "device": neighbor.device,
                "port_id": neighbor.port_id,
                "port_name": neighbor.port_name,
                "selected": neighbor is link.neighbors[0],
                "ambiguous": len(link.neighbors) > 1,
                **{name: getattr(neighbor.facts, name, None) for name in NEIGHBOR_FACTS},
                "last_description": neighbor.last_description,
                "age_s": neighbor.age,
            }
            for link in links
            for neighbor in link.neighbors
        ],
        "missing_neighbors": [
            {"interface": link.interface, "reason": link.missing} for link in links if link.missing
        ],
        "excluded": [
            {"device": device.name, "pci": device.pci} for device in devices if device.excluded
        ],
        "unread": [
            {"device": name, "pci": pci, "reason": reason}
            for name, pci, reason in _unread_devices(devices, known)
        ],
        "lost": [  # labeled ports that left the bus
            {
                "interface": fact.interface or None,
                "pci": fact.function,
                "port_guid": fact.port_guid,
                "lost_since": utc(fact.lost_since) if fact.lost_since else None,
            }
            for fact in known.lost
        ],
        "pcie": None if hardware.paths is None else _pcie(hardware.paths),
        "pci_functions": sorted(hardware.functions) or None,
        "netdevs": sorted(hardware.netdevs, key=natural) or None,
    }


def _unread_devices(
    devices: Iterable[RdmaDevice], known: Known
) -> Iterator[tuple[str | None, str | None, str]]:
    """Yield name, PCI address and reason of the devices that may have more backend ports."""
    for device in devices:
        if is_unread(device):
            yield device.name, device.pci, device.failure or LAYER_UNREAD
    for fact in known.unbound:
        yield fact.interface or None, fact.function, HoldReason.DEVICE_GONE.text


def _pcie(paths: Mapping[str, PciePath]) -> list[Json]:
    return [
        {
            "pci": pci,
            "path": [
                {
                    "pci": function.address,
                    "vendor": None if function.vendor is None else f"{function.vendor:04x}",
                    "speed_gts": function.speed,
                    "max_speed_gts": function.max_speed,
                    "width": function.width,
                    "max_width": function.max_width,
                }
                for function in path
            ],
        }
        for pci, path in paths.items()
    ]


def _hints(observation: Observation, choices: Choices) -> Iterable[Problem]:
    """Report what is odd without being an error."""
    devices = observation.rdma.value if isinstance(observation.rdma, Seen) else ()
    # a flag that matches no device: a typo, or the flag of another machine
    for flag, globs in (
        ("--exclude-device", choices.excluded_devices),
        ("--backend-device", choices.backend_devices),
    ):
        for glob in globs:
            if not any(
                is_named([glob], device.name, device.pci, device.pci_ids) for device in devices
            ):
                yield Problem("rdma", f"{flag} {glob}", None, "names no RDMA device here")
    for doubt in observation.hints:
        yield Problem("rdma", "backend", None, doubt.text)
    for role in filter(is_suspect, observation.ports):
        text = (
            f"ACTIVE at {role.port.rate_text}, but this HCA is faster: "
            "the kernel may not know the speed, or the cable is bad"
        )
        yield Problem("rdma", role.interface, None, text)
    for source in SOURCES:
        yield from source.hints(observation)


def _ports(
    observation: Observation, known: Known, counters: Mapping[str, Mapping[str, int]]
) -> list[Json]:
    """Return the rows of all ports; labeled ones without a device have their place by name."""
    links = observation.nics.value.links if isinstance(observation.nics, Seen) else {}
    bad_links = {fact.interface: fact.bad_link for fact in known.facts}
    rows = [{key: fact(role) for key, fact in PORT_FACTS.items()} for role in observation.ports]
    for row in rows:
        link = links.get(row["netdev"])
        row["link_state"] = link.as_json() if link and link.state else None
        row["netdev_downs"] = link.downs if link else None
        bad = bad_links.get(row["interface"])
        row["bad_link"] = bad and {"end": bad.end, "time": utc(bad.time)}
        values = counters.get(row["interface"])
        row["counters"] = values and [
            {"name": name, "value": values[name]} for name in sorted(values)
        ]
    absent = [
        dict.fromkeys((*PORT_FACTS, "link_state", "netdev_downs", "bad_link", "counters"))
        | {"state": ABSENT, "role": "backend", **port._asdict()}
        for port in absent_ports(observation, known)
    ]
    return sorted(rows + absent, key=lambda row: natural(row["interface"])) if absent else rows

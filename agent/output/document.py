"""What was found, as the JSON document of schema 1 (docs/probe.schema.json), and what an operator should look at.

Data never sits in keys, except in `labels`; what is unknown is null.
"""

from __future__ import annotations

import re
from collections import Counter
from typing import TYPE_CHECKING, Any

import agent
from agent.model import Failed, IbNeighbor, Problem, Seen
from agent.nvml.domain import health_faults, verdict

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from agent.labels.render import Rendered
    from agent.model import Absent, Gpu, Link, LldpNeighbor, Observation, PortRole

SCHEMA = 1
FIRST_MLX5 = (
    4113  # Connect-IB, the first HCA of the mlx5 driver (MT4113); older ones may well run at SDR
)
TOLD = (
    "node_guid",
    "node_type",
    "node_description",
    "chassis_id",
    "chassis_subtype",
    "port_id_subtype",
    "port_description",
    "system_name",
    "ttl",
)
_HCA_NUMBER = re.compile(r"MT(\d{4,5})")


def document(
    observation: Observation, rendered: Rendered, problems: Iterable[Problem], node: str | None
) -> dict[str, Any]:
    """The JSON document."""
    links = [link for outcome in (observation.lldp, observation.ib) for link in links_of(outcome)]
    return {
        "schema": SCHEMA,
        "agent": agent.__version__,
        "node": node,
        "flavor": next(
            (text for key, text in rendered.labels.items() if key.endswith("/flavor")), None
        ),
        "speed_gbps": speed_gbps(observation),
        "labels": rendered.labels,
        "ports": [_port(role) for role in observation.ports],
        "neighbors": [row for link in links for row in _neighbors(link)],
        "missing_neighbors": [_missing(link) for link in links if link.missing],
        "accelerator": _accelerator(observation),
        "problems": [_problem(problem) for problem in problems],
    }


def links_of(outcome: Seen[tuple[Link, ...]] | Absent | Failed) -> tuple[Link, ...]:
    """What a source of neighbours saw."""
    return outcome.value if isinstance(outcome, Seen) else ()


def speed_gbps(observation: Observation) -> float | None:
    """The sum of what the backend ports count, in Gb/s; None where the RDMA class could not be read."""
    if isinstance(observation.rdma, Failed):
        return None
    return float(sum(role.counted_gbps or 0 for role in observation.ports if role.backend))


def hints(observation: Observation, unmatched: Iterable[str] = ()) -> list[Problem]:
    """What looks odd without being an error; `unmatched` are the flags whose glob names no device."""
    roles = observation.ports
    return [
        *(Problem("rdma", flag, None, "names no RDMA device here") for flag in unmatched),
        *_several_kinds(roles),
        *(_suspect(role) for role in roles if is_suspect(role)),
        *_accelerator_hints(observation),
    ]


def _accelerator_hints(observation: Observation) -> list[Problem]:
    """Why there is no NVLink domain where there should be one, and which GPUs are not well."""
    found = verdict(observation.nvml)
    gpus = observation.nvml.value if isinstance(observation.nvml, Seen) else ()
    ill = [
        Problem("nvml", gpu.pci or f"GPU {gpu.index}", None, ", ".join(health_faults(gpu)))
        for gpu in gpus
        if health_faults(gpu)
    ]
    if isinstance(observation.nvml, Seen) and found.text and found.reason != "unsupported":
        return [Problem("nvml", "accelerator", None, f"{found.reason}: {found.text}"), *ill]
    return ill


def is_suspect(role: PortRole) -> bool:
    """An ACTIVE InfiniBand port of a modern HCA that claims SDR: the kernel prints a speed so that it does not know."""
    port, number = role.port, _HCA_NUMBER.match(role.device.hca_type or "")
    modern = role.device.driver == "mlx5_core" or (
        number is not None and int(number[1]) >= FIRST_MLX5
    )
    slow = (port.rate_text or "").endswith(" SDR)")
    return (
        role.backend
        and port.link_layer == "InfiniBand"
        and port.state == "ACTIVE"
        and slow
        and modern
    )


def _suspect(role: PortRole) -> Problem:
    text = f"ACTIVE at {role.port.rate_text}: this HCA is faster; the kernel may not know its speed, or the cable is bad"
    return Problem("rdma", role.interface, None, text)


def _several_kinds(roles: Sequence[PortRole]) -> list[Problem]:
    """InfiniBand HCAs of several kinds all count: say so, for some may be there for storage."""
    boards = {role.device.name: role.device.board_id or "?" for role in roles if role.backend}
    if len(set(boards.values())) < 2 or not any(
        role.backend and role.port.link_layer == "InfiniBand" for role in roles
    ):
        return []
    kinds = ", ".join(
        f"{count} x {board}" for board, count in Counter(boards.values()).most_common()
    )
    return [
        Problem("rdma", "backend", None, f"{kinds}: exclude the storage ones with --exclude-device")
    ]


def _port(role: PortRole) -> dict[str, Any]:
    device, port, netdev = role.device, role.port, role.leg or role.port.netdev
    return {
        "interface": role.interface,
        "device": device.name,
        "port": port.number,
        "leg": role.leg.name if role.leg else None,
        "pci": device.pci,
        "netdev": netdev.name if netdev else None,
        "link_layer": port.link_layer,
        "state": port.state,
        "phys_state": port.phys_state,
        "rate_gbps": port.rate_gbps,
        "rate_text": port.rate_text,
        "counted_gbps": role.counted_gbps,
        "role": "backend" if role.backend else "ignored",
        "reason": role.reason,
        "node_guid": device.node_guid,
        "port_guid": port.port_guid,
        "sys_image_guid": device.sys_image_guid,
        "hca_type": device.hca_type,
        "board_id": device.board_id,
        "fw_ver": device.fw_ver,
        "numa_node": device.numa_node,
        "link_downed": port.link_downed,
    }


def _neighbors(link: Link) -> Iterable[dict[str, Any]]:
    """A row for each neighbour of a port, the selected one first."""
    for number, neighbor in enumerate(link.neighbors):
        yield {
            "interface": link.interface,
            "via": "smp" if isinstance(neighbor.facts, IbNeighbor) else "lldp",
            "netdev": link.netdev,
            "device": neighbor.device,
            "port_id": neighbor.port_id,
            "port_name": neighbor.port_name,
            "selected": number == 0,
            "ambiguous": len(link.neighbors) > 1,
            **_told(neighbor.facts),
            "age_s": neighbor.age,
        }


def _told(told: LldpNeighbor | IbNeighbor) -> dict[str, Any]:
    """What the neighbour said itself, unaltered; null where its protocol has no such thing."""
    return {name: getattr(told, name, None) for name in TOLD}


def _missing(link: Link) -> dict[str, Any]:
    return {"interface": link.interface, "reason": link.missing}


def _accelerator(observation: Observation) -> dict[str, Any]:
    found = verdict(observation.nvml)
    gpus = observation.nvml.value if isinstance(observation.nvml, Seen) else ()
    return {
        "value": found.value,
        "reason": found.reason,
        "text": found.text,
        "gpus": [_gpu(gpu) for gpu in gpus],
    }


def _gpu(gpu: Gpu) -> dict[str, Any]:
    return {
        "uuid": gpu.uuid,
        "cluster_uuid": gpu.cluster_uuid,
        "clique_id": gpu.clique_id,
        "state": gpu.state,
        "status": gpu.status,
        "health": {**dict(gpu.health), "summary": gpu.health_summary}
        if gpu.health_mask is not None
        else None,
    }


def _problem(problem: Problem) -> dict[str, Any]:
    return {
        "source": problem.source,
        "subject": problem.subject,
        "error": problem.error,
        "text": problem.text,
    }

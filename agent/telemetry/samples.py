"""What an observation says in numbers: the samples behind the metrics of agent/telemetry/metrics.py.

A sample is the values of its metric's labels, in order, and a number; None is unknown, and not exposed.

An enumeration is a sample for each of its words, 1 for the one that holds and 0 for the others. Why a port has no
neighbour is one sample with its word instead: a fleet that stores a zero for each of 15 words and 16 ports of every
node pays for it.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from agent.model import AcceleratorReason, Failed, IbNeighbor, Seen
from agent.nvml import domain as accelerator
from agent.output import document as report
from agent.sources import table as sources

if TYPE_CHECKING:
    from collections.abc import Iterable

    from agent.model import Gpu, Link, Neighbor, Observation, PortRole
    from agent.telemetry.exposition import Sample

SOURCES = sources.NAMES
PROBLEMS = (*SOURCES, "host", "labels")
PORT_STATES = (
    "DOWN",
    "INIT",
    "ARMED",
    "ACTIVE",
    "ACTIVE_DEFER",
)  # IBTA vol. 1, 14.2.5.6, PortState
FABRIC_STATES = ("not-supported", "not-started", "in-progress", "completed")
MISSING = (
    *(
        "link-down",
        "silent",
        "expired",
        "shutdown",
        "blocked-by-firmware",
        "not-permitted",
        "not-listened",
    ),
    *(
        "no-netdev",
        "no-answer",
        "no-umad",
        "refused",
        "send-failed",
        "malformed",
        "not-recorded",
        "unavailable",
    ),
)
OTHER = "other"  # a word that stands in no list
MAX_NEIGHBORS = 32  # of one port
GIGABIT = 1e9 / 8  # in bytes, which is Prometheus' base unit


def backend(seen: Observation) -> list[PortRole]:
    """The ports that count."""
    return [role for role in seen.ports if role.backend]


def links(seen: Observation) -> tuple[Link, ...]:
    """The far ends of those ports."""
    return (*report.links_of(seen.lldp), *report.links_of(seen.ib))


def success(seen: Observation, source: str) -> bool | None:
    """Whether the source could look; None where it is switched off."""
    return None if source in seen.off else not isinstance(getattr(seen, source), Failed)


def last_frame_at(seen: Observation, link: Link) -> float | None:
    """When a neighbour of that port last spoke, in seconds since the epoch."""
    return max((seen.time - (neighbor.age or 0) for neighbor in link.neighbors), default=None)


def ports(seen: Observation) -> Iterable[Sample]:
    """By their part in the backend network."""
    roles = Counter(role.backend for role in seen.ports)
    return [(("backend",), roles[True]), (("ignored",), roles[False])]


def port_info(seen: Observation) -> Iterable[Sample]:
    """What the port is; a bond's legs have their own netdevs."""
    for role in backend(seen):
        device, netdev = role.device, role.leg or role.port.netdev
        place = (
            role.interface,
            device.name,
            str(role.port.number),
            device.pci,
            netdev.name if netdev else None,
        )
        yield (*place, role.port.link_layer, device.hca_type, device.board_id, device.fw_ver), 1


def port_state(seen: Observation) -> Iterable[Sample]:
    """The logical state, as `ports/N/state` names it."""
    for role in backend(seen):
        yield from _one_of(PORT_STATES, role.port.state, role.interface)


def port_rate(seen: Observation) -> Iterable[Sample]:
    """What `ports/N/rate` says, which a port that is down has, too."""
    return [((role.interface,), _bytes(role.port.rate_gbps)) for role in backend(seen)]


def port_counted(seen: Observation) -> Iterable[Sample]:
    """Zero unless it is in use; unknown where its state is."""
    return [((role.interface,), _bytes(role.counted_gbps)) for role in backend(seen)]


def port_link_downed(seen: Observation) -> Iterable[Sample]:
    """`counters/link_downed`, which starts again when the driver does."""
    return [((role.interface,), role.port.link_downed) for role in backend(seen)]


def speed(seen: Observation) -> Iterable[Sample]:
    """The sum of what is counted; unknown where the RDMA class is."""
    return [((), _bytes(report.speed_gbps(seen)))]


def suspect_rates(seen: Observation) -> Iterable[Sample]:
    """How many ports claim a rate that the kernel may only have made up."""
    return [((), sum(map(report.is_suspect, seen.ports)))]


def neighbors(seen: Observation) -> Iterable[Sample]:
    """How many there are on each port."""
    return [((link.interface,), len(link.neighbors)) for link in links(seen)]


def neighbor_info(seen: Observation) -> Iterable[Sample]:
    """Their names; the selected one is the one that labels are made of."""
    for link in links(seen):
        for rank, neighbor in enumerate(link.neighbors[:MAX_NEIGHBORS]):
            yield (link.interface, *_neighbor(neighbor), "false" if rank else "true"), 1


def neighbor_missing(seen: Observation) -> Iterable[Sample]:
    """The word why there is none, and whether that holds or removes labels is in the documents."""
    for link in links(seen):
        if link.missing:
            yield (link.interface, link.missing if link.missing in MISSING else OTHER), 1


def accelerator_info(seen: Observation) -> Iterable[Sample]:
    """The value of the label, where there is one."""
    value = accelerator.verdict(seen.nvml).value
    return [((value,), 1)] if value else []


def accelerator_missing(seen: Observation) -> Iterable[Sample]:
    """The reason why there is none; all zero where there is one."""
    if "nvml" in seen.off:
        return []
    reason = accelerator.verdict(seen.nvml).reason
    return [((one.value,), one is reason) for one in AcceleratorReason]


def gpus(seen: Observation) -> Iterable[Sample]:
    """How many are in each state of nvmlGpuFabricInfo."""
    states = Counter(gpu.state if gpu.state in FABRIC_STATES else OTHER for gpu in _gpus(seen))
    return [((state,), states[state]) for state in (*FABRIC_STATES, OTHER)]


def gpus_unhealthy(seen: Observation) -> Iterable[Sample]:
    """How many report a fault of their fabric; that takes no label away."""
    return [((), sum(bool(accelerator.health_faults(gpu)) for gpu in _gpus(seen)))]


def source_success(seen: Observation) -> Iterable[Sample]:
    """Seen and absent are success: the source knows."""
    return [((source,), success(seen, source)) for source in SOURCES]


def source_problems(seen: Observation) -> Iterable[Sample]:
    """Single reads that failed or made no sense."""
    found = Counter(problem.source for problem in seen.problems)
    return [((source,), found[source]) for source in PROBLEMS]


def _one_of(words: tuple[str, ...], word: str | None, interface: str) -> Iterable[Sample]:
    """An enumeration; what is unknown, and what it does not know, is "other"."""
    holds = word if word in words else OTHER
    return [((interface, one), one == holds) for one in (*words, OTHER)]


def _neighbor(neighbor: Neighbor) -> tuple[str | None, ...]:
    told = neighbor.facts
    if isinstance(told, IbNeighbor):
        return "smp", neighbor.device, neighbor.port_id, neighbor.port_name, told.node_guid
    return "lldp", neighbor.device, neighbor.port_id, neighbor.port_name, told.chassis_id


def _gpus(seen: Observation) -> tuple[Gpu, ...]:
    return seen.nvml.value if isinstance(seen.nvml, Seen) else ()


def _bytes(gigabits: float | None) -> float | None:
    return None if gigabits is None else gigabits * GIGABIT

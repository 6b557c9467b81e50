"""The samples of the metrics that are computed from one observation.

A sample is the label values in the order of agent/telemetry/families.py and a number; a number of
None is unknown and not exposed.

An enumeration has one sample per word: 1 for the word that applies, 0 for the others. The reason
for a missing neighbor is one sample instead, since a zero for each of 15 reasons on 16 ports of
every node would fill a fleet's storage.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from agent.metric import OTHER, single
from agent.model import Failed, IbNeighbor, Link, Seen
from agent.output import document
from agent.output.absent import ABSENT, absent_ports
from agent.reasons import NeighborReason
from agent.sources import NAMES

if TYPE_CHECKING:
    from collections.abc import Iterable

    from agent.metric import Sample
    from agent.model import Neighbor, Observation, PortRole

PROBLEM_SOURCES = (*NAMES, "host", "labels")
# IBTA vol. 1, 14.2.5.6, PortInfo.PortState, by the names of drivers/infiniband/core/sysfs.c.
PORT_STATES = ("DOWN", "INIT", "ARMED", "ACTIVE", "ACTIVE_DEFER")
# IBTA vol. 1, 14.2.5.6, PortInfo.PortPhysicalState, by the names of ib_port_phys_state_to_str().
PHYSICAL_STATES = (
    *("Sleep", "Polling", "Disabled", "PortConfigurationTraining", "LinkUp"),
    *("LinkErrorRecovery", "Phy Test"),
)
# Reasons within this node, a privilege or a library for instance; no far end was asked.
UNABLE = {NeighborReason.NOT_PERMITTED, NeighborReason.NO_UMAD, NeighborReason.UNAVAILABLE}
MAX_NEIGHBORS = 32  # series of one port
BYTES_PER_GIGABIT = 1e9 / 8  # Prometheus' base unit is the byte


def success(seen: Observation, source: str) -> bool | None:
    """Return False for a source that failed; None for one that is switched off.

    A neighbor source has also failed if each port with a link lacks what this node gives it.
    """
    if not seen.is_asked(source):
        return None
    outcome = getattr(seen, source)
    return not isinstance(outcome, Failed) and not _reaches_no_port(outcome)


def last_frame_at(seen: Observation, link: Link) -> float | None:
    """Return the time of the last frame or SMP answer on that port, in seconds since the epoch."""
    return max((seen.time - (neighbor.age or 0) for neighbor in link.neighbors), default=None)


def ports(seen: Observation) -> Iterable[Sample]:
    """Count the ports by role."""
    roles = Counter(role.backend for role in seen.ports)
    return [(("backend",), roles[True]), (("ignored",), roles[False])]


def ports_lost(seen: Observation) -> Iterable[Sample]:
    """Count the labeled ports that left the bus; None before the Node was read."""
    return single(None if seen.lost is None else len(seen.lost))


def port_info(seen: Observation) -> Iterable[Sample]:
    """Return the identity of each backend port; each leg of a bond has its own netdev."""
    yield from ((_identity(role), 1) for role in seen.backend)
    for one in absent_ports(seen):
        yield (one.interface, None, None, one.pci, *[None] * 5), 1


def port_state(seen: Observation) -> Iterable[Sample]:
    """Return the logical state of each port, `ports/N/state`; an unknown one is "other".

    A labeled port without an RDMA device is "absent".
    """
    states = {role.interface: role.port.state for role in seen.backend}
    states |= {one.interface: ABSENT for one in absent_ports(seen)}
    return _enumeration(states.items(), (*PORT_STATES, ABSENT))


def port_physical_state(seen: Observation) -> Iterable[Sample]:
    """Return the physical state of each port, `ports/N/phys_state`; an unknown one is "other"."""
    states = [(role.interface, role.port.phys_state) for role in seen.backend]
    return _enumeration(states, PHYSICAL_STATES)


def port_rate(seen: Observation) -> Iterable[Sample]:
    """Return the rate of each port, `ports/N/rate`; a port that is down has one too."""
    return [((role.interface,), _bytes(role.port.rate_gbps)) for role in seen.backend]


def port_counted(seen: Observation) -> Iterable[Sample]:
    """Return the part of speed.current of each port: 0 unless ACTIVE, None in an unknown state."""
    yield from (((role.interface,), _bytes(role.counted_gbps)) for role in seen.backend)
    yield from (((one.interface,), _bytes(one.counted_gbps)) for one in absent_ports(seen))


def port_link_downed(seen: Observation) -> Iterable[Sample]:
    """Return `counters/link_downed`, which starts at 0 with the driver."""
    return [((role.interface,), role.port.link_downed) for role in seen.backend]


def speed(seen: Observation) -> Iterable[Sample]:
    """Return the sum of the counted rates; None if the RDMA class was not asked or not read."""
    return single(_bytes(document.speed_gbps(seen)) if seen.is_asked("rdma") else None)


def suspect_rates(seen: Observation) -> Iterable[Sample]:
    """Count the ports whose rate may be the kernel's default for an unknown speed."""
    return single(sum(map(document.is_suspect, seen.ports)))


def neighbors(seen: Observation) -> Iterable[Sample]:
    """Count the neighbors of each port."""
    return [((link.interface,), len(link.neighbors)) for link in document.links_of(seen)]


def neighbor_info(seen: Observation) -> Iterable[Sample]:
    """Return the names of each neighbor; labels are rendered from the selected one."""
    for link in document.links_of(seen):
        for rank, neighbor in enumerate(link.neighbors[:MAX_NEIGHBORS]):
            yield (link.interface, *_neighbor(neighbor), "false" if rank else "true"), 1


def neighbor_missing(seen: Observation) -> Iterable[Sample]:
    """Return the NeighborReason of each port without neighbor."""
    known = set(NeighborReason)
    for link in document.links_of(seen):
        if link.missing:
            yield (link.interface, link.missing if link.missing in known else OTHER), 1


def source_success(seen: Observation) -> Iterable[Sample]:
    """Return 1 for each source that was read, even if its subject is absent from this node."""
    return [((source,), success(seen, source)) for source in NAMES]


def source_problems(seen: Observation) -> Iterable[Sample]:
    """Count the failed reads and malformed values of each source."""
    found = Counter(problem.source for problem in seen.problems)
    return [((source,), found[source]) for source in PROBLEM_SOURCES if seen.is_asked(source)]


def _identity(role: PortRole) -> tuple[str | None, ...]:
    device, port = role.device, role.port
    netdev = role.leg or port.netdev
    return (
        role.interface,
        device.name,
        str(port.number),
        device.pci,
        netdev.name if netdev else None,
        port.link_layer,
        device.hca_type,
        device.board_id,
        device.fw_ver,
    )


def _neighbor(neighbor: Neighbor) -> tuple[str | None, ...]:
    facts = neighbor.facts
    names = (neighbor.device, neighbor.port_id, neighbor.port_name)
    if isinstance(facts, IbNeighbor):
        return ("smp", *names, facts.node_guid)
    return ("lldp", *names, facts.chassis_id)


def _enumeration(
    words: Iterable[tuple[str, str | None]], known: tuple[str, ...]
) -> Iterable[Sample]:
    """Return a sample of each word and of OTHER for each interface: 1 for its word, else 0."""
    for interface, word in words:
        shown = word if word in known else OTHER
        yield from (((interface, one), one == shown) for one in (*known, OTHER))


def _bytes(gigabits: float | None) -> float | None:
    return None if gigabits is None else gigabits * BYTES_PER_GIGABIT


def _reaches_no_port(outcome: object) -> bool:
    links = outcome.value if isinstance(outcome, Seen) else ()
    missing = {link.missing for link in links if isinstance(link, Link)}
    missing.discard(NeighborReason.LINK_DOWN)
    return bool(missing) and missing <= UNABLE

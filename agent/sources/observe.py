"""One observation of the node: each source is read once, and none can fail the others.

The RDMA source is read first; its devices decide which ports the other sources are asked for.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from agent.errors import Unavailable
from agent.model import Absent, Failed, Observation, Problem, Reading, Seen
from agent.sources import pci, rdma
from agent.sources.backend import assign
from agent.sources.table import SOURCES
from agent.sysfs.reader import Reader

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from agent.host import Host
    from agent.model import PortRole, RdmaDevice
    from agent.sources.table import Read

SWITCHED_OFF: Reading[Any] = Reading(Failed("switched off by --source"))


def observe(
    host: Host,
    sources: Collection[str] = (),
    labeled: Mapping[str, str] | None = None,
    took: dict[str, float] | None = None,
) -> Observation:
    """Read the named sources (all if none is named) and combine their readings.

    The RDMA source is always read, since the others need its ports. `labeled` maps each interface
    that has labels to the address of its PCI function. `took` is filled with the seconds that each
    source took.
    """
    boot_id, problems = _boot_id(host)
    labeled = labeled or {}
    ports: tuple[PortRole, ...] = ()
    unbound: tuple[str, ...] = ()
    outcomes: dict[str, Any] = {}
    derived: dict[str, Any] = {}
    for source in SOURCES:
        name = source.name
        wanted = not sources or name in sources or name == rdma.SOURCE
        start = time.perf_counter()
        reading = _read(name, source.read, host, ports) if wanted else SWITCHED_OFF
        if took is not None and wanted:
            took[name] = time.perf_counter() - start
        outcomes[name] = reading.outcome
        derived |= source.derived(reading.outcome)
        problems += _problems(name, reading)
        if name == rdma.SOURCE:
            unbound, more = pci.unbound(host, reading.outcome, labeled)
            problems += more
            if isinstance(reading.outcome, Seen):
                ports = _assigned(host, reading.outcome.value, unbound, labeled)
    return Observation(
        time=host.clock(),
        node=host.name,
        boot_id=boot_id,
        ports=ports,
        off=frozenset(outcomes).difference(sources) if sources else frozenset(),
        problems=tuple(problems),
        unbound=unbound,
        **outcomes,
        **derived,
    )


def _assigned(
    host: Host,
    devices: tuple[RdmaDevice, ...],
    unbound: Collection[str],
    labeled: Mapping[str, str],
) -> tuple[PortRole, ...]:
    """Assign a role to each port; `unbound` are the labeled interfaces whose device is missing."""
    unknown = any(
        device.failure or any(port.link_layer is None for port in device.ports)
        for device in devices
    )
    previous = labeled if unknown or unbound else None
    infiniband_unbound = pci.any_infiniband(host, [labeled[name] for name in unbound])
    return assign(devices, host.backend, previous, infiniband_unbound=infiniband_unbound)


def _read(name: str, read: Read, host: Host, ports: tuple[PortRole, ...]) -> Reading[Any]:
    """Read one source; any exception is a failure of that source only."""
    try:
        return read(host, ports)
    except Exception as error:  # noqa: BLE001 - a bug in one source must not remove the labels of the others
        return Reading(Failed(f"the {name} source broke: {error!r}"))


def _problems(name: str, reading: Reading[Any]) -> list[Problem]:
    """Return a source's problems, and the reason of its outcome where that is a problem.

    The absence of RDMA hardware is one; the absence of InfiniBand ports or GPUs is not, nor is a
    background query without its first answer.
    """
    if reading is SWITCHED_OFF:
        return []
    problems = list(reading.problems)
    match reading.outcome:
        case Failed(reason, pending=False):
            problems.append(Problem(name, name, None, reason))
        case Absent(reason) if name == rdma.SOURCE:
            problems.append(Problem(name, name, None, reason))
    return problems


def _boot_id(host: Host) -> tuple[str | None, list[Problem]]:
    """Read /proc/sys/kernel/random/boot_id."""
    reader = Reader(host.root, "host")
    try:
        return reader.text("proc/sys/kernel/random/boot_id"), reader.problems
    except Unavailable as error:
        return None, [Problem("host", "boot_id", "ETIMEDOUT", str(error))]

"""One look at the node: every source once, and none of them can fail the others.

The RDMA source is the first; what it saw decides which ports the others are asked about.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from agent.errors import Unavailable
from agent.model import Absent, Failed, Observation, Problem, Reading, Seen
from agent.nvml.domain import verdict
from agent.sources import ib, lldp, nvml, pci, rdma
from agent.sources.backend import assign
from agent.sysfs.reader import Reader

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

    from agent.host import Host
    from agent.model import PortRole, RdmaDevice

    Source = Callable[[Host, tuple[PortRole, ...]], Reading[Any]]

# The name of a source is that of its field in Observation.
SOURCES: tuple[tuple[str, Source], ...] = (
    ("rdma", rdma.read),
    ("lldp", lldp.read),
    ("ib", ib.read),
    ("nvml", nvml.read),
)

SWITCHED_OFF: Reading[Any] = Reading(Failed("switched off by --source"))


def observe(
    host: Host,
    sources: Collection[str] = (),
    labelled: Mapping[str, str] | None = None,
    took: dict[str, float] | None = None,
) -> Observation:
    """Run the sources (all of them, or those named) and put together what they saw.

    The RDMA source always looks, since the others need its ports. `labelled` are the interfaces that have labels, each
    with the address of its PCI function; `took` is given the seconds that each source has needed.
    """
    boot_id, problems = _boot_id(host)
    labelled = labelled or {}
    ports: tuple[PortRole, ...] = ()
    unbound: tuple[str, ...] = ()
    outcomes: dict[str, Any] = {}
    for name, read in SOURCES:
        wanted = not sources or name in sources or name == rdma.SOURCE
        start = time.perf_counter()
        reading = _look(name, read, host, ports) if wanted else SWITCHED_OFF
        if took is not None and wanted:
            took[name] = time.perf_counter() - start
        outcomes[name] = reading.outcome
        problems += _problems(name, reading)
        if name == rdma.SOURCE:
            unbound, more = pci.unbound(host, reading.outcome, labelled)
            problems += more
            if isinstance(reading.outcome, Seen):
                ports = _assigned(host, reading.outcome.value, unbound, labelled)
    return Observation(
        time=host.clock(),
        node=host.name,
        boot_id=boot_id,
        ports=ports,
        accelerator=verdict(outcomes[nvml.SOURCE]),
        off=frozenset(outcomes).difference(sources) if sources else frozenset(),
        problems=tuple(problems),
        unbound=unbound,
        **outcomes,
    )


def _assigned(
    host: Host, devices: tuple[RdmaDevice, ...], away: Collection[str], labelled: Mapping[str, str]
) -> tuple[PortRole, ...]:
    """The role of each port; `away` are those of the labelled interfaces whose devices should be there."""
    hidden = any(
        device.failure or any(port.link_layer is None for port in device.ports)
        for device in devices
    )
    before = labelled if hidden or away else None
    infiniband_away = pci.any_infiniband(host, [labelled[name] for name in away])
    return assign(devices, host.backend, before, infiniband_away=infiniband_away)


def _look(name: str, read: Source, host: Host, ports: tuple[PortRole, ...]) -> Reading[Any]:
    try:
        return read(host, ports)
    except Exception as error:  # noqa: BLE001 - a bug in one source must not take the labels of the others away
        return Reading(Failed(f"the {name} source broke: {error!r}"))


def _problems(name: str, reading: Reading[Any]) -> list[Problem]:
    """What a source stumbled over, and why it saw nothing where that is worth a word."""
    if reading is SWITCHED_OFF:
        return []
    if isinstance(reading.outcome, Failed) or (
        isinstance(reading.outcome, Absent) and name == rdma.SOURCE
    ):
        return [*reading.problems, Problem(name, name, None, reading.outcome.reason)]
    return list(reading.problems)


def _boot_id(host: Host) -> tuple[str | None, list[Problem]]:
    reader = Reader(host.root, "host")
    try:
        return reader.text("proc/sys/kernel/random/boot_id"), reader.problems
    except Unavailable as error:
        return None, [Problem("host", "boot_id", "ETIMEDOUT", str(error))]

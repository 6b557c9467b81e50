"""One observation of the node: each source is read once, and none can fail the others.

The RDMA source is read first; its devices decide which ports the other sources are asked for.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from agent.errors import Unavailable
from agent.model import Absent, Failed, Observation, Problem, Reading, Seen
from agent.reasons import SWITCHED_OFF
from agent.sources import NAMES, pci, rdma
from agent.sources.roles import assign, is_unread, undecided, with_hidden
from agent.sources.table import SOURCES
from agent.sources.vpd import VpdMemory
from agent.sysfs.reader import Reader

if TYPE_CHECKING:
    from collections.abc import Collection

    from agent.host import Host
    from agent.model import PortRole, RdmaDevice
    from agent.sources.pci import Labeled
    from agent.sources.table import Outcome, Source

    Ports = tuple[PortRole, ...]

OFF: Reading[Any] = Reading(Failed(SWITCHED_OFF))


@dataclass(slots=True)
class _Found:
    """The results of the sources read so far."""

    problems: list[Problem]
    ports: Ports = ()
    unbound: tuple[str, ...] = ()
    outcomes: dict[str, Any] = field(default_factory=dict)
    derived: dict[str, Any] = field(default_factory=dict)

    def judge_vpds(self, vpds: VpdMemory, now: float) -> None:
        """Judge the devices whose VPD cannot be read, and what depends on them."""
        outcome = self.outcomes[rdma.SOURCE]
        if isinstance(outcome, Seen):
            devices, problems = vpds.judged(outcome.value, now)
            self.outcomes[rdma.SOURCE] = Seen(with_hidden(devices))
            self.problems += problems

    def add(self, source: Source, reading: Reading[Any]) -> None:
        """Take over the outcome of a source, its problems, and what follows from it."""
        self.outcomes[source.name] = reading.outcome
        self.derived |= source.derived(reading.outcome)
        self.problems += _problems(source.name, reading)

    def add_roles(self, host: Host, labeled: Labeled) -> None:
        """Assign the port roles, once the RDMA source has been read."""
        outcome = self.outcomes[rdma.SOURCE]
        self.unbound, problems = pci.unbound(host, outcome, labeled)
        self.problems += problems
        if not isinstance(outcome, Seen):
            return
        if not labeled and not host.backend and (reason := undecided(outcome.value)):
            self.outcomes[rdma.SOURCE] = Failed(reason)
            self.problems.append(Problem(rdma.SOURCE, rdma.SOURCE, None, reason))
        else:
            self.ports = _assigned(host, outcome.value, self.unbound, labeled)


def observe(
    host: Host,
    sources: Collection[str] = (),
    labeled: Labeled | None = None,
    took: dict[str, float] | None = None,
    vpds: VpdMemory | None = None,
) -> Observation:
    """Read the named sources (all if none is named) and combine their readings.

    The RDMA source is always read, since the others need its ports. `labeled` maps each interface
    that has labels to the address of its PCI function. `took` is filled with the seconds that each
    source took. `vpds` has the VPDs of earlier observations.
    """
    took = {} if took is None else took
    boot_id, problems = _boot_id(host)
    found = _Found(problems)
    for source in SOURCES:
        is_wanted = _is_wanted(source.name, sources)
        found.add(source, _timed(source, host, found.ports, took) if is_wanted else OFF)
        if source.name == rdma.SOURCE:
            found.judge_vpds(vpds or VpdMemory(), host.clock())
            found.add_roles(host, labeled or {})
    return Observation(
        time=host.clock(),
        node=host.name,
        boot_id=boot_id,
        ports=found.ports,
        off=frozenset(NAMES).difference(sources or NAMES),
        problems=tuple(found.problems),
        unbound=found.unbound,
        **found.outcomes,
        **found.derived,
    )


def _assigned(
    host: Host, devices: tuple[RdmaDevice, ...], unbound: Collection[str], labeled: Labeled
) -> Ports:
    """Assign a role to each port; `unbound` are the labeled interfaces whose device is missing."""
    is_incomplete = bool(unbound) or any(map(is_unread, devices))
    return assign(
        devices,
        host.backend,
        previous=labeled if is_incomplete else None,
        infiniband_unbound=pci.any_infiniband(host, [labeled[name] for name in unbound]),
    )


def _is_wanted(name: str, sources: Collection[str]) -> bool:
    return not sources or name in sources or name == rdma.SOURCE


def _timed(source: Source, host: Host, ports: Ports, took: dict[str, float]) -> Reading[Any]:
    """Read one source, and put the seconds that it took into `took`."""
    start = time.perf_counter()
    reading = _read(source, host, ports)
    took[source.name] = time.perf_counter() - start
    return reading


def _read(source: Source, host: Host, ports: Ports) -> Reading[Any]:
    """Read one source; any exception is a failure of that source only."""
    try:
        return source.read(host, ports)
    except Exception as error:  # noqa: BLE001 - a bug in one source must not remove the labels of the others
        return Reading(Failed(f"the {source.name} source broke: {error!r}"))


def _problems(name: str, reading: Reading[Any]) -> list[Problem]:
    """Return a source's problems, and the reason of its outcome where that is a problem."""
    if reading is OFF:
        return []
    problems = list(reading.problems)
    if reason := _problem(name, reading.outcome):
        problems.append(Problem(name, name, None, reason))
    return problems


def _problem(name: str, outcome: Outcome) -> str | None:
    """Return the reason of an outcome that is a problem; None for any other.

    The absence of RDMA hardware is one; the absence of InfiniBand ports or GPUs is not, nor is a
    background query without its first answer.
    """
    match outcome:
        case Failed(reason, pending=False):
            return reason
        case Absent(reason) if name == rdma.SOURCE:
            return reason
    return None


def _boot_id(host: Host) -> tuple[str | None, list[Problem]]:
    """Read /proc/sys/kernel/random/boot_id."""
    reader = Reader(host.root, "host")
    try:
        return reader.text("proc/sys/kernel/random/boot_id"), reader.problems
    except Unavailable as error:
        return None, [Problem("host", "boot_id", "ETIMEDOUT", str(error))]

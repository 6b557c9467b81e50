"""One observation of the node: each source is read once, and none can fail the others.

The RDMA source is read first; the roles of its ports decide what the other sources are asked for.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection
from functools import partial
from typing import Any

from agent.errors import Unavailable
from agent.host import Host
from agent.model import Absent, Failed, Observation, PortRole, Problem, RdmaDevice, Reading, Seen
from agent.nvml import domain
from agent.reasons import SWITCHED_OFF
from agent.sources import NAMES, ib, pci
from agent.sources.evidence import Labeled, RoleEvidence
from agent.sources.memories import Memories
from agent.sources.roles import Decision, decide
from agent.sources.table import SOURCES, SourceOutcome
from agent.sysfs.reader import Reader, Root

Ports = tuple[PortRole, ...]

RDMA, *OTHERS = SOURCES


def observe(
    host: Host,
    sources: Collection[str] = (),
    labeled: Labeled | None = None,
    took: dict[str, float] | None = None,
    memories: Memories | None = None,
) -> Observation:
    """Read the named sources (all if none is named) and combine their readings.

    The RDMA source is always read, since the others need its ports. `labeled` maps each interface
    that has labels to the address of its PCI function. `took` is filled with the seconds that each
    source took. `memories` are those of the observations before; None: it stands alone.
    """
    took = {} if took is None else took
    labeled, memories = labeled or {}, memories or Memories()
    boot_id, problems = read_boot_id(host.root)
    devices: tuple[RdmaDevice, ...] = ()
    rdma = _read(RDMA.name, lambda: RDMA.read(host, (), memories), took, problems)
    if isinstance(rdma, Seen):
        devices = rdma.value
    ports: Ports = ()
    decision = Decision(())
    if devices:
        unbound = pci.unbound(host, devices, labeled, memories)
        evidence = RoleEvidence(
            devices,
            memories.bus.bus,
            memories.node.front_end,
            labeled,
            memories.node.excluded,
            unbound,
            memories.node.ambiguous,
        )
        decision = decide(evidence, host.backend, memories.roles)
        ports = decision.roles
        unbound |= pci.unbound_alike(host, ports, devices, memories)
        for address in sorted(unbound - {*labeled.values()}):
            text = "a NIC without RDMA device: has it failed, is its driver loaded?"
            problems.append(Problem(RDMA.name, address, None, text))
        if undecided := decision.undecided:
            ports, rdma = (), Failed(undecided, hold=decision.hold)
            problems.append(Problem(RDMA.name, RDMA.name, None, undecided))

    outcomes: dict[str, Any] = {RDMA.name: rdma}
    for source in OTHERS:
        outcome: SourceOutcome = Failed(SWITCHED_OFF)
        if not sources or source.name in sources:
            read = partial(source.read, host, ports, memories)
            outcome = _read(source.name, read, took, problems)
        outcomes[source.name] = outcome
    if host.explore and (not sources or ib.SOURCE in sources):
        from agent.sources import tiers

        read = partial(tiers.read, host, ports, outcomes[ib.SOURCE])
        outcomes[tiers.SOURCE] = _read(tiers.SOURCE, read, took, problems)
    if host.ask_perf and (not sources or ib.SOURCE in sources):
        from agent.sources import counters

        read = partial(counters.read, host, ports, outcomes[ib.SOURCE])
        outcomes["link_errors"] = _read(counters.SOURCE, read, {}, problems)
    if host.ask_nics and ports:
        from agent.sources import nics

        read = partial(nics.read, host, ports)
        outcomes[nics.SOURCE] = _read(nics.SOURCE, read, took, problems)
    return Observation(
        time=host.clock(),
        node=host.name,
        boot_id=boot_id,
        ports=ports,
        off=frozenset(NAMES).difference(sources or NAMES),
        problems=tuple(problems),
        unread=decision.unread,
        hints=decision.hints,
        accelerator=domain.domain_of(outcomes["nvml"]),
        **outcomes,
    )


def read_boot_id(root: Root) -> tuple[str | None, list[Problem]]:
    """Read the ID that the kernel has made at boot; None with the problem if that fails."""
    reader, boot_id = Reader(root, "host"), None
    try:
        boot_id = reader.text("proc/sys/kernel/random/boot_id")
    except Unavailable as error:
        reader.problems.append(Problem("host", "boot_id", "ETIMEDOUT", str(error)))
    return boot_id, reader.problems


def _read(
    name: str,
    read: Callable[[], Reading[Any]],
    took: dict[str, float],
    problems: list[Problem],
) -> SourceOutcome:
    """Read one source and return its outcome; any exception is a failure of that source only.

    Adds its seconds to `took` and its problems to `problems`; with them the reason of an outcome
    that is a problem. The absence of RDMA hardware is one; the absence of InfiniBand ports or GPUs
    is not, nor is a background query without its first answer.
    """
    start = time.perf_counter()
    try:
        reading = read()
    except Exception as error:  # noqa: BLE001 - a bug in one source must not remove the labels of the others
        reading = Reading(Failed(f"the {name} source broke: {error!r}"))
    took[name] = time.perf_counter() - start
    problems += reading.problems
    match reading.outcome:
        case Failed(reason, pending=False):
            problems.append(Problem(name, name, None, reason))
        case Absent(reason) if name == RDMA.name:
            problems.append(Problem(name, name, None, reason))
    return reading.outcome

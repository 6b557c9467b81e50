"""One observation of the node: each source is read once, and none can fail the others.

The RDMA source is read first; the roles of its ports decide what the other sources are asked for.
SOURCES is the table over which observation and hints iterate; what is asked about the links of the
InfiniBand source, and about NICs, follows it. CONTRIBUTING.md has what a new source adds elsewhere.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from agent.errors import Malformed, Pending, Unavailable
from agent.host import Host
from agent.infiniband.devices import smi_hints
from agent.infiniband.switch_names import SwitchNames
from agent.lldp import firmware
from agent.model import (
    Absent,
    Failed,
    Observation,
    PortRole,
    Problem,
    RdmaDevice,
    Reading,
    Seen,
    backend_functions,
    ethernet_netdevs,
)
from agent.nvml import domain
from agent.reasons import SWITCHED_OFF
from agent.sources import NAMES, ib, lldp, nvml, pci, rdma
from agent.sources.interfaces import Labeled, RoleEvidence
from agent.sources.roles import Decision, decide
from agent.sysfs.bus import BusMemory
from agent.sysfs.front_end import NOT_RECORDED
from agent.sysfs.reader import Reader, Root
from agent.sysfs.worker import DeviceReaders

if TYPE_CHECKING:  # an observation that stands alone, or without NICs, does not load them
    from agent.infiniband.fabric_memory import FabricMemory
    from agent.nic.driver import Nics
    from agent.sources.steady import RoleMemory

Ports = tuple[PortRole, ...]
SourceOutcome = Seen[Any] | Absent | Failed

NICS = "nics"  # the field of Observation, and the source of problems


class Memories:
    """What one agent remembers from one observation to the next.

    An observation that stands alone begins with empty ones.
    """

    def __init__(
        self,
        readers: DeviceReaders | None = None,
        *,
        roles: RoleMemory | None = None,
        wall: Callable[[], float] = time.time,
    ) -> None:
        self.readers = readers or DeviceReaders()  # the facts of the RDMA devices
        # those that read the place in the subnet of ports that ask the subnet administrator
        self.subnet_readers = self.readers.fresh()
        self.bus = BusMemory()  # the PCI functions
        self.front_end = NOT_RECORDED  # as it was read last
        self.is_guest: bool | None = None  # it stays so once it is read; None: unknown
        self.ambiguous: frozenset[str] = frozenset()  # link layers (front_end.ambiguous_layers)
        # PCI functions by what --exclude-device named; they stay so while they are on the bus
        self.excluded: frozenset[str] = frozenset()
        self.switch_names = SwitchNames()  # by earlier answers to SMPs
        self.roles = roles  # None: each observation decides by itself
        self.fabric: FabricMemory | None = None  # the switches above; None: --tiers is off
        self.wall = wall  # seconds since the epoch
        # about them, by outcome (agent/infiniband/exploration.py)
        self.sa_questions = Counter[str]()


class Source(NamedTuple):
    """One row: a data source and the parts of the agent that are particular to it."""

    name: str  # its field of Observation, and its value of --source
    # Reads a Host; it has the port roles (none yet for the first row). Never raises.
    read: Callable[[Host, Ports, Memories], Reading[Any]]
    link_layer: str | None = None  # link layer of the ports whose neighbors it reads
    # Returns what an operator should look at.
    hints: Callable[[Observation], Iterable[Problem]] = lambda _observation: ()


# The first row reads the RDMA devices, which give the others their ports.
RDMA, *OTHERS = SOURCES = (
    Source("rdma", rdma.read),
    Source("lldp", lldp.read, link_layer="Ethernet", hints=firmware.hints),
    Source("ib", ib.read, link_layer="InfiniBand", hints=smi_hints),
    Source("nvml", nvml.read, hints=domain.hints),
)
# (name, link layer) of the sources of neighbors
NEIGHBOR_SOURCES = tuple(
    (source.name, source.link_layer) for source in SOURCES if source.link_layer
)


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
    labeled, memories = labeled or {}, memories or Memories(host.device_readers())
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
            memories.front_end,
            labeled,
            memories.excluded,
            unbound,
            memories.ambiguous,
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
    is_ib_asked = not sources or ib.SOURCE in sources
    if host.explore and is_ib_asked:
        read = partial(ib.explore, host, ports, memories, outcomes[ib.SOURCE])
        outcomes[ib.TIERS] = _read(ib.TIERS, read, took, problems)
    if host.ask_perf and is_ib_asked:
        from agent.sources import counters

        read = partial(counters.read, host, ports, outcomes[ib.SOURCE])
        outcomes["link_errors"] = _read(counters.SOURCE, read, {}, problems)
    if host.ask_nics and ports:
        outcomes[NICS] = _read(NICS, partial(read_nics, host, ports), took, problems)
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


def read_nics(host: Host, ports: Ports) -> Reading[Nics]:
    """Ask what the drivers of the backend NICs know, all in one question.

    It is link states, health reporters and firmware; most drivers tell a part of these.
    """
    from agent.nic.driver import Nics, decode

    functions = backend_functions(ports)
    netdevs = ethernet_netdevs(role for role in ports if role.backend)
    if host.ask_nics is None or not functions:
        return Reading(Absent("no backend port is on a PCI function"))
    try:
        nics, faults = decode(host.ask_nics(netdevs))
    except (Malformed, Unavailable) as error:
        return Reading(Failed(str(error), isinstance(error, Pending)))
    ours = Nics(
        {name: state for name, state in nics.links.items() if name in netdevs},
        {pci: health for pci, health in nics.health.items() if pci in functions},
    )
    return Reading(Seen(ours), tuple(Problem(NICS, part, None, text) for part, text in faults))


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

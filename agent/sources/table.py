"""The table of data sources.

Observation, polling, snapshots, anonymization, hints and checks iterate over SOURCES.
CONTRIBUTING.md has what a new source adds elsewhere.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, Self

from agent.check import Check, Surroundings
from agent.host import Host
from agent.infiniband import checks as ib_checks
from agent.infiniband import counter_poller, tier_poller
from agent.infiniband import poller as ib_poller
from agent.infiniband import snapshot as ib_snapshot
from agent.lldp import reception
from agent.lldp import snapshot as lldp_snapshot
from agent.model import Absent, Failed, Observation, PortRole, Problem, Reading, Seen
from agent.nvml import domain
from agent.nvml import poller as nvml_poller
from agent.nvml import snapshot as nvml_snapshot
from agent.sources import ib, lldp, nvml, rdma
from agent.sources.memories import Memories
from agent.sysfs import route_snapshot

if TYPE_CHECKING:  # these import the table
    from agent.daemon.background import BackgroundTask, Poller
    from agent.snapshot.anonymize import Names
    from agent.snapshot.tree import SnapshotFiles

SourceOutcome = Seen[Any] | Absent | Failed
Options = Mapping[str, Any]  # of the command line, by name
HostFields = dict[str, Any]


class Recording(Protocol):
    """The results of one source's I/O: recorded from a Host, or loaded from a snapshot."""

    def replayed(self) -> dict[str, Any]:
        """Return the fields of a Host that replay the results."""

    def newest(self) -> float | None:
        """Return the time of the newest result in seconds since the epoch, if it has one."""

    def anonymized(self, names: Names) -> Self:
        """Return the recording with replaced names."""

    def facts(self) -> dict[str, Any]:
        """Return its entries of host.json."""

    def files(self) -> dict[str, bytes | None]:
        """Return its files in a snapshot by path; None is a folder."""


class SnapshotPart(NamedTuple):
    """Functions that make the Recording of one source."""

    # Returns an empty Recording, and the fields of a Host that query this host and fill it.
    record: Callable[[Host], tuple[Recording, HostFields]]
    # Loads it from the files and host.json; raises Malformed.
    load: Callable[[SnapshotFiles, Mapping[str, Any]], Recording]


class Source(NamedTuple):
    """One row: a data source and the parts of the agent that are particular to it."""

    name: str  # its field of Observation, and its value of --source
    # Reads a Host; it has the port roles (none yet for the first row). Never raises.
    read: Callable[[Host, tuple[PortRole, ...], Memories], Reading[Any]]
    # Returns what is there and what is missing, for `bwagent doctor`.
    checks: Callable[[Surroundings], Iterable[Check]]
    link_layer: str | None = None  # link layer of the ports whose neighbors it reads
    snapshot: SnapshotPart | None = None  # None: it reads files only
    # Each makes a poller of the daemon, and the fields of a Host that read its cache, from a Host
    # that queries, the memories of the observations, the command line options by name, and a
    # background task; or None, where a flag is off. (): reads are cheap.
    pollers: tuple[
        Callable[[Host, Memories, Options, BackgroundTask[Any]], tuple[Poller, HostFields] | None],
        ...,
    ] = ()
    # Returns what an operator should look at.
    hints: Callable[[Observation], Iterable[Problem]] = lambda _observation: ()


# The first row reads the RDMA devices, which give the others their ports.
SOURCES = (
    Source(
        "rdma",
        rdma.read,
        rdma.checks,
        snapshot=SnapshotPart(route_snapshot.record, route_snapshot.load),
    ),
    Source(
        "lldp",
        lldp.read,
        reception.checks,
        link_layer="Ethernet",
        snapshot=SnapshotPart(lldp_snapshot.record, lldp_snapshot.load),
        hints=reception.hints,
    ),
    Source(
        "ib",
        ib.read,
        ib_checks.checks,
        link_layer="InfiniBand",
        snapshot=SnapshotPart(ib_snapshot.record, ib_snapshot.load),
        hints=ib_checks.hints,
        pollers=(ib_poller.make, ib_poller.make_sa, tier_poller.make, counter_poller.make),
    ),
    Source(
        "nvml",
        nvml.read,
        domain.checks,
        snapshot=SnapshotPart(nvml_snapshot.record, nvml_snapshot.load),
        pollers=(nvml_poller.make,),
        hints=domain.hints,
    ),
)
# (name, link layer) of the sources of neighbors
NEIGHBOR_SOURCES = tuple(
    (source.name, source.link_layer) for source in SOURCES if source.link_layer
)

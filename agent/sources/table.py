"""The table of data sources.

A new source adds its name to agent/sources/__init__.py, its row here, its field to Observation
(agent/model.py), its rows to LABELS (agent/labels/table.py) and, for a new kind of I/O, one field
to Host (agent/host.py). Everything else iterates over SOURCES: observation, queries, polling,
snapshots, anonymization, holds, metrics, hints.

A row imports the modules that an observation or a replay needs; other parts are imported when they
are called, since every start pays for imports.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from agent.infiniband import snapshot as smp_snapshot
from agent.lldp import snapshot as lldp_snapshot
from agent.nvml import domain
from agent.nvml import hints as nvml_hints
from agent.nvml import queries as nvml_queries
from agent.nvml import snapshot as nvml_snapshot
from agent.sources import ib, lldp, nvml, rdma

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from typing import Self

    from agent.check import Check, Surroundings
    from agent.daemon.background import BackgroundTask
    from agent.daemon.pollers import Poller
    from agent.helper.forkserver import ForkServer
    from agent.host import Host
    from agent.metric import Metric
    from agent.model import Absent, Failed, Observation, PortRole, Problem, Reading, Seen
    from agent.snapshot.files import SnapshotFiles
    from agent.snapshot.names import Names

    Read = Callable[[Host, tuple[PortRole, ...]], Reading[Any]]
    Outcome = Seen[Any] | Absent | Failed
    Call = Callable[[str, dict[str, Any], float], dict[str, Any]]  # verb, payload, timeout
    StartServer = Callable[[str, float], ForkServer]  # verb, timeout
    Options = Mapping[str, Any]  # of the command line, by name
    HostFields = dict[str, Any]
    MadePoller = tuple[Poller, HostFields]
    MakeChecks = Callable[[Surroundings], Iterable[Check]]
    MakePoller = Callable[[Host, Options, BackgroundTask[Any]], MadePoller]


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


class Queries(NamedTuple):
    """Functions that make the fields of a live Host for the queries of one source.

    Each takes the command line options by name.
    """

    # One helper process for each query, by agent.helper.process.call.
    by_helper: Callable[[Call, Options], HostFields]
    # A fork server for all queries of a daemon, from its verb and timeout.
    by_fork_server: Callable[[StartServer, Options], HostFields]


class Source(NamedTuple):
    """One row: a data source and the parts of the agent that are particular to it."""

    name: str  # its field of Observation, and its value of --source
    read: Read  # reads a Host and the port roles (none yet for the first row); never raises
    link_layer: str | None = None  # link layer of the ports whose neighbors it reads
    snapshot: SnapshotPart | None = None  # None: it reads files only
    # Returns further fields of Observation that follow from the outcome.
    derived: Callable[[Outcome], dict[str, Any]] = lambda _outcome: {}
    metrics: Callable[[], tuple[Metric[Observation], ...]] = tuple  # rows of its own
    # Makes the daemon's poller, and the fields of a Host that read its cache, from a Host that
    # queries, the command line options by name, and a background task. None: reads are cheap.
    poller: MakePoller | None = None
    queries: Queries | None = None  # None: agent/live_host.py has its I/O, if any
    # Returns what an operator should look at.
    hints: Callable[[Observation], Iterable[Problem]] = lambda _observation: ()
    # Returns the labels of other agents on the Node that disagree with the observation.
    conflicts: Callable[[Observation, Mapping[str, str]], Iterable[Problem]] = (
        lambda _observation, _labels: ()
    )
    # Returns what is there and what is missing, for `bwagent doctor`.
    checks: MakeChecks = lambda _surroundings: ()


def _smp_poller(host: Host, options: Options, task: BackgroundTask[Any]) -> MadePoller:
    from agent.infiniband.poller import make

    return make(host, options, task)


def _nvml_poller(host: Host, options: Options, task: BackgroundTask[Any]) -> MadePoller:
    from agent.nvml.poller import make

    return make(host, options, task)


def _rdma_checks(around: Surroundings) -> Iterable[Check]:
    from agent.sources.rdma_checks import checks

    return checks(around)


def _lldp_checks(around: Surroundings) -> Iterable[Check]:
    from agent.lldp.checks import checks

    return checks(around)


def _ib_checks(around: Surroundings) -> Iterable[Check]:
    from agent.infiniband.checks import checks

    return checks(around)


def _nvml_checks(around: Surroundings) -> Iterable[Check]:
    from agent.nvml.checks import checks

    return checks(around)


def _nvml_metrics() -> tuple[Metric[Observation], ...]:
    from agent.nvml.metrics import METRICS

    return METRICS


# The first row reads the RDMA devices, which give the others their ports.
SOURCES = (
    Source("rdma", rdma.read, checks=_rdma_checks),
    Source(
        "lldp",
        lldp.read,
        link_layer="Ethernet",
        snapshot=SnapshotPart(lldp_snapshot.record, lldp_snapshot.load),
        checks=_lldp_checks,
    ),
    Source(
        "ib",
        ib.read,
        link_layer="InfiniBand",
        snapshot=SnapshotPart(smp_snapshot.record, smp_snapshot.load),
        poller=_smp_poller,
        checks=_ib_checks,
    ),
    Source(
        "nvml",
        nvml.read,
        snapshot=SnapshotPart(nvml_snapshot.record, nvml_snapshot.load),
        derived=lambda outcome: {"accelerator": domain.verdict(outcome)},
        metrics=_nvml_metrics,
        poller=_nvml_poller,
        queries=Queries(nvml_queries.by_helper, nvml_queries.by_fork_server),
        hints=nvml_hints.hints,
        conflicts=nvml_hints.conflicts,
        checks=_nvml_checks,
    ),
)
# (name, link layer) of the sources of neighbors
NEIGHBOR_SOURCES = tuple(
    (source.name, source.link_layer) for source in SOURCES if source.link_layer
)

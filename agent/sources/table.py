"""The table of data sources.

Observation, polling, hints and checks iterate over SOURCES.
CONTRIBUTING.md has what a new source adds elsewhere.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from agent.check import Check, Surroundings
from agent.host import Host
from agent.infiniband import checks as ib_checks
from agent.infiniband import counter_poller, tier_poller
from agent.infiniband import poller as ib_poller
from agent.lldp import reception
from agent.model import Absent, Failed, Observation, PortRole, Problem, Reading, Seen
from agent.nvml import domain
from agent.nvml import poller as nvml_poller
from agent.sources import ib, lldp, nvml, rdma
from agent.sources.memories import Memories

if TYPE_CHECKING:  # these import the table
    from agent.daemon.background import BackgroundTask, Poller

SourceOutcome = Seen[Any] | Absent | Failed
Options = Mapping[str, Any]  # of the command line, by name
HostFields = dict[str, Any]


class Source(NamedTuple):
    """One row: a data source and the parts of the agent that are particular to it."""

    name: str  # its field of Observation, and its value of --source
    # Reads a Host; it has the port roles (none yet for the first row). Never raises.
    read: Callable[[Host, tuple[PortRole, ...], Memories], Reading[Any]]
    # Returns what is there and what is missing, for `bwagent doctor`.
    checks: Callable[[Surroundings], Iterable[Check]]
    link_layer: str | None = None  # link layer of the ports whose neighbors it reads
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
    Source("rdma", rdma.read, rdma.checks),
    Source(
        "lldp",
        lldp.read,
        reception.checks,
        link_layer="Ethernet",
        hints=reception.hints,
    ),
    Source(
        "ib",
        ib.read,
        ib_checks.checks,
        link_layer="InfiniBand",
        hints=ib_checks.hints,
        pollers=(ib_poller.make, ib_poller.make_sa, tier_poller.make, counter_poller.make),
    ),
    Source(
        "nvml",
        nvml.read,
        domain.checks,
        pollers=(nvml_poller.make,),
        hints=domain.hints,
    ),
)
# (name, link layer) of the sources of neighbors
NEIGHBOR_SOURCES = tuple(
    (source.name, source.link_layer) for source in SOURCES if source.link_layer
)

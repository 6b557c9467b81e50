"""The table of data sources, over which observation and hints iterate.

The checks have a table of their own, agent/sources/checks.py, and so have the pollers,
agent/daemon/background.py: a probe runs none of them. CONTRIBUTING.md has what a new source adds
elsewhere.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from agent.host import Host
from agent.infiniband import smi
from agent.lldp import firmware
from agent.model import Absent, Failed, Observation, PortRole, Problem, Reading, Seen
from agent.nvml import domain
from agent.sources import ib, lldp, nvml, rdma
from agent.sources.memories import Memories

SourceOutcome = Seen[Any] | Absent | Failed


class Source(NamedTuple):
    """One row: a data source and the parts of the agent that are particular to it."""

    name: str  # its field of Observation, and its value of --source
    # Reads a Host; it has the port roles (none yet for the first row). Never raises.
    read: Callable[[Host, tuple[PortRole, ...], Memories], Reading[Any]]
    link_layer: str | None = None  # link layer of the ports whose neighbors it reads
    # Returns what an operator should look at.
    hints: Callable[[Observation], Iterable[Problem]] = lambda _observation: ()


# The first row reads the RDMA devices, which give the others their ports.
SOURCES = (
    Source("rdma", rdma.read),
    Source("lldp", lldp.read, link_layer="Ethernet", hints=firmware.hints),
    Source("ib", ib.read, link_layer="InfiniBand", hints=smi.hints),
    Source("nvml", nvml.read, hints=domain.hints),
)
# (name, link layer) of the sources of neighbors
NEIGHBOR_SOURCES = tuple(
    (source.name, source.link_layer) for source in SOURCES if source.link_layer
)

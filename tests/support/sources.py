"""Single sources, read as an observation reads them."""

from __future__ import annotations

from agent.host import Host
from agent.model import Gpu, Link, PortRole, RdmaDevice, Reading
from agent.sources import ib, lldp, nvml, rdma
from agent.sources.observe import Memories

Ports = tuple[PortRole, ...]


def read_rdma(host: Host, memories: Memories | None = None) -> Reading[tuple[RdmaDevice, ...]]:
    return rdma.read(host, (), memories or memories_of(host))


def memories_of(host: Host) -> Memories:
    """Return empty ones, whose readers have the workers of the host."""
    return Memories(host.device_readers())


def read_nvml(host: Host, memories: Memories | None = None) -> Reading[tuple[Gpu, ...]]:
    return nvml.read(host, (), memories or Memories())


def read_lldp(host: Host, ports: Ports) -> Reading[tuple[Link, ...]]:
    return lldp.read(host, ports, Memories())


def read_ib(
    host: Host, ports: Ports, memories: Memories | None = None
) -> Reading[tuple[Link, ...]]:
    return ib.read(host, ports, memories or memories_of(host))

"""The I/O of the node that this process runs on."""

from __future__ import annotations

import os
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from agent.helper.forkserver import ForkServer
from agent.helper.process import call
from agent.host import Host
from agent.infiniband.devices import DeviceQueries
from agent.sources.table import SOURCES
from agent.sysfs.reader import LiveRoot

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from agent.lldp.reception import LldpNeighbors
    from agent.sources.table import Queries

    Options = Mapping[str, Any]
    Fields = dict[str, Any]  # of a Host

# seconds for a helper that queries all ports at once, two requests with two tries of 500 ms each
SMP_TIMEOUT = 10.0
SMP_DEVICE_TIMEOUT = 5.0  # seconds for the helper of one device


def live_host(
    sysfs_root: str,
    excluded: tuple[str, ...],
    backend: tuple[str, ...],
    lldp_neighbors: LldpNeighbors | None,
    options: Options,
) -> Host:
    """Return the Host of this node; `options` are the sources' command line options by name."""
    system = os.uname()
    return Host(
        root=LiveRoot(sysfs_root),
        clock=time.time,
        name=system.nodename,
        kernel=system.release,
        excluded=excluded,
        backend=backend,
        lldp_neighbors=lldp_neighbors,
        private_flags=_private_flags,
        ask_smp=DeviceQueries(_query_ports),
        **_fields(lambda queries: queries.by_helper(call, options)),
    )


def with_fork_servers(host: Host, options: Options) -> Host:
    """Return the host for a daemon: fork servers instead of a helper process for each query."""
    return replace(host, **_fields(lambda queries: queries.by_fork_server(ForkServer, options)))


def _fields(make: Callable[[Queries], Fields]) -> Fields:
    """Return the fields of a Host for the queries of all sources."""
    fields: Fields = {}
    for source in SOURCES:
        if source.queries:
            fields |= make(source.queries)
    return fields


def _query_ports(ports: Sequence[tuple[str, int]]) -> dict[str, Any]:
    devices = {device for device, _ in ports}
    payload = {"ports": [list(port) for port in ports]}
    if len(devices) == 1:
        return call("smp", payload, SMP_DEVICE_TIMEOUT, devices.pop())
    return call("smp", payload, SMP_TIMEOUT, f"for {len(devices)} devices")


def _private_flags(netdev: str) -> dict[str, bool]:
    from agent.lldp.driver_flags import private_flags

    try:
        return private_flags(netdev)
    except OSError:  # the netdev has gone; nothing is known of its driver
        return {}

"""The I/O of the node that this process runs on."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from agent.helper.forkserver import ForkServer
from agent.helper.process import call
from agent.host import Host
from agent.infiniband.devices import DeviceQueries
from agent.lldp.reception import LldpQuery
from agent.sources.table import SOURCES
from agent.sysfs.reader import LiveRoot

# seconds for a helper that queries all ports at once, two requests with two tries of 500 ms each
SMP_TIMEOUT = 10.0
SMP_DEVICE_TIMEOUT = 5.0  # seconds for the helper of one device


def live_host(
    sysfs_root: str,
    excluded: tuple[str, ...],
    backend: tuple[str, ...],
    lldp_neighbors: LldpQuery | None,
    options: Mapping[str, Any],
) -> Host:
    """Return the Host of this node; `options` are the command line options by name."""
    system = os.uname()
    host = Host(
        root=LiveRoot(sysfs_root),
        clock=time.time,
        name=system.nodename,
        kernel=system.release,
        excluded=excluded,
        backend=backend,
        lldp_neighbors=lldp_neighbors,
        private_flags=_private_flags,
        ask_smp=DeviceQueries(_query_ports),
    )
    for source in SOURCES:
        if source.queries:
            host = replace(host, **source.queries.by_helper(call, options))
    return host


def with_fork_servers(host: Host, options: Mapping[str, Any]) -> Host:
    """Return the host for a daemon: fork servers instead of a helper process for each query."""
    for source in SOURCES:
        if source.queries:
            host = replace(host, **source.queries.by_fork_server(ForkServer, options))
    return host


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

"""The I/O of the node that this process runs on."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from agent.helper.process import ForkServer, call
from agent.host import Host
from agent.infiniband.devices import SA_PORT_LIMIT, DeviceQueries, SubnetPort
from agent.lldp.driver_flags import private_flags
from agent.lldp.reception import LldpQuery
from agent.nvml import poller as nvml
from agent.sysfs.reader import LiveRoot
from agent.sysfs.routes import RouteTable

# seconds for a helper that queries all ports at once, two requests with two tries of 500 ms each
SMP_TIMEOUT = 10.0
SMP_DEVICE_TIMEOUT = 5.0  # seconds for the helper of one device
SA_TIMEOUT = (
    5.0  # seconds for the helper that asks the subnet administrator, beside SA_PORT_LIMIT a port
)


def live_host(
    sysfs_root: str,
    excluded: tuple[str, ...],
    backend: tuple[str, ...],
    lldp_neighbors: LldpQuery | None,
    options: Mapping[str, Any],
) -> Host:
    """Return the Host of this node; `options` are the command line options by name."""
    system = os.uname()
    return Host(
        root=LiveRoot(sysfs_root),
        clock=time.time,
        name=system.nodename,
        kernel=system.release,
        excluded=excluded,
        backend=backend,
        lldp_neighbors=lldp_neighbors,
        all_ethertypes=bool(options.get("openvswitch")),
        private_flags=private_flags,
        ask_smp=DeviceQueries(_query_ports),
        ask_sa=DeviceQueries(_query_sa, processes=1),
        routes=RouteTable(),
        **nvml.by_helper(call, options),
    )


def with_fork_server(host: Host, options: Mapping[str, Any]) -> Host:
    """Return the host for a daemon: a fork server instead of a helper process for each query."""
    return replace(host, **nvml.by_fork_server(ForkServer, options))


def _query_ports(ports: Sequence[tuple[str, int]]) -> dict[str, Any]:
    subject, is_one = _subject(ports)
    payload = {"ports": [list(port) for port in ports]}
    return call("smp", payload, SMP_DEVICE_TIMEOUT if is_one else SMP_TIMEOUT, subject)


def _query_sa(ports: Sequence[SubnetPort]) -> dict[str, Any]:
    payload = {"ports": [list(port) for port in ports]}
    return call("sa", payload, SA_TIMEOUT + SA_PORT_LIMIT * len(ports), _subject(ports)[0])


def _subject(ports: Sequence[tuple[str, int]] | Sequence[SubnetPort]) -> tuple[str, bool]:
    """Return the name of the ports' device, or their number; and True for one device."""
    devices = {port[0] for port in ports}
    is_one = len(devices) == 1
    return devices.pop() if is_one else f"for {len(devices)} devices", is_one

"""The I/O of the node that this process runs on."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING, Any

from agent.helper.forkserver import ForkServer
from agent.helper.process import call
from agent.host import Host
from agent.infiniband.devices import DeviceQueries
from agent.sysfs.reader import LiveRoot

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from agent.lldp.frame import Frame

NVML_TIMEOUT = 30.0  # seconds; initialization is slow if no process keeps the driver loaded
# seconds for a helper that queries all ports at once, two requests with two tries of 500 ms each
SMP_TIMEOUT = 10.0
SMP_DEVICE_TIMEOUT = 5.0  # seconds for the helper of one device


def live_host(
    sysfs_root: str,
    excluded: tuple[str, ...],
    backend: tuple[str, ...],
    frames: Callable[[Mapping[str, bool]], tuple[list[Frame], Mapping[str, str | None]]] | None,
    nvml_library: str | None,
) -> Host:
    """Return the Host of this node; `frames` receives its LLDP frames."""
    system = os.uname()
    return Host(
        root=LiveRoot(sysfs_root),
        clock=time.time,
        name=system.nodename,
        kernel=system.release,
        excluded=excluded,
        backend=backend,
        frames=frames,
        private_flags=_private_flags,
        ask_smp=DeviceQueries(_query_ports),
        gpus=lambda: call("nvml", _nvml_payload(nvml_library), NVML_TIMEOUT),
    )


def polled_gpus(
    nvml_library: str | None, server: ForkServer | None = None
) -> Callable[[], dict[str, Any]]:
    """Return Host.gpus for a daemon: a fork server instead of a helper process for each query."""
    server = server or ForkServer("nvml", NVML_TIMEOUT)

    def query() -> dict[str, Any]:
        answer = server.call(_nvml_payload(nvml_library))
        if answer.get("library") is None:
            # The dynamic loader never again searches a folder that did not exist.
            server.stop()
        return answer

    return query


def _nvml_payload(library: str | None) -> dict[str, Any]:
    return {"library": library} if library else {}


def _query_ports(ports: Sequence[tuple[str, int]]) -> dict[str, Any]:
    devices = {device for device, _ in ports}
    payload = {"ports": [list(port) for port in ports]}
    if len(devices) == 1:
        return call("smp", payload, SMP_DEVICE_TIMEOUT, devices.pop())
    return call("smp", payload, SMP_TIMEOUT, f"for {len(devices)} devices")


def _private_flags(netdev: str) -> dict[str, bool]:
    from agent.lldp.ethtool import private_flags

    try:
        return private_flags(netdev)
    except OSError:  # the netdev has gone; nothing is known of its driver
        return {}

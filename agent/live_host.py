"""The doors of the node that this process runs on."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING, Any

from agent.helper.forkserver import ForkServer
from agent.helper.process import call
from agent.host import Host
from agent.sysfs.reader import LiveRoot

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from agent.lldp.frame import Frame

NVML_DEADLINE = 30.0  # seconds; initialisation is slow where no process keeps the driver loaded
SMP_DEADLINE = 10.0  # seconds for a helper that asks all ports at once, two tries of 500 ms each


def live_host(
    sysfs_root: str,
    excluded: tuple[str, ...],
    backend: tuple[str, ...],
    frames: Callable[[Mapping[str, bool]], tuple[list[Frame], Mapping[str, str | None]]] | None,
    nvml_library: str | None,
) -> Host:
    """The host, with `frames` as its door to LLDP."""
    about = os.uname()
    return Host(
        root=LiveRoot(sysfs_root),
        clock=time.time,
        name=about.nodename,
        kernel=about.release,
        excluded=excluded,
        backend=backend,
        frames=frames,
        private_flags=_private_flags,
        ask_smp=_ask_smp,
        gpus=lambda: call("nvml", _nvml_payload(nvml_library), NVML_DEADLINE),
    )


def polled_gpus(
    nvml_library: str | None, standby: ForkServer | None = None
) -> Callable[[], dict[str, Any]]:
    """A door to NVML for who asks again and again: it costs a process that stays, and a sixth for each question."""
    helper = standby or ForkServer("nvml", NVML_DEADLINE)

    def ask() -> dict[str, Any]:
        answer = helper.call(_nvml_payload(nvml_library))
        if (
            answer.get("library") is None
        ):  # a process's loader never looks again into a folder that was not there
            helper.dismiss()
        return answer

    return ask


def _nvml_payload(library: str | None) -> dict[str, Any]:
    return {"library": library} if library else {}


def _ask_smp(ports: Sequence[tuple[str, int]]) -> dict[str, Any]:
    return call("smp", {"ports": [list(port) for port in ports]}, SMP_DEADLINE)


def _private_flags(netdev: str) -> dict[str, bool]:
    from agent.lldp.ethtool import private_flags

    try:
        return private_flags(netdev)
    except OSError:  # the netdev went away; nothing is known of its driver
        return {}

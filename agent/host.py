"""The doors to the node.

Everything outside enters through a `Host`. A live host, a recording host and a replayed snapshot fill the same
fields, so that no source knows which of them it looks at.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from agent.errors import Unavailable
from agent.lldp.neighbors import Table
from agent.sysfs.worker import DeviceReaders

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from agent.lldp.frame import Frame
    from agent.sysfs.reader import Root


def _no_gpus() -> dict[str, Any]:
    raise Unavailable("NVML was not asked")


@dataclass(frozen=True, slots=True)
class Host:
    """The doors of one node."""

    root: Root
    clock: Callable[[], float]  # seconds since the epoch
    name: str | None = None  # host name
    kernel: str | None = None  # release, `uname -r`
    excluded: tuple[str, ...] = ()  # globs of RDMA devices below whose folder nothing is read
    backend: tuple[
        str, ...
    ] = ()  # globs of the RDMA devices that are the backend; none: the rules decide
    deadline: float = 5.0  # seconds that one device may take
    # The LLDP frames that have come on these netdevs (name -> whether it has a link), and why some cannot be heard.
    # None: nobody listens.
    frames: Callable[[Mapping[str, bool]], tuple[list[Frame], dict[str, str]]] | None = (
        lambda _netdevs: ([], {})
    )
    private_flags: Callable[[str], dict[str, bool]] = lambda _netdev: {}  # of a netdev's driver
    # The SMP helper's answer for these ports (agent/helper/main.py).
    ask_smp: Callable[[Sequence[tuple[str, int]]], dict[str, Any]] = lambda _ports: {"ports": []}
    gpus: Callable[[], dict[str, Any]] = _no_gpus  # NVML's answer (agent/nvml/library.py, look)
    neighbors: Table = field(default_factory=Table)  # what LLDP frames have told so far
    readers: DeviceReaders = field(default_factory=DeviceReaders)  # the workers of RDMA devices

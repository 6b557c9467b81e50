"""The injected I/O of one node.

A live host (agent/live_host.py), a recording host (agent/snapshot/recorded.py) and a replayed
snapshot (agent/snapshot/replay.py) fill the same fields, so a source reads all three alike.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from agent.errors import Unavailable
from agent.lldp.neighbors import NeighborTable
from agent.sysfs.worker import DeviceReaders

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from agent.lldp.frame import Frame
    from agent.sysfs.reader import Root


def _no_gpus() -> dict[str, Any]:
    raise Unavailable("the GPUs were not queried")


@dataclass(frozen=True, slots=True)
class Host:
    """The I/O of one node: a tree of kernel files, a clock, and one callable per kind of query.

    A callable raises Unavailable when its query fails as a whole.
    """

    root: Root
    clock: Callable[[], float]  # seconds since the epoch
    name: str | None = None  # host name
    kernel: str | None = None  # release, `uname -r`
    excluded: tuple[str, ...] = ()  # globs of RDMA devices below which nothing is read
    # globs of the RDMA devices that are the backend; empty: agent/sources/backend.py decides
    backend: tuple[str, ...] = ()
    deadline: float = 5.0  # seconds to wait for the reads of one device
    # Netdev -> True if it has a link; returns the LLDP frames received on these netdevs, and per
    # netdev without a packet socket the error, or None while it is being opened. None: LLDP frames
    # are not received at all.
    frames: Callable[[Mapping[str, bool]], tuple[list[Frame], Mapping[str, str | None]]] | None = (
        lambda _netdevs: ([], {})
    )
    private_flags: Callable[[str], dict[str, bool]] = lambda _netdev: {}  # ethtool, by netdev
    # (device, port) of each port; returns the SMP helper's answer (agent/helper/main.py)
    ask_smp: Callable[[Sequence[tuple[str, int]]], dict[str, Any]] = lambda _ports: {"ports": []}
    gpus: Callable[[], dict[str, Any]] = _no_gpus  # the GPU helper's answer (agent/helper/main.py)
    # LLDP neighbors known from earlier frames
    neighbors: NeighborTable = field(default_factory=NeighborTable)
    readers: DeviceReaders = field(default_factory=DeviceReaders)  # the workers of RDMA devices

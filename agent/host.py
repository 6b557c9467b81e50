"""The injected I/O of one node.

A live host (agent/live_host.py), a recording host (agent/snapshot/capture.py) and a replayed
snapshot (agent/snapshot/replay.py) fill the same fields, so a source reads all three alike.
"""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from agent.errors import Unavailable
from agent.infiniband.devices import AskingPort, CounterPort, Entries, SubnetPort
from agent.sysfs.front_end import RouteQuery
from agent.sysfs.reader import Root
from agent.sysfs.worker import DeviceReaders, DeviceWorker

if TYPE_CHECKING:  # an agent without --tiers, or without Ethernet, does not load them
    from agent.infiniband.exploration import Exploration, KnownNames, LeafLook, Lids, Uplinks
    from agent.lldp.reception import LldpQuery

    Explore = Callable[[Sequence[AskingPort], Entries | None, KnownNames], Exploration]
    Look = Callable[[Sequence[AskingPort], Uplinks, Lids], LeafLook]


def _no_gpus() -> dict[str, Any]:
    raise Unavailable("the GPUs were not queried")


class Host(NamedTuple):
    """The I/O of one node: a tree of kernel files, a clock, and one callable per kind of query.

    A callable raises Unavailable when its query fails as a whole.
    """

    root: Root
    clock: Callable[[], float]  # seconds since the epoch
    name: str | None = None  # host name
    kernel: str | None = None  # release, `uname -r`
    # globs (agent/ids.py) of the RDMA devices below which nothing is read
    excluded: tuple[str, ...] = ()
    # globs of the RDMA devices that are the backend; empty: agent/sources/roles.py decides
    backend: tuple[str, ...] = ()
    deadline: float = 5.0  # seconds to wait for the reads of one device
    # (netdevs, clock, silence); receives LLDP frames on the netdevs and returns the neighbors that
    # each has now (agent/lldp/reception.py). None: LLDP frames are not received at all.
    lldp_neighbors: "LldpQuery | None" = None
    all_ethertypes: bool = False  # LLDP frames are received before a bridge takes them
    private_flags: Callable[[str], dict[str, bool]] = lambda _netdev: {}  # ethtool, by netdev
    # (device, port) of each port; returns the SMP helper's answer (agent/helper/main.py), with the
    # ports that could not be queried as "failed" (agent/infiniband/devices.py) and, from a poller,
    # the time of each entry as "answered"
    ask_smp: Callable[[Sequence[tuple[str, int]]], dict[str, Any]] = lambda _ports: {"ports": []}
    # the same by the subnet administrator; from a poller, only the ports that have an answer
    ask_sa: Callable[[Sequence[SubnetPort]], dict[str, Any]] = lambda _ports: {"ports": []}
    # each port that has a leaf, the entries to record, and switches that are remembered; returns
    # the switches above the leaves (agent/infiniband/exploration.py). None: --tiers is off.
    explore: "Explore | None" = None
    look: "Look | None" = None  # the same ports; only the links of leaves that are remembered
    # each port whose link's error counters are read at both ends; returns the helper's answer (verb
    # perf). None: they are not read.
    ask_perf: Callable[[Sequence[CounterPort]], dict[str, Any]] | None = None
    # netdevs of backend ports; returns the helper's answer about all NICs (agent/nic/query.py).
    # None: the drivers are not asked.
    ask_nics: Callable[[Sequence[str]], dict[str, Any]] | None = None
    gpus: Callable[[], dict[str, Any]] = _no_gpus  # the GPU helper's answer (agent/helper/main.py)
    # netdevs; returns the helper's answer about their transceiver modules
    modules: Callable[[Sequence[str]], dict[str, Any]] = lambda _netdevs: {"modules": []}
    gpus_off_bus: bool = False  # the GPUs are queried even if the PCI bus has none
    worker: Callable[[], DeviceWorker] = DeviceWorker  # makes a worker, which reads RDMA devices
    random: Callable[[], float] = lambda: 0.5  # from 0 to 1; the daemon draws
    # the next hops of the default routes; None: the tables of /proc/net stand in
    routes: RouteQuery = lambda: None

    def device_readers(self) -> DeviceReaders:
        """Return readers of RDMA devices, without facts so far."""
        return DeviceReaders(worker=self.worker)

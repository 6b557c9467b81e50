"""A test double of the kernel's files: the tree that a node shows, and the faults on it.

Invariant: a fault is a state and not a number of calls, where possible, so that the order in which
threads read does not matter. A read that blocks advances the simulated clock and fails with
ETIMEDOUT at the agent's deadline; later ones fail at once, since agent/sysfs/worker.py does not
wait for a device twice.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from agent.sysfs.worker import DeviceReaders, InlineWorker
from tests.simulation.node import GONE, HERE, SWITCH_MANAGEMENT, UNBOUND, VIRTUAL, Hca, Node

Entry = bytes | str | tuple[str, ...]


CLASS, NET, BUS = "sys/class/infiniband", "sys/class/net", "sys/bus/pci/devices"
BOOT_ID = "proc/sys/kernel/random/boot_id"
MANAGEMENT = "eno1"  # a netdev without RDMA device
BLOCKED = 1.0  # seconds, after which the agent waits no longer


def tree(node: Node) -> dict[str, Entry]:
    """Return every path that the agent may read."""
    found: dict[str, Entry] = {
        BOOT_ID: b"%08x-40be-49e6-8717-defbd7b4b902\n" % node.boot,
        "proc/net/route": _routes(node),
        CLASS: (*(hca.name for hca in node.all() if hca.shown), *(["rxe0"] if node.soft else [])),
    }
    if node.soft:
        found |= _soft(node.soft)
    netdevs = ["lo"]
    if not node.front:  # a NIC without RDMA has the default route
        netdevs.append(MANAGEMENT)
        path = f"{NET}/{MANAGEMENT}"
        found |= {path: ("device", "operstate"), f"{path}/device": "../../../0000:01:00.0"}
    functions = []
    for hca in node.all():
        if hca.where != GONE and not hca.parent:
            functions.append(hca.pci)
            found |= _function(hca, node.sub_device(hca))
        if hca.shown:
            found |= _device(hca, node.sub_device(hca))
        if hca.shown and node.by_sa:
            port = f"{CLASS}/{hca.name}/ports/1"
            found |= {f"{port}/lid": b"%#x\n" % node.lid(hca), f"{port}/sm_lid": b"0x1\n"}
        if hca.netdev and hca.where == HERE:
            netdevs += [hca.netdev, *([hca.bond] if hca.bond else [])]
            found |= _netdev(hca) | _bond(hca)
    for index in range(node.gpus.count):
        path = f"{BUS}/0000:{0x81 + index:02x}:00.0"
        functions.append(path.rpartition("/")[2])
        place = f"../../../devices/pci0000:80/{functions[-1]}"
        found |= {path: place, f"{path}/class": b"0x030200\n", f"{path}/device": b"0x2330\n"}
        found |= {
            f"{path}/vendor": b"0x10de\n",
            f"{path}/driver": "../../../bus/pci/drivers/nvidia",
        }
    return found | {NET: tuple(netdevs), BUS: tuple(functions)}


def _routes(node: Node) -> bytes:
    line = b"%s\t00000000\t0101A8C0\t0003\t0\t0\t100\t00000000\t0\t0\t0\n"
    netdev = node.front.netdev if node.front else MANAGEMENT
    return b"Iface\tDestination\n" + (line % netdev.encode() if netdev else b"")


def _function(hca: Hca, sub_device: Hca | None) -> dict[str, Entry]:
    path = f"{BUS}/{hca.pci}"
    found: dict[str, Entry] = {
        path: f"../../../devices/pci0000:00/{hca.pci}",
        f"{path}/class": b"0x020700\n" if hca.infiniband else b"0x020000\n",
        f"{path}/vendor": b"0x15b3\n",
        f"{path}/device": b"0x101d\n" if hca.drop is None and not hca.backend else b"0x1021\n",
    }
    if hca.drop == VIRTUAL:
        found[f"{path}/physfn"] = f"../{hca.pci[:-1]}0"
    if hca.leader:
        found[f"{path}/driver"] = "../../../bus/pci/drivers/mlx5_core"
    elif hca.where != UNBOUND:
        found[f"{path}/driver"] = "../../../bus/pci/drivers/mlx5_core"
        found[f"{path}/infiniband"] = (hca.name, *([sub_device.name] if sub_device else []))
    return found


def _device(hca: Hca, sub_device: Hca | None) -> dict[str, Entry]:
    base, port = f"{CLASS}/{hca.name}", f"{CLASS}/{hca.name}/ports/1"
    number = int(hca.pci[5:7], 16)
    card = hca.parent or hca
    number |= int(card.pci[-1]) << 8 if card.backend else 0
    guid = b"a088:c203:%04x:%04x\n" % (0xAB + card.serial, number)
    state = (hca.parent or hca).state if hca.up else "DOWN"
    kind: dict[str, Entry] = {}
    if hca.drop == VIRTUAL:
        kind[f"{base}/device/physfn"] = f"../{hca.pci[:-1]}0"
    else:  # a virtual function of an upstream kernel, which does not know has_smi
        has_smi = hca.infiniband and not sub_device
        kind[f"{port}/has_smi"] = b"1\n" if has_smi else b"0\n"
    mark = b" SW_MNG" if hca.drop == SWITCH_MANAGEMENT else b""
    numbers = {"DOWN": 1, "INIT": 2, "ACTIVE": 4}
    net: dict[str, Entry] = {}
    if hca.netdev and hca.where == HERE:
        net = {
            f"{base}/device/net": (hca.netdev,),
            f"{port}/gid_attrs/ndevs/0": f"{hca.bond or hca.netdev}\n".encode(),
        }
    return {
        base: f"../../devices/pci0000:00/{hca.pci}/infiniband/{hca.name}",
        f"{base}/device": f"../../../{hca.pci}",
        f"{base}/device/driver": "../../../../bus/pci/drivers/mlx5_core",
        f"{base}/device/infiniband": tuple(
            one.name for one in (hca.parent, hca, sub_device) if one is not None
        ),
        f"{base}/device/numa_node": b"1\n",
        f"{base}/device/vpd": b"\x82\x0a\x00ConnectX-7%s\x90" % mark,
        f"{base}/ports": ("1",),
        f"{port}/link_layer": b"InfiniBand\n" if hca.infiniband else b"Ethernet\n",
        f"{port}/state": f"{numbers[state]}: {state}\n".encode(),
        f"{port}/phys_state": b"5: LinkUp\n" if hca.up else b"3: Disabled\n",
        f"{port}/rate": b"%d Gb/sec (4X NDR)\n" % hca.gbps,
        f"{port}/gids/0": b"fe80:0000:0000:0000:" + guid,
        f"{port}/counters/link_downed": b"3\n",
        f"{base}/node_type": b"1: CA\n",
        f"{base}/node_guid": guid,
        f"{base}/sys_image_guid": guid,
        f"{base}/hca_type": b"MT4125\n" if hca.drop is None and not hca.backend else b"MT4129\n",
        f"{base}/board_id": b"NVD0000000054\n" if mark else b"MT_0000000838\n",
        f"{base}/fw_ver": b"28.39.1002\n",
        **net,
        **kind,
    }


def _netdev(hca: Hca) -> dict[str, Entry]:
    path = f"{NET}/{hca.netdev}"
    found: dict[str, Entry] = {
        path: ("device", "operstate", "speed", "address"),
        f"{path}/device": f"../../../{hca.pci}",
        f"{path}/operstate": b"up\n" if hca.up else b"down\n",
        f"{path}/carrier_changes": b"%d\n" % hca.carrier,
        f"{path}/carrier_up_count": b"%d\n" % ((hca.carrier + 1) // 2),
        f"{path}/address": b"02:00:00:00:%02x:%02x\n" % (int(hca.pci[-1]), int(hca.pci[5:7], 16)),
    }
    if hca.leader or hca.bond:
        found[path] = f"../../devices/pci0000:00/{hca.pci}/net/{hca.netdev}"
        found[f"{path}/master"] = f"../{(hca.leader or hca).bond}"
        found[f"{path}/bonding_slave/state"] = b"active\n" if hca.up else b"backup\n"
        found[f"{path}/bonding_slave/mii_status"] = b"up\n" if hca.up else b"down\n"
    elif hca.bridged:
        found[f"{path}/master"] = "../br0"
        found[f"{path}/brport/group_fwd_mask"] = b"0x4000\n"
    return found | ({f"{path}/speed": b"%d\n" % (hca.gbps * 1000)} if hca.up else {})


def _bond(hca: Hca) -> dict[str, Entry]:
    if not hca.bond:
        return {}
    path, up = f"{NET}/{hca.bond}", [one for one in hca.members if one.up]
    members = " ".join(str(one.netdev) for one in hca.members)
    found: dict[str, Entry] = {
        path: f"../../devices/virtual/net/{hca.bond}",
        f"{path}/bonding/slaves": f"{members}\n".encode(),
        f"{path}/bonding/mode": b"802.3ad 4\n",
        f"{path}/operstate": b"up\n" if up else b"down\n",
        f"{path}/address": b"02:00:00:00:00:%02x\n" % int(hca.pci[5:7], 16),
    }
    speed = sum(one.gbps for one in up) * 1000
    return found | ({f"{path}/speed": b"%d\n" % speed} if up else {})


def _soft(netdev: str) -> dict[str, Entry]:
    """A device of rdma_rxe, without PCI function."""
    base, port = f"{CLASS}/rxe0", f"{CLASS}/rxe0/ports/1"
    guid = b"505c:00ff:fe00:0001\n"
    return {
        base: "../../devices/virtual/infiniband/rxe0",
        f"{base}/node_type": b"1: CA\n",
        f"{base}/node_guid": guid,
        f"{base}/sys_image_guid": guid,
        f"{base}/fw_ver": b"\n",
        f"{base}/ports": ("1",),
        f"{port}/link_layer": b"Ethernet\n",
        f"{port}/state": b"4: ACTIVE\n",
        f"{port}/phys_state": b"5: LinkUp\n",
        f"{port}/rate": b"2.5 Gb/sec (1X SDR)\n",
        f"{port}/gids/0": b"fe80:0000:0000:0000:" + guid,
        f"{port}/gid_attrs/ndevs/0": f"{netdev}\n".encode(),
    }


@dataclass(slots=True, eq=False)
class Fault:
    """A fault at and below a path: an errno, replacement text, "blocks", or "memory"."""

    path: str
    what: int | bytes | str
    after: int = 0  # reads that still succeed, for a device that vanishes during an observation
    met: int = 0

    def is_below(self, path: str) -> bool:
        return not self.path or path == self.path or path.startswith(f"{self.path}/")


class Sysfs:
    """A Root; `pass_time` moves the simulated clock."""

    def __init__(self, node: Node, pass_time: Callable[[float], None]) -> None:
        self.faults: list[Fault] = []
        self.looks = 0
        self._node, self._pass_time = node, pass_time
        self._entries: dict[str, Entry] = tree(node)
        self._asked: dict[str, Entry | None] | None = None  # noted for `Kept`

    def changed(self) -> None:
        """Rebuild the tree from the node."""
        self._entries = tree(self._node)

    def read(self, path: str, limit: int) -> bytes:
        self.looks += path == BOOT_ID
        instead = self._meet(path)
        found = self._entry(path)
        if not isinstance(found, bytes):
            raise OSError(errno.EISDIR, os.strerror(errno.EISDIR), path)
        return (found if instead is None else instead)[:limit]

    def names(self, path: str) -> list[str]:
        self._meet(path)
        found = self._entry(path)
        if not isinstance(found, tuple):
            raise OSError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), path)
        return list(found)

    def link(self, path: str) -> str:
        try:
            self._meet(path)
        except OSError as error:  # EINVAL would mean that the path is no link
            number = errno.EIO if error.errno == errno.EINVAL else error.errno or errno.EIO
            raise OSError(number, os.strerror(number), path) from error
        found = self._entry(path)
        if not isinstance(found, str):
            raise OSError(errno.EINVAL, os.strerror(errno.EINVAL), path)
        return found

    def note(self, do: Callable[[], object]) -> Mapping[str, Entry | None]:
        """Call `do`; return what it read, by path."""
        asked = self._asked = dict[str, Entry | None]()
        try:
            do()
        finally:
            self._asked = None
        return asked

    def has(self, asked: Mapping[str, Entry | None]) -> bool:
        """Return True if each of these paths has this entry, and no read of it fails."""
        get = self._entries.get
        return not self.faults and all(get(path) == entry for path, entry in asked.items())

    def _entry(self, path: str) -> Entry:
        entry = self._entries.get(path)
        if self._asked is not None:
            self._asked[path] = entry
        if entry is None:
            raise OSError(errno.ENOENT, os.strerror(errno.ENOENT), path)
        return entry

    def _meet(self, path: str) -> bytes | None:
        """Apply the first fault of a path: raise its error, or return its text; None without a
        fault.
        """
        for fault in self.faults:
            if fault.is_below(path):
                fault.met += 1
                if fault.met > fault.after:
                    return self._suffer(fault, path)
        return None

    def _suffer(self, fault: Fault, path: str) -> bytes | None:
        match fault.what:
            case bytes(text):
                return text
            case "memory" if path != BOOT_ID:
                raise MemoryError
            case "blocks":
                if fault.met == 1:
                    self._pass_time(BLOCKED)
                raise OSError(errno.ETIMEDOUT, os.strerror(errno.ETIMEDOUT), path)
            case int(number):
                raise OSError(number, os.strerror(number), path)
        return None


@dataclass(slots=True)
class _Kept:
    """The facts of a device, and all that they were made of."""

    asked: Mapping[str, Entry | None]
    inputs: tuple[Any, ...]
    facts: Any


@dataclass(slots=True)
class Kept:
    """The last facts of each device, which are those of the next read of the same files."""

    devices: dict[str, _Kept] = field(default_factory=dict)

    def facts(
        self, sysfs: Sysfs, name: str, constants: dict[Any, Any], job: Callable[[], Any]
    ) -> Any:
        """Return the facts of a device: read them unless its files are as they were."""
        given = [one for one in getattr(job, "args", ()) if isinstance(one, frozenset | tuple)]
        if sysfs.faults or not given:  # a job that is given nothing but a name reads no file
            return job()
        inputs = dict(constants), *given
        kept = self.devices.get(name)
        if kept and kept.inputs == inputs and sysfs.has(kept.asked):
            return kept.facts
        facts = list[Any]()
        asked = sysfs.note(lambda: facts.append(job()))
        if constants == inputs[0]:
            self.devices[name] = _Kept(asked, inputs, *facts)
        return facts[0]


class KeepingReaders(DeviceReaders):
    """Readers that parse no file twice: an agent reads the same bytes for hours."""

    def __init__(self, sysfs: Sysfs, kept: Kept, clock: Callable[[], float]) -> None:
        super().__init__(clock=clock, worker=InlineWorker)
        self._sysfs, self._kept = sysfs, kept

    def read(self, jobs: Mapping[str, Callable[[], Any]], timeout: float) -> dict[str, Any]:
        constants = self.constants
        return super().read(
            {
                name: partial(self._kept.facts, self._sysfs, name, constants(name), job)
                for name, job in jobs.items()
            },
            timeout,
        )

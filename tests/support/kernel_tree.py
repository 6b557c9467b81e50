"""A kernel's tree in memory: PCI functions with RDMA devices and netdevs, in the layout of sysfs,
with its links.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterable, Mapping
from zlib import crc32

from agent.host import Host
from agent.snapshot.tree import MemoryStore, Tree
from agent.sysfs.reader import Root
from agent.sysfs.worker import DeviceWorker, InlineWorker

Entries = dict[str, "bytes | str | None"]  # file, link, folder
CLASS, NET, BUS = "sys/class/infiniband", "sys/class/net", "sys/bus/pci/devices"
HOME = "sys/devices/pci0000:00"


def bdf(number: int) -> str:
    """The address of the PCI function of a rail."""
    return f"0000:{0x18 + number:02x}:00.0"


def base(number: int, name: str = "ibp{}") -> str:
    """The folder of the RDMA device of a rail."""
    return f"{HOME}/{bdf(number)}/infiniband/{name.format(number)}"


def union(parts: Iterable[Entries]) -> Entries:
    """All of these trees."""
    return {path: entry for part in parts for path, entry in part.items()}


def nic(number: int, address: str | None = None) -> Entries:
    """A RoCE NIC of a rail, mlx5_N, with its netdev, ethN."""
    at = address or bdf(number)
    return hca(f"mlx5_{number}", at, "Ethernet", {1: f"eth{number}"}) | netdev(f"eth{number}", at)


def gpu(address: str = "0000:41:00.0") -> Entries:
    """A GPU."""
    return {
        f"{BUS}/{address}": f"../../../devices/pci0000:00/{address}",
        f"{HOME}/{address}/class": b"0x030200\n",
        f"{HOME}/{address}/vendor": b"0x10de\n",
        f"{HOME}/{address}/device": b"0x2330\n",
    }


def netdev(name: str, bdf: str = "virtual", **attributes: str) -> Entries:
    """A netdev of a PCI function; a link is given as `master="../bond0"`."""
    home = f"{HOME}/{bdf}/net/{name}"
    attributes = {
        "operstate": "up",
        "speed": "400000",
        "dev_port": "0",
        "dev_id": "0x0",
    } | attributes
    return {
        f"{NET}/{name}": f"../../devices/pci0000:00/{bdf}/net/{name}",
        **{
            f"{home}/{key}": value if value.startswith("../") else f"{value}\n".encode()
            for key, value in attributes.items()
        },
    }


def port(device: str, number: int, layer: str, netdev: str | None = None) -> Entries:
    """A port of a device; `netdev` is the one in its GID table."""
    base = f"{device}/ports/{number}"
    texts = {
        "link_layer": layer,
        "state": "4: ACTIVE",
        "phys_state": "5: LinkUp",
        "rate": "400 Gb/sec (4X NDR)",
        "has_smi": "1",
        "gids/0": "fe80:0000:0000:0000:a088:c203:00ab:cdef",
        "counters/link_downed": "3",
    }
    if netdev:
        texts["gid_attrs/ndevs/0"] = netdev
    return {f"{base}/{name}": f"{text}\n".encode() for name, text in texts.items()}


def hca(
    name: str, bdf: str, layer: str = "InfiniBand", ports: Mapping[int, str | None] | None = None
) -> Entries:
    """An RDMA device on its PCI function; `ports` maps port numbers to the netdevs of their
    GIDs.
    """
    device = f"{HOME}/{bdf}/infiniband/{name}"
    # Two Ethernet functions of one GUID would be a Socket-Direct card.
    own = f"{crc32(bdf.encode()) & 0xFFFF:04x}"
    guid = f"a088:c203:00ab:{'cdef' if layer == 'InfiniBand' else own}"
    texts = {
        "node_type": "1: CA",
        "node_guid": guid,
        "sys_image_guid": guid,
        "hca_type": "MT4129",
        "board_id": "MT_0000000838",
        "fw_ver": "28.39.1002",
    }
    entries: Entries = {f"{device}/{key}": f"{text}\n".encode() for key, text in texts.items()}
    for number, named in (ports or {1: None}).items():
        entries |= port(device, number, layer, named)
    return entries | {
        f"{CLASS}/{name}": f"../../devices/pci0000:00/{bdf}/infiniband/{name}",
        f"{device}/device": f"../../../{bdf}",
        f"{BUS}/{bdf}": f"../../../devices/pci0000:00/{bdf}",
        f"{HOME}/{bdf}/class": b"0x020700\n" if layer == "InfiniBand" else b"0x020000\n",
        f"{HOME}/{bdf}/vendor": b"0x15b3\n",
        f"{HOME}/{bdf}/device": b"0x1021\n",
        f"{HOME}/{bdf}/driver": "../../../bus/pci/drivers/mlx5_core",
        f"{HOME}/{bdf}/numa_node": b"1\n",
        f"{HOME}/{bdf}/vpd": b"\x82\x0a\x00ConnectX-7\x90",
    }


def card(name: str, bdf: str, layer: str = "InfiniBand", board: str = "MT_0000000838") -> Entries:
    """An HCA of this board that shares no GUID with another."""
    device = f"{HOME}/{bdf}/infiniband/{name}"
    guid = f"a088:c203:00ab:00{bdf[5:7]}\n".encode()
    return hca(name, bdf, layer) | {
        f"{device}/node_guid": guid,
        f"{device}/sys_image_guid": guid,
        f"{device}/ports/1/gids/0": b"fe80:0000:0000:0000:" + guid,
        f"{device}/board_id": f"{board}\n".encode(),
    }


def rails(count: int) -> Entries:
    """A /sys that is mounted, with so many InfiniBand HCAs."""
    return union([{f"{NET}/lo": None}, *(card(f"ibp{n}", bdf(n)) for n in range(count))])


def managing() -> Entries:
    """The four functions through which the NVSwitches of an HGX board are managed."""
    tree: Entries = {}
    for number in range(4):
        address = f"0000:d2:00.{number}"
        tree |= hca(f"mlx5_{number}", address)
        device = f"{HOME}/{address}/infiniband/mlx5_{number}"
        tree[f"{device}/sys_image_guid"] = b"cc40:f303:0027:f62e\n"
        tree[f"{HOME}/{address}/vpd"] = b"\x82\x0a\x00ConnectX-7 SW_MNG\x90"
    return tree


def routes(*netdevs: str) -> Entries:
    """The IPv4 routing table with a default route through each of these."""
    lines = [
        f"{name}\t00000000\t0101A8C0\t0003\t0\t0\t100\t00000000\t0\t0\t0\n" for name in netdevs
    ]
    return {"proc/net/route": "".join(["Iface\tDestination\n", *lines]).encode()}


class Kernel:
    """A Root over such a tree that records the paths read, and can block at a path or remove it."""

    def __init__(
        self, *parts: Mapping[str, bytes | str | None], errors: Mapping[str, int] | None = None
    ) -> None:
        self.asked: list[str] = []
        self.blocks_below: str | None = None
        self.unblocked = threading.Event()
        # The path that is removed, after this number of reads below it, with this errno.
        self.vanishes: tuple[str, int, int] | None = None
        entries: Entries = {"proc/sys/kernel/random/boot_id": b"b\n"}
        for part in parts:
            entries |= part
        self._tree = Tree(MemoryStore(entries), errors or {})

    def read(self, path: str, limit: int) -> bytes:
        self._note(path)
        return self._tree.read(path, limit)

    def names(self, path: str) -> list[str]:
        self._note(path)
        return self._tree.names(path)

    def link(self, path: str) -> str:
        self._note(path)
        return self._tree.link(path)

    def asked_below(self, path: str) -> list[str]:
        """The paths asked for at and below a path."""
        return [asked for asked in self.asked if f"{asked}/".startswith(f"{path}/")]

    def _note(self, path: str) -> None:
        self.asked.append(path)
        if self.blocks_below and path.startswith(f"{self.blocks_below}/"):
            self.unblocked.wait(300)
        if self.vanishes and len(self.asked_below(self.vanishes[0])) > self.vanishes[1]:
            self._vanish(path, *self.vanishes)

    @staticmethod
    def _vanish(path: str, gone: str, _after: int, number: int) -> None:
        if f"{path}/".startswith(f"{gone}/"):
            raise OSError(number, os.strerror(number), path)


class BeforeReads:
    """A Root that calls a function with the path of each file before it is read."""

    def __init__(self, root: Root, before: Callable[[str], object]) -> None:
        self._root, self._before = root, before

    def read(self, path: str, limit: int) -> bytes:
        self._before(path)
        return self._root.read(path, limit)

    def names(self, path: str) -> list[str]:
        return self._root.names(path)

    def link(self, path: str) -> str:
        return self._root.link(path)


def host(root: Kernel, excluded: Iterable[str] = (), deadline: float = 5.0) -> Host:
    """A host with this root; devices have threads of their own only if one of them blocks."""
    worker = DeviceWorker if root.blocks_below else InlineWorker
    return Host(
        root,
        clock=lambda: 0.0,
        name="n1",
        excluded=tuple(excluded),
        deadline=deadline,
        worker=worker,
    )

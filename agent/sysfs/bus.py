"""The PCI functions that the roles of ports depend on: NICs, GPUs and the bridges above them.

The words for the distance between two are those of `nvidia-smi topo` and NCCL: PIX has at most one
PCIe switch between, PXB several, PHB the host bridge, NODE and SYS nothing but the CPU. Near is PIX
or PXB: both functions are below one PCI bridge. A guest whose bus is flat, a Grace CPU whose GPUs
have root ports of their own, and a ConnectX-8 with Data Direct have no NIC near a GPU.

All facts are kept by the kernel in memory, so no read touches a device, and every user may read
them. They do not change while a function is on the bus: each function is read once, and the bus
again when its list of names changes.

The place of a function is its real path, `pci0000:16/0000:16:01.0/0000:17:00.0/0000:18:00.0`: the
host bridge, the bridges from the root port down, the function. A virtual machine of Hyper-V has
the host bridge below VMBUS, Intel's VMD has another below a function; only the path below the last
host bridge counts.

Files: Documentation/ABI/testing/sysfs-bus-pci. Classes: include/linux/pci_ids.h.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from types import MappingProxyType
from typing import NamedTuple, TypeVar

from agent.errors import Unavailable
from agent.ids import PCI, card_of
from agent.model import Problem
from agent.sysfs import parse
from agent.sysfs.reader import Reader

DEVICES = "sys/bus/pci/devices"
NETWORK = 0x02  # PCI_BASE_CLASS_NETWORK
ETHERNET_CLASS = 0x0200  # PCI_CLASS_NETWORK_ETHERNET
INFINIBAND_CLASSES = frozenset({0x0207, 0x0C06})  # PCI_CLASS_{NETWORK,SERIAL}_INFINIBAND
# PCI_CLASS_DISPLAY_{VGA,3D,OTHER} (OTHER: MI100, MI250), PCI_CLASS_ACCELERATOR_PROCESSING
GPU_CLASSES = frozenset({0x0300, 0x0302, 0x0380, 0x1200})
NO_INFINIBAND = GPU_CLASSES | {ETHERNET_CLASS}
VGA_CLASS = 0x0300  # of the display of a BMC, too
VGA_VENDORS = frozenset({"10de", "1002"})  # of GPUs of that class: NVIDIA, AMD
# Not of a GPU of another class: displays of guests (Red Hat, Bochs, QEMU), FPGAs of Xilinx, and
# NPUs of Huawei, which have RDMA ports of their own.
NO_GPU_VENDORS = frozenset({"1af4", "1234", "1b36", "10ee", "19e5"})
OMNI_PATH_CLASS = 0x0208  # PCI_CLASS_NETWORK_FABRIC
# The Data Direct function of a ConnectX-8: a DMA engine beside the GPU, whose NIC is elsewhere.
DATA_DIRECT = "15b3:2100"
NEAR = frozenset({"PIX", "PXB"})  # distances with a PCI bridge above both
MAX_BRIDGES = 32  # above one function; PCI allows 256 buses

T = TypeVar("T")

_IDS = re.compile(r"[0-9a-f]{4}:[0-9a-f]{4}")
_HOST_BRIDGE = re.compile(r"pci[0-9a-f]{4,8}:[0-9a-f]{2}")


class Beside(NamedTuple):
    """The GPU that is nearest to a NIC, and how near; None is unknown."""

    gpu: str | None = None
    distance: str | None = None  # "PIX" | "PXB" | "PHB" | "NODE" | "SYS"

    @property
    def is_near(self) -> bool:
        """True if a PCI bridge is above both."""
        return self.distance in NEAR


NOWHERE = Beside()


class Function(NamedTuple):
    """A PCI function; None is unknown."""

    address: str
    code: int  # base class and subclass, the upper 16 bits of `class`
    ids: str | None = None  # vendor and device, "15b3:1021"
    subsystem: str | None = None  # subsystem_vendor and subsystem_device
    is_virtual: bool = False  # physfn exists
    numa_node: int | None = None  # of a GPU
    host_bridge: str | None = None  # "pci0000:16"
    bridges: tuple[str, ...] | None = None  # addresses, the root port first; None: no valid path
    # their vendor and device; None: unread, "": a copied tree lacks them
    bridge_ids: tuple[str | None, ...] = ()

    @property
    def card(self) -> str:
        """The address of the card."""
        return card_of(self.address)

    @property
    def is_gpu(self) -> bool:
        """True for a GPU; its virtual functions are no GPUs of their own."""
        vendor = (self.ids or "").partition(":")[0]
        if self.code not in GPU_CLASSES or self.is_virtual:
            return False
        if self.code == VGA_CLASS:
            return vendor in VGA_VENDORS
        return vendor not in NO_GPU_VENDORS

    @property
    def is_nic(self) -> bool:
        """True for a NIC or HCA, bound to a driver or not."""
        is_network = self.code >> 8 == NETWORK or self.code in INFINIBAND_CLASSES
        return is_network and self.ids != DATA_DIRECT

    @property
    def place(self) -> tuple[str, tuple[str | None, ...]] | None:
        """Its PCI ids, and those of the bridges above it; None if any of them is unknown.

        Functions of one place are alike, whatever their addresses.
        """
        if self.ids is None or not self.bridge_ids or not all(self.bridge_ids):
            return None
        return self.ids, self.bridge_ids

    @property
    def has_known_place(self) -> bool:
        """True unless its path, or the ids of a bridge on it, could not be read."""
        return self.bridges is not None and None not in self.bridge_ids

    def distance(self, other: "Function") -> str | None:
        """Return PIX, PXB or PHB; None if nothing but the CPU is between."""
        if self.address == other.address:  # a GPU with ports of its own (Gaudi)
            return "PIX"
        if self.bridges is None or other.bridges is None or self.host_bridge != other.host_bridge:
            return None
        common = len({*self.bridges} & {*other.bridges})
        if not common:
            return "PHB"
        # Below the upstream port of one switch each has a downstream port.
        is_one_switch = max(len(self.bridges), len(other.bridges)) - common <= 1
        return "PIX" if is_one_switch else "PXB"


class Bus:
    """The NICs and GPUs on the PCI bus."""

    def __init__(
        self,
        functions: Mapping[str, Function] = MappingProxyType({}),  # by address
        unread: frozenset[str] = frozenset(),  # functions of unknown class or ids
        failure: str | None = None,  # the error, if the bus could not be listed
    ) -> None:
        self.functions, self.unread, self.failure = functions, unread, failure
        self._nearest: dict[tuple[str | None, int | None], Beside] = {}  # as `beside` returned it
        # bound to a driver or not
        self.gpus = tuple(function for function in functions.values() if function.is_gpu)

    @property
    def nics(self) -> list[Function]:
        """The NICs, bound to a driver or not."""
        return [function for function in self.functions.values() if function.is_nic]

    def beside(self, address: str | None, numa_node: int | None = None) -> Beside:
        """Return the nearest GPU of a function; of several that at the lowest address."""
        if (nearest := self._nearest.get((address, numa_node))) is not None:
            return nearest
        nearest, nic = NOWHERE, self.functions.get(address or "")
        if nic and nic.bridges is not None:
            if self.gpus and numa_node is not None:
                is_local = numa_node in {gpu.numa_node for gpu in self.gpus}
                nearest = Beside(None, "NODE" if is_local else "SYS")
            distances = {gpu.address: nic.distance(gpu) for gpu in self.gpus}
            for distance in ("PHB", "PXB", "PIX"):  # the last one that applies is the nearest
                if near := [gpu for gpu in distances if distances[gpu] == distance]:
                    nearest = Beside(min(near), distance)
        self._nearest[address, numa_node] = nearest
        return nearest


EMPTY = Bus()


class BusMemory:
    """The functions that were read so far; it belongs to one thread."""

    def __init__(self) -> None:
        self.bus = EMPTY
        self.names: tuple[str, ...] = ()
        self.known: dict[str, Function | None] = {}  # None: neither NIC nor GPU
        self.is_complete = False  # no read failed
        self.odd: list[Problem] = []  # paths of no place, reported each time
        # By address, of functions whose class was read: whether it is a display controller of
        # NVIDIA, of any class of these and not those of `is_gpu` only.
        self.nvidia: dict[str, bool] = {}


def read_bus(reader: Reader, memory: BusMemory) -> Bus:
    """Return the bus; a function that could be read before is not read again.

    If the listing fails, that is the bus of the last listing, or an unknown bus without any.
    """
    before = len(reader.problems)
    try:
        names = reader.names(DEVICES)
    except Unavailable as error:
        return _unlisted(memory, str(error))
    if names is None:
        if len(reader.problems) > before:
            return _unlisted(memory, f"/{DEVICES} cannot be listed")
        memory.bus, memory.names = EMPTY, ()  # there is no PCI bus, or the tree has none of it
        return EMPTY
    if tuple(names) == memory.names and memory.is_complete:
        reader.problems += memory.odd
        return memory.bus
    memory.names = tuple(names)
    odd = {problem.subject for problem in memory.odd}
    memory.known = {
        name: memory.known[name]
        for name in names
        if name in memory.known and f"/{DEVICES}/{name}" not in odd
    }
    learned = {name: _learned(reader, memory, name) for name in names}
    memory.is_complete = len(memory.known) == len(names)
    memory.odd = [problem for problem in reader.problems[before:] if not problem.error]
    unread = {
        name
        for name, function in learned.items()
        if name not in memory.known
        and (function is None or (function.ids is None and function.code in GPU_CLASSES))
    }
    functions = _placed(reader, filter(None, learned.values()))
    memory.bus = Bus({function.address: function for function in functions}, frozenset(unread))
    return memory.bus


def _placed(reader: Reader, functions: Iterable[Function]) -> Iterator[Function]:
    """Yield the functions with vendor and device of the bridges above them.

    They are "" for a bridge of which the tree lacks them, None for one of which a read failed.
    """
    ids: dict[str, str | None] = {}  # by address
    for function in functions:
        for bridge in function.bridges or ():
            if bridge not in ids:
                before = len(reader.problems)
                with suppress(Unavailable):
                    ids[bridge] = read_ids(reader, f"{DEVICES}/{bridge}") or ""
                if bridge not in ids or len(reader.problems) > before:
                    ids[bridge] = None
        yield function._replace(bridge_ids=tuple(ids[bridge] for bridge in function.bridges or ()))


def _unlisted(memory: BusMemory, failure: str) -> Bus:
    if not memory.names:
        memory.bus = Bus(failure=failure)
    return memory.bus


def _learned(reader: Reader, memory: BusMemory, name: str) -> Function | None:
    """Return a function, which is remembered if no read of it fails."""
    if name in memory.known:
        return memory.known[name]
    before = len(reader.problems)
    function = None
    try:
        function = _function(reader, name)
    except Unavailable as error:
        reader.report(f"{DEVICES}/{name}", str(error), "ETIMEDOUT")
    has_failed = any(problem.error for problem in reader.problems[before:])
    if not has_failed and (function or len(reader.problems) == before):
        memory.known[name] = function
    return function


def _function(reader: Reader, name: str) -> Function | None:
    """Read a function; None if it is neither NIC nor GPU, or has gone."""
    base = f"{DEVICES}/{name}"
    code = _tried(reader, f"{base}/class", lambda path: reader.value(path, parse.number))
    if code is None:
        uevent = reader.value(f"{base}/uevent", parse.uevent) or {}
        digits = re.fullmatch(r"[0-9A-Fa-f]{1,6}", uevent.get("PCI_CLASS", ""))
        code = int(digits[0], 16) if digits else None
    if code is None:
        return None
    code >>= 8
    if code >> 8 != NETWORK and code not in INFINIBAND_CLASSES | GPU_CLASSES:
        return None
    host_bridge, bridges = _place(reader, name)
    return Function(
        name,
        code,
        read_ids(reader, base),
        read_ids(reader, base, subsystem=True),
        is_virtual=reader.link(f"{base}/physfn") is not None,
        numa_node=reader.value(f"{base}/numa_node", parse.known) if code in GPU_CLASSES else None,
        host_bridge=host_bridge,
        bridges=bridges,
    )


def read_ids(reader: Reader, base: str, *, subsystem: bool = False) -> str | None:
    """Read vendor and device of a function as `15b3:1021`; from `uevent` where they are missing."""
    prefix, key = ("subsystem_", "PCI_SUBSYS_ID") if subsystem else ("", "PCI_ID")
    vendor = reader.value(f"{base}/{prefix}vendor", parse.number)
    device = reader.value(f"{base}/{prefix}device", parse.number)
    if vendor is not None and device is not None:
        return f"{vendor & 0xFFFF:04x}:{device & 0xFFFF:04x}"
    text = (reader.value(f"{base}/uevent", parse.uevent) or {}).get(key, "").lower()
    return text if _IDS.fullmatch(text) else None


def _place(reader: Reader, name: str) -> tuple[str | None, tuple[str, ...] | None]:
    """Read the host bridge of a function, and the bridges between.

    A path that is cut, that goes in a circle, or that a copied tree has lost is none, and is
    reported.
    """
    path = f"{DEVICES}/{name}"
    target = _tried(reader, path, reader.link)
    if not target:
        entries = reader.names(path)
        if not entries:  # it has gone
            return None, None
        # The link of its RDMA device leads through its folder.
        devices = (reader.names(f"{path}/infiniband") or []) if "infiniband" in entries else []
        through = reader.link(f"sys/class/infiniband/{devices[0]}") if devices else None
        target = (through or "").rpartition("/infiniband/")[0]
    parts = target.partition("devices/")[2].split("/")
    hosts = [index for index, part in enumerate(parts) if _HOST_BRIDGE.fullmatch(part)]
    below = parts[hosts[-1] + 1 :] if hosts else []
    is_valid = (
        below[-1:] == [name]
        and len(set(below)) == len(below) <= MAX_BRIDGES
        and all(PCI.fullmatch(part) for part in below)
    )
    if not is_valid:
        reader.report(path, "its path is not that of a PCI function: no place beside a GPU")
        return None, None
    return parts[hosts[-1]], tuple(below[:-1])


def _tried(reader: Reader, path: str, read: Callable[[str], T | None]) -> T | None:
    """Return the result of a read; None if it fails or blocks, which is reported."""
    try:
        return read(path)
    except Unavailable as error:
        reader.report(path, str(error), "ETIMEDOUT")
        return None

"""Machine folders of which one read fails: the reads that an observation needs, and the agents that
meet the failure.

A case is a place of a machine's tree (a file, a listing or a link, or everything in a device's
folder) and an errno. The place fails under every path that leads to it, as an inode does, and
nothing else fails.

Eight equal HCAs have eight equal `state` files, so of the reads that are alike one fails: the first
or the last, with one of the errnos; both take turns. With `alike` each of them fails, and each
errno is that of one of them.
"""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property, partial
from itertools import cycle, product
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from agent.daemon.observer import Cycle, Observer
from agent.daemon.schedule import Settings
from agent.encode import Naming
from agent.kube.annotation import Annotation
from agent.kube.managed_fields import Keys
from agent.lldp.frame import Frame
from agent.lldp.neighbors import NeighborTable
from agent.lldp.reception import LldpNeighbors
from agent.model import PortRole, RdmaDevice, Seen
from agent.snapshot.replay import replay
from agent.snapshot.tree import Tree
from agent.sources.observe import Memories
from agent.sources.rdma import Constants, _read_device
from agent.sources.steady import RoleMemory
from agent.sysfs.worker import DeviceReaders, InlineWorker
from agent.text import natural
from tests.simulation.names import ACC, P
from tests.simulation.sysfs import BUS, CLASS

T = TypeVar("T")
Place = tuple[bool, str]


HOLD = 600.0
ERRNOS = (errno.EIO, errno.ETIMEDOUT, errno.ENODEV)
MAX_READ = 1 << 21  # bytes, more than the agent asks for
# The Node of a machine without labels of its own was labeled when it was this one.
EARLIER = {"driver-reloading": "dgx-h100"}

_NUMBER = re.compile(r"[0-9a-fA-F]*[0-9][0-9a-fA-F]*")
_NAMES = (
    (re.compile(r"(class/infiniband)/[^/]+"), r"\1/DEV"),
    (re.compile(r"/ports/[0-9]+"), "/ports/N"),
    (re.compile(r"/net/(?!route|ipv6|dev$|ovs-system)[^/]+"), "/net/IF"),
    (re.compile(r"/pci/devices/[^/]+"), "/pci/devices/BDF"),
)


class Read(NamedTuple):
    """One of the calls of a Root, and its path; "below" is every call below the path."""

    verb: str  # "read" | "names" | "link" | "below"
    path: str

    @property
    def file_class(self) -> str:
        """The path without the names of this machine.

        A listing ends in "/", a link in "@", a whole folder in "/**".
        """
        path = self.path
        for pattern, word in _NAMES:
            path = pattern.sub(word, path)
        return path + {"read": "", "names": "/", "link": "@", "below": "/**"}[self.verb]


class Case(NamedTuple):
    """A read, and the errno that it fails with."""

    read: Read
    number: int

    def __str__(self) -> str:
        return f"{errno.errorcode[self.number]} {self.read.verb} /{self.read.path}"


class FallibleRoot:
    """A Root that keeps the answers of a tree, and fails one place of it."""

    def __init__(self, tree: Tree) -> None:
        self.readers: dict[Read, set[str]] = {}  # the RDMA devices whose facts a read is one of
        self.device = ""  # the RDMA device that is read now
        self.notes = True  # reads are noted in `readers`
        self._tree = tree
        self._answers: dict[tuple[str, str], tuple[Place, Any, int]] = {}
        self._fails: Callable[[Place], bool] = lambda _place: False
        self._number = 0
        self._asked: set[Place] = set()  # since `recalled` began
        self._recalled: dict[Hashable, tuple[frozenset[Place], Any, Constants]] = {}

    def fail(self, case: Case | None) -> None:
        """Fail the place of this case from now on, and no other."""
        self._fails = self._matcher(case.read) if case else lambda _place: False
        self._number = case.number if case else 0

    def recalled(self, job: Any) -> Any:
        """Return the reading of a device, which is read unless a place fails that it asks for.

        A reading is a function of these places, of what is constant of the device, and of its name.
        """
        if job.func is not _read_device:  # its facts are of an earlier reading
            return job()
        _host, constants, routed, name = job.args
        key = name, routed, frozenset(constants.items())
        if known := self._recalled.get(key):
            places, (device, problems), learned = known
            if not any(map(self._fails, places)):
                constants.update(learned)
                return device, [*problems]
        self._asked = set()
        device, problems = job()
        if not (self.notes or any(map(self._fails, self._asked))):
            reading = device, [*problems]
            self._recalled[key] = frozenset(self._asked), reading, dict(constants)
        return device, problems

    def readers_of(self, read: Read) -> set[str]:
        """Return the RDMA devices that have facts by this read; "" for the facts of no device."""
        if read.verb != "below":
            return self._by_place[self.place(read)]
        fails = self._matcher(read)
        return set().union(*(names for place, names in self._by_place.items() if fails(place)))

    @cached_property
    def _by_place(self) -> dict[Place, set[str]]:
        """The devices by the place that they read, once all reads are noted."""
        found: dict[Place, set[str]] = {}
        for read, names in self.readers.items():
            found.setdefault(self._answers[read][0], set()).update(names)
        return found

    def _matcher(self, read: Read) -> Callable[[Place], bool]:
        place = self.place(read)
        if read.verb != "below":
            return place.__eq__
        folder = f"{place[1]}/"
        return lambda other: other[1].startswith(folder)

    def place(self, read: Read) -> Place:
        """Return the place that a read asks for."""
        is_link = read.verb == "link"
        resolve = self._tree.place if is_link else self._tree.resolve
        try:
            return is_link, resolve(read.path)
        except OSError:
            return is_link, read.path

    def text(self, read: Read) -> str:
        """Return the answer to a read as text, an errno by its name."""
        _, answer, number = self._answers[read]
        if number:
            return errno.errorcode[number]
        if isinstance(answer, list):
            return " ".join(sorted(answer, key=natural))
        return answer if isinstance(answer, str) else answer.decode("latin-1")

    def read(self, path: str, limit: int) -> bytes:
        data: bytes = self._ask("read", path)
        return data[:limit]

    def names(self, path: str) -> list[str]:
        return list(self._ask("names", path))

    def link(self, path: str) -> str:
        target: str = self._ask("link", path)
        return target

    def _ask(self, verb: str, path: str) -> Any:
        known = self._answers.get((verb, path))
        if known is None:
            read = Read(verb, path)
            known = self._answers[read] = (self.place(read), *self._answer(read))
        place, answer, number = known
        self._asked.add(place)
        if self.notes:
            self.readers.setdefault(Read(verb, path), set()).add(self.device)
        if self._fails(place):
            number = self._number
        if number:
            raise OSError(number, os.strerror(number), path)
        return answer

    def _answer(self, read: Read) -> tuple[Any, int]:
        arguments = (MAX_READ,) if read.verb == "read" else ()
        try:
            return getattr(self._tree, read.verb)(read.path, *arguments), 0
        except OSError as error:
            return None, error.errno or errno.EIO


class _NotingWorker(InlineWorker):
    """A worker that has its root note whose reads these are."""

    def __init__(self, root: FallibleRoot) -> None:
        super().__init__()
        self._root = root

    def put(self, device: str, task: Callable[[], None]) -> None:
        self._root.device = device
        task()
        self._root.device = ""


class _Readers(DeviceReaders):
    """Readers of the devices of a root, that has them recalled."""

    def __init__(self, root: FallibleRoot) -> None:
        super().__init__(worker=lambda: _NotingWorker(root))
        self._root = root

    def read(self, jobs: Mapping[str, Callable[[], T]], timeout: float) -> dict[str, T]:
        return super().read(
            {name: partial(self._root.recalled, job) for name, job in jobs.items()}, timeout
        )


class Agent:
    """The observation cycles of one agent on a machine; `after` moves its clock."""

    def __init__(
        self,
        machine: Machine,
        labels: Mapping[str, str] | None = None,
        annotation: Annotation | None = None,
    ) -> None:
        self._root, self._passed = machine.root, 0.0
        host = machine.host
        start, query, table = host.clock(), host.lldp_neighbors, NeighborTable()
        frames = query.listen if isinstance(query, LldpNeighbors) else None

        def shifted(links: Mapping[str, bool]) -> tuple[list[Frame], Mapping[str, str | None]]:
            """Return the frames of the machine as if they had just been received."""
            assert frames
            found, missing = frames(links)
            return [replace(one, time=one.time + self._passed) for one in found], missing

        def clock() -> float:
            return start + self._passed

        host = host._replace(
            clock=clock,
            lldp_neighbors=LldpNeighbors(shifted, table) if frames else None,
        )
        memories = Memories(_Readers(machine.root), roles=RoleMemory(clock, clock, HOLD))
        self._observer = Observer(
            host, memories, table, Keys(Naming()), (), Settings(hold=HOLD), host.clock
        )
        self._on_node = dict(labels or {})
        if labels is not None:
            self._observer.seed(labels, annotation)

    def observe(self, case: Case | None = None, *, after: float = 0.0) -> Cycle:
        """Run a cycle in which this read fails; its labels are those that the Node has then."""
        self._passed += after
        self._root.fail(case)
        try:
            cycle = self._observer.observe()
        finally:
            self._root.fail(None)
        rendered = cycle.rendered.over(self._on_node)
        self._on_node = rendered.labels
        return cycle._replace(rendered=rendered)


class Machine:
    """A machine folder, and what a clean observation of it gives."""

    def __init__(self, folder: Path, *, alike: bool = False) -> None:
        self.name = folder.name
        host = replay(str(folder))
        self.root = FallibleRoot(host.root)  # type: ignore[arg-type] # a replayed root is a Tree
        self.host = host._replace(root=self.root)
        self.clean = Agent(self).observe()
        self.root.notes = False
        self._folder, self._alike = folder, alike

    @property
    def labels(self) -> dict[str, str]:
        """The labels of a node that has only just been labeled."""
        return self.clean.rendered.labels

    @cached_property
    def published(self) -> tuple[dict[str, str], Annotation]:
        """The labels and the annotation of a node that had a neighbor at every port before.

        They are those that clean observations keep, held ones among them.
        """
        labels = {**self._earlier_labels(), **self.labels}
        annotation = self.clean.annotation
        if name := EARLIER.get(self.name):
            annotation = Machine(self._folder.parent / name).clean.annotation
        agent = Agent(self, labels, annotation)
        agent.observe()
        kept = agent.observe()
        return kept.rendered.labels, kept.annotation

    def _earlier_labels(self) -> dict[str, str]:
        if name := EARLIER.get(self.name):
            return Machine(self._folder.parent / name).labels
        names = {role.interface for role in self.roles} | {device.name for device in self.devices}
        parts = ("device", "port-id")
        told = {
            f"{P}/neighbors.current.{name}.{part}": "earlier" for name in names for part in parts
        }
        return told | {ACC: "earlier.1"}

    @property
    def devices(self) -> tuple[RdmaDevice, ...]:
        rdma = self.clean.observation.rdma
        return rdma.value if isinstance(rdma, Seen) else ()

    @property
    def roles(self) -> tuple[PortRole, ...]:
        return self.clean.observation.ports

    @cached_property
    def cases(self) -> list[Case]:
        """The reads that fail in turn, with their errnos."""
        places: dict[Place, Read] = {}
        for read in self.root.readers:
            places.setdefault(self.root.place(read), read)
        reads = sorted([*places.values(), *self._folders()], key=lambda one: natural(one.path))
        groups: dict[object, list[Read]] = {}
        for read in reads:
            groups.setdefault(self._kind(read), []).append(read)
        if self._alike:
            return [case for group in groups.values() for case in _all(group)]
        turns = cycle(product((0, -1), ERRNOS))
        return [
            Case(group[place], number)
            for group, (place, number) in zip(groups.values(), turns, strict=False)
        ]

    def _folders(self) -> list[Read]:
        """Return the folders of the RDMA devices, and those of their PCI functions."""
        functions = dict.fromkeys(device.pci for device in self.devices if device.pci)
        paths = [f"{CLASS}/{device.name}" for device in self.devices]
        return [Read("below", path) for path in (*paths, *(f"{BUS}/{pci}" for pci in functions))]

    def _kind(self, read: Read) -> object:
        """Return what reads that are alike have in common: class, answer, the ports concerned."""
        text = "" if read.verb == "below" else self.root.text(read)
        answer = {_NUMBER.sub("#", word) for word in text.split()}
        devices = self.root.readers_of(read)
        ports = {
            (*_signature(role), *self._neighborhood(role))
            for role in self.roles
            if role.device.name in devices and _concerns(read, role)
        }
        return read.file_class, frozenset(answer), frozenset(ports), len(devices)

    def _neighborhood(self, role: PortRole) -> tuple[object, ...]:
        """Return the reason for a missing neighbor, and the number of LLDP frames received."""
        netdev = role.leg or role.port.netdev
        received = [frame for frame in self._frames if netdev and frame.netdev == netdev.name]
        return self._missing.get(role.interface), len(received)

    @cached_property
    def _missing(self) -> dict[str, str | None]:
        seen = (self.clean.observation.lldp, self.clean.observation.ib)
        links = (link for outcome in seen if isinstance(outcome, Seen) for link in outcome.value)
        return {link.interface: link.missing for link in links}

    @cached_property
    def _frames(self) -> list[Frame]:
        query = self.host.lldp_neighbors
        if not isinstance(query, LldpNeighbors):
            return []
        return query.listen({name: True for device in self.devices for name in device.netdevs})[0]

    def touched(self, case: Case) -> frozenset[str] | None:
        """Return the devices of whose facts the read is one; None if it is of none's.

        What sits behind the same PCI function goes with its device.
        """
        names = self.root.readers_of(case.read) - {""}
        functions = {device.pci for device in self.devices if device.name in names} - {None}
        beside = {device.name for device in self.devices if device.pci in functions}
        return frozenset(names | beside) or None


def _all(group: Sequence[Read]) -> list[Case]:
    """Return a case of each read, and one of each errno: of few reads, each with each."""
    if len(group) < len(ERRNOS):
        return [Case(read, number) for read in group for number in ERRNOS]
    return [Case(read, number) for read, number in zip(group, cycle(ERRNOS), strict=False)]


def _concerns(read: Read, role: PortRole) -> bool:
    """Return True unless the read is of another port, or of the netdev of another port."""
    if found := re.search(r"/ports/([0-9]+)", read.path):
        return int(found[1]) == role.port.number
    if found := re.search(r"/net/([^/]+)", read.path):
        own = [role.leg] if role.leg else [role.port.netdev, *role.port.legs]
        names = {netdev.name for netdev in own if netdev}
        others = found[1] not in role.device.netdevs
        return not names or found[1] in names or others
    return True


def _signature(role: PortRole) -> tuple[object, ...]:
    """Return what the ports of equal devices have in common."""
    port, netdev = role.port, role.leg or role.port.netdev
    return (
        _NUMBER.sub("#", role.reason), role.backend, port.link_layer, port.state, bool(port.legs),
        role.counted_gbps, role.device.hca_type, role.device.driver, role.device.failure,
        role.device.nvswitch_management, role.device.virtual_function, netdev is not None,
        netdev and (netdev.operstate, netdev.bond_state, netdev.default_route),
    )  # fmt: skip

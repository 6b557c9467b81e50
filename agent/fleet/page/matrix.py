"""The wiring matrix of one group: its rails, and a row for each node or run of equal nodes."""

from __future__ import annotations

from collections import Counter
from itertools import groupby
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from agent.findings.finding import PortRef
from agent.model import natural

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from agent.fleet.model import FarEnd, FleetNode, FleetPort
    from agent.fleet.page.leaves import Leaf, Leaves
    from agent.fleet.page.marks import Mark, Marks

T = TypeVar("T")
FOLDED_FROM = 17  # nodes of a group, from which equal neighbors share a row
RUN = 4  # the fewest that do
WIDEST = 2  # times the rails of the node with most: more columns are no rails

Key = tuple[str, int]  # a rail: PCI address or interface, and which one of it


class Rail(NamedTuple):
    """One column."""

    key: Key
    interface: str  # the most common one
    pci: str | None
    gbps: float | None  # the most common rate


class Cell(NamedTuple):
    """One port, or what is missing of it."""

    port: FleetPort | None  # None: the node has no such interface
    leaf: Leaf | None = None
    last: FarEnd | None = None  # where it was, now that no neighbor is seen
    other_name: str | None = None  # of the interface, where it is not the rail's
    other_gbps: float | None = None  # where it is not the rail's
    mark: Mark | None = None

    @property
    def alike(self) -> tuple[object, ...]:
        """The common part of the cells of a shared row: all but the port at the far end."""
        state = self.port and (self.port.is_lost, self.last and self.last.switch)
        return state, self.leaf, self.other_name, self.other_gbps, self.mark


class Row(NamedTuple):
    """One node, or several in a row that differ only in the ports at the far ends."""

    nodes: tuple[FleetNode, ...]
    cells: tuple[tuple[Cell, ...], ...]  # of each node
    mark: Mark | None  # of the nodes

    @property
    def name(self) -> str:
        """The name of the node, or the first and the last one."""
        first, last = self.nodes[0].name, self.nodes[-1].name
        return first if len(self.nodes) == 1 else f"{first} to {last}"

    def ports(self, rail: int) -> str:
        """Return the port at the far end, or the first and the last of several."""
        found = dict.fromkeys(_port(cells[rail]) for cells in self.cells)
        if len(found) == 1:
            return next(iter(found))
        ports = sorted(found, key=natural)
        return f"{ports[0]} to {ports[-1]}"

    def last(self, rail: int) -> str | None:
        """Return where a cable was that is not seen now; of several nodes, on which leaf."""
        end = self.cells[0][rail].last
        return end.device if end and len(self.nodes) > 1 else end_text(end)

    def ports_of(self, number: int) -> str:
        """Return the ports at the far ends of one of the nodes; equal ones once."""
        ports = [_port(cell) or "-" for cell in self.cells[number]]
        return ports[0] if len(set(ports)) == 1 else " ".join(ports)


class Matrix(NamedTuple):
    """The matrix of a group."""

    rails: tuple[Rail, ...]
    rows: tuple[Row, ...]


def matrix(nodes: Sequence[FleetNode], leaves: Leaves, marks: Marks) -> Matrix:
    """Return the matrix of the nodes of a group, which are in natural order."""
    keyed = [_keyed(node) for node in nodes]
    rails = _rails(keyed)
    if len(rails) > WIDEST * max(map(len, keyed), default=0):
        keyed = [_numbered(node) for node in nodes]
        rails = _rails(keyed)
    rows = [
        _row(node, ports, rails, leaves, marks) for node, ports in zip(nodes, keyed, strict=True)
    ]
    return Matrix(rails, tuple(_folded(rows)))


def _keyed(node: FleetNode) -> dict[Key, FleetPort]:
    """Return the ports by PCI address, since names differ from node to node."""
    found: dict[Key, FleetPort] = {}
    for port in node.ports:
        address = port.pci or port.interface
        place = sum(key[0] == address for key in found)
        found[address, place] = port
    return found


def _numbered(node: FleetNode) -> dict[Key, FleetPort]:
    return {("", number): port for number, port in enumerate(node.ports)}


def _rails(keyed: Iterable[dict[Key, FleetPort]]) -> tuple[Rail, ...]:
    ports: dict[Key, list[FleetPort]] = {}
    for one in keyed:
        for key, port in one.items():
            ports.setdefault(key, []).append(port)
    found = [_rail(key, of_key) for key, of_key in ports.items()]
    return tuple(sorted(found, key=lambda rail: (natural(rail.interface), rail.key)))


def _rail(key: Key, ports: Sequence[FleetPort]) -> Rail:
    interface = _most_common(port.interface for port in ports)
    pci = _most_common(port.pci for port in ports) if key[0] else None
    rate = _most_common(port.gbps for port in ports if port.gbps) if ports else None
    return Rail(key, interface or "", pci, rate)


def _most_common(values: Iterable[T]) -> T | None:
    found = Counter(values).most_common(1)
    return found[0][0] if found else None


def _row(
    node: FleetNode,
    ports: dict[Key, FleetPort],
    rails: Sequence[Rail],
    leaves: Leaves,
    marks: Marks,
) -> Row:
    cells = tuple(
        _cell(PortRef(node.name, port.interface), port, rail, leaves, marks)
        if (port := ports.get(rail.key))
        else Cell(None)
        for rail in rails
    )
    return Row((node,), (cells,), marks.of_node(node.name))


def _cell(ref: PortRef, port: FleetPort, rail: Rail, leaves: Leaves, marks: Marks) -> Cell:
    return Cell(
        port,
        leaves[port.far_end.switch] if port.far_end else None,
        None if port.far_end else port.last_end,
        port.interface if port.interface != rail.interface else None,
        port.gbps if port.gbps != rail.gbps else None,
        marks.of_port(ref),
    )


def end_text(end: FarEnd | None) -> str | None:
    """Return the far end of a cable as `leaf07/12`."""
    return place_text(end.device, end.port) if end else None


def place_text(device: str | None, port: str | None) -> str:
    """Return a port of a switch as `leaf07/12`."""
    return f"{device or '?'}/{port}" if port else device or "?"


def _port(cell: Cell) -> str:
    far_end = cell.port.far_end if cell.port else None
    return (far_end.port or "") if far_end else ""


def _folded(rows: Sequence[Row]) -> list[Row]:
    """Return the rows with runs of equal ones made one, where the group is large."""
    if len(rows) < FOLDED_FROM:
        return list(rows)
    found: list[Row] = []
    for _, run in groupby(rows, key=_alike):
        alike = list(run)
        found += [_joined(alike)] if len(alike) >= RUN else alike
    return found


def _alike(row: Row) -> tuple[object, ...]:
    speed = row.nodes[0].speed_gbps
    return row.mark, speed, tuple(cell.alike for cell in row.cells[0])


def _joined(rows: Sequence[Row]) -> Row:
    nodes = tuple(row.nodes[0] for row in rows)
    return Row(nodes, tuple(row.cells[0] for row in rows), rows[0].mark)

"""What the page shows of one group: the wiring matrix, and the pictures of it.

The matrix has the rails of the group, and a row for each node or run of equal nodes. In a picture
leaves are above, nodes below, right cables thin, wrong cables drawn out; it has at most PER_PICTURE
nodes, or runs of nodes, so that it can be read on A4.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import cycle, groupby
from typing import NamedTuple, TypeVar

from agent.cabling.finding import ERROR, PortRef
from agent.cabling.seen import SeenEnd
from agent.fleet.model import FleetNode, FleetPort, Group, place_text
from agent.fleet.page.lookup import Leaf, LeafTable, Mark, Marks
from agent.fleet.pattern.grouping import Column, columns_of
from agent.text import natural, visible

T = TypeVar("T")
FOLDED_FROM = 17  # nodes of a group, from which equal neighbors share a row
RUN = 4  # the fewest that do
WIDEST = 2  # times the rails of the node with most: more columns are no rails
PER_PICTURE = 8
MAX_LEAVES = 16  # of a group that are all drawn; of more, those with a cable
STEP, BOX, MARGIN = 104, 96, 8  # pixels
LEAF_BOTTOM, NODE_TOP = 44, 260
OFFSET = 7  # between what is seen and what is wanted at one leaf
BADGES = (0.2, 0.31, 0.42)  # where on a wrong cable its sign stands, in turn
AT_WANTED = 0.9
LONGEST = 14  # characters in a box
MAX_DESCRIBED = 8  # wrong cables in the description


class Rail(NamedTuple):
    """One column."""

    key: Column
    interface: str  # the most common name
    pci: str | None
    gbps: float | None  # the most common rate


class Cell(NamedTuple):
    """One port, or what is missing of it."""

    port: FleetPort | None  # None: the node has no such interface
    leaf: Leaf | None = None
    last: SeenEnd | None = None  # where it was, now that no neighbor is seen
    other_name: str | None = None  # of the interface, where it is not the rail's
    other_gbps: float | None = None  # where it is not the rail's
    mark: Mark | None = None

    @property
    def alike(self) -> tuple[object, ...]:
        """The common part of the cells of a shared row: all but the port at the far end."""
        state = self.port and (self.port.is_lost, self.last and self.last.switch)
        return state, self.leaf, self.other_name, self.other_gbps, self.mark


class MatrixRow(NamedTuple):
    """One node, or several in a row that differ only in the ports at the far ends."""

    nodes: tuple[FleetNode, ...]
    cells: tuple[tuple[Cell, ...], ...]  # of each node
    mark: Mark | None  # of the nodes

    @property
    def name(self) -> str:
        """The name of the node, or those of the first and the last node."""
        first, last = self.nodes[0].name, self.nodes[-1].name
        return first if len(self.nodes) == 1 else f"{first} to {last}"

    def ports(self, rail: int) -> str:
        """Return the port at the far end, or the first and the last of several."""
        distinct = dict.fromkeys(_port(cells[rail]) for cells in self.cells)
        if len(distinct) == 1:
            return next(iter(distinct))
        ports = sorted(distinct, key=natural)
        return f"{ports[0]} to {ports[-1]}"

    def last(self, rail: int) -> str | None:
        """Return where a cable was that is not seen now; of several nodes, on which leaf."""
        end = self.cells[0][rail].last
        if end is None:
            return None
        return end.device if len(self.nodes) > 1 else place_text(end.device, end.port)

    def ports_of(self, number: int) -> str:
        """Return the ports at the far ends of a node of the row; equal ports once."""
        ports = [_port(cell) or "-" for cell in self.cells[number]]
        return ports[0] if len(set(ports)) == 1 else " ".join(ports)


class Matrix(NamedTuple):
    """The matrix of a group."""

    rails: tuple[Rail, ...]
    rows: tuple[MatrixRow, ...]


def matrix(nodes: Sequence[FleetNode], leaves: LeafTable, marks: Marks) -> Matrix:
    """Return the matrix of the nodes of a group, which are in natural order."""
    # The ports by PCI address, since names differ from node to node.
    keyed: list[dict[Column, FleetPort]] = []
    for node in nodes:
        columns, order = columns_of(node)
        keyed.append(dict(zip(columns, (node.ports[index] for index in order), strict=True)))
    rails = _rails(keyed)
    if len(rails) > WIDEST * max(map(len, keyed), default=0):
        keyed = [{("", place): port for place, port in enumerate(node.ports)} for node in nodes]
        rails = _rails(keyed)
    rows = []
    for node, ports in zip(nodes, keyed, strict=True):
        cells = []
        for rail in rails:
            own = ports.get(rail.key)
            if own is None:
                cells.append(Cell(None))
                continue
            end = own.far_end
            cell = Cell(
                own,
                leaves[end.switch] if end else None,
                None if end else own.last_end,
                own.interface if own.interface != rail.interface else None,
                own.gbps if own.gbps != rail.gbps else None,
                marks.of_port(PortRef(node.name, own.interface)),
            )
            cells.append(cell)
        rows.append(MatrixRow((node,), (tuple(cells),), marks.of_node(node.name)))
    return Matrix(rails, tuple(_folded(rows)))


def _rails(keyed: Iterable[dict[Column, FleetPort]]) -> tuple[Rail, ...]:
    ports: dict[Column, list[FleetPort]] = {}
    for of_node in keyed:
        for key, port in of_node.items():
            ports.setdefault(key, []).append(port)
    rails = [
        Rail(
            key,
            _most_common(port.interface for port in same) or "",
            _most_common(port.pci for port in same) if key[0] else None,
            _most_common(port.gbps for port in same if port.gbps),
        )
        for key, same in ports.items()
    ]
    return tuple(sorted(rails, key=lambda rail: (natural(rail.interface), rail.key)))


def _most_common(values: Iterable[T]) -> T | None:
    commonest = Counter(values).most_common(1)
    return commonest[0][0] if commonest else None


def _port(cell: Cell) -> str:
    far_end = cell.port.far_end if cell.port else None
    return (far_end.port or "") if far_end else ""


def _folded(rows: Sequence[MatrixRow]) -> list[MatrixRow]:
    """Return the rows; in a large group, each run of equal rows as a single row."""

    def alike(row: MatrixRow) -> tuple[object, ...]:
        return row.mark, row.nodes[0].speed_gbps, *(cell.alike for cell in row.cells[0])

    if len(rows) < FOLDED_FROM:
        return list(rows)
    folded: list[MatrixRow] = []
    for _, run in groupby(rows, key=alike):
        same = list(run)
        if len(same) >= RUN:
            nodes, cells = (row.nodes[0] for row in same), (row.cells[0] for row in same)
            same = [MatrixRow(tuple(nodes), tuple(cells), same[0].mark)]
        folded += same
    return folded


# pictures


class Box(NamedTuple):
    """A leaf or a node."""

    x: float
    title: str
    lines: tuple[str, ...]
    mark: Mark | None
    color: str = ""

    @property
    def middle(self) -> float:
        return self.x + BOX / 2


class Wrong(NamedTuple):
    """A cable that is not right, or the place where it belongs."""

    kind: str  # class of page.css: an error or a warning as it is seen, or `wanted`
    start: float
    end: float
    sign: str
    text: str
    at: tuple[float, float]  # of the sign


class Picture(NamedTuple):
    """Some nodes of a group and their leaves, ready to be drawn."""

    width: int
    title: str
    text: str  # the same in words
    leaves: tuple[Box, ...]
    nodes: tuple[Box, ...]
    right: str  # path of all right cables
    wrong: tuple[Wrong, ...]


def pictures(group: Group, matrix: Matrix, leaves: LeafTable, marks: Marks) -> list[Picture]:
    """Return the pictures of a group; where it has findings, those with findings only."""
    rows = matrix.rows
    parts = [rows[at : at + PER_PICTURE] for at in range(0, len(rows), PER_PICTURE)]
    told = [part for part in parts if any(row.mark for row in part)]
    return [_picture(group, matrix.rails, part, leaves, marks) for part in told or parts]


def _picture(
    group: Group,
    rails: Sequence[Rail],
    rows: Sequence[MatrixRow],
    leaves: LeafTable,
    marks: Marks,
) -> Picture:
    def wanted_of(cell: Cell) -> Leaf | None:
        """Return the leaf that the cable of a cell belongs to, preferring leaves of the group."""
        wanted = cell.mark.wanted if cell.mark else None
        named = leaves.named(wanted[0]) if wanted else []
        ours = [leaf for leaf in named if leaf.id in group.leaves]
        return next(iter(ours or named), None)

    # the leaves of the group, then the others that these cables are or belong on
    cells = [cell for row in rows for cell in row.cells[0]]
    ends = (end for cell in cells for end in (cell.leaf, wanted_of(cell)))
    used = dict.fromkeys(leaf for leaf in ends if leaf)
    ours = [leaves[switch] for switch in group.leaves]
    if len(ours) > MAX_LEAVES:
        ours = [leaf for leaf in ours if leaf in used]
    others = sorted((leaf for leaf in used if leaf not in ours), key=lambda x: natural(x.name))
    drawn = [*ours, *others]
    width = max(len(drawn), len(rows), 3) * STEP + MARGIN
    leaf_x = dict(zip(drawn, _places(len(drawn), width), strict=True))
    node_x = _places(len(rows), width)
    right, wrong, badges = list[str](), list[Wrong](), cycle(BADGES)
    for number, row in enumerate(rows):
        for rail, cell in enumerate(row.cells[0]):
            x = node_x[number] + BOX * (rail + 0.5) / len(rails)
            if cell.leaf and not cell.mark:
                end = leaf_x[cell.leaf] + BOX * (number + 0.5) / len(rows)
                right.append(f"M{x:.0f} {NODE_TOP}L{end:.0f} {LEAF_BOTTOM}")
            if not cell.port or not cell.mark:
                continue
            name, badge = f"{row.name} {cell.port.interface}", next(badges)
            if cell.leaf and (far := cell.port.far_end):
                end = leaf_x[cell.leaf] + BOX / 2 - OFFSET
                text = f"{name} is on {place_text(far.device, far.port)}"
                kind, sign = cell.mark.severity, cell.mark.sign
                wrong.append(Wrong(kind, x, end, sign, text, _at(x, end, badge)))
            if (leaf := wanted_of(cell)) and cell.mark.wanted:
                end = leaf_x[leaf] + BOX / 2 + OFFSET
                text = f"{name} belongs to {place_text(*cell.mark.wanted)}"
                wrong.append(Wrong("wanted", x, end, "○", text, _at(x, end, AT_WANTED)))
    of_leaves = []
    for leaf, x in leaf_x.items():
        mark = marks.of_switch(*leaves.names(leaf))
        of_leaves.append(Box(x, leaf.name, (_short(leaf.name), _flag(mark)), mark, leaf.color))
    nodes = sum(len(row.nodes) for row in rows)
    told = "; ".join(cable.text for cable in wrong[:MAX_DESCRIBED])
    more = f"; and {len(wrong) - MAX_DESCRIBED} more" if len(wrong) > MAX_DESCRIBED else ""
    what = f"{told}{more}." if wrong else "No cable is marked."
    first, last = rows[0].nodes[0].name, rows[-1].nodes[-1].name
    return Picture(
        width,
        f"Cables of {first} to {last}" if first != last else f"Cables of {first}",
        f"{nodes} nodes below, {len(leaf_x)} leaves above. {what}",
        tuple(of_leaves),
        tuple(map(_node_box, rows, node_x)),
        "".join(right),
        tuple(wrong),
    )


def _places(count: int, width: float) -> list[float]:
    """Return the left edges of boxes in the middle of a picture."""
    start = (width - count * STEP) / 2 + MARGIN / 2
    return [start + STEP * place for place in range(count)]


def _at(start: float, end: float, part: float) -> tuple[float, float]:
    """Return the place on a cable, from its node."""
    return start + (end - start) * part, NODE_TOP + (LEAF_BOTTOM - NODE_TOP) * part


def _node_box(row: MatrixRow, x: float) -> Box:
    first, last = row.nodes[0].name, row.nodes[-1].name
    if len(row.nodes) == 1:
        return Box(x, first, (_short(first), _flag(row.mark)), row.mark)
    return Box(
        x,
        f"{row.name}: {len(row.nodes)} nodes",
        (_short(first), f"to {_short(last, LONGEST - 3)}"),
        row.mark if row.mark and row.mark.severity == ERROR else None,
    )


def _flag(mark: Mark | None) -> str:
    if not mark:
        return ""
    shown = " ".join(f"#{number}" for number in mark.numbers[:2])
    return f"{mark.sign} {shown}" + (" …" if len(mark.numbers) > 2 else "")


def _short(text: str, longest: int = LONGEST) -> str:
    """Return a text that fits into a box; names differ most often at their ends."""
    text = visible(text, 200)
    half = longest // 2
    return text if len(text) <= longest else f"{text[: half - 1]}…{text[-half:]}"

"""The pictures of a group: leaves above, nodes below, right cables thin, wrong cables drawn out.

A picture has at most PER_PICTURE nodes, or runs of nodes, so that it can be read on A4.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from agent.findings.finding import ERROR
from agent.fleet.page.matrix import end_text, place_text
from agent.model import natural
from agent.text import visible

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from agent.fleet.judged import Group
    from agent.fleet.page.leaves import Leaf, Leaves
    from agent.fleet.page.marks import Mark, Marks
    from agent.fleet.page.matrix import Cell, Matrix, Rail, Row

PER_PICTURE = 8
MAX_LEAVES = 16  # of a group that are all drawn; of more, those with a cable
STEP, BOX, MARGIN = 104, 96, 8  # pixels
LEAF_TOP, LEAF_BOTTOM, NODE_TOP, NODE_BOTTOM = 8, 44, 260, 300
OFFSET = 7  # between what is seen and what is wanted at one leaf
BADGES = (0.2, 0.31, 0.42)  # where on a wrong cable its sign stands, in turn
AT_WANTED = 0.9
LONGEST = 14  # characters in a box
MAX_DESCRIBED = 8  # wrong cables in the description


class Box(NamedTuple):
    """A leaf or a node."""

    x: float
    title: str
    lines: tuple[str, ...]
    mark: Mark | None
    color: str = ""

    @property
    def middle(self) -> float:
        """The middle of the box."""
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


def pictures(group: Group, matrix: Matrix, leaves: Leaves, marks: Marks) -> list[Picture]:
    """Return the pictures of a group; where it has findings, those with findings only."""
    rows = matrix.rows
    parts = [rows[at : at + PER_PICTURE] for at in range(0, len(rows), PER_PICTURE)]
    told = [part for part in parts if any(row.mark for row in part)]
    return [_Drawing(group, matrix.rails, part, leaves, marks).picture() for part in told or parts]


class _Drawing:
    """Lays out one picture."""

    def __init__(
        self,
        group: Group,
        rails: Sequence[Rail],
        rows: Sequence[Row],
        leaves: Leaves,
        marks: Marks,
    ) -> None:
        self._group, self._rails, self._rows = group, rails, rows
        self._leaves, self._marks = leaves, marks
        self._drawn = self._all_leaves()
        self._width = max(len(self._drawn), len(rows), 3) * STEP + MARGIN
        self._leaf_x = dict(zip(self._drawn, self._places(len(self._drawn)), strict=True))
        self._node_x = self._places(len(rows))

    def picture(self) -> Picture:
        wrong = tuple(self._wrong())
        first, last = self._rows[0].nodes[0].name, self._rows[-1].nodes[-1].name
        return Picture(
            self._width,
            f"Cables of {first} to {last}" if first != last else f"Cables of {first}",
            self._words(wrong),
            tuple(self._leaf_box(leaf, x) for leaf, x in self._leaf_x.items()),
            tuple(_node_box(row, x) for row, x in zip(self._rows, self._node_x, strict=True)),
            "".join(self._right()),
            wrong,
        )

    def _all_leaves(self) -> list[Leaf]:
        used = dict.fromkeys(self._used())
        ours = [self._leaves[switch] for switch in self._group.leaves]
        if len(ours) > MAX_LEAVES:
            ours = [leaf for leaf in ours if leaf in used]
        others = sorted((leaf for leaf in used if leaf not in ours), key=lambda x: natural(x.name))
        return [*ours, *others]

    def _used(self) -> Iterator[Leaf]:
        for row in self._rows:
            for cell in row.cells[0]:
                yield from [cell.leaf] if cell.leaf else []
                yield from [leaf] if (leaf := self._wanted(cell)) else []

    def _wanted(self, cell: Cell) -> Leaf | None:
        """Return the leaf that the cable of a cell belongs to, one of the group's if there is."""
        wanted = cell.mark.wanted if cell.mark else None
        found = self._leaves.named(wanted[0]) if wanted else []
        ours = [leaf for leaf in found if leaf.id in self._group.leaves]
        return next(iter(ours or found), None)

    def _places(self, count: int) -> list[float]:
        start = (self._width - count * STEP) / 2 + MARGIN / 2
        return [start + STEP * place for place in range(count)]

    def _cables(self) -> Iterator[tuple[int, float, Cell, Row, Rail]]:
        """Yield each cell with the place of its node and of its own end there."""
        count = len(self._rails)
        for number, row in enumerate(self._rows):
            for rail, cell in enumerate(row.cells[0]):
                x = self._node_x[number] + BOX * (rail + 0.5) / count
                yield number, x, cell, row, self._rails[rail]

    def _right(self) -> Iterator[str]:
        for number, x, cell, *_ in self._cables():
            if cell.leaf and not cell.mark:
                end = self._leaf_x[cell.leaf] + BOX * (number + 0.5) / len(self._rows)
                yield f"M{x:.0f} {NODE_TOP}L{end:.0f} {LEAF_BOTTOM}"

    def _wrong(self) -> Iterator[Wrong]:
        for turn, (x, cell, name) in enumerate(self._marked()):
            if cell.leaf and cell.mark and cell.port:
                end = self._leaf_x[cell.leaf] + BOX / 2 - OFFSET
                text = f"{name} is on {end_text(cell.port.far_end)}"
                at = _at(x, end, BADGES[turn % len(BADGES)])
                yield Wrong(cell.mark.severity, x, end, cell.mark.sign, text, at)
            if (leaf := self._wanted(cell)) and cell.mark and cell.mark.wanted:
                end = self._leaf_x[leaf] + BOX / 2 + OFFSET
                text = f"{name} belongs to {place_text(*cell.mark.wanted)}"
                yield Wrong("wanted", x, end, "○", text, _at(x, end, AT_WANTED))

    def _marked(self) -> Iterator[tuple[float, Cell, str]]:
        for _, x, cell, row, rail in self._cables():
            if cell.mark:
                interface = cell.port.interface if cell.port else rail.interface
                yield x, cell, f"{row.name} {interface}"

    def _leaf_box(self, leaf: Leaf, x: float) -> Box:
        mark = self._marks.of_switch(*self._leaves.names(leaf))
        return Box(x, leaf.name, (_short(leaf.name), _flag(mark)), mark, leaf.color)

    def _words(self, wrong: Sequence[Wrong]) -> str:
        nodes = sum(len(row.nodes) for row in self._rows)
        told = "; ".join(one.text for one in wrong[:MAX_DESCRIBED])
        more = f"; and {len(wrong) - MAX_DESCRIBED} more" if len(wrong) > MAX_DESCRIBED else ""
        text = f"{nodes} nodes below, {len(self._drawn)} leaves above. "
        return f"{text}{told}{more}." if wrong else f"{text}No cable is marked."


def _at(start: float, end: float, part: float) -> tuple[float, float]:
    """Return the place on a cable, from its node."""
    return start + (end - start) * part, NODE_TOP + (LEAF_BOTTOM - NODE_TOP) * part


def _node_box(row: Row, x: float) -> Box:
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

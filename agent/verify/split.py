"""Write a plan of any kind as files of our own CSV that a ConfigMap holds: `--split DIR`.

Invariants:
- All rows of one node are in one file, also where they spell its name differently.
- The files of a plan do not depend on the order of its rows.
- Nothing is overwritten: the folder is new, and complete when it appears.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, NamedTuple

from agent.errors import Malformed
from agent.findings.names import same_name
from agent.folder import new_folder
from agent.model import natural
from agent.plans.own import COLUMNS, FORMULA, KNOWN, column, rows_text
from agent.verify.one_node import MAX_SIZE

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Sequence

    from agent.plans.model import Cable, End, Plan

    Cells = dict[str, str]  # of one row, by column

PLACES = ("rate", "mark", "rack", "unit", "far-rack", "far-unit")
MAX_SHOWN = 5  # names in a note


class Part(NamedTuple):
    """One file."""

    name: str
    text: str
    nodes: int
    rows: int

    @property
    def size(self) -> int:
        """Bytes."""
        return len(self.text.encode())


def split(plans: Iterable[Plan], limit: int = MAX_SIZE) -> tuple[list[Part], list[str]]:
    """Return files of at most `limit` bytes, and a note for each thing that they cannot express."""
    cables = [cable for plan in plans for cable in _cables(plan)]
    titles, unknown = _titles({name for cable in cables for name in cable.fields})
    oriented = list(_oriented(cables))
    rows = [_row(near, far, cable, titles) for near, far, cable in oriented]
    known = [name for name in PLACES if any(row[name] for row in rows)]
    parts = _packed(rows, [*COLUMNS, *known, *titles], limit)
    return parts, _notes(unknown, sum(bool(near.port_name) for near, _, _ in oriented))


def _cables(plan: Plan) -> Iterable[Cable]:
    if plan.labels:
        raise Malformed(f"{plan.file}: labels are of one node: there is nothing to split")
    return plan.cables


def _titles(names: Collection[str]) -> tuple[list[str], list[str]]:
    """Return the other columns that our CSV can have, and those that it cannot."""
    columns = Counter(map(column, names))
    titles: list[str] = []
    unknown: list[str] = []
    for name in sorted(names):
        is_own = column(name) in KNOWN or columns[column(name)] > 1
        is_plain = name.strip() and name.isprintable() and not name.startswith((*FORMULA, "'"))
        (unknown if is_own or not is_plain else titles).append(name)
    return titles, unknown


def _oriented(cables: Sequence[Cable]) -> Iterator[tuple[End, End, Cable]]:
    """Yield the node's and the far end of each cable: a node has fewer cables than its switch."""
    counts = Counter(_key(end.node) for cable in cables for end in (cable.a, cable.b))
    for cable in cables:
        ends = [end for end in (cable.a, cable.b) if end.interface]
        near = min(ends or [cable.a], key=lambda end: counts[_key(end.node)])
        yield near, cable.b if near is cable.a else cable.a, cable


def _key(name: str) -> str:
    """Return a text that is the same for all spellings of a node's name."""
    host = name.partition(".")[0]
    return (host if host and same_name(name, host) else name).casefold()


def _row(near: End, far: End, cable: Cable, titles: Iterable[str]) -> Cells:
    ends = (near.node, near.interface, far.node, far.interface, far.port_name)
    places = (near.rack, near.unit, far.rack, far.unit)
    cells = (*ends, _rate(cable.rate_gbps), cable.mark, *places)
    others = {title: cable.fields.get(title, "") for title in titles}
    return dict(zip((*COLUMNS, *PLACES), (cell or "" for cell in cells), strict=True)) | others


def _rate(gbps: float | None) -> str:
    return "" if gbps is None else f"{gbps:.6f}".rstrip("0").rstrip(".") + "G"


def _packed(rows: Iterable[Cells], columns: Sequence[str], limit: int) -> list[Part]:
    """Fill files with the rows of whole nodes, in natural order."""
    header = rows_text([columns])
    most = limit - len(header.encode())
    files: list[list[list[str]]] = []
    room = 0
    for node, lines in _by_node(rows, columns):
        size = sum(len(line.encode()) for line in lines)
        if size > most:
            raise Malformed(f"{node}: its rows are more than {limit} bytes")
        if size > room:
            files.append([])
            room = most
        files[-1].append(lines)
        room -= size
    return [_part(number, header, nodes) for number, nodes in enumerate(files, 1)]


def _by_node(rows: Iterable[Cells], columns: Sequence[str]) -> list[tuple[str, list[str]]]:
    """Return the lines of each node; repeated ones once."""
    lines = {rows_text([[row[name] for name in columns]]): row for row in rows}
    nodes: dict[str, list[tuple[Cells, str]]] = {}
    for text, row in lines.items():
        nodes.setdefault(_key(row["node"]), []).append((row, text))
    return [
        (node, [text for _, text in sorted(nodes[node], key=_place)])
        for node in sorted(nodes, key=natural)
    ]


def _place(line: tuple[Cells, str]) -> tuple[object, str]:
    return natural(line[0]["interface"]), line[1]


def _part(number: int, header: str, nodes: Sequence[Sequence[str]]) -> Part:
    lines = [line for node in nodes for line in node]
    return Part(f"plan-{number:03}.csv", "".join([header, *lines]), len(nodes), len(lines))


def _notes(unknown: Sequence[str], named: int) -> list[str]:
    notes = []
    if unknown:
        shown = ", ".join(unknown[:MAX_SHOWN]) + (", ..." if len(unknown) > MAX_SHOWN else "")
        notes.append(f"left out, columns that our CSV cannot have: {shown}")
    if named:
        notes.append(f"left out, second names of {named} ports of nodes")
    return notes


def write(parts: Iterable[Part], folder: str) -> None:
    """Write the files into a new folder; raises Unavailable."""
    with new_folder(folder, "--split") as draft:
        for part in parts:
            (draft / part.name).write_text(part.text, newline="")

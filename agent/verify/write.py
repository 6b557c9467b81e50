"""Write plans: what a node sees, the golden picture of a good day, and parts of a site's plan.

`verify --write-plan csv` or `labels` prints the one. `--split DIR` writes the other, of any kind,
as files of our own CSV that a ConfigMap holds.

Invariants of parts:
- All rows of one node are in one file, also where they spell its name differently.
- The files of a plan do not depend on the order of its rows.
- Nothing is overwritten: the folder is new, and complete when it appears.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from agent import encode
from agent.cabling.names import same_name
from agent.cabling.one_node import MAX_SIZE
from agent.cabling.plans import columns
from agent.cabling.plans.model import End, Plan, PlanCable
from agent.cabling.plans.own import COLUMNS, FORMULA, QUOTE, column, rows_text
from agent.cabling.seen import SeenNode
from agent.encode import Naming
from agent.errors import Malformed
from agent.folder import new_folder
from agent.text import natural

Cells = dict[str, str]  # of one row, by column

FORMATS = ("csv", "labels")
MAX_SHOWN = 5  # names in a note


# what a node sees


def written(node: SeenNode, naming: Naming, kind: str) -> tuple[str, list[str]]:
    """Return the plan as text, empty for a node without any, and a note for each port it lacks."""
    notes = [
        f"{port.interface}: left out, no neighbor seen"
        for port in node.ports.values()
        if not port.far_ends
    ]
    if kind == "csv":
        ends = [(port.interface, port.far_ends[0]) for port in node.ports.values() if port.far_ends]
        rows = [(node.name, name, end.device, end.port_id, end.port_name) for name, end in ends]
        return rows_text([COLUMNS, *rows], names=True) if rows else "", notes
    labels: dict[str, str] = {}
    for port in node.ports.values():
        for end in port.far_ends[:1]:
            texts = zip(COLUMNS[2:], (end.device, end.port_id, end.port_name), strict=True)
            for part, text in texts:
                key = f"{naming.prefix}/neighbors.expected.{port.interface}.{part}"
                if (value := encode.value(text or "")) and not encode.key_fault(key):
                    labels[key] = value
    rates = [port.rate_gbps for port in node.ports.values()]
    if rates and None not in rates:
        labels[f"{naming.prefix}/speed.expected"] = encode.gbps(sum(filter(None, rates)))
    return "".join(f"{key}: {json.dumps(value)}\n" for key, value in labels.items()), notes


# parts of a plan


class PlanPart(NamedTuple):
    """One file."""

    name: str
    text: str
    nodes: int
    rows: int

    @property
    def size(self) -> int:
        """Bytes."""
        return len(self.text.encode())


def split(plans: Iterable[Plan], limit: int = MAX_SIZE) -> tuple[list[PlanPart], list[str]]:
    """Return files of at most `limit` bytes, and a note for each thing that they cannot express."""
    cables: list[PlanCable] = []
    for plan in plans:
        if plan.labels:
            raise Malformed(f"{plan.file}: labels are of one node: there is nothing to split")
        cables += plan.cables
    titles, unknown = _titles(cables)
    rows: list[Cells] = []
    named = 0
    for cable, *ends in _from_nodes(cables):
        named += bool(ends[0].port_name)
        row = {}
        for name, side, field, *_ in columns.COLUMNS:
            value = getattr(cable if side is None else ends[side], field)
            is_rate = isinstance(value, float | int)
            row[name] = f"{value:.6f}".rstrip("0").rstrip(".") + "G" if is_rate else value or ""
        row |= {title: cable.fields.get(title, "") for title in titles}
        rows.append({name: text.strip() for name, text in row.items()})  # as a reader does
    others = [name for name, *_ in columns.OTHERS if any(row[name] for row in rows)]
    notes = []
    if unknown:
        shown = ", ".join(unknown[:MAX_SHOWN]) + (", ..." if len(unknown) > MAX_SHOWN else "")
        notes.append(f"left out, columns that our CSV cannot have: {shown}")
    if named:
        notes.append(f"left out, second names of {named} ports of nodes")
    return _packed(rows, [*COLUMNS, *others, *titles], limit), notes


def _titles(cables: Iterable[PlanCable]) -> tuple[list[str], list[str]]:
    """Return the further columns of plans, and those of them that our CSV cannot have."""
    names = {name for cable in cables for name, text in cable.fields.items() if text.strip()}
    spellings = Counter(map(column, names))
    titles: list[str] = []
    unknown: list[str] = []
    for name in sorted(names, key=str.strip):
        is_own = column(name) in columns.FIELDS or spellings[column(name)] > 1
        title = name.strip()
        is_plain = title and title.isprintable() and not title.startswith((*FORMULA, QUOTE))
        (unknown if is_own or not is_plain else titles).append(name)
    return titles, unknown


def _from_nodes(cables: Sequence[PlanCable]) -> Iterator[tuple[PlanCable, End, End]]:
    """Yield the cables with the end at the node, which has fewer than its switch, and the other."""
    # A cable that several files have counts once, as it is written once.
    links = {frozenset((cable.a.port, cable.b.port)) for cable in cables}
    counts = Counter(_key(node) for link in links for node, _ in link)
    for cable in cables:
        ports = [end for end in (cable.a, cable.b) if end.interface]
        near = min(ports or [cable.a], key=lambda end: counts[_key(end.node)])
        yield cable, near, cable.b if near is cable.a else cable.a


def _key(name: str) -> str:
    """Return a text that is the same for all spellings of a node's name."""
    host = name.partition(".")[0]
    return (host if host and same_name(name, host) else name).casefold()


def _packed(rows: Iterable[Cells], columns: Sequence[str], limit: int) -> list[PlanPart]:
    """Fill files with the rows of whole nodes, in natural order; repeated ones once."""
    nodes: dict[str, list[tuple[Any, str]]] = {}
    for text, row in {rows_text([map(row.get, columns)], names=True): row for row in rows}.items():
        nodes.setdefault(_key(row["node"]), []).append((natural(row["interface"]), text))
    header = rows_text([[name.strip() for name in columns]])
    most = limit - len(header.encode())
    files: list[list[list[str]]] = []
    room = 0
    for node in sorted(nodes, key=natural):
        lines = [text for _, text in sorted(nodes[node])]
        size = sum(len(line.encode()) for line in lines)
        if size > most:
            raise Malformed(f"{node}: its rows are more than {limit} bytes")
        if size > room:
            files.append([])
            room = most
        files[-1].append(lines)
        room -= size
    parts = []
    for number, nodes_of_file in enumerate(files, 1):
        lines = [line for of_node in nodes_of_file for line in of_node]
        text = "".join([header, *lines])
        parts.append(PlanPart(f"plan-{number:03}.csv", text, len(nodes_of_file), len(lines)))
    return parts


def write(parts: Iterable[PlanPart], folder: str) -> None:
    """Write the files into a new folder; raises Unavailable."""
    with new_folder(folder, "--split") as draft:
        for part in parts:
            (draft / part.name).write_text(part.text, newline="")

"""Recognize the header row of a cabling sheet.

Each form of header has a table of column names, in lower case and without anything but letters and
digits: `A-Node Name` is `anodename`. A column that no table has is carried through to the cable.

    A-Node Name,A-Port,Z-Node Name,Z-Port    a side before, or behind, each name
    Rack,U,Name,HCA/Port,Rack,U,Name,Port    doubled: the left half is one end, the right the other
    side_a_device,side_a_name,side_b_...     NetBox: import of cables
    Device A,Termination A,Device B,...      NetBox: export of the list of cables
    Device A,Interface A,Device B,...        NetBox: export of interface connections
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

from agent.errors import Malformed

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from agent.plans.model import Place

    Ends = tuple[dict[str, int], dict[str, int]]
    Field = tuple[int, str]  # side 0 or 1, and a name of FIELDS

MAX_HEADER_ROW = 10
MAX_COLUMNS = 1024
FIELDS = ("node", "interface", "port_name", "rack", "unit", "type")
REQUIRED = tuple((side, name) for side in (0, 1) for name in ("node", "interface"))
SIDES = (
    ("a", "start", "source", "src", "from", "local"),
    ("z", "b", "end", "destination", "dest", "dst", "to", "remote"),
)
SUFFIXES = (("a",), ("b", "z"))
NODES = "node nodename name device devicename host hostname system systemname switch server"
PORTS = "port hcaport hca interface nic"
WORDS = {
    "node": NODES.split(),
    "interface": PORTS.split(),
    "port_name": ["portname", "portdescription"],
    "rack": ["rack", "rackname", "cabinet"],
    "unit": ["u", "ru", "unit", "rackunit", "uheight"],
    "type": ["type", "role"],
}
RATES = {"bandwidth", "speed", "linkspeed", "rate", "portspeed"}
_PLAIN = {word: name for name, words in WORDS.items() for word in words if name != "type"}
_OTHER = re.compile(r"[^a-z0-9]+")


class Header(NamedTuple):
    """The columns of a sheet, by index; -1 for a column that it lacks."""

    kind: str  # "point-to-point" or "netbox"
    names: tuple[str, ...]  # of all columns, unique
    ends: tuple[dict[str, int], dict[str, int]]  # all of FIELDS
    rate: int
    mark: int
    others: tuple[int, ...]  # the columns to be carried through

    def column(self, side: int, field: str) -> str:
        """Return the name of an end's column."""
        return self.names[self.ends[side][field]]


def key(text: str) -> str:
    """Return a column name for comparison; `#Fields:` begins one of a UFM network definition."""
    return _OTHER.sub("", text.lower().removeprefix("#fields:"))


def _sided() -> dict[str, Field]:
    table: dict[str, Field] = {}
    for side in (0, 1):
        for name, words in WORDS.items():
            for word in words:
                table |= {f"{prefix}{word}": (side, name) for prefix in SIDES[side]}
                table |= {f"{word}{suffix}": (side, name) for suffix in SUFFIXES[side]}
    return table


def _netbox(node: str, interface: str, *more: str) -> dict[str, Field]:
    table: dict[str, Field] = {}
    for side, letter in enumerate("ab"):
        table[node.format(letter)] = (side, "node")
        table[interface.format(letter)] = (side, "interface")
        table |= {name.format(letter): (side, name.format("").strip()) for name in more}
    return table


FORMS: tuple[tuple[str, dict[str, Field]], ...] = (
    ("netbox", _netbox("side{}device", "side{}name")),
    ("netbox", _netbox("device{}", "termination{}", "rack{}")),
    ("netbox", _netbox("side{}", "termination{}", "rack{}")),
    ("netbox", _netbox("device{}", "interface{}", "rack{}")),
    ("point-to-point", _sided()),
)


def header(row: Sequence[str], place: Place) -> Header | None:
    """Return the header that a row is, None if it is none.

    Raises Malformed for an ambiguous header, and for a row of more than MAX_COLUMNS.
    """
    if len(row) > MAX_COLUMNS:
        raise Malformed(f"{place}: more than {MAX_COLUMNS} columns")
    keys = [key(cell) for cell in row]
    for kind, table in FORMS:
        fields = [table.get(name) for name in keys]
        if set(REQUIRED) <= set(fields):
            return _header(kind, row, keys, fields, place)
    doubled = _doubled(keys, row, place)
    return _header("point-to-point", row, keys, doubled, place) if doubled else None


def missing(row: Sequence[str]) -> str | None:
    """Return the columns that a row lacks to be a header, if it has some of them."""
    found = {field for _, table in FORMS for field in (table.get(key(cell)) for cell in row)}
    absent = [field for field in REQUIRED if field not in found]
    if not absent or len(absent) > len(REQUIRED) // 2:
        return None
    side, name = absent[0]
    noun = "node" if name == "node" else "port"
    return f"no column for the {noun} of the {('first', 'second')[side]} end"


def _doubled(keys: list[str], row: Sequence[str], place: Place) -> list[Field | None] | None:
    """Return the fields of a header whose columns occur once for each end, None if it is none."""
    plain = [_PLAIN.get(name) for name in keys]
    if min(plain.count("node"), plain.count("interface")) < 2:
        return None
    at = {name: [i for i, p in enumerate(plain) if p == name] for name in FIELDS}
    pairs = {name: columns for name, columns in at.items() if len(columns) > 1}
    _require_halves(pairs.values(), row, place)
    field_at = {
        column: (side, name) for name, pair in pairs.items() for side, column in enumerate(pair)
    }
    return [field_at.get(column) for column in range(len(keys))]


def _require_halves(pairs: Collection[list[int]], row: Sequence[str], place: Place) -> None:
    """Raise Malformed unless the left columns of all pairs are left of the right ones."""
    for columns in pairs:
        if len(columns) > 2:
            raise Malformed(f"{place}: {len(columns)} columns {row[columns[2]]!r}, not one an end")
    if max(left for left, _ in pairs) > min(right for _, right in pairs):
        raise Malformed(f"{place}: the columns of the two ends are not side by side")


def _header(
    kind: str,
    row: Sequence[str],
    keys: list[str],
    fields: list[Field | None],
    place: Place,
) -> Header:
    names = _unique(row)
    ends = _ends(fields, names, place)
    rate = next((i for i, name in enumerate(keys) if name in RATES and not fields[i]), -1)
    mark = keys.index("mark") if "mark" in keys else -1
    used = {c for e in ends for name, c in e.items() if name != "type"} | {rate, mark}
    others = tuple(i for i in range(len(row)) if i not in used)
    return Header(kind, names, ends, rate, mark, others)


def _ends(fields: list[Field | None], names: Sequence[str], place: Place) -> Ends:
    """Return the columns of both ends; raises Malformed for two columns of one field."""
    ends = dict.fromkeys(FIELDS, -1), dict.fromkeys(FIELDS, -1)
    for column, field in enumerate(fields):
        if field:
            side, name = field
            if (other := ends[side][name]) >= 0:
                pair = f"{names[other]!r} and {names[column]!r}"
                raise Malformed(f"{place}: columns {pair} are the same")
            ends[side][name] = column
    return ends


def _unique(row: Sequence[str]) -> tuple[str, ...]:
    """Return the names of the columns; one without a name has its letters, `AB`."""
    names: list[str] = []
    for index, cell in enumerate(row):
        name = cell or f"column {letters(index)}"
        count = sum(1 for other in names if other == name or other.startswith(f"{name} ("))
        names.append(f"{name} ({count + 1})" if count else name)
    return tuple(names)


def letters(index: int) -> str:
    """Return the letters of a column as spreadsheets count them: `A` of 0, `AB` of 27."""
    head, last = divmod(index, 26)
    return (letters(head - 1) if head else "") + chr(ord("A") + last)

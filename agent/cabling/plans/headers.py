"""Recognize the header row of a cabling sheet.

Each form of header has a table of column names, in lower case and without anything but letters and
digits: `A-Node Name` is `anodename`. A column that no table has is carried through to the cable.
The tables are tried in their order, the stricter ones first. With --columns the header is the row
that has all its titles.

    A-Node Name,A-Port,Z-Node Name,Z-Port    a side before, or behind, each name
    Rack,U,Name,HCA/Port,Rack,U,Name,Port    doubled: the left half is one end, the right the other
    Node,Port,Peer Node,Peer Port            the far end by a word of its own
    Server,NIC,Leaf,Port                     a host and a switch
    side_a_device,side_a_name,side_b_...     NetBox: import of cables
    Device A,Termination A,Device B,...      NetBox: export of the list of cables
    Device A,Interface A,Device B,...        NetBox: export of interface connections
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from agent.cabling.plans.columns import FIELDS, OF_CABLE, TITLES, SidedField
from agent.cabling.plans.model import FilePlace
from agent.cabling.plans.source import Columns
from agent.errors import Malformed

Words = Mapping[str, Sequence[str]]

MAX_HEADER_ROW = 20
MAX_COLUMNS = 1024
OF_ENDS = (*dict.fromkeys(field for side, field in FIELDS.values() if side is not None), "type")
REQUIRED = tuple((side, name) for side in (0, 1) for name in ("node", "interface"))
SIDES = (
    ("a", "start", "source", "src", "from", "local"),
    ("z", "b", "end", "destination", "dest", "dst", "to", "remote"),
)
SUFFIXES = (("a",), ("b", "z"))
WORDS = {name: TITLES.get(name, ["type", "role"]) for name in OF_ENDS}
# What is looked for where the words above make no header.
FIRST = "aend sidea aside endpointa enda end1 side1 endpoint1 origin near nearend nearside"
SECOND = (
    "bend zend sideb sidez bside zside endpointb endb end2 side2 endpoint2 "
    "target far farend farside"
)
LOOSE_SIDES = (*SIDES[0], *FIRST.split()), (*SIDES[1], *SECOND.split())
LOOSE_SUFFIXES = (("a", "1", "aend", "sidea"), ("b", "z", "2", "bend", "zend", "sideb"))
PEERS = ("peer", "neighbor", "neighbour", "far", "farend", "connectedto", "remote")
HOSTS = "server servername computenode gpunode gpuserver compute"
LEAVES = "switch switchname leaf leafname leafswitch tor torswitch ibleaf ibswitch"
# A column of the node of several cables, where both ends have other columns:
# `Node,Port 1,Switch 1,Switch Port 1,Port 2,...`, which is none between two switches.
NODES = frozenset({"node", "nodename", "host", "hostname", "system", *HOSTS.split()})
LOOSE_PORTS = "portid portnumber portno interfacename ifname"
LOOSE = WORDS | {
    "node": [*WORDS["node"], *HOSTS.split(), *LEAVES.split()[1:]],
    "interface": [*WORDS["interface"], *LOOSE_PORTS.split()],
}
_PLAIN = {word: name for name, words in WORDS.items() for word in words if name != "type"}
_BARE = _PLAIN | {prefix: "node" for side in LOOSE_SIDES for prefix in side if len(prefix) > 1}
_OTHER = re.compile(r"[^a-z0-9]+")


class Header(NamedTuple):
    """The columns of a sheet, by index."""

    kind: str  # "point-to-point" or "netbox"
    names: tuple[str, ...]  # of all columns, unique
    keys: tuple[str, ...]  # as `key` returns them for the cells
    fields: Mapping[SidedField, int]  # all of REQUIRED, and others that it has
    others: tuple[int, ...]  # the columns to be carried through


def key(text: str) -> str:
    """Return a column name for comparison; `#Fields:` begins one of a UFM network definition."""
    return _OTHER.sub("", text.lower().removeprefix("#fields:"))


def _sided(
    words: Words, prefixes: Sequence[Sequence[str]], suffixes: Sequence[Sequence[str]]
) -> dict[str, SidedField]:
    table: dict[str, SidedField] = {}
    for side in (0, 1):
        for name, spellings in words.items():
            for word in spellings:
                table |= {f"{prefix}{word}": (side, name) for prefix in prefixes[side]}
                table |= {f"{word}{suffix}": (side, name) for suffix in suffixes[side]}
    return table


def _host_and_switch(*ports: str) -> dict[str, SidedField]:
    """Return the table of a host and a switch; `ports` are the names of the switch's port."""
    hosts = dict.fromkeys(LOOSE["node"], (0, "node"))
    nics: dict[str, SidedField] = dict.fromkeys(LOOSE["interface"], (0, "interface"))
    nics |= {f"{word}port": (0, "interface") for word in ("host", "server", "nic", "node")}
    switches = dict.fromkeys(LEAVES.split(), (1, "node"))
    return hosts | nics | switches | dict.fromkeys(ports, (1, "interface"))


def _netbox(node: str, interface: str, *more: str) -> dict[str, SidedField]:
    table: dict[str, SidedField] = {}
    for side, letter in enumerate("ab"):
        table[node.format(letter)] = (side, "node")
        table[interface.format(letter)] = (side, "interface")
        table |= {name.format(letter): (side, name.format("").strip()) for name in more}
    return table


FORMS: tuple[tuple[str, dict[str, SidedField]], ...] = (
    ("netbox", _netbox("side{}device", "side{}name")),
    ("netbox", _netbox("device{}", "termination{}", "rack{}")),
    ("netbox", _netbox("side{}", "termination{}", "rack{}")),
    ("netbox", _netbox("device{}", "interface{}", "rack{}")),
    ("point-to-point", _sided(WORDS, SIDES, SUFFIXES)),
)
_SWITCH_PORTS = (
    *("switchport", "leafport", "torport", "ibport", "ibleafport", "ibswitchport"),
    *("switchinterface", "leafinterface"),
)
LOOSE_FORMS: tuple[tuple[str, dict[str, SidedField]], ...] = (
    # The word of a side alone is its node: `Source,Source Port`.
    (
        "point-to-point",
        {word: (side, "node") for side, words in enumerate(LOOSE_SIDES) for word in words}
        | _sided(LOOSE, LOOSE_SIDES, LOOSE_SUFFIXES),
    ),
    # Only the far end has a word: `Node,Port,Peer Node,Peer Port`.
    (
        "point-to-point",
        {word: (0, name) for name, words in LOOSE.items() for word in words}
        | dict.fromkeys(("nodeinterface", "nodeport"), (0, "interface"))
        | dict.fromkeys(PEERS, (1, "node"))
        | _sided(LOOSE, (SIDES[0][-1:], PEERS), ((), ())),
    ),
    ("point-to-point", _host_and_switch(*_SWITCH_PORTS)),
    ("point-to-point", _host_and_switch(*_SWITCH_PORTS, "port", "portid", "portnumber")),
)


def header(row: Sequence[str], place: FilePlace, columns: Columns) -> Header | None:
    """Return the header that a row is, None if it is none; `columns` are those of --columns.

    Raises Malformed for an ambiguous header, and for a row of more than MAX_COLUMNS.
    """
    if len(row) > MAX_COLUMNS:
        raise Malformed(f"{place}: more than {MAX_COLUMNS} columns")
    keys = [key(cell) for cell in row]
    if columns:
        return _named(row, columns, place)
    for forms, plain in ((FORMS, _PLAIN), (LOOSE_FORMS, _BARE)):
        for kind, table in forms:
            fields = [table.get(name) for name in keys]
            if set(REQUIRED) <= set(fields):
                sided = _header(kind, row, fields, place)
                for index in sided.others:
                    if keys[index] in NODES:  # of several cables in a row
                        raise Malformed(
                            f"{place}: a node ({sided.names[index]!r}) beside two ends: give each "
                            "cable a row of its own, or one file for each of its ends with "
                            "--columns"
                        )
                return sided
        if doubled := _doubled(keys, row, place, plain):
            return _header("point-to-point", row, doubled, place)
    return None


def _named(row: Sequence[str], columns: Columns, place: FilePlace) -> Header | None:
    """Return the header with the titles of --columns; a title that occurs twice is `Port (2)`."""
    keys = [key(name) for name in _unique(row)]
    at = {name: [i for i, k in enumerate(keys) if k == key(columns[name])] for name in columns}
    if not all(at.values()):
        return None
    if twice := next((name for name in columns if len(at[name]) > 1), None):
        raise Malformed(f"{place}: two columns {columns[twice]!r}")
    fields: list[SidedField | None] = [None] * len(row)
    for name, [column] in at.items():
        fields[column] = FIELDS[name]
    return _header("point-to-point", row, fields, place)


def missing(row: Sequence[str], columns: Columns) -> list[str]:
    """Return what a row lacks to be a header, of the form that it is nearest to."""
    if columns:
        keys = {key(name) for name in _unique(row)}
        return [f"{title!r}" for title in columns.values() if key(title) not in keys]
    keys = {key(cell) for cell in row}
    forms = ({table.get(name) for name in keys} for _, table in (*FORMS, *LOOSE_FORMS))
    absent = min(
        ([field for field in REQUIRED if field not in fields] for fields in forms), key=len
    )
    return [
        f"for the {'node' if name == 'node' else 'port'} of the {('first', 'second')[side]} end"
        for side, name in absent
    ]


def _doubled(
    keys: list[str], row: Sequence[str], place: FilePlace, words: Mapping[str, str]
) -> list[SidedField | None] | None:
    """Return the fields of a header whose columns occur once for each end, None if it is none.

    Raises Malformed unless the left columns of all pairs are left of the right ones.
    """
    plain = [words.get(name) for name in keys]
    if min(plain.count("node"), plain.count("interface")) < 2:
        return None
    at = {name: [i for i, p in enumerate(plain) if p == name] for name in OF_ENDS}
    pairs = {name: columns for name, columns in at.items() if len(columns) > 1}
    for columns in pairs.values():
        if len(columns) > 2:
            raise Malformed(f"{place}: {len(columns)} columns {row[columns[2]]!r}, not one an end")
    if max(left for left, _ in pairs.values()) > min(right for _, right in pairs.values()):
        raise Malformed(f"{place}: the columns of the two ends are not side by side")
    field_at = {
        column: (side, name) for name, pair in pairs.items() for side, column in enumerate(pair)
    }
    return [field_at.get(column) for column in range(len(keys))]


def _header(
    kind: str, row: Sequence[str], fields: list[SidedField | None], place: FilePlace
) -> Header:
    """Return the header with these columns; raises Malformed for two of one field.

    The columns of the cable are looked for in those that are left.
    """
    names, keys = _unique(row), tuple(key(cell) for cell in row)
    columns: dict[SidedField, int] = {}
    for column, field in enumerate(fields):
        if field and (other := columns.setdefault(field, column)) != column:
            pair = f"{names[other]!r} and {names[column]!r}"
            raise Malformed(f"{place}: columns {pair} are the same")
    free = [None if field else name for name, field in zip(keys, fields, strict=True)]
    for of_cable in OF_CABLE:
        titled = (i for i, name in enumerate(free) if name in TITLES[of_cable.field])
        if (column := next(titled, -1)) >= 0:
            columns.setdefault((None, of_cable.field), column)
    used = {column for (_, name), column in columns.items() if name != "type"}
    others = tuple(i for i in range(len(row)) if i not in used)
    return Header(kind, names, keys, columns, others)


def _unique(row: Sequence[str]) -> tuple[str, ...]:
    """Return the names of the columns; one without a name has its letters, `AB`."""
    names: list[str] = []
    for index, cell in enumerate(row):
        name = " ".join(cell.split()) or f"column {letters(index)}"
        count = sum(1 for other in names if other == name or other.startswith(f"{name} ("))
        names.append(f"{name} ({count + 1})" if count else name)
    return tuple(names)


def letters(index: int) -> str:
    """Return the letters of a column as spreadsheets count them: `A` of 0, `AB` of 27."""
    head, last = divmod(index, 26)
    return (letters(head - 1) if head else "") + chr(ord("A") + last)

"""The data model of a plan: cables between two ends, in any order, and how a reader collects them.

Invariants:
- a text is that of the file, without white space at its ends; None is "not given", never "";
- nothing here compares names: agent/cabling/names.py does;
- a repeated row adds no cable, and a note names both rows; with another rate or mark it refuses the
  file, since nothing in it decides between them;
- a port with two far ends keeps both cables, and a note names both rows: the finding `duplicate`
  needs them;
- a row that is no cable is counted in a note, with its reason and its first place.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from functools import lru_cache
from types import MappingProxyType
from typing import NamedTuple

from agent.errors import Malformed
from agent.text import visible

IGNORE, LINK_STATE_ONLY = "ignore", "link-state-only"  # marks of a cable
NO_FIELDS: Mapping[str, str] = MappingProxyType({})
MAX_CABLES = 500_000
MAX_NOTES = 20
MAX_TEXT = 60  # characters of a cell in a message
MAX_NAME = 255  # characters; what LLDP transmits of a name (IEEE Std 802.1AB-2016, 8.5)
# 1/2/26 is a date, too, but also a port of a chassis.
_MONTH = r"(?:Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec)"
_RANGE = re.compile(r"\[[0-9]+(-|\.\.)[0-9]+\]|\{[0-9]+(-|\.\.)[0-9]+\}")
_DATE = re.compile(
    rf"\d{{4}}-\d\d-\d\d(?:[ T]\d\d:\d\d:\d\d)?|\d{{1,2}}:\d\d:\d\d"
    rf"|\d{{1,2}}[./]\d{{1,2}}[./](?:19|20)\d\d|{_MONTH}[- ]\d\d"
    rf"|\d{{1,2}}[-. ]{{1,2}}{_MONTH}(?:[-. ](?:19|20)?\d\d)?"
)
UNSAVED = "a formula without a saved value: open the workbook and save it"
ERRORS = frozenset({"#N/A", "#REF!", "#VALUE!", "#NAME?", "#DIV/0!", "#NULL!", "#NUM!"})


class FilePlace(NamedTuple):
    """Where a fact stands, for messages: `plan.xlsx, sheet Links, row 17`."""

    file: str
    sheet: str | None = None
    row: int | None = None  # counted from 1, the header included
    column: str | None = None

    def __str__(self) -> str:
        parts = [self.file]
        parts += [f"sheet {self.sheet}"] if self.sheet else []
        parts += [f"row {self.row}"] if self.row else []
        parts += [f"column {self.column}"] if self.column else []
        return ", ".join(parts)

    def at(self, row: int | None, column: str | None = None) -> FilePlace:
        """Return a place in this file or sheet."""
        return FilePlace(self.file, self.sheet, row, column)


class End(NamedTuple):
    """One end of a cable: a port of a host or of a switch."""

    node: str  # host name, Node name, switch name or GUID
    interface: str  # RDMA device, netdev, PCI address, HCA number, rail; or the switch's port
    port_name: str | None = None  # another name of the port
    rack: str | None = None
    unit: str | None = None

    @property
    def port(self) -> tuple[str, str]:
        """Node and interface, by which two ends are one port."""
        return self.node, self.interface


class PlanCable(NamedTuple):
    """One row of a plan."""

    a: End
    b: End
    place: FilePlace
    rate_gbps: float | None = None
    mark: str | None = None  # "ignore" or "link-state-only"
    fields: Mapping[str, str] = NO_FIELDS  # all other columns, by their header
    # between two switches, as a dump says; None: several switches have the name of one of them
    is_trunk: bool | None = False


class Plan(NamedTuple):
    """The contents of one file: its kind, its cables, and labels if it is a file of labels."""

    file: str
    kind: str  # "point-to-point", "labels", ...: the name that --plan-format takes
    sheet: str | None
    cables: tuple[PlanCable, ...]
    labels: Mapping[str, str] = NO_FIELDS  # expected labels, key to value
    notes: tuple[str, ...] = ()  # one line each: what was skipped, and why

    @property
    def title(self) -> str:
        """The file, its kind and its sheet, for a note."""
        return f"{self.file}: {self.kind}" + (f", sheet {self.sheet}" if self.sheet else "")

    @property
    def placed_notes(self) -> list[str]:
        """The notes, each with the file."""
        return [
            note if note.startswith(self.file) else f"{self.file}: {note}" for note in self.notes
        ]


def quoted(text: object) -> str:
    """Return a cell's text for a message: one printable line, in quotes."""
    return visible(repr(str(text)), MAX_TEXT)


class Cables:
    """The cables of one sheet, in the order of the file.

    `mirrored` is for formats that list a cable at both of its ends: repetitions raise no note.
    """

    def __init__(self, place: FilePlace, *, mirrored: bool = False) -> None:
        self._place = place
        self._mirrored = mirrored
        self._cables: list[PlanCable] = []
        self._first: dict[tuple[str, str], PlanCable] = {}
        self._notes: list[str] = []
        self._skipped: dict[str, list[FilePlace]] = {}

    def add(self, cable: PlanCable) -> None:
        """Add a cable; raises Malformed for one that contradicts itself or an equal one."""
        a, b = cable.a.port, cable.b.port
        if a == b:
            raise Malformed(f"{cable.place}: both ends are {quoted(f'{a[0]} {a[1]}')}")
        known = [self._first.setdefault(port, cable) for port in (a, b)]
        known = [before for before in known if before is not cable]
        if same := next(
            (earlier for earlier in known if {a, b} == {earlier.a.port, earlier.b.port}), None
        ):
            if self._mirrored:
                return
            text = f"{cable.place}: the cable of row {same.place.row} again"
            if (same.rate_gbps, same.mark) != (cable.rate_gbps, cable.mark):
                raise Malformed(f"{text}, with another rate or mark")
            self.note(text)
            return
        if known:  # a port with another far end
            ports = {known[0].a.port, known[0].b.port}
            end = next(end for end in (cable.a, cable.b) if end.port in ports)
            name = visible(f"{end.node} {end.interface}", MAX_TEXT)
            row = known[0].place.row
            self.note(f"{cable.place}: {name} has another far end than in row {row}")
        if len(self._cables) >= MAX_CABLES:
            raise too_many(cable)
        self._cables.append(cable)

    def skip(self, reason: str, place: FilePlace) -> None:
        """Count a row that is no cable."""
        self._skipped.setdefault(reason, []).append(place)

    def note(self, text: str) -> None:
        """Add a line to the notes of the plan."""
        self._notes.append(text)

    def plan(self, kind: str, notes: Iterable[str] = ()) -> Plan:
        """Return the plan; `notes` come first."""
        lines = [*notes, *self._notes[:MAX_NOTES]]
        if (more := len(self._notes) - MAX_NOTES) > 0:
            lines.append(f"{more} more notes")
        for reason, places in self._skipped.items():
            rows = f"{len(places)} row{'s' * (len(places) > 1)} skipped"
            lines.append(f"{rows}, {reason} (the first: {places[0]})")
        place = self._place
        return Plan(place.file, kind, place.sheet, tuple(self._cables), notes=tuple(lines))

    def whole(self, kind: str, notes: Iterable[str] = ()) -> Plan:
        """Return the plan of a file of one sheet; raises Malformed if it has no cables."""
        plan = self.plan(kind, notes)
        if not plan.cables:
            raise Malformed(f"{plan.file}: {': '.join(['no cables', *plan.notes])}")
        return plan


def too_many(cable: PlanCable) -> Malformed:
    """Return the error for the first cable too many."""
    return Malformed(f"{cable.place}: more than {MAX_CABLES} cables")


# Names in cells that are not those that somebody typed. A spreadsheet program takes the split port
# `1/2` for the second of January and `1:2` for a time, and puts an error in place of a reference
# that is lost. Text from a web page has spaces that do not break, or characters without width: such
# a name looks like another one and is not equal to it.


def fault(name: str) -> str | None:
    """Return why a name cannot have been meant; None if it can."""
    if name in ERRORS or name == UNSAVED:
        return name
    if len(name) > MAX_NAME:
        return f"more than {MAX_NAME} characters"
    if not name.isprintable():
        what = "a line break" if "\n" in name else "a character that does not print"
        return f"{what} in {quoted(name)}"
    return None


def range_fault(name: str) -> str | None:
    """Return why a name cannot have been meant: it is a range of names; None if it is none."""
    if not _RANGE.search(name):
        return None
    return f"the range {quoted(name)}: a row is one cable, so give each its own"


@lru_cache(8192)
def date_fault(port: str) -> str | None:
    """Return why a port cannot have been meant: it is a date or a time; None if it is none."""
    if not _DATE.fullmatch(port):
        return None
    return f"the date {quoted(port)}: a port such as 1/2 needs a column formatted as text"

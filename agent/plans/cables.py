"""Collect the cables of one sheet into a Plan.

Invariants:
- a repeated row adds no cable, and a note names both rows; with another rate or mark it refuses the
  file, since nothing in it decides between them;
- a port with two far ends keeps both cables, and a note names both rows: the finding `duplicate`
  needs them;
- a row that is no cable is counted in a note, with its reason and its first place.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import TYPE_CHECKING

from agent.errors import Malformed
from agent.plans.model import Cable, Place, Plan
from agent.text import visible

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    Port = tuple[str, str]  # node, interface

MAX_CABLES = 500_000
MAX_NOTES = 20
MAX_TEXT = 60  # characters of a cell in a message
MARKS = ("ignore", "link-state-only")
MAX_NAME = 255  # characters; what LLDP transmits of a name (IEEE Std 802.1AB-2016, 8.5)
# 1/2/26 is a date, too, but also a port of a chassis.
_MONTH = r"(?:Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec)"
_DATE = re.compile(
    rf"\d{{4}}-\d\d-\d\d(?:[ T]\d\d:\d\d:\d\d)?|\d{{1,2}}:\d\d:\d\d"
    rf"|\d{{1,2}}[./]\d{{1,2}}[./](?:19|20)\d\d|{_MONTH}[- ]\d\d"
    rf"|\d{{1,2}}[-. ]{{1,2}}{_MONTH}(?:[-. ](?:19|20)?\d\d)?"
)
ERRORS = frozenset({"#N/A", "#REF!", "#VALUE!", "#NAME?", "#DIV/0!", "#NULL!", "#NUM!"})


def quoted(text: object) -> str:
    """Return a cell's text for a message: one printable line, in quotes."""
    return visible(repr(str(text)), MAX_TEXT)


def mark_of(text: str | None, place: Place) -> str | None:
    """Parse a mark; None for an empty one. Raises Malformed for an unknown one."""
    word = (text or "").strip().lower().replace("_", "-").replace(" ", "-")
    if word and word not in MARKS:
        raise Malformed(f"{place}: mark {quoted(text)} is none of {', '.join(MARKS)}")
    return word or None


class Cables:
    """The cables of one sheet, in the order of the file.

    `mirrored` is for formats that list a cable at both of its ends: repetitions raise no note.
    """

    def __init__(self, place: Place, *, mirrored: bool = False) -> None:
        self._place = place
        self._mirrored = mirrored
        self._cables: list[Cable] = []
        self._first: dict[Port, Cable] = {}
        self._notes: list[str] = []
        self._skipped: dict[str, list[Place]] = {}

    def __len__(self) -> int:
        return len(self._cables)

    def add(self, cable: Cable) -> None:
        """Add a cable; raises Malformed for one that contradicts itself or an equal one."""
        a, b = cable.a[:2], cable.b[:2]
        if a == b:
            raise Malformed(f"{cable.place}: both ends are {quoted(f'{a[0]} {a[1]}')}")
        first, other = self._first.setdefault(a, cable), self._first.setdefault(b, cable)
        if first is cable and other is cable:
            self._append(cable)
            return
        known = [before for before in (first, other) if before is not cable]
        equal = [before for before in known if {a, b} == {before.a[:2], before.b[:2]}]
        if equal:
            self._repeated(equal[0], cable)
        else:
            self._contradicted(known[0], cable)

    def skip(self, reason: str, place: Place) -> None:
        """Count a row that is no cable."""
        self._skipped.setdefault(reason, []).append(place)

    def note(self, text: str) -> None:
        """Add a line to the notes of the plan."""
        self._notes.append(text)

    def plan(self, kind: str, notes: Iterable[str] = ()) -> Plan:
        """Return the plan; `notes` come first."""
        lines = [*notes, *self._bounded(), *(_skips(r, p) for r, p in self._skipped.items())]
        place = self._place
        return Plan(place.file, kind, place.sheet, tuple(self._cables), notes=tuple(lines))

    def whole(self, kind: str, notes: Iterable[str] = ()) -> Plan:
        """Return the plan of a file of one sheet; raises Malformed if it has no cables."""
        plan = self.plan(kind, notes)
        if not plan.cables:
            raise Malformed(f"{plan.file}: {': '.join(['no cables', *plan.notes])}")
        return plan

    def _append(self, cable: Cable) -> None:
        if len(self._cables) >= MAX_CABLES:
            raise too_many(cable)
        self._cables.append(cable)

    def _repeated(self, first: Cable, cable: Cable) -> None:
        if self._mirrored:
            return
        if (first.rate_gbps, first.mark) != (cable.rate_gbps, cable.mark):
            raise Malformed(
                f"{cable.place}: the cable of {_row(first)} again, with another rate or mark"
            )
        self.note(f"{cable.place}: the cable of {_row(first)} again")

    def _contradicted(self, first: Cable, cable: Cable) -> None:
        port = next(e for e in (cable.a, cable.b) if e[:2] in {first.a[:2], first.b[:2]})
        name = visible(f"{port.node} {port.interface}", MAX_TEXT)
        self.note(f"{cable.place}: {name} has another far end than in {_row(first)}")
        self._append(cable)

    def _bounded(self) -> list[str]:
        more = len(self._notes) - MAX_NOTES
        return [*self._notes[:MAX_NOTES], *([f"{more} more notes"] if more > 0 else [])]


def _row(cable: Cable) -> str:
    return f"row {cable.place.row}"


def _skips(reason: str, places: list[Place]) -> str:
    rows = f"{len(places)} row{'s' if len(places) > 1 else ''} skipped"
    return f"{rows}, {reason} (the first: {places[0]})"


def bounded(cables: Iterable[Cable]) -> Iterator[Cable]:
    """Yield the cables; raises Malformed for more than MAX_CABLES."""
    for count, cable in enumerate(cables):
        if count >= MAX_CABLES:
            raise too_many(cable)
        yield cable


def too_many(cable: Cable) -> Malformed:
    """Return the error for the first cable too many."""
    return Malformed(f"{cable.place}: more than {MAX_CABLES} cables")


# Names in cells that are not those that somebody typed. A spreadsheet program takes the split port
# `1/2` for the second of January and `1:2` for a time, and puts an error in place of a reference
# that is lost. Text from a web page has spaces that do not break, or characters without width: such
# a name looks like another one and is not equal to it.


def are_plain(names: list[str]) -> bool:
    """Return True if none of the names has a fault but a date."""
    joined = "".join(names)
    return joined.isprintable() and len(joined) <= MAX_NAME and ERRORS.isdisjoint(names)


def fault(name: str) -> str | None:
    """Return why a name cannot have been meant; None if it can."""
    if name in ERRORS:
        return name
    if len(name) > MAX_NAME:
        return f"more than {MAX_NAME} characters"
    if not name.isprintable():
        what = "a line break" if "\n" in name else "a character that does not print"
        return f"{what} in {quoted(name)}"
    return None


@lru_cache(8192)
def date_fault(port: str) -> str | None:
    """Return why a port cannot have been meant: it is a date or a time; None if it is none."""
    if not _DATE.fullmatch(port):
        return None
    return f"the date {quoted(port)}: a port such as 1/2 needs a column formatted as text"

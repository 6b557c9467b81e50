"""The place of a port on its switch as one number, in which neighboring ports are neighbors.

    3 -> 3    swp3 -> 3    Ethernet1/3 -> 3    swp2s1 of swp1s0 to swp9s1 -> 4    etp2b -> 4

A name with several numbers counts them like the digits of a clock, with the ranges that occur in
the fleet. A name that is not of this shape (a MAC address, a free description) has no number.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from typing import TYPE_CHECKING

from agent.fleet.pattern.rows import current
from agent.ids import SWITCH_PORT

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from agent.fleet.model import FarEnd, FleetNode

    Names = tuple[str | None, str | None]  # port ID, port name
    Parsed = tuple[str, tuple[int, ...]]  # template, numbers

_NUMBER = re.compile(r"\d+", re.ASCII)
_SEPARATOR = str.maketrans("/:._", "----")


class PortNumbers:
    """The numbers of all ports that occur in a fleet."""

    def __init__(self, nodes: Sequence[FleetNode]) -> None:
        """Read the names of all far ends."""
        names = {
            (end.port_id, end.port_name)
            for node in nodes
            for port in node.ports
            if (end := current(port))
        }
        self._parsed = {one: found for one in names if (found := _parsed(*one))}
        self._ranges = _ranges(self._parsed.values())
        self._of: dict[Names, int] = {
            one: self._number(*found) for one, found in self._parsed.items()
        }
        self._template = self._templates(nodes)
        self._texts: dict[tuple[str, int], str] = {}

    def __getitem__(self, end: FarEnd) -> int | None:
        """Return the number of a far end's port; None if its switch names most ports otherwise."""
        names = end.port_id, end.port_name
        found = self._of.get(names)
        if found is None or self._parsed[names][0] != self._template[end.label]:
            return None
        return found

    def text(self, like: FarEnd, number: int) -> str | None:
        """Return the name of a port of the switch of another one; None if no node has it."""
        if not self._texts:
            self._texts = {
                (self._parsed[one][0], found): one[1] or one[0] or ""
                for one, found in self._of.items()
            }
        parsed = self._parsed.get((like.port_id, like.port_name))
        return self._texts.get((parsed[0], number)) if parsed else None

    def _templates(self, nodes: Iterable[FleetNode]) -> dict[str, str]:
        """Return the commonest template of each switch."""
        seen = Counter(
            (end.label, end.port_id, end.port_name)
            for node in nodes
            for port in node.ports
            if (end := current(port))
        )
        counted: dict[str, Counter[str]] = defaultdict(Counter)
        for (label, *names), count in seen.items():
            if found := self._parsed.get((names[0], names[1])):
                counted[label][found[0]] += count
        return {label: some.most_common(1)[0][0] for label, some in counted.items()}

    def _number(self, template: str, numbers: tuple[int, ...]) -> int:
        """Return one number; the first port of the fleet has the number that it shows, or 0."""
        total = 0
        for (low, high), number in zip(self._ranges[template], numbers, strict=True):
            total = total * (high - low + 1) + number - low
        return total + self._ranges[template][-1][0]


def _parsed(port_id: str | None, port_name: str | None) -> Parsed | None:
    """Return the template and the numbers of a name; a bare number may be an ifIndex."""
    texts = [text for text in (port_id, port_name) if text and len(text) < 64]
    found = [match for text in texts if (match := SWITCH_PORT.fullmatch(text))]
    named = [match for match in found if match[1]] or found
    return _split(named[0]) if named else None


def _split(match: re.Match[str]) -> Parsed:
    word, digits, lane = (part.lower() for part in match.groups())
    template = word + _NUMBER.sub("#", digits).translate(_SEPARATOR) + ("a" if lane else "")
    numbers = [
        *map(int, _NUMBER.findall(digits)),
        *([ord(lane) - ord("a")] if lane else []),
    ]
    return template, tuple(numbers)


def _ranges(found: Iterable[Parsed]) -> dict[str, list[tuple[int, int]]]:
    """Return the least and the greatest of each number of each template."""
    numbers: dict[str, list[tuple[int, ...]]] = defaultdict(list)
    for template, one in found:
        numbers[template].append(one)
    return {
        template: [(min(column), max(column)) for column in zip(*some, strict=True)]
        for template, some in numbers.items()
    }

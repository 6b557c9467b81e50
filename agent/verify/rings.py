"""Cables of a node or of a fleet that changed places: each is where the plan has the next one."""

from __future__ import annotations

import re
from itertools import islice
from typing import TYPE_CHECKING, TypeVar

from agent.findings.names import likeness
from agent.model import natural

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from agent.findings.finding import PortRef
    from agent.verify.cables import Cable

    Off = frozenset[str]

T = TypeVar("T")
FEW = 64  # cables of a leaf, all of which are compared; of more, those with the port's number
MAX_CANDIDATES = 256  # planned ends that one far end is compared with
_NUMBER = re.compile(r"(\d+)\D*$", re.ASCII)


def cycles(follows: Mapping[T, T | None]) -> list[list[T]]:
    """Return the members that follow each other round, each cycle once."""
    found: list[list[T]] = []
    done: set[T] = set()
    for start in follows:
        path: dict[T, None] = {}
        one: T | None = start
        while one is not None and one not in done:
            done.add(one)
            path[one] = None
            one = follows.get(one)
        if one is not None and one in path:
            members = [*path]
            found.append(members[members.index(one) :])
    return found


def rings(wrong: Sequence[Cable], off: Off = frozenset()) -> list[list[Cable]]:
    """Return the rings among wrong cables of any node, each from its first port on."""
    index = _Index(wrong)
    by_port = {one.ref: one for one in wrong}
    found = []
    for members in cycles({one.ref: index.holder(one, off) for one in wrong}):
        start = members.index(min(members, key=lambda port: tuple(map(natural, port))))
        found.append([by_port[port] for port in (*members[start:], *members[:start])])
    return found


class _Index:
    """Wrong cables by their planned device, and by the last number of their planned port."""

    def __init__(self, wrong: Iterable[Cable]) -> None:
        self._by_device: dict[str, list[Cable]] = {}
        self._by_end: dict[tuple[str, str], list[Cable]] = {}
        for one in wrong:
            device = likeness(one.row.device or "")
            self._by_device.setdefault(device, []).append(one)
            for number in {_number(name) for name in one.row.ports or ("",)}:
                self._by_end.setdefault((device, number), []).append(one)

    def holder(self, one: Cable, off: Off) -> PortRef | None:
        """Return the port whose planned far end this cable has; None unless exactly one."""
        found = {
            other.ref
            for other in islice(self._candidates(one), MAX_CANDIDATES)
            if other is not one and one.leads_to(other.row, off)
        }
        return found.pop() if len(found) == 1 else None

    def _candidates(self, one: Cable) -> Iterator[Cable]:
        """Yield the cables whose planned end may be this far end; likely ones first."""
        if not (end := one.far_end):
            return
        seen = end.seen_device
        names = (end.device, *seen.names, *seen.guids, *seen.macs, seen.description or "")
        numbers = sorted({_number(text) for text in (end.port_id, end.port_name) if text})
        for device in dict.fromkeys(map(likeness, names)):
            same = self._by_device.get(device, ())
            # A cage or a split port has another number in the plan than on the switch.
            if len(same) <= FEW or end.seen_port.twin_port:
                yield from same
            else:
                for number in (*numbers, ""):
                    yield from self._by_end.get((device, number), ())


def _number(text: str) -> str:
    """Return the last number of a port's name."""
    found = _NUMBER.search(text)
    return found[1].lstrip("0") if found else text.casefold()

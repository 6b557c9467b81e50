"""Cables of several nodes that changed places: each is where the plan has the next one.

One ring is one finding, though every node of it sees only that its own cable is wrong.
"""

from __future__ import annotations

import re
from itertools import islice
from typing import TYPE_CHECKING

from agent.findings.finding import finding
from agent.findings.names import likeness
from agent.fleet.cables import end_text, port_text
from agent.model import natural
from agent.text import listed
from agent.verify import words
from agent.verify.cables import leads_to, ring_from

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from agent.findings.finding import Finding, PortRef
    from agent.fleet.cables import Cable

    Off = frozenset[str]
    Key = tuple[str, str]

MAX_CANDIDATES = 256  # planned ends that one far end is compared with
_NUMBER = re.compile(r"(\d+)\D*$", re.ASCII)


def rings(wrong: Sequence[Cable], off: Off = frozenset()) -> list[list[Cable]]:
    """Return the rings among wrong cables of any node, each in its order."""
    index = _Index(wrong)
    by_port = {one.port: one for one in wrong}
    follows = {one.port: index.holder(one, off) for one in wrong}
    found: list[list[Cable]] = []
    done: set[PortRef] = set()
    for port in by_port:
        ring = [] if port in done else ring_from(port, follows)
        done.update(ring)
        if ring:
            found.append([by_port[member] for member in ring])
    return found


class _Index:
    """Wrong cables by the device and the last number of their planned port."""

    def __init__(self, wrong: Iterable[Cable]) -> None:
        self._by_end: dict[Key, list[Cable]] = {}
        self._by_device: dict[str, list[Cable]] = {}
        for one in wrong:
            row = one.checked.row
            device = likeness(row.device or "")
            self._by_device.setdefault(device, []).append(one)
            for key in {(device, _number(name)) for name in row.ports or ("",)}:
                self._by_end.setdefault(key, []).append(one)

    def holder(self, one: Cable, off: Off) -> PortRef | None:
        """Return the port whose planned far end this cable has; None unless exactly one."""
        found = {
            other.port
            for other in islice(self._candidates(one), MAX_CANDIDATES)
            if other is not one and leads_to(one.checked, other.checked.row, off)
        }
        return found.pop() if len(found) == 1 else None

    def _candidates(self, one: Cable) -> Iterator[Cable]:
        """Yield the cables whose planned end may be this far end; likely ones first."""
        end = one.checked.far_end
        if not end:
            return
        seen = end.seen_device
        devices = dict.fromkeys(map(likeness, (end.device, *seen.names, *seen.guids, *seen.macs)))
        numbers = {_number(text) for text in (end.port_id, end.port_name) if text}
        for device in devices:
            for number in (*sorted(numbers), ""):
                yield from self._by_end.get((device, number), ())
        if end.seen_port.twin_port:  # numbers of cages
            for device in devices:
                yield from self._by_device.get(device, ())


def _number(text: str) -> str:
    """Return the last number of a port's name."""
    found = _NUMBER.search(text)
    return found[1].lstrip("0") if found else text.casefold()


def swapped(ring: Sequence[Cable]) -> Finding:
    """Return the finding of a ring, from its first port on in the order of the ring."""
    start = ring.index(min(ring, key=lambda one: tuple(map(natural, one.port))))
    ring = [*ring[start:], *ring[:start]]
    first = ring[0].checked
    return finding(
        "swapped",
        [one.port for one in ring],
        _text(ring),
        nodes=sorted({one.port.node for one in ring}, key=natural),
        moves=tuple(one.move for one in ring),
        expected=first.expected,
        actual=first.actual,
        facts=first.row.facts,
    )


def _text(ring: Sequence[Cable]) -> str:
    names = [port_text(one.port) for one in ring]
    ends = [words.far(one.checked.row) for one in ring]
    if len(ring) == 2:
        belongs = f"{names[0]} belongs to {ends[0]}, {names[1]} to {ends[1]}"
        return f"Exchange the far ends of {names[0]} and {names[1]}: {belongs}."
    moves = [
        f"{name} from {end_text(one.checked.actual)} to {end}"
        for one, name, end in zip(ring, names, ends, strict=True)
    ]
    return f"Move the far ends of {len(ring)} cables in a ring: {listed(moves)}."

r"""The wiring of a fleet: its nodes, its switches, and the cable of each port that has a neighbor.

Nodes and neighbors choose their own names, so every text here is made one printable line: what
does not print becomes an escape as in Python, and a backslash two, so that different texts stay
different.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, NamedTuple

from agent.fleet.exports.exported import listed
from agent.labels import encode
from agent.model import natural

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from agent.fleet.model import FarEnd, Fleet, FleetNode, FleetPort


class Link(NamedTuple):
    """The cable of one port."""

    node: FleetNode
    port: FleetPort
    end: FarEnd

    @property
    def rate(self) -> str | None:
        """Return the rate that the port counts, `400G`; None if it counts nothing."""
        return encode.gbps(self.port.gbps) if self.port.gbps else None


class Wiring(NamedTuple):
    """All cables, and the names of the switches by their identity, in natural order."""

    links: tuple[Link, ...]
    switches: Mapping[str, str]
    notes: tuple[str, ...]

    @property
    def nodes(self) -> tuple[FleetNode, ...]:
        """The nodes with a cable."""
        return tuple({link.node.name: link.node for link in self.links}.values())


def wiring(fleet: Fleet) -> Wiring:
    """Return the wiring, and a note on the ports without a neighbor."""
    links: list[Link] = []
    silent: list[str] = []
    for node in fleet.nodes:
        for port in node.ports:
            if port.far_end is None:
                silent.append(f"{node.name}/{port.interface}")
            else:
                links.append(Link(node, port, port.far_end))
    bare = [node.name for node in fleet.nodes if not node.ports]
    notes = [f"without a neighbor: {listed(silent, 'port')}"] if silent else []
    notes += [f"without a port: {listed(bare)}"] if bare else []
    return Wiring(tuple(links), _names(links), tuple(notes))


def _names(links: Iterable[Link]) -> dict[str, str]:
    """Return the name of each switch; with its identity where two bear one name."""
    found: dict[str, set[str]] = {}
    for link in links:
        found.setdefault(link.end.switch, set()).add(link.end.device)
    first = {switch: min(names, key=natural) for switch, names in found.items()}
    times = Counter(first.values())
    named = {
        switch: name if times[name] == 1 else f"{name} {switch}" for switch, name in first.items()
    }
    return dict(sorted(named.items(), key=lambda item: natural(item[1])))


def plain(text: str) -> str:
    """Return text as one printable line, different for different texts."""
    if text.isprintable() and "\\" not in text:
        return text
    return "".join(map(_escaped, text))


def _escaped(character: str) -> str:
    if character.isprintable() and character != "\\":
        return character
    return character.encode("unicode_escape").decode()

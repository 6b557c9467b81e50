"""The switches of a fleet as the page shows them: a name that is theirs alone, and a color."""

from __future__ import annotations

import re
from collections import Counter
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from agent.fleet.judged import Judged
    from agent.fleet.model import FarEnd, Fleet

# Classes c0, c1, ... of page.css: eight colors, each plain, striped one way and the other.
COLORS, TEXTURES = 8, 3
FOREIGN = COLORS * (TEXTURES - 1)  # the place from which leaves of no group are counted


# A domain: two labels or more, the last one of letters, which a name such as L90.1.3 has not.
DOMAIN = re.compile(r"\.[^.]+(\.[^.]+)*\.[a-z]{2,}", re.IGNORECASE)


class Leaf(NamedTuple):
    """A switch."""

    id: str  # FarEnd.switch
    name: str  # without the domain that all have
    color: str  # classes of page.css


class Leaves:
    """Finds the switches of a fleet by identity and by name."""

    def __init__(self, judged: Judged) -> None:
        uses = Counter((end.switch, end.device) for end in _far_ends(judged.fleet))
        names = _without_domain(_names(uses))
        order = list(_in_order(judged, names))
        places = {switch: FOREIGN + number for number, switch in enumerate(order)}
        places |= _places(judged)
        self._of = {
            switch: Leaf(switch, names.get(switch, switch), _color(places[switch]))
            for switch in order
        }
        self._names: dict[str, list[str]] = {}
        self._by_name: dict[str, list[Leaf]] = {}
        for leaf in self._of.values():
            for name in {leaf.name, leaf.id}:
                self._by_name.setdefault(name.casefold(), []).append(leaf)
        for switch, name in uses:
            self._names.setdefault(switch, []).append(name)
            known = self._by_name.setdefault(name.casefold(), [])
            if (leaf := self._of[switch]) not in known:
                known.append(leaf)

    def __getitem__(self, switch: str) -> Leaf:
        """Return the switch of an identity that a port or a group has."""
        return self._of[switch]

    def named(self, name: str | None) -> list[Leaf]:
        """Return the switches of that name or identity; several where a name is used twice."""
        return self._by_name.get((name or "").casefold(), [])

    def names(self, leaf: Leaf) -> list[str]:
        """Return the names of a switch as its ports have them, and its identity."""
        return [*self._names.get(leaf.id, ()), leaf.id]

    def shown(self, name: str) -> str:
        """Return the name that the page has for a switch; the same if it is not known."""
        found = self.named(name)
        return found[0].name if len(found) == 1 else name


def _far_ends(fleet: Fleet) -> Iterator[FarEnd]:
    for node in fleet.nodes:
        for port in node.ports:
            yield from (end for end in (port.far_end, port.last_end) if end)


def _names(uses: Mapping[tuple[str, str], int]) -> dict[str, str]:
    """Return the most common name of each switch; one that another has too, with the identity."""
    rising = sorted(uses.items(), key=lambda use: use[1])
    names = {switch: name for (switch, name), _ in rising}
    shared = Counter(name.casefold() for name in names.values())
    return {
        switch: name if shared[name.casefold()] == 1 or name == switch else f"{name} ({switch})"
        for switch, name in names.items()
    }


def _without_domain(names: dict[str, str]) -> dict[str, str]:
    """Return the names without their domain, if all switches have the same one."""
    domains = {name[len(name.partition(".")[0]) :] for name in names.values()}
    domain = domains.pop() if len(domains) == 1 else ""
    if not DOMAIN.fullmatch(domain):
        return names
    return {switch: name.removesuffix(domain) or name for switch, name in names.items()}


def _in_order(judged: Judged, names: Iterable[str]) -> dict[str, None]:
    """Return every identity, those of the groups first."""
    ours = dict.fromkeys(switch for group in judged.groups for switch in group.leaves)
    return {**ours, **dict.fromkeys(names)}


def _places(judged: Judged) -> dict[str, int]:
    """Return the place of a switch in its first group: a rail has one color in every group."""
    places: dict[str, int] = {}
    for group in judged.groups:
        for place, switch in enumerate(group.leaves):
            places.setdefault(switch, place)
    return places


def _color(place: int) -> str:
    color, texture = place % COLORS, place // COLORS % TEXTURES
    return f"c{color} t{texture}" if texture else f"c{color}"

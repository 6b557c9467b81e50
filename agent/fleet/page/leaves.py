"""The switches of a fleet as the page shows them: a name that is theirs alone, and a color."""

from __future__ import annotations

import re
from collections import Counter
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping

    from agent.fleet.judged import Judged

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
        ends = [
            end
            for node in judged.fleet.nodes
            for port in node.ports
            for end in (port.far_end, port.last_end)
            if end
        ]
        uses = Counter((end.switch, end.device) for end in ends)
        names = _without_domain(_names(uses))
        places: dict[str, int] = {}  # in the first group: a rail has one color in every group
        for group in judged.groups:
            for place, switch in enumerate(group.leaves):
                places.setdefault(switch, place)
        self._of: dict[str, Leaf] = {}
        for number, switch in enumerate(dict.fromkeys([*places, *names])):
            place = places.get(switch, FOREIGN + number)
            texture = place // COLORS % TEXTURES
            color = f"c{place % COLORS}" + (f" t{texture}" if texture else "")
            self._of[switch] = Leaf(switch, names.get(switch, switch), color)
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

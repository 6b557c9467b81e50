"""What the page looks up: the switches of a fleet, and the findings by node, port and switch.

A switch has a name that is its alone, and a color. A finding has a number, and marks nodes, ports
and switches with a sign.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from agent.cabling.finding import ERROR, INFO, UNKNOWN, WARNING, Ends, Finding, PortRef
from agent.fleet.model import Judged

# Classes c0, c1, ... of page.css: eight colors, each plain, striped one way and the other.
COLORS, TEXTURES = 8, 3
FOREIGN = COLORS * (TEXTURES - 1)  # the place from which leaves of no group are counted
# A domain: two labels or more, the last label of letters, which a name such as L90.1.3 has not.
DOMAIN = re.compile(r"\.[^.]+(\.[^.]+)*\.[a-z]{2,}", re.IGNORECASE)

SEVERITIES = (ERROR, WARNING, UNKNOWN, INFO)
SIGNS = {ERROR: "✗", WARNING: "!", UNKNOWN: "?", INFO: "i"}
APART = ("silent", "unreadable")  # codes of findings that are no work in the data hall
OF_SWITCHES = ("leaf-down", "renamed", "switch-identity")  # codes; they mark no node
OF_CABLES = ("leaf-down",)  # those of them that mark cables


class Leaf(NamedTuple):
    """A switch."""

    id: str  # SeenEnd.switch
    name: str  # without the domain that all have
    color: str  # classes of page.css


class LeafTable:
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
        names = _names(uses)
        domain = common_domain(names.values())
        names = {switch: name.removesuffix(domain) or name for switch, name in names.items()}
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
        for switch, name in uses:
            self._names.setdefault(switch, []).append(name)
        shown = [(leaf.id, name) for leaf in self._of.values() for name in (leaf.name, leaf.id)]
        self._by_name: dict[str, dict[Leaf, None]] = {}
        for switch, name in (*shown, *uses):
            self._by_name.setdefault(name.casefold(), {})[self._of[switch]] = None

    def __getitem__(self, switch: str) -> Leaf:
        """Return the switch of an identity that a port or a group has."""
        return self._of[switch]

    def named(self, name: str | None) -> list[Leaf]:
        """Return the switches of that name or identity; several where a name is used twice."""
        return [*self._by_name.get((name or "").casefold(), ())]

    def names(self, leaf: Leaf) -> list[str]:
        """Return the names of a switch as its ports have them, and its identity."""
        return [*self._names.get(leaf.id, ()), leaf.id]

    def shown(self, name: str) -> str:
        """Return the name that the page has for a switch; the same if it is not known."""
        leaves = self.named(name)
        return leaves[0].name if len(leaves) == 1 else name


def _names(uses: Mapping[tuple[str, str], int]) -> dict[str, str]:
    """Return the most common name of each switch; with the identity if two switches share it."""
    rising = sorted(uses.items(), key=lambda use: use[1])
    names = {switch: name for (switch, name), _ in rising}
    shared = Counter(name.casefold() for name in names.values())
    return {
        switch: name if shared[name.casefold()] == 1 or name == switch else f"{name} ({switch})"
        for switch, name in names.items()
    }


def common_domain(names: Iterable[str]) -> str:
    """Return the domain of all names, with its dot; empty if they differ."""
    domains = {name[len(name.partition(".")[0]) :] for name in names}
    domain = domains.pop() if len(domains) == 1 else ""
    return domain if DOMAIN.fullmatch(domain) else ""


class Mark(NamedTuple):
    """The mark of one port or node, by its findings."""

    severity: str
    numbers: tuple[int, ...]
    wanted: Ends | None = None  # of a move

    @property
    def sign(self) -> str:
        """The sign that stands beside the color."""
        return SIGNS[self.severity]


class Marks:
    """Finds the mark of a port, of a node and of a switch; findings are numbered from 1."""

    def __init__(self, findings: Sequence[Finding]) -> None:
        self._severities = [finding.severity for finding in findings]
        self._ports = defaultdict[PortRef, list[int]](list)
        self._nodes = defaultdict[str, list[int]](list)
        self._switches = defaultdict[str, list[int]](list)
        self._wanted: dict[PortRef, Ends] = {}
        for number, finding in enumerate(findings, 1):
            moves = finding.moves
            self._wanted |= {move.port: move.wanted for move in moves if move.wanted != move.actual}
            if finding.code in OF_SWITCHES:
                for name in {finding.expected[0], finding.actual[0]} - {None}:
                    self._switches[str(name).casefold()].append(number)
            else:
                for node in nodes_of(finding):
                    self._nodes[node].append(number)
            if finding.code not in OF_SWITCHES or finding.code in OF_CABLES:
                for port in dict.fromkeys([*finding.ports, *(move.port for move in moves)]):
                    self._ports[port].append(number)

    def of_port(self, port: PortRef) -> Mark | None:
        return self._mark(self._ports.get(port, ()), self._wanted.get(port))

    def of_node(self, node: str) -> Mark | None:
        """Return what is said of a node or of any of its ports."""
        return self._mark(self._nodes.get(node, ()))

    def of_switch(self, *names: str) -> Mark | None:
        """Return what is said of a whole switch, by its names."""
        keys = {name.casefold() for name in names}
        return self._mark(sorted({n for key in keys for n in self._switches.get(key, ())}))

    def _mark(self, numbers: Sequence[int], wanted: Ends | None = None) -> Mark | None:
        severities = [self._severities[number - 1] for number in numbers]
        if not severities:
            return None
        return Mark(min(severities, key=SEVERITIES.index), tuple(numbers), wanted)


def nodes_of(finding: Finding) -> list[str]:
    """Return the nodes that a finding names in any way."""
    ports = [*finding.ports, *(move.port for move in finding.moves)]
    return list(dict.fromkeys([*finding.nodes, *(port.node for port in ports)]))

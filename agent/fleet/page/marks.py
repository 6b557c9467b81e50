"""The findings by node and by port: their numbers, signs and the ends that are wanted."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from agent.findings.finding import ERROR, INFO, UNKNOWN, WARNING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from agent.findings.finding import Ends, Finding, PortRef

SEVERITIES = (ERROR, WARNING, UNKNOWN, INFO)
SIGNS = {ERROR: "✗", WARNING: "!", UNKNOWN: "?", INFO: "i"}
APART = ("silent", "unreadable")  # codes of findings that are no work in the data hall
OF_SWITCHES = ("leaf-down", "renamed", "switch-identity")  # codes; they mark no node
OF_CABLES = ("leaf-down",)  # those of them that mark cables


class Numbered(NamedTuple):
    """A finding and its number on the page."""

    number: int
    finding: Finding


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
    """Finds the mark of a port, of a node and of a switch."""

    def __init__(self, findings: Iterable[Finding]) -> None:
        self.findings = [Numbered(number, one) for number, one in enumerate(findings, 1)]
        self._ports: dict[PortRef, list[Numbered]] = {}
        self._nodes: dict[str, list[Numbered]] = {}
        self._switches: dict[str, list[Numbered]] = {}
        self._wanted = {move.port: move.wanted for _, one in self.findings for move in one.moves}
        for numbered in self.findings:
            self._add(numbered)

    def _add(self, numbered: Numbered) -> None:
        finding = numbered.finding
        if finding.code in OF_SWITCHES:
            for name in {finding.expected[0], finding.actual[0]} - {None}:
                self._switches.setdefault(str(name).casefold(), []).append(numbered)
        else:
            for node in nodes_of(finding):
                self._nodes.setdefault(node, []).append(numbered)
        if finding.code not in OF_SWITCHES or finding.code in OF_CABLES:
            self._add_ports(numbered)

    def _add_ports(self, numbered: Numbered) -> None:
        finding = numbered.finding
        for port in dict.fromkeys([*finding.ports, *(move.port for move in finding.moves)]):
            self._ports.setdefault(port, []).append(numbered)

    def of_port(self, port: PortRef) -> Mark | None:
        """Return what is said of a port."""
        return _mark(self._ports.get(port, ()), self._wanted.get(port))

    def of_node(self, node: str) -> Mark | None:
        """Return what is said of a node or of any of its ports."""
        return _mark(self._nodes.get(node, ()))

    def of_switch(self, *names: str) -> Mark | None:
        """Return what is said of a whole switch, by its names."""
        found = {one for name in names for one in self._switches.get(name.casefold(), ())}
        return _mark(sorted(found, key=lambda one: one.number))


def nodes_of(finding: Finding) -> list[str]:
    """Return the nodes that a finding names in any way."""
    ports = [*finding.ports, *(move.port for move in finding.moves)]
    return list(dict.fromkeys([*finding.nodes, *(port.node for port in ports)]))


def _mark(found: Iterable[Numbered], wanted: Ends | None = None) -> Mark | None:
    ones = list(found)
    if not ones:
        return None
    severity = min((one.finding.severity for one in ones), key=SEVERITIES.index)
    return Mark(severity, tuple(one.number for one in ones), wanted)

"""The nodes of a fleet as rows of a table: a column for each interface, by its PCI address.

Invariants:
- The rows of one table have the same columns. Nodes with other interfaces, of another generation or
  link layer, are another table: no pattern covers both.
- A leaf is named alike on all rows, though some nodes know its identifier and others its name only.
"""

from __future__ import annotations

from collections import defaultdict
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

from agent.fleet import silent

if TYPE_CHECKING:
    from collections.abc import Iterable

    from agent.fleet.model import FarEnd, Fleet, FleetNode, FleetPort
    from agent.fleet.pattern.port_numbers import PortNumbers

    Column = tuple[str, int]  # PCI address (or else the name), the number of the port there
    Kind = tuple[str | None, tuple[Column, ...]]


class Row(NamedTuple):
    """A node."""

    node: FleetNode
    ports: tuple[FleetPort, ...]
    leaves: tuple[str | None, ...]  # of each port now, or last; None: never known
    numbers: tuple[int | None, ...]  # of the leaf's ports
    is_fresh: bool  # not silent; a silent node says nothing about today's cables
    is_whole: bool  # every port has a neighbor now


class Table(NamedTuple):
    """The nodes of one generation, in natural order."""

    flavor: str | None
    columns: tuple[Column, ...]
    rows: list[Row]


def tables(fleet: Fleet, numbers: PortNumbers) -> list[Table]:
    """Return the tables, in the order in which their first nodes are listed."""
    names = _Names(fleet.nodes)
    found: dict[Kind, list[Row]] = defaultdict(list)
    for node in fleet.nodes:
        columns, ports = _in_order(node.ports)
        ends = [current(port) for port in ports]
        row = Row(
            node,
            ports,
            tuple([names[end] if end else None for end in ends]),
            tuple([numbers[end] if end else None for end in ends]),
            silent.cause(node, fleet.now) is None,
            all(port.far_end for port in ports),
        )
        found[node.flavor, columns].append(row)
    return [Table(*kind, rows) for kind, rows in found.items()]


def current(port: FleetPort) -> FarEnd | None:
    """Return the far end that a port has now, or had last."""
    return None if port.is_lost else port.far_end or port.last_end


def _in_order(ports: tuple[FleetPort, ...]) -> tuple[tuple[Column, ...], tuple[FleetPort, ...]]:
    """Return the columns of a node in order, and the port in each."""
    places = [port.pci or port.interface for port in ports]
    if len({*places}) == len(places):
        columns: list[Column] = [(place, 0) for place in places]
    else:
        columns = [(place, places[:index].count(place)) for index, place in enumerate(places)]
    if all(one < other for one, other in pairwise(columns)):
        return tuple(columns), ports
    order = sorted(range(len(ports)), key=columns.__getitem__)
    return tuple(sorted(columns)), tuple([ports[index] for index in order])


class _Names:
    """One name for each switch."""

    def __init__(self, nodes: Iterable[FleetNode]) -> None:
        """Learn the identifiers that go with each label."""
        pairs = {
            (end.label, end.id) for node in nodes for port in node.ports if (end := current(port))
        }
        found: dict[str, set[str]] = defaultdict(set)
        for label, number in pairs:
            if number:
                found[label].add(number)
        self._of_label: dict[str, str | None] = {
            label: min(numbers) if len(numbers) == 1 else None for label, numbers in found.items()
        }

    def __getitem__(self, end: FarEnd) -> str | None:
        """Return the name; None if only the label is known, and two switches have it."""
        return end.id or self._of_label.get(end.label, end.label)

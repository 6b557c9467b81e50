"""The cables that break the rule of a group by design: their column divides the nodes otherwise.

A storage leaf holds 24 nodes where a compute unit has 20. The few nodes that cross the border are
no mistake, though the majority of their group is on another leaf: in the order of names, such a
column goes on with the same leaf where half of the groups end, or more. A cable of it is no mistake
on the leaf of the nodes before or after its group, or at an end of that order. A leaf on which a
column has one node, not at an end, divides nothing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby, pairwise
from typing import NamedTuple

from agent.fleet.pattern.causes import Ruled
from agent.fleet.pattern.grouping import NodeRow


class Seat(NamedTuple):
    """A node in the order of names, as one column has it."""

    node: str
    group: int
    leaf: str


def by_design(
    rows: Sequence[NodeRow], groups: Sequence[Ruled], columns: Iterable[int]
) -> Iterator[tuple[str, int]]:
    """Yield node and column of the cables that are no mistakes; `rows` in the order of names."""
    of_node = {row.node.name: number for number, group in enumerate(groups) for row in group.rows}
    line = [row for row in rows if row.is_fresh and any(row.leaves)]
    ends = [row.node.name for row in (*line[:1], *line[-1:])]
    for column in columns:
        nodes = Counter(row.leaves[column] for row in line)
        seats = [
            Seat(name, of_node[name], leaf)
            for name, leaf in ((row.node.name, row.leaves[column]) for row in line)
            if leaf and (nodes[leaf] > 1 or name in ends)
        ]
        if not _divides_alike(seats):
            yield from ((node, column) for node in _at_borders(seats))


def _divides_alike(line: Sequence[Seat]) -> bool:
    """Return True if the leaf changes where most groups end, or there is one group only."""
    borders = [(before, after) for before, after in pairwise(line) if before.group != after.group]
    changes = sum(1 for before, after in borders if before.leaf != after.leaf)
    return not borders or 2 * changes > len(borders)


def _at_borders(line: Sequence[Seat]) -> Iterator[str]:
    """Yield the nodes of each run on one leaf that goes beyond its group, or ends the order."""
    runs = [[*run] for _, run in groupby(line, lambda seat: seat.leaf)]
    for index, run in enumerate(runs):
        is_end = index in (0, len(runs) - 1)
        if is_end or len({seat.group for seat in run}) > 1:
            yield from (seat.node for seat in run)

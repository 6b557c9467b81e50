"""The cables that break the rule of a group by design: their column divides the nodes otherwise.

A storage leaf holds 24 nodes where a compute unit has 20. The few nodes that cross the border are
no mistake, though the majority of their group is on another leaf: in the order of names, such a
column goes on with the same leaf where half of the groups end, or more. A cable of it is no mistake
on the leaf of the nodes before or after its group, or at an end of that order. A leaf on which a
column has one node, not at an end, divides nothing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import groupby, pairwise

from agent.fleet.pattern.causes import Ruled
from agent.fleet.pattern.grouping import NodeRow


def by_design(rows: Sequence[NodeRow], groups: Sequence[Ruled]) -> Iterator[tuple[str, int]]:
    """Yield node and column of the cables that are no mistakes; `rows` in the order of names."""
    of_node = {row.node.name: number for number, group in enumerate(groups) for row in group.rows}
    line = [(row, of_node[row.node.name]) for row in rows if row.is_fresh and any(row.leaves)]
    ends = [row.node.name for row, _ in (*line[:1], *line[-1:])]
    for column in range(len(rows[0].ports)):
        nodes = Counter(row.leaves[column] for row, _ in line)
        places = [
            (leaf, number, row.node.name)
            for row, number in line
            if (leaf := row.leaves[column]) and (nodes[leaf] > 1 or row.node.name in ends)
        ]
        borders = [
            before[0] == after[0] for before, after in pairwise(places) if before[1] != after[1]
        ]
        if borders and 2 * sum(borders) >= len(borders):
            runs = [[*run] for _, run in groupby(places, lambda place: place[0])]
            for index, run in enumerate(runs):
                is_end = index in (0, len(runs) - 1)
                if is_end or len({number for _, number, _ in run}) > 1:
                    yield from ((name, column) for _, _, name in run)

"""Nodes that are not in their place: all that a plan has for a node is that of another, or of none.

The names of nodes may be wrong, or the plan, as well as the cables; so each is one finding, with
all wrong cables of its nodes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence

from agent.cabling import words
from agent.cabling.cables import AS_PLANNED, IGNORED, ComparedCable
from agent.cabling.findings.finding import Finding, PortRef, finding
from agent.grouped import grouped

OfNodes = Mapping[str, Sequence[ComparedCable]]  # the cables of each node

PAIR = 2
MIN_CABLES = 2  # of a node: a single one is exchanged, not its node
MIN_PAIRS = 2  # of nodes in the reverse order


def exchanged(
    rings: Iterable[list[ComparedCable]], nodes: Sequence[str], cabled: OfNodes, wrong: OfNodes
) -> Iterator[Finding]:
    """Yield a finding for nodes in each other's place, in a ring or in the reverse order.

    Most cables of each node are where those of the next node belong. `nodes` are in natural order.
    """
    seen = {name: sum(1 for cable in same if cable.far_end) for name, same in cabled.items()}
    crossed = grouped(rings, lambda ring: tuple([cable.ref.node for cable in ring]))
    groups = {
        group: len(same)
        for group, same in crossed.items()
        if len({*group}) == len(group) and all(2 * len(same) > seen[name] for name in group)
    }
    mirrored: set[str] = set()
    for first, last in _reversed(nodes, groups):
        turned = nodes[first : last + 1]
        mirrored.update(turned)
        text = (
            f"The cables of the {len(turned)} nodes from {turned[0]} to {turned[-1]} are in the "
            "reverse order: exchange those of the first and the last, the second and the last but "
            "one, and so on."
        )
        yield _of_nodes(
            "mirrored", [cable for name in turned for cable in wrong.get(name, ())], text
        )
    for group, count in groups.items():
        if count >= MIN_CABLES and mirrored.isdisjoint(group):
            cables = [cable for name in group for cable in wrong[name]]
            yield _of_nodes(
                "exchanged", cables, words.exchanged([wrong[name][0] for name in group])
            )


def _reversed(nodes: Sequence[str], groups: Iterable[tuple[str, ...]]) -> Iterator[tuple[int, int]]:
    """Yield first and last of each run of nodes in which pairs around one middle are exchanged."""
    rank = {name: number for number, name in enumerate(nodes)}
    pairs = [tuple([rank[name] for name in group]) for group in groups if len(group) == PAIR]
    for total, around in grouped(pairs, sum).items():
        run: list[tuple[int, ...]] = []
        for pair in sorted(around, reverse=True):  # from the middle on
            if pair[0] == (total - 1) // 2 - len(run):
                run.append(pair)
        if len(run) >= MIN_PAIRS:
            yield run[-1][0], run[-1][1]


def moved(cabled: OfNodes, wrong: OfNodes, owners: Mapping[PortRef, str]) -> Iterator[Finding]:
    """Yield a finding for each node elsewhere: no cable is as planned, and most are wrong.

    `owners` has the node and interface to which the plan gives the present port of a cable.
    """
    for name, same in wrong.items():
        others = [cable for cable in cabled[name] if cable.status != IGNORED]
        if len(same) < MIN_CABLES or 2 * len(same) <= len(others):
            continue
        if any(cable.status == AS_PLANNED for cable in others):
            continue
        hosts = Counter(
            owners[cable.ref].rpartition(" ")[0] for cable in same if cable.ref in owners
        )
        host, count = next(iter(hosts.most_common(1)), ("", 0))
        yield _of_nodes("moved", same, words.moved(same, host if 2 * count > len(same) else None))


def _of_nodes(code: str, cables: Sequence[ComparedCable], text: str) -> Finding:
    """Return the finding of nodes; its ID is of them alone, as their cables come and go."""
    names = [*dict.fromkeys(cable.ref.node for cable in cables)]
    return finding(
        code,
        [cable.ref for cable in cables],
        text,
        nodes=names,
        key=sorted(names),
        moves=tuple(cable.move for cable in cables),
        expected=cables[0].expected,
        actual=cables[0].actual,
        facts=cables[0].row.facts,
    )

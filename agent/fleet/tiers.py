"""The tiers above the leaf groups as a tree, though the labels of some nodes differ.

A fresh agent has another value than its siblings while the lowest switch of the tier is down. So a
leaf group has the value that most of its nodes have, and so has all that is in one value of the
tier below; of as many nodes each, the lowest value. A node that differs in a tier says nothing of
those above it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import NamedTuple

from agent.encode import is_value
from agent.fleet.model import FleetNode
from agent.grouped import grouped
from agent.text import natural


class Differing(NamedTuple):
    """Nodes with another value of a tier than most of those with which they share it."""

    key: str  # label of the tier
    place: str  # in words: `leaf group leaf[1-8]`, `backend.coreweave.cloud/tier-1.current spine1`
    usual: str
    value: str | None  # theirs; None: they have the tier below only
    nodes: Sequence[str]


class TierTree(NamedTuple):
    """The values of each leaf group, closest tier first, and the nodes that differ."""

    values: Mapping[str, tuple[str | None, ...]]
    differing: tuple[Differing, ...]


def tree(nodes: Iterable[FleetNode], keys: Sequence[str]) -> TierTree:
    """Return the tree by the labels of these keys, closest tier first."""
    members = grouped((n for n in nodes if n.leaf_group), lambda node: node.leaf_group or "")
    values: dict[str, tuple[str | None, ...]] = dict.fromkeys(members, ())
    place = {group: f"leaf group {group}" for group in members}
    differing, elsewhere = list[Differing](), set[str]()
    for tier, key in enumerate(keys):
        for where, groups in grouped(members, place.__getitem__).items():
            every = (node for group in groups for node in members[group])
            same = [node for node in every if node.name not in elsewhere]
            labels = {node.name: label(node, key) for node in same}
            counts = Counter(filter(None, labels.values()))
            usual = min(counts, key=lambda value: (-counts[value], natural(value)), default=None)
            values |= {group: (*values[group], usual) for group in groups}
            if usual is None:
                continue
            place |= dict.fromkeys(groups, f"{key} {usual}")
            below = {node.name for node in same if tier and label(node, keys[tier - 1])}
            odd = _odd(labels, usual, below if 2 * counts[usual] > len(below) else ())
            differing += [Differing(key, where, usual, *pair) for pair in odd.items()]
            elsewhere.update(*odd.values())
    return TierTree(values, tuple(differing))


def _odd(
    labels: Mapping[str, str | None], usual: str, known: Collection[str]
) -> dict[str | None, list[str]]:
    """Return the nodes with another value, and those of `known` without one."""
    others = (name for name, value in labels.items() if value or name in known)
    return grouped((name for name in others if labels[name] != usual), labels.__getitem__)


def label(node: FleetNode, key: str) -> str | None:
    """Return the value of a label; None if it is missing, empty or no value of a label."""
    value = node.labels.get(key)
    return value if is_value(value) else None

"""The tree that the tiers on the labels are made."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from agent.fleet.model import FleetNode
from agent.fleet.tiers import label, tree

KEYS = ("tier-1", "tier-2")
VALUE = st.one_of(st.none(), st.sampled_from(["s1", "s2", "s10", "no value", ""]))


@st.composite
def fleets(draw: st.DrawFn) -> list[FleetNode]:
    """Return nodes on a few leaf groups with any values."""
    nodes = []
    for at in range(draw(st.integers(0, 12))):
        labels = {key: value for key in KEYS if (value := draw(VALUE)) is not None}
        group = draw(st.sampled_from(["leaf1", "leaf2", "leaf3", None]))
        nodes.append(FleetNode(f"gpu-{at}", labels=labels, leaf_group=group))
    return nodes


@given(fleets())
def test_it_is_a_tree_always(nodes: list[FleetNode]) -> None:
    """A leaf group has one value of each tier, and a value of tier 1 is in one of tier 2.

    Who differs is told, at the closest tier, and nobody else is.
    """
    whole = tree(nodes, KEYS)
    assert whole.values.keys() == {node.leaf_group for node in nodes if node.leaf_group}
    above = {path for path in whole.values.values() if path[0]}
    assert len({first for first, _ in above}) == len(above)
    told = [(odd.key, name) for odd in whole.differing for name in odd.nodes if odd.value]
    missing = {name for odd in whole.differing for name in odd.nodes if not odd.value}
    wrong: dict[str, str] = {}  # by node, the first tier that differs
    for node in nodes:
        for at, key in enumerate(KEYS):
            if node.leaf_group and label(node, key) not in {
                None,
                whole.values[node.leaf_group][at],
            }:
                wrong.setdefault(node.name, key)
    assert sorted(told) == sorted((key, name) for name, key in wrong.items())
    assert missing.isdisjoint(wrong)


def node(at: int, *values: str) -> FleetNode:
    return FleetNode(f"gpu-{at}", labels=dict(zip(KEYS, values, strict=False)), leaf_group="leaf1")


def test_of_as_many_nodes_the_lowest() -> None:
    """The agent that knew has the lower switch, the fresh one the next."""
    assert tree([node(1, "s10"), node(2, "s2")], KEYS).values == {"leaf1": ("s2", None)}


def test_who_has_no_core_though_most_have() -> None:
    """A node that knows no tier is not told: its agent has not asked yet."""
    nodes = [node(1, "s1", "c1"), node(2, "s1", "c1"), node(3, "s1"), node(4)]
    (odd,) = tree(nodes, KEYS).differing
    assert (odd.key, odd.place, odd.usual, odd.value) == ("tier-2", "tier-1 s1", "c1", None)
    assert odd.nodes == ["gpu-3"]
    nodes = [node(1, "s1", "c1"), node(2, "s1"), node(3, "s1")]
    assert tree(nodes, KEYS).differing == ()

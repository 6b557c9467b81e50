"""Leaf groups, the site's levels and NVLink domains, from whole and from half labels."""

from __future__ import annotations

from agent.fleet.exports.topology import topology
from tests.support.wired_fleets import NAMING, Rack, fleet, fleet_of, names, node

ONE, TWO = {"fabric": "f1", "superpod": "sp1"}, {"fabric": "f1", "superpod": "sp2"}
P, IB = NAMING.prefix, NAMING.ib_prefix


def test_the_infiniband_labels_of_the_site() -> None:
    """Levels below IB count as those below P do."""
    one = node("gpu-1", "leaf1")
    labeled = fleet([node("gpu-2", "leaf1"), one])
    nodes = [
        type(each)(each.name, leaf_group="leaf1", labels={f"{IB}/fabric": "f1"})
        for each in labeled.nodes
    ]
    assert topology(fleet(nodes), NAMING).levels == (f"{IB}/fabric",)
    assert topology(fleet(nodes), NAMING._replace(ib_prefix="")).levels == ()


def test_a_new_node_is_where_its_leaf_group_is() -> None:
    """A Node that lacks the site's labels takes those of its leaf group."""
    nodes = [*fleet_of(Rack(names(1, 3), ("leaf1",), ONE)).nodes, node("gpu-004", "leaf1")]
    found = topology(fleet(nodes), NAMING)
    assert [(one.path, len(one.nodes)) for one in found.groups] == [(("f1", "sp1"), 4)]
    assert f"no {P}/fabric of their own: 1 Node: gpu-004" in found.notes


def test_a_level_that_few_nodes_have_is_none() -> None:
    """A label on a few Nodes makes no level, so that one Node cannot change the whole tree."""
    nodes = [node(name, "leaf1") for name in names(1, 3)]
    nodes.append(node("gpu-004", "leaf2", site={"superpod": "sp1"}))
    found = topology(fleet(nodes), NAMING)
    assert found.levels == ()
    assert found.notes == (f"{P}/superpod is no level, only 1 of 4 Nodes have it",)


def test_one_value_in_two_places() -> None:
    found = topology(
        fleet_of(
            Rack(names(1, 2), ("leaf1",), {"fabric": "f1"}),
            Rack(names(3, 4), ("leaf1",), {"fabric": "f2"}),
        ),
        NAMING,
    )
    assert [(one.path, one.value) for one in found.groups] == [
        (("f1",), "leaf1"),
        (("f2",), "leaf1"),
    ]
    assert found.notes == (f"leaf group leaf1 is 2 groups, by {P}/fabric: f1, f2",)


def test_what_is_left_out() -> None:
    nodes = [
        node("gpu-001", "leaf1"),
        node("gpu-002", None),
        node("gpu-003", None),
        node("gpu-004", "leaf/1"),
        node("GPU_5", "leaf1"),
    ]
    found = topology(fleet(nodes), NAMING)
    assert [one.name for one in found.nodes] == ["gpu-001"]
    key = f"{P}/leafgroup.current"
    assert set(found.notes) == {
        "left out, not a Node name: 1 Node: GPU_5",
        f"left out, no {key}: 2 Nodes: gpu-[002-003]",
        f"left out, {key} is not a label value: 1 Node: gpu-004",
    }


def test_a_domain_that_is_no_label_value() -> None:
    found = topology(fleet([node("gpu-1", "leaf1", domain="d/1")]), NAMING)
    assert (len(found.groups), dict(found.domains)) == (1, {})
    assert found.notes == ("the accelerator is not a label value: 1 Node: gpu-1",)

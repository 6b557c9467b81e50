"""The tiers that agents publish, as levels above the leaf groups without `--level`."""

from __future__ import annotations

import csv
import io
from dataclasses import replace

import pytest
import yaml

from agent.fleet.exports import Format
from agent.fleet.exports.levels import kueue
from agent.fleet.exports.slurm import topology_yaml, tree_conf
from agent.fleet.exports.topology import topology
from agent.fleet.exports.wiring import csv_rows
from agent.fleet.model import ROCE
from agent.kube.managed_fields import Keys
from tests.support.wired_fleets import NAMING, Rack, fleet, fleet_of, names, node, tiered

TIER_1, TIER_2 = Keys(NAMING).tiers
LEAF_GROUP, HOST = f"{NAMING.prefix}/leafgroup.current", "kubernetes.io/hostname"
MADE = (
    f"{TIER_1} is spine1 in leaf group leaf1, as on most Nodes, not spine2: 1 Node: gpu-002",
    f"{TIER_2} is core1 in {TIER_1} spine1, as on most Nodes, not core2: 1 Node: gpu-005",
)


def test_slurm_has_a_switch_for_each_tier() -> None:
    """A node whose label differs is where its leaf group is, and a note says so."""
    exported = tree_conf(tiered(), NAMING)
    assert exported.text.splitlines()[-7:] == [
        *(f"SwitchName=leaf{at} Nodes=gpu-[{3 * at - 2:03}-{3 * at:03}]" for at in range(1, 5)),
        "SwitchName=core1.spine1 Switches=leaf[1-2]",
        "SwitchName=core1.spine9 Switches=leaf[3-4]",
        "SwitchName=core1 Switches=core1.spine[1,9]",
    ]
    assert exported.notes == MADE


@pytest.mark.parametrize("form", [tree_conf, topology_yaml, kueue])
def test_it_is_said(form: Format) -> None:
    assert form(tiered(), NAMING).notes[:2] == MADE


def test_kueue_has_them_as_levels_of_infiniband() -> None:
    """RoCE nodes have no tiers: their flavor has none of these levels."""
    first, *_ = yaml.safe_load_all(kueue(tiered(), NAMING).text)
    levels = [level["nodeLabel"] for level in first["spec"]["levels"]]
    assert levels == [TIER_2, TIER_1, LEAF_GROUP, HOST]
    roce = fleet_of(Rack(names(20, 21), ("leaf9",), flavor=ROCE)).nodes
    first, second, *_ = yaml.safe_load_all(kueue(fleet([*tiered().nodes, *roce]), NAMING).text)
    of_kind = {
        each["metadata"]["name"]: [level["nodeLabel"] for level in each["spec"]["levels"]]
        for each in (first, second)
    }
    assert of_kind == {"bwagent-infiniband": levels, "bwagent-roce": [LEAF_GROUP, HOST]}


def test_levels_that_are_named_are_the_site_s() -> None:
    """`--level` has no other levels, and what is no tree is refused."""
    assert topology(tiered(), NAMING, (TIER_2,)).notes[0].startswith(f"{TIER_2} is no tree")
    assert topology(tiered(), NAMING, ("rack",)).groups == ()


def test_a_node_without_the_labels_is_where_its_leaf_group_is() -> None:
    first, *others = tiered().nodes
    labels = {key: value for key, value in first.labels.items() if key not in {TIER_1, TIER_2}}
    made = topology(fleet([replace(first, labels=labels), *others]), NAMING)
    assert made.groups[0].path == ("core1", "spine1")
    assert f"no {TIER_2} of their own: 1 Node: gpu-001" in made.notes


def test_a_leaf_group_of_whose_nodes_none_knows_the_core() -> None:
    """It is where the others of its tier 1 are."""
    nodes = [
        node(
            name,
            f"leaf{at // 2}",
            site={"tier-1.current": "s1", **({"tier-2.current": "c1"} if at < 4 else {})},
        )
        for at, name in enumerate(names(1, 6))
    ]
    made = topology(fleet(nodes), NAMING)
    assert {group.path for group in made.groups} == {("c1", "s1")}


@pytest.mark.parametrize("count", [2, 3])
def test_a_tier_that_few_nodes_have_is_none(count: int) -> None:
    nodes = [
        node(name, "leaf1", site={"tier-1.current": "s1"} if at < count else {})
        for at, name in enumerate(names(1, 4))
    ]
    assert topology(fleet(nodes), NAMING).levels == ((TIER_1,) if count == 3 else ())


def test_beside_the_levels_of_the_site() -> None:
    """A tier within them is a level below; one that joins what they have apart is none."""
    nodes = [
        node(
            name,
            f"leaf{at // 2}",
            site={
                "fabric": "f1",
                "superpod": f"sp{at // 2}",
                "tier-1.current": f"s{at // 2}",
                "tier-2.current": "c1",
            },
        )
        for at, name in enumerate(names(1, 4))
    ]
    made = topology(fleet(nodes), NAMING)
    superpod = f"{NAMING.prefix}/superpod"
    assert made.levels == (f"{NAMING.prefix}/fabric", superpod, TIER_1)
    assert made.notes == (f"{TIER_2} is no level: c1 has {superpod} sp0 and sp1",)


def test_csv_has_columns_of_them() -> None:
    (rack,) = (Rack(names(1, 1), ("leaf1",), {"tier-1.current": "s1", "tier-2.current": "c1"}),)
    (row,) = csv.DictReader(io.StringIO(csv_rows(fleet_of(rack), NAMING).text))
    assert (row["leaf-group"], row["tier-1"], row["tier-2"]) == ("leaf1", "s1", "c1")


def test_tiers_under_other_keys() -> None:
    """Those of `--tier-label` are levels in place of ours."""
    keys = tuple(f"example.com/tier-{tier}" for tier in range(3))
    nodes = [
        replace(each, labels={**each.labels, keys[1]: "s1", keys[2]: "c1"})
        for each in fleet_of(Rack(names(1, 2), ("leaf1",))).nodes
    ]
    assert topology(fleet(nodes), NAMING._replace(tiers=keys)).levels == (keys[2], keys[1])

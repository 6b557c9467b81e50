"""`--level`: labels of the operator's choice as the levels above the leaf groups."""

from __future__ import annotations

from dataclasses import replace

import pytest
import yaml
from click.testing import CliRunner

from agent.cli import cli
from agent.fleet.exports import Format
from agent.fleet.exports.levels import kueue
from agent.fleet.exports.slurm import tree_conf
from agent.fleet.exports.topology import topology
from agent.fleet.model import Fleet
from tests.support.fleet_nodes import listed
from tests.support.fleet_nodes import node as manifest
from tests.support.wired_fleets import NAMING, fleet, node

BLOCK, ISLAND = "fabric.topograph.run/tier-1", "fabric.topograph.run/tier-2"
BOTH = (ISLAND, BLOCK)


def tiered(changed: str | None = None) -> Fleet:
    """Return four leaf groups of two nodes in two blocks of one island; `changed` is a node of
    another block than its neighbor.
    """
    nodes = []
    for at in range(8):
        found = node(f"gpu-{at}", f"leaf{at // 2}")
        block = "b9" if found.name == changed else f"b{at // 4}"
        more = {ISLAND: "i1", BLOCK: block, "pool": f"p{at // 4}", "network.example/eth": f"e{at}"}
        nodes.append(replace(found, labels={**found.labels, **more}))
    return fleet(nodes)


def test_levels_of_the_operator() -> None:
    """Slurm has a switch for each value, outermost last; Kueue has the keys as levels."""
    lines = tree_conf(tiered(), NAMING, BOTH).text.splitlines()
    assert lines[-3:] == [
        "SwitchName=i1.b0 Switches=leaf[0-1]",
        "SwitchName=i1.b1 Switches=leaf[2-3]",
        "SwitchName=i1 Switches=i1.b[0-1]",
    ]
    first, *_ = yaml.safe_load_all(kueue(tiered(), NAMING, BOTH).text)
    assert [level["nodeLabel"] for level in first["spec"]["levels"]] == [
        *(ISLAND, BLOCK, f"{NAMING.prefix}/leafgroup.current", "kubernetes.io/hostname")
    ]


def test_candidates_are_named() -> None:
    """A note has the labels that join whole leaf groups and look like a topology."""
    assert topology(tiered(), NAMING).notes == (
        f"labels that may be levels (--level): {ISLAND}, {BLOCK}",
    )
    assert topology(tiered(), NAMING, BOTH).notes == ()
    assert topology(tiered("gpu-0"), NAMING).notes == (
        f"labels that may be levels (--level): {ISLAND}",
    )


@pytest.mark.parametrize("form", [kueue, tree_conf])
def test_a_level_that_is_no_tree(form: Format) -> None:
    """A leaf group in two values is told with its nodes, and there is no topology."""
    exported = form(tiered("gpu-0"), NAMING, BOTH)
    assert exported.text == ""
    assert exported.notes == (
        f"{BLOCK} is no tree: leaf group leaf0 has b9 on 1 Node: gpu-0; b0 on 1 Node: gpu-1",
    )


def test_a_level_that_no_node_has() -> None:
    exported = tree_conf(tiered(), NAMING, ("rack",))
    assert (exported.text, exported.notes) == ("", ("rack is no level: no Node has it",))


def test_the_innermost_first_is_no_order() -> None:
    exported = kueue(tiered(), NAMING, (BLOCK, ISLAND))
    assert exported.notes == (f"{ISLAND} is above {BLOCK}: give the outermost first",)


def test_a_node_without_the_label_is_where_its_leaf_group_is() -> None:
    first, *others = tiered().nodes
    labels = {key: value for key, value in first.labels.items() if key != BLOCK}
    found = topology(fleet([replace(first, labels=labels), *others]), NAMING, BOTH)
    assert [len(group.nodes) for group in found.groups] == [2] * 4
    assert found.notes == (f"no {BLOCK} of their own: 1 Node: gpu-0",)


def test_the_flag() -> None:
    """It is repeatable, and takes labels of Kubernetes, too."""
    zone = "topology.kubernetes.io/zone"
    key = f"{NAMING.prefix}/leafgroup.current"
    nodes = [manifest(at, {key: f"l{at}", zone: "z1"}) for at in range(2)]
    words = ["fleet", "export", "slurm", "--nodes", "-", "--level", zone]
    done = CliRunner().invoke(cli, words, input=listed(nodes))
    assert (done.exit_code, done.stderr) == (0, "")
    assert done.stdout.splitlines()[-1] == "SwitchName=z1 Switches=l[0-1]"


@pytest.mark.parametrize(
    ("form", "levels", "why"),
    [
        ("slurm", ["a b"], "--level: 'a b' is no label key"),
        ("slurm", ["/x"], "--level: '/x' is no label key"),
        ("slurm", ["rack", "rack"], "--level: rack is a level already"),
        ("kueue", ["kubernetes.io/hostname"], "--level: kubernetes.io/hostname is a level already"),
        ("kueue", [NAMING.accelerator], f"--level: {NAMING.accelerator} is a level already"),
        ("csv", ["rack"], "--level has no effect on csv: it has cables only"),
    ],
)
def test_a_wrong_flag(form: str, levels: list[str], why: str) -> None:
    words = [word for level in levels for word in ("--level", level)]
    done = CliRunner().invoke(cli, ["fleet", "export", form, "--nodes", "-", *words], input="")
    assert (done.exit_code, why in done.stderr) == (2, True)

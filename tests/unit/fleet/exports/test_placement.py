"""Nodes with wrong cables in the exports: in the leaf groups of their neighbors, unless strict."""

from __future__ import annotations

from dataclasses import replace

import pytest
from click.testing import CliRunner

from agent.cli import cli
from agent.fleet.exports.topology import INNER, placed, topology
from agent.fleet.model import Fleet as Model
from tests.support import fleet_models, fleets
from tests.support.fleet_nodes import IB, P, annotation, guid, leaf, listed, node
from tests.support.fleets import Cable, End, Fleet
from tests.support.wired_fleets import NAMING

# Nine bad ports: two pairs within a node, a pair of two nodes, and three cables on other leaves.
WRONG = {
    Cable(3, 2): End(5, 4),
    Cable(3, 5): End(2, 4),
    Cable(40, 0): End(9, 9),
    Cable(40, 1): End(8, 9),
    Cable(70, 4): End(20, 8),
    Cable(71, 4): End(20, 7),
    Cable(12, 1): End(3, 60),
    Cable(100, 7): End(25, 61),
    Cable(120, 0): End(27, 62),
}


def wired(size: int = 128) -> Fleet:
    """Return racks of 32 nodes on eight leaves, with the wrong cables."""
    fleet = Fleet(fleets.RAIL, size)
    fleet.ends = dict(WRONG)
    return fleet


def model(fleet: Fleet) -> Model:
    """Return the fleet as it is read, with NVLink domains of sixteen nodes."""
    read, nodes = fleet_models.model(fleet), []
    for number, one in enumerate(read.nodes):
        leaves = {port.last_end.device for port in one.ports if port.last_end}
        group, domain = "_".join(sorted(leaves)), f"domain-{number // 16}"
        labels = {f"{P}/leafgroup.current": group, NAMING.accelerator: domain}
        nodes.append(replace(one, leaf_group=group, accelerator=domain, labels=labels))
    return replace(read, nodes=tuple(nodes))


def test_wrong_cables_make_no_leaf_groups() -> None:
    """Four leaf groups of 32 nodes, in which the NVLink domains lie; each moved node is said."""
    seen = model(wired())
    as_seen = topology(seen, NAMING)
    assert len(as_seen.groups) > 4
    assert as_seen.relation != INNER
    fleet, notes = placed(seen)
    found = topology(fleet, NAMING)
    assert [len(one.nodes) for one in found.groups] == [32] * 4
    assert found.relation == INNER
    told = " ".join(notes)
    moved = {
        node.name
        for node, other in zip(seen.nodes, fleet.nodes, strict=True)
        if node.leaf_group != other.leaf_group
    }
    assert moved == {"gpu-00012", "gpu-00100", "gpu-00120"}
    assert all(name.removeprefix("gpu-") in told for name in moved)


def test_nodes_without_a_pattern_stay() -> None:
    """Of two crews nobody knows which is right: the labels are believed."""
    seen = model(Fleet(fleets.TWO_HABITS, 64))
    assert placed(seen) == (seen, [])


def exported(form: str, *flags: str) -> str:
    """Return what `fleet export` prints of a rack of 32 nodes, one cable of which is wrong."""
    own = [leaf(0, rail) for rail in range(8)]
    group = {f"{P}/leafgroup.current": "_".join(own)}
    others = {f"{prefix}/neighbors.current.ibp7.device": leaf(32, 7) for prefix in (P, IB)}
    text = annotation(7).replace(own[7], leaf(32, 7)).replace(guid(0, 7), guid(32, 7))
    nodes = [node(number, group) for number in range(32)]
    nodes[7] = node(
        7, {**others, f"{P}/leafgroup.current": "_".join([*own[:7], leaf(32, 7)])}, text
    )
    command = ["fleet", "export", form, "--nodes", "-", *flags]
    done = CliRunner().invoke(cli, command, input=listed(nodes, "NodeList"))
    assert done.exit_code == 0, done.output
    return done.stdout


def test_slurm_has_no_switch_for_one_node() -> None:
    """With --strict it has, and no comment about moved nodes."""
    lines = exported("slurm").splitlines()
    assert sum(line.startswith("SwitchName=") for line in lines) == 1
    assert lines[0].startswith("# in leaf group ")
    strict = exported("slurm", "--strict").splitlines()
    assert sum(line.startswith("SwitchName=") for line in strict) == 2
    assert not any("wrong cables" in line for line in strict)


@pytest.mark.parametrize("form", ["csv", "dot"])
def test_the_wiring_is_as_seen(form: str) -> None:
    """It has the wrong cables, so --strict has no effect there and is refused."""
    assert leaf(32, 7) in exported(form)
    done = CliRunner().invoke(cli, ["fleet", "export", form, "--nodes", "-", "--strict"], input="")
    assert done.exit_code == 2
    assert "--strict has no effect" in done.stderr

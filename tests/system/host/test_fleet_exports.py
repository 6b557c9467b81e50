"""Exports of a fleet, judged by slurmctld, by Graphviz, by Kueue's own types and by jq."""

from __future__ import annotations

import json
import random
import re
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from html import unescape
from pathlib import Path
from typing import NamedTuple

import pytest
import yaml

from agent.fleet.exports.kueue import kueue
from agent.fleet.exports.slurm import tree_conf
from agent.fleet.exports.text import hostlist
from agent.fleet.exports.wiring import graph
from agent.fleet.model import Fleet
from agent.infiniband.exploration import Exploration
from agent.infiniband.fabric_memory import NOTHING, merge, text
from tests.support import kueue as judge
from tests.support.kube.programs import free_ports, running
from tests.support.real_parts import lacks, require
from tests.support.subnets import SHAPES
from tests.support.switch import wait_for
from tests.support.wired_fleets import (
    NAMING,
    Rack,
    flat,
    fleet,
    fleet_of,
    hostile,
    mixed,
    names,
    node,
    tall,
    tiered,
)

ATTACK = '\nSwitchName=evil Nodes=gpu-001 "],#\\'
SEED = 2026


CONFIGURATION = """
ClusterName=test
SlurmctldHost=localhost(127.0.0.1)
SlurmctldPort={controller}
SlurmdPort={daemon}
AuthType=auth/none
CredType=cred/none
SlurmUser=root
StateSaveLocation={folder}/state
SlurmctldPidFile={folder}/slurmctld.pid
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SwitchType=switch/none
SelectType=select/cons_tres
TopologyPlugin=topology/tree
{nodes}
PartitionName=all Nodes=ALL Default=YES
"""


class Switch(NamedTuple):
    """A switch as the controller understood it."""

    level: int
    nodes: frozenset[str]
    switches: frozenset[str]


class Controller:
    """A running slurmctld."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def scontrol(self, *arguments: str) -> str:
        done = subprocess.run(
            ["scontrol", *arguments],
            env={"SLURM_CONF": str(self.folder / "slurm.conf"), "PATH": "/usr/bin:/bin"},
            capture_output=True,
            text=True,
            check=False,
        )
        return done.stdout if done.returncode == 0 else ""

    def hosts(self, expression: str) -> frozenset[str]:
        """Return the names of a hostlist, as Slurm expands it."""
        return frozenset(self.scontrol("show", "hostnames", expression).split())

    def topology(self) -> dict[str, Switch]:
        pattern = re.compile(r"SwitchName=(\S+) Level=(\d+) LinkSpeed=1 (?:Nodes=(\S+))?(.*)")
        found = {}
        for name, level, nodes, rest in pattern.findall(self.scontrol("show", "topology")):
            children = rest.partition("Switches=")[2].strip()
            found[name] = Switch(
                int(level),
                self.hosts(nodes) if nodes else frozenset(),
                self.hosts(children) if children else frozenset(),
            )
        return found

    @property
    def log(self) -> str:
        """What the controller said."""
        return (self.folder / "slurmctld.log").read_text()


@contextmanager
def controller(folder: Path, topology: str, nodes: list[str]) -> Iterator[Controller]:
    """Run slurmctld with this topology.conf and these nodes within the block."""
    require(lacks("slurmctld", "scontrol"))
    ports = dict(zip(("controller", "daemon"), free_ports(2), strict=True))
    (folder / "state").mkdir()
    lines = "\n".join(
        f"NodeName={name} NodeAddr=127.0.1.{number % 250 + 1} CPUs=1"
        for number, name in enumerate(nodes)
    )
    (folder / "slurm.conf").write_text(CONFIGURATION.format(folder=folder, nodes=lines, **ports))
    (folder / "topology.conf").write_text(topology)
    arguments = ("-D", "-c", "-f", str(folder / "slurm.conf"))
    with running("slurmctld", arguments, folder, "slurmctld") as process:
        started = Controller(folder)

        def is_ready() -> bool:
            assert process.poll() is None, started.log
            return bool(started.scontrol("show", "topology"))

        wait_for(is_ready)
        yield started


def understood(folder: Path, topology: str, found: Fleet) -> dict[str, Switch]:
    """Return the switches as slurmctld understands a topology.conf, which it took without error."""
    hosts = [one.name.partition(".")[0] for one in found.nodes if one.name.isprintable()]
    with controller(folder, topology, hosts) as slurm:
        assert "Invalid" not in slurm.log.replace("MailProg is invalid", "")
        return slurm.topology()


def leaves(switches: dict[str, Switch]) -> dict[str, frozenset[str]]:
    return {name: one.nodes for name, one in switches.items() if one.level == 0}


def groups(found: Fleet) -> dict[str, frozenset[str]]:
    """Return the nodes of the leaf groups, as the labels have them."""
    values = {one.leaf_group for one in found.nodes if one.leaf_group}
    return {
        value: frozenset(one.name for one in found.nodes if one.leaf_group == value)
        for value in values
    }


def test_slurmctld_understands_leaf_groups(tmp_path: Path) -> None:
    """The controller has a switch for each leaf group, with its nodes."""
    switches = understood(tmp_path, tree_conf(flat(), NAMING).text, flat())
    assert leaves(switches) == groups(flat()) == {name: one.nodes for name, one in switches.items()}


def test_slurmctld_understands_the_offered_root(tmp_path: Path) -> None:
    """The line that would join all leaf groups is right as it stands behind its `#`."""
    text = tree_conf(flat(), NAMING).text.replace("# SwitchName=root", "SwitchName=root")
    root = understood(tmp_path, text, flat())["root"]
    assert (root.level, root.switches, len(root.nodes)) == (1, frozenset(groups(flat())), 8)


def test_slurmctld_understands_levels(tmp_path: Path) -> None:
    """Superpods and the fabric are switches above, with all nodes below."""
    switches = understood(tmp_path, tree_conf(tall(), NAMING).text, tall())
    assert leaves(switches) == groups(tall())
    assert switches["f1.sp1"].switches == {"leaf1", "leaf2"}
    assert switches["f1.sp2"].switches == {"leaf3"}
    assert (switches["f1"].level, len(switches["f1"].nodes)) == (2, 8)


def test_slurmctld_understands_tiers(tmp_path: Path) -> None:
    """The tiers that agents publish are switches above, with all nodes below, though two differ."""
    switches = understood(tmp_path, tree_conf(tiered(), NAMING).text, tiered())
    assert leaves(switches) == groups(tiered())
    assert switches["core1.spine1"].switches == {"leaf1", "leaf2"}
    assert (switches["core1"].level, len(switches["core1"].nodes)) == (2, 12)
    assert len(switches) == 4 + 2 + 1


def test_slurmctld_understands_levels_of_the_operator(tmp_path: Path) -> None:
    """A label that `--level` names is the switch above the leaf groups, and no other is."""
    text = tree_conf(tall(), NAMING, (f"{NAMING.prefix}/superpod",)).text
    switches = understood(tmp_path, text, tall())
    above = {name: one.switches for name, one in switches.items() if one.level}
    assert above == {"sp1": {"leaf1", "leaf2"}, "sp2": {"leaf3"}}


def test_slurmctld_takes_the_longest_names(tmp_path: Path) -> None:
    """Names of 63 and 64 characters, hashed ones and those that look like numbers are taken."""
    long = {"fabric": "f" * 31, "superpod": "s" * 32}
    longer = {"fabric": "f" * 40, "superpod": "s" * 40}
    found = fleet_of(
        Rack(("gpu-1",), ("L" * 63,), long),
        Rack(("gpu-2",), ("xaf63bd4c8601b7be",), longer),
        Rack(("gpu-3",), ("007",), longer),
        Rack(("gpu-4",), ("9",), long),
    )
    switches = understood(tmp_path, tree_conf(found, NAMING).text, found)
    assert leaves(switches) == groups(found)
    assert max(map(len, switches)) == 64


def test_slurmctld_takes_a_thousand_nodes(tmp_path: Path) -> None:
    """Two leaf groups of 500 nodes whose names have gaps, in lines of thousands of characters."""
    every = [f"{kind}{number}-n" for kind in "ab" for number in range(1, 500)]
    found = fleet(node(name, f"leaf{at % 2}") for at, name in enumerate(every))
    text = tree_conf(found, NAMING).text
    assert max(map(len, text.splitlines())) > 3000
    assert leaves(understood(tmp_path, text, found)) == groups(found)


def test_hostile_names_add_no_switch(tmp_path: Path) -> None:
    """A Node that calls itself a line of topology.conf is in a comment, and nowhere else."""
    switches = understood(tmp_path, tree_conf(hostile(ATTACK), NAMING).text, hostile(ATTACK))
    assert {name: one.nodes for name, one in switches.items()} == {
        "leaf1": frozenset({"gpu-001", "gpu-002"})
    }


def test_slurm_expands_hostlists(tmp_path: Path) -> None:
    """`scontrol show hostnames` expands an expression to the names that it was made of."""
    chosen = random.Random(SEED)  # noqa: S311 - no secret
    with controller(tmp_path, "SwitchName=s Nodes=gpu-1\n", ["gpu-1"]) as slurm:
        for _ in range(40):
            width = chosen.choice([1, 2, 3])
            numbers = [chosen.randrange(0, 120) for _ in range(chosen.randrange(1, 30))]
            found = [f"gpu{chosen.choice('-a')}{number:0{width}}" for number in numbers]
            assert slurm.hosts(hostlist(found)) == set(found), hostlist(found)


@pytest.mark.parametrize("found", [flat(), tall(), hostile(ATTACK)], ids=["flat", "tall", "evil"])
def test_gvpr_reads_the_graph(found: Fleet) -> None:
    """Graphviz finds each switch, node and cable of the DOT, and no others."""
    require(lacks("gvpr"))
    program = 'N{printf("N\\n")} E{printf("E %s %s\\n", headport, tailport)}'
    done = subprocess.run(
        ["gvpr", program],
        input=graph(found, NAMING).text,
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stderr == ""
    ends = [port.far_end for one in found.nodes for port in one.ports if port.far_end]
    lines = done.stdout.splitlines()
    assert len([line for line in lines if line.startswith("E ")]) == len(ends)
    cabled = [one for one in found.nodes if any(port.far_end for port in one.ports)]
    assert lines.count("N") == len(cabled) + len({end.switch for end in ends})


def test_dot_draws_the_graph() -> None:
    """`dot -q -Tsvg` draws every cable, quietly."""
    require(lacks("dot"))
    done = subprocess.run(
        ["dot", "-q", "-Tsvg"],
        input=graph(flat(), NAMING).text,
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stderr == ""
    assert len(re.findall('class="edge"', done.stdout)) == 16
    assert names(1, 1)[0] in unescape(done.stdout)


@pytest.mark.parametrize("found", [flat(), tall(), mixed(), tiered()])
def test_kueues_own_types_decode_it(found: Fleet) -> None:
    """Kueue's API types decode the manifests strictly: no field is unknown or repeated."""
    require(judge.missing())
    text = kueue(found, NAMING).text
    assert judge.decode(text) == [
        f"{one['kind']} {one['metadata']['name']}" for one in yaml.safe_load_all(text)
    ]


def test_the_decoder_is_strict() -> None:
    """The judge refuses a field that Kueue does not have."""
    require(judge.missing())
    with pytest.raises(judge.DecodeError, match="nodeLabl"):
        judge.decode(kueue(flat(), NAMING).text.replace("nodeLabel:", "nodeLabl:"))


def test_the_switches_of_a_node_for_nvidia_s_check(repository: Path) -> None:
    """Each list of BackendSwitchFabricCheck has the GUIDs of the switches; a Node without the
    annotation is left out.
    """
    require(lacks("jq"))
    document = (repository / "docs/exports.md").read_text()
    (program,) = re.findall(r"kubectl get nodes -o json \| jq '(.*?)'", document, re.DOTALL)
    subnet = SHAPES["three tiers"].make()
    name, *_ = subnet.pods
    answer, leaves = subnet.tiers(subnet.leaves(name)), subnet.leaves(name)
    memory = merge(NOTHING, Exploration(answer, switches=subnet.names), leaves, 1_800_000_000)
    annotations = {"backend.coreweave.cloud/fabric": text(memory)}
    items = [{"metadata": {"name": name, "annotations": annotations}}, {"metadata": {"name": "x"}}]
    command = ["jq", program]
    done = subprocess.run(
        command, input=json.dumps({"items": items}), check=True, capture_output=True, text=True
    )
    assert json.loads(done.stdout) == [
        {
            "node_id": name,
            "fabric": {
                "leaf_switch_ids": sorted(leaves),
                "spine_switch_ids": sorted(answer.tier_1),
                "core_switch_ids": [answer.tier_2],
            },
        }
    ]

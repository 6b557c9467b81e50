"""topology.conf and topology.yaml: names, levels, blocks and their sizes."""

from __future__ import annotations

import pytest
import yaml

from agent.fleet.exports.slurm import (
    SlurmSwitch,
    block_conf,
    block_sizes,
    topology_yaml,
    tree_conf,
)
from tests.support.wired_fleets import NAMING, Rack, fleet, fleet_of, hash_of, names, node


def entries(text: str) -> list[str]:
    return [line for line in text.splitlines() if not line.startswith("#")]


def test_a_root_has_a_name_of_its_own() -> None:
    """Where leaf groups have the usual one."""
    found = fleet(node(f"n{at}", name) for at, name in enumerate(("root", "root-1", "x")))
    assert "# SwitchName=root-2 Switches=" in tree_conf(found, NAMING).text
    assert '# - switch: "root-2"' in topology_yaml(found, NAMING).text


def test_equal_superpods_of_two_fabrics() -> None:
    """Values are unique within their level above only: names have both."""
    racks = [
        Rack(names(4 * at + 1, 4 * at + 4), (f"leaf{at}",), {"fabric": fabric, "superpod": "1"})
        for at, fabric in enumerate(("f1", "f2"))
    ]
    assert entries(tree_conf(fleet_of(*racks), NAMING).text) == [
        *("SwitchName=leaf0 Nodes=gpu-[001-004]", "SwitchName=leaf1 Nodes=gpu-[005-008]"),
        *("SwitchName=f1.1 Switches=leaf0", "SwitchName=f2.1 Switches=leaf1"),
        *("SwitchName=f1 Switches=f1.1", "SwitchName=f2 Switches=f2.1"),
    ]


def test_leaf_groups_of_one_name() -> None:
    """A leaf group of two fabrics is two switches, each named with its fabric."""
    racks = [Rack((f"gpu-{at}",), ("leaf1",), {"fabric": f"f{at}"}) for at in (1, 2)]
    lines = entries(tree_conf(fleet_of(*racks), NAMING).text)
    assert lines[:2] == ["SwitchName=f1.leaf1 Nodes=gpu-1", "SwitchName=f2.leaf1 Nodes=gpu-2"]


def test_names_that_would_be_equal_or_too_long() -> None:
    """A fabric that is called as a leaf group, and a path of over 64 characters, get a hash."""
    racks = [
        Rack(("gpu-1",), ("f1",), {"fabric": "f1"}),
        Rack(("gpu-2",), ("leaf2",), {"fabric": "f" * 60, "superpod": "s" * 60}),
        Rack(("gpu-3",), ("leaf3",), {"fabric": "f" * 60, "superpod": "s" * 61}),
    ]
    lines = entries(tree_conf(fleet_of(*racks), NAMING).text)
    found = [line.split()[0].removeprefix("SwitchName=") for line in lines]
    assert len(set(found)) == len(found) == 7
    assert all(len(name) <= 64 for name in found)


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (["gpu-1.example.org", "gpu-2.example.org"], "gpu-[1-2]"),
        (["gpu-1.a.org", "gpu-1.b.org", "gpu-2.a.org"], "gpu-1.a.org,gpu-1.b.org,gpu-2"),
        (["10.0.0.1", "10.0.0.2"], "10.0.0.[1-2]"),
        (["ip-10-0-0-9.ec2.internal", "ip-10-0-0-10.ec2.internal"], "ip-10-0-0-[9-10]"),
    ],
)
def test_host_names(given: list[str], expected: str) -> None:
    """A node is called in Slurm what `hostname -s` prints, if that is one node."""
    exported = tree_conf(fleet(node(name, "leaf1") for name in given), NAMING)
    assert entries(exported.text) == [f"SwitchName=leaf1 Nodes={expected}"]
    assert any("whole names" in note for note in exported.notes) == ("a.org" in expected)


@pytest.mark.parametrize(
    ("sizes", "expected"),
    [
        ([18], [18]),
        ([18, 18], [18, 36]),
        ([18, 17, 18], [17, 34]),
        ([8] * 4, [8, 16, 32]),
        ([8] * 9, [8, 16, 32, 64]),
    ],
)
def test_block_sizes(sizes: list[int], expected: list[int]) -> None:
    """The smallest block is the base; it doubles up to as many blocks as there are."""
    blocks = [SlurmSwitch(f"b{at}", tuple(names(1, size))) for at, size in enumerate(sizes)]
    assert block_sizes(blocks) == expected


def test_blocks_are_in_the_order_of_the_fabric() -> None:
    """Slurm joins adjacent blocks, and the UUIDs of NVLink domains are in any order."""
    racks = [
        Rack(
            names(4 * at + 1, 4 * at + 4),
            (f"leaf{at // 2}",),
            {"superpod": f"su{at // 4}"},
            domain=f"{hash_of(f'{at:08}') * 7919 % 65521:04x}-uuid.1",
        )
        for at in range(16)
    ]
    blocks = entries(block_conf(fleet_of(*racks), NAMING).text)[:-1]
    assert [line.split("Nodes=")[1] for line in blocks] == [
        f"gpu-[{4 * at + 1:03}-{4 * at + 4:03}]" for at in range(16)
    ]
    domains = [line.split()[0] for line in blocks]
    assert domains != sorted(domains)


def test_a_small_block_is_said() -> None:
    """One block with fewer nodes decides the base block size, which a note says."""
    racks = [Rack(names(4 * at + 1, 4 * at + 4), (f"leaf{at}",)) for at in range(3)]
    small = fleet(fleet_of(*racks).nodes[:-1])
    exported = block_conf(small, NAMING)
    assert "the base block size is 3, where 4 is usual: 1 block: leaf2" in exported.notes
    assert exported.text.endswith("BlockSizes=3,6\n")


def test_names_of_yaml_are_texts() -> None:
    odd = ["1e3", "null", "0x10", "2026-11-22", "007"]
    (tree,) = yaml.safe_load(
        topology_yaml(fleet(node(f"gpu-{at}", one) for at, one in enumerate(odd)), NAMING).text
    )
    assert {one["switch"] for one in tree["tree"]["switches"]} == set(odd)

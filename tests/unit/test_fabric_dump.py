"""A replay whose switches above are those of a dump of ibnetdiscover."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from agent import inputs
from agent.cabling.plans.source import MAX_SIZE
from agent.errors import Malformed, Unavailable
from agent.fabric_dump import PATH, with_dump
from agent.host import Host
from agent.infiniband.exploration import Exploration
from agent.model import Failed, IbNeighbor, Seen
from agent.snapshot.capture import entries, record, write_folder
from agent.snapshot.replay import replay
from agent.snapshot.tree import MemoryStore, Tree
from agent.sources.observe import observe

# A leaf beside another one, below two spines; a host on each, and the CA inside the first.
DUMP = """
vendid=0x2c9
devid=0xd2f2
Switch\t65 "S-b0cf0e0300d66c81"\t\t# "MF0;leaf1:MQM9700/U1" enhanced port 0 lid 1 lmc 0
[1]\t"H-b83fd20300aabb00"[1](b83fd20300aabb00) \t\t# "node1 mlx5_0" lid 22 4xNDR
[33]\t"S-b0cf0e0300000001"[1]\t\t# "MF0;spine1:MQM9700/U1" lid 3 4xNDR
[34]\t"S-b0cf0e0300000002"[1]\t\t# "MF0;spine2:MQM9700/U1" lid 4 4xNDR
[65]\t"H-b0cf0e0300d66c89"[1](b0cf0e0300d66c89) \t\t# "X Aggregation Node" lid 9 4xNDR

Switch\t65 "S-b0cf0e0300d66c82"\t\t# "MF0;leaf2:MQM9700/U1" enhanced port 0 lid 2 lmc 0
[1]\t"H-b83fd20300aabb01"[1](b83fd20300aabb01) \t\t# "node2 mlx5_0" lid 23 4xNDR
[33]\t"S-b0cf0e0300000001"[2]\t\t# "MF0;spine1:MQM9700/U1" lid 3 4xNDR
[34]\t"S-b0cf0e0300000002"[2]\t\t# "MF0;spine2:MQM9700/U1" lid 4 4xNDR
"""
LEAF = None, "b0cf0e0300d66c81"


def explored(dump: str | bytes) -> Exploration:
    data = dump.encode() if isinstance(dump, str) else dump
    host = with_dump(Host(Tree(MemoryStore({PATH: data}), {}), lambda: 0.0))
    assert host.explore
    return host.explore([LEAF], None, {})


def test_the_switches_above_are_those_of_the_dump() -> None:
    """No port has to be able to ask."""
    tiers = explored(DUMP).tiers
    assert [tiers.names[guid] for guid in tiers.tier_1] == ["spine1", "spine2"]
    assert (tiers.reason, tiers.uplinks[LEAF[1]]) == (
        "top",
        {33: "b0cf0e0300000001", 34: "b0cf0e0300000002"},
    )


def test_a_snapshot_without_dump_is_left_as_it_is() -> None:
    host = Host(Tree(MemoryStore({}), {}), lambda: 0.0)
    assert with_dump(host) is host


@pytest.mark.parametrize(
    ("dump", "text"),
    [
        ("", "sa/ibnetdiscover.txt: empty file"),
        ("nothing at all: it is none", "sa/ibnetdiscover.txt, row 1: not a line of this format"),
        (DUMP.replace("[2]\t", "[1]\t"), "has two links"),
        (b" " * MAX_SIZE + b"x " * 9, "more than 64 MiB"),
    ],
)
def test_a_malformed_dump_is_one_line(dump: str | bytes, text: str) -> None:
    """It names the file and the row."""
    with pytest.raises(Malformed, match=text) as fault:
        explored(dump)
    assert "\n" not in str(fault.value)


def test_a_dump_of_another_fabric() -> None:
    """None of the leaves is in it."""
    with pytest.raises(Unavailable, match="none of the node's leaf switches"):
        explored(DUMP.replace("d66c8", "d7" * 2 + "0"))


def flags(snapshot: Path, *, tiers: bool) -> dict[str, Any]:
    return {"replay": str(snapshot), "exclude_device": (), "backend_device": (), "tiers": tiers}


def test_a_command_that_shows_no_errors_of_links_does_not_read_them(tmp_path: Path) -> None:
    """Else it would wait for another reading of a link with errors; without a record, none does."""
    machine = flags(tmp_path, tiers=False)
    (tmp_path / "sys").mkdir()
    assert inputs.host(machine).ask_perf is None
    (tmp_path / "perf").mkdir()
    (tmp_path / "perf/ibp0-1.json").write_text('{"device": "ibp0", "port": 1}')
    assert inputs.host(machine).ask_perf
    assert inputs.host(machine, reads_counters=False).ask_perf is None


def test_a_replay_reads_the_dump_in_the_folder(repository: Path, tmp_path: Path) -> None:
    """Beside the answers of the neighbors, with --tiers alone."""
    snapshot = tmp_path / "snapshot"
    captured, seen = record(replay(str(repository / "sysfs_fixtures/cw-h100-ibp")))
    write_folder(entries(captured), str(snapshot))
    assert observe(inputs.host(flags(snapshot, tiers=False))).tiers is None
    outcome = observe(inputs.host(flags(snapshot, tiers=True))).tiers
    assert isinstance(outcome, Failed)
    (snapshot / "sa").mkdir(exist_ok=True)
    leaf = next(neighbor.facts for link in seen.links for neighbor in link.neighbors)
    assert isinstance(leaf, IbNeighbor)
    (snapshot / PATH).write_text(DUMP.replace(LEAF[1], leaf.node_guid))
    outcome = observe(inputs.host(flags(snapshot, tiers=True))).tiers
    assert isinstance(outcome, Seen)
    tiers = outcome.value.tiers
    assert (tiers.leaves, tiers.label(1)) == ((leaf.node_guid,), "spine1")

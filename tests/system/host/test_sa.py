"""Neighbors by the subnet administrator: opensm on ibsim, and ports that refuse SMPs."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.support.fabric import MANAGERS, Fabric, missing
from tests.support.fabrics import MANAGED, TWO_LEAVES
from tests.support.real_parts import require

REPO = Path(__file__).parents[3]
MANAGED_HOST = "H-b83fd20300aabb00"
DIRECTOR = "MF0;cs7500:IS5200/L01/U1"
LINKED = TWO_LEAVES[: TWO_LEAVES.index('\nHca 1 "left"')]  # the part that one opensm manages
FABRICS = {
    "two leaves": (LINKED, ("host1", "host2", "host3")),
    "back to back": (TWO_LEAVES[TWO_LEAVES.index('Hca 1 "left"') :], ("left", "right")),
    "managed": (MANAGED, (MANAGED_HOST,)),
    "director": (MANAGED.replace("MF0;L90.1.3:MQM9700/U1", DIRECTOR), (MANAGED_HOST,)),
    "factory": (
        MANAGED.replace("MF0;L90.1.3:MQM9700/U1", "Quantum Mellanox Technologies"),
        (MANAGED_HOST,),
    ),
}


def bwagent(fabric: Fabric, host: str, *words: str, smps: bool = True) -> str:
    """Return the output of bwagent on a host."""
    python = "env", f"PYTHONPATH={REPO}", sys.executable
    done = subprocess.run(
        [*fabric.under(host, smps=smps), *python, "-m", "agent.cli", *words],
        check=False,
        capture_output=True,
        text=True,
        timeout=120,
        stdin=subprocess.DEVNULL,
    )
    assert done.returncode in {0, 1}, done.stderr
    fabric.release()
    return done.stdout


def probe(fabric: Fabric, host: str, folder: Path, *, smps: bool = True) -> dict[str, Any]:
    """Return the report of `bwagent probe`."""
    words = "probe", "--dry-run", "-o", "json", "--sysfs-root", str(folder / "sys")
    return dict(json.loads(bwagent(fabric, host, *words, smps=smps)))


def test_a_capture_replays_without_the_fabric(tmp_path: Path) -> None:
    """The records are in it, and the port's place in the subnet; anonymized too."""
    require(missing(*MANAGERS))
    with Fabric(MANAGED, tmp_path) as fabric, fabric.manager(MANAGED_HOST):
        fabric.boot(MANAGED_HOST, tmp_path / "sys")
        words = "--sysfs-root", str(tmp_path / "sys")
        captured, hidden = str(tmp_path / "captured"), str(tmp_path / "hidden")
        bwagent(fabric, MANAGED_HOST, "capture", captured, *words, smps=False)
        bwagent(fabric, MANAGED_HOST, "capture", "--anonymize", hidden, *words, smps=False)
        live = probe(fabric, MANAGED_HOST, tmp_path, smps=False)
        replayed = bwagent(fabric, MANAGED_HOST, "probe", "--replay", captured, "-o", "json")
        secret = bwagent(fabric, MANAGED_HOST, "probe", "--replay", hidden, "-o", "json")
    assert json.loads(replayed) == live
    assert (tmp_path / "captured/sa/ibsim0-1.json").exists()
    [row], [was] = json.loads(secret)["neighbors"], live["neighbors"]
    assert (row["via"], row["port_id"], row["node_type"]) == ("sa", "3", "switch")
    assert row["node_guid"] != was["node_guid"]
    assert "L90.1.3" not in (tmp_path / "hidden/sa/ibsim0-1.json").read_text() + secret
    assert row["node_description"].endswith(":MQM9700/U1")


KEYS = """
m_key 0x1234567890abcdef
m_key_lease_period 0
m_key_protection_level 2
sm_key 0x77
sa_key 0x88
"""
LIMITED = "Default=0x7fff : ALL=limited, SELF=full ;\n"
OPTIONS = {  # arguments of opensm, its configuration, its partitions
    "1 LID": (("-l", "0"), "", ""),
    "2 LIDs": (("-l", "1"), "", ""),
    "4 LIDs": (("-l", "2"), "", ""),
    "8 LIDs, switches too": (("-l", "3"), "lmc_esp0 TRUE\n", ""),
    "a port by its GUID": (("-g", "0x100005"), "", ""),
    "keys": ((), KEYS, ""),
    "a full member by the second P_Key": ((), "", f"{LIMITED}Back=0x0002 : ALL=full ;\n"),
    "both memberships": ((), "allow_both_pkeys TRUE\n", LIMITED.replace("limited", "both")),
}


@pytest.mark.parametrize("name", OPTIONS)
def test_options_of_opensm(name: str, tmp_path: Path) -> None:
    """Whatever a site sets, sysfs and the records have the base LID, and a request without SM_Key
    is answered. (ibsim drops no SMP for want of an M_Key.)
    """
    require(missing(*MANAGERS))
    arguments, configuration, partitions = OPTIONS[name]
    for flag, text in (("-F", configuration), ("-P", partitions)):
        (tmp_path / flag).write_text(text)
        arguments += (flag, str(tmp_path / flag)) if text else ()
    with Fabric(LINKED, tmp_path) as fabric, fabric.manager("host3", *arguments):
        fabric.boot("host1", tmp_path / "sys")
        [row] = probe(fabric, "host1", tmp_path, smps=False)["neighbors"]
        assert (row["via"], row["device"], row["port_id"]) == ("sa", "leaf1", "1")


def test_a_limited_member_of_the_partition(tmp_path: Path) -> None:
    """No link of another limited member is shown to it; SMPs need no partition."""
    require(missing(*MANAGERS))
    partitions = tmp_path / "partitions.conf"
    partitions.write_text(LIMITED)
    with Fabric(LINKED, tmp_path) as fabric, fabric.manager("host3", "-P", str(partitions)):
        fabric.boot("host1", tmp_path / "sys")
        [row] = probe(fabric, "host1", tmp_path, smps=False)["missing_neighbors"]
        assert row == {"interface": "ibsim0", "reason": "limited-pkey"}
        assert probe(fabric, "host1", tmp_path)["neighbors"][0]["via"] == "smp"


def test_no_subnet_manager(tmp_path: Path) -> None:
    """A port in INIT has a neighbor by SMPs only."""
    require(missing(*MANAGERS))
    with Fabric(LINKED, tmp_path) as fabric:
        fabric.boot("host1", tmp_path / "sys")
        [row] = probe(fabric, "host1", tmp_path, smps=False)["missing_neighbors"]
        assert row["reason"] == "no-sm"


def by_saquery(fabric: Fabric, host: str, folder: Path) -> tuple[str, str, str]:
    """Return GUID, name and port of the far end, read by infiniband-diags."""
    lid = int((folder / "sys/class/infiniband/ibsim0/ports/1/lid").read_text(), 0)
    [link] = fabric.saquery(host, "LR", str(lid))
    [node] = fabric.saquery(host, "NR", link["ToLID"])
    return node["node_guid"].removeprefix("0x"), node["NodeDescription"], link["ToPort"]


@pytest.mark.parametrize("name", FABRICS)
def test_both_ways_give_the_same_values(name: str, tmp_path: Path) -> None:
    """Over every fabric that both can read: labels and neighbors, but for `via`; saquery agrees."""
    require(missing(*MANAGERS))
    netlist, hosts = FABRICS[name]
    with Fabric(netlist, tmp_path) as fabric, fabric.manager(hosts[-1]):
        for host in hosts:
            fabric.boot(host, tmp_path / "sys")
            by_smp = probe(fabric, host, tmp_path)
            by_sa = probe(fabric, host, tmp_path, smps=False)
            assert [row["via"] for row in by_smp["neighbors"]] == ["smp"]
            assert [row.pop("via") for row in by_sa["neighbors"]] == ["sa"]
            [row.pop("via") for row in by_smp["neighbors"]]
            for key in ("labels", "neighbors", "missing_neighbors", "problems", "ports"):
                assert by_sa[key] == by_smp[key], key
            [row] = by_sa["neighbors"]
            assert by_saquery(fabric, hosts[0], tmp_path) == (
                row["node_guid"],
                row["node_description"],
                row["port_id"],
            )


LEAVES, PORTS = 8, 8  # a fleet of 64 nodes


def fleet_netlist() -> str:
    """Eight leaves with eight nodes each, below one spine."""
    blocks = [
        [f'Switch {LEAVES} "spine"', *(f'[{leaf}] "leaf{leaf}"[9]' for leaf in range(1, 9))],
        *(
            [
                f'Switch 9 "leaf{leaf}"',
                *(f'[{port}] "node{leaf}-{port}"[1]' for port in range(1, PORTS + 1)),
                f'[9] "spine"[{leaf}]',
            ]
            for leaf in range(1, LEAVES + 1)
        ),
        *(
            [f'Hca 1 "node{leaf}-{port}"', f'[1] "leaf{leaf}"[{port}]']
            for leaf in range(1, LEAVES + 1)
            for port in range(1, PORTS + 1)
        ),
    ]
    return "\n\n".join("\n".join(block) for block in blocks) + "\n"


@pytest.mark.sweep
def test_a_fleet_has_all_neighbors_without_smps(tmp_path: Path) -> None:
    """64 agents whose ports refuse SMPs, one opensm: every label is that of the cable."""
    require(missing(*MANAGERS))
    wrong = {}
    with Fabric(fleet_netlist(), tmp_path) as fabric, fabric.manager("node1-1"):
        for leaf in range(1, LEAVES + 1):
            for port in range(1, PORTS + 1):
                host = f"node{leaf}-{port}"
                fabric.boot(host, tmp_path / "sys")
                report = probe(fabric, host, tmp_path, smps=False)
                rows = [(row["via"], row["device"], row["port_id"]) for row in report["neighbors"]]
                if rows != [("sa", f"leaf{leaf}", str(port))]:
                    wrong[host] = rows or report["missing_neighbors"]
    assert wrong == {}

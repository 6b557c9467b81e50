"""Neighbors by the subnet administrator: opensm on ibsim, and ports that refuse SMPs."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.support.fabric import MANAGERS, Fabric, missing
from tests.support.fabrics import BACK_TO_BACK, LINKED, MANAGED, MANAGED_HOST, pods
from tests.support.real_parts import require

DIRECTOR = "MF0;cs7500:IS5200/L01/U1"
FABRICS = {
    "two leaves": (LINKED, ("host1", "host2", "host3")),
    "back to back": (BACK_TO_BACK, ("left", "right")),
    "managed": (MANAGED, (MANAGED_HOST,)),
    "director": (MANAGED.replace("MF0;L90.1.3:MQM9700/U1", DIRECTOR), (MANAGED_HOST,)),
    "factory": (
        MANAGED.replace("MF0;L90.1.3:MQM9700/U1", "Quantum Mellanox Technologies"),
        (MANAGED_HOST,),
    ),
}


def test_a_capture_replays_without_the_fabric(tmp_path: Path) -> None:
    """The records are in it, and the port's place in the subnet; anonymized too."""
    require(missing(*MANAGERS))
    with Fabric(MANAGED, tmp_path) as fabric, fabric.manager(MANAGED_HOST):
        fabric.boot(MANAGED_HOST, tmp_path / "sys")
        words = "--sysfs-root", str(tmp_path / "sys")
        captured, hidden = str(tmp_path / "captured"), str(tmp_path / "hidden")
        fabric.bwagent(MANAGED_HOST, "capture", captured, *words, smps=False)
        fabric.bwagent(MANAGED_HOST, "capture", "--anonymize", hidden, *words, smps=False)
        live = fabric.probe(MANAGED_HOST, tmp_path / "sys", smps=False)
        replayed = fabric.bwagent(MANAGED_HOST, "probe", "--replay", captured, "-o", "json")
        secret = fabric.bwagent(MANAGED_HOST, "probe", "--replay", hidden, "-o", "json")
    assert json.loads(replayed) == live
    assert (tmp_path / "captured/sa/ibsim0-1.json").exists()
    [row], [was] = json.loads(secret)["neighbors"], live["neighbors"]
    assert (row["via"], row["port_id"], row["node_type"]) == ("sa", "3", "switch")
    assert row["node_guid"] != was["node_guid"]
    assert "L90.1.3" not in (tmp_path / "hidden/sa/ibsim0-1.json").read_text() + secret
    assert row["node_description"].endswith(":MQM9700/U1")


LIMITED = "Default=0x7fff : ALL=limited, SELF=full ;\n"


def test_a_capture_has_the_switches_above(tmp_path: Path) -> None:
    """By the helper over opensm: the only switch is the leaf, live and replayed."""
    require(missing(*MANAGERS))
    with Fabric(MANAGED, tmp_path) as fabric, fabric.manager(MANAGED_HOST):
        fabric.boot(MANAGED_HOST, tmp_path / "sys")
        place = "--sysfs-root", str(tmp_path / "sys")
        words = "probe", "--tiers", "-o", "json"
        live = json.loads(fabric.bwagent(MANAGED_HOST, *words, "--dry-run", *place))
        captured, hidden = str(tmp_path / "captured"), str(tmp_path / "hidden")
        fabric.bwagent(MANAGED_HOST, "capture", "--tiers", captured, *place)
        fabric.bwagent(MANAGED_HOST, "capture", "--tiers", "--anonymize", hidden, *place)
        by_sa = fabric.bwagent(MANAGED_HOST, *words, "--dry-run", *place, smps=False)
        replayed, secret = (
            json.loads(fabric.bwagent(MANAGED_HOST, *words, "--replay", snapshot))
            for snapshot in (captured, hidden)
        )
    assert (live["tiers"]["reason"], live["tiers"]["tiers"]) == ("top", [])
    assert json.loads(by_sa)["tiers"] == live["tiers"]
    assert replayed == live
    assert (secret["tiers"], secret["problems"]) == (live["tiers"], live["problems"])


SWITCHES_FULL = LIMITED.replace("SELF", "ALL_SWITCHES=full, SELF")  # as UFM does


@pytest.mark.parametrize("partitions", ["", SWITCHES_FULL, LIMITED])
def test_the_switches_above_a_leaf(partitions: str, tmp_path: Path) -> None:
    """By opensm's records: a limited member of the partition sees the same switches and tiers.
    Where the switches are limited members too, or opensm does not answer, by SMPs.
    """
    require(missing(*MANAGERS))
    (tmp_path / "-P").write_text(partitions)
    arguments = ("-r", *(("-P", str(tmp_path / "-P")) if partitions else ()))  # LIDs from 1 on
    words = "probe", "--tiers", "-o", "json", "--dry-run", "--sysfs-root", str(tmp_path / "sys")
    with Fabric(pods(), tmp_path) as fabric:
        with fabric.manager("host2", *arguments):
            fabric.boot("host1", tmp_path / "sys")
            by_sa = json.loads(fabric.bwagent("host1", *words, tables=True))
        by_smps = json.loads(fabric.bwagent("host1", *words, tables=True))
    first, second = by_sa["tiers"]["tiers"]
    assert [row["name"] for row in first["switches"]] == ["spine1", "spine2"]
    assert (second["value"], by_sa["tiers"]["reason"]) == ("core1", None)
    is_told = not partitions or "ALL_SWITCHES=full" in partitions
    walked = [told["tiers"].pop("walked") for told in (by_sa, by_smps)]
    assert [not why for why in walked] == [is_told, False]
    assert (by_smps["tiers"], by_smps["problems"]) == (by_sa["tiers"], by_sa["problems"])


KEYS = """
m_key 0x1234567890abcdef
m_key_lease_period 0
m_key_protection_level 2
sm_key 0x77
sa_key 0x88
"""
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
        [row] = fabric.probe("host1", tmp_path / "sys", smps=False)["neighbors"]
        assert (row["via"], row["device"], row["port_id"]) == ("sa", "leaf1", "1")


def test_a_limited_member_of_the_partition(tmp_path: Path) -> None:
    """No link of another limited member is shown to it; SMPs need no partition."""
    require(missing(*MANAGERS))
    partitions = tmp_path / "partitions.conf"
    partitions.write_text(LIMITED)
    with Fabric(LINKED, tmp_path) as fabric, fabric.manager("host3", "-P", str(partitions)):
        fabric.boot("host1", tmp_path / "sys")
        [row] = fabric.probe("host1", tmp_path / "sys", smps=False)["missing_neighbors"]
        assert row == {"interface": "ibsim0", "reason": "limited-pkey"}
        assert fabric.probe("host1", tmp_path / "sys")["neighbors"][0]["via"] == "smp"


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
            by_smp = fabric.probe(host, tmp_path / "sys")
            by_sa = fabric.probe(host, tmp_path / "sys", smps=False)
            assert [row["via"] for row in by_smp["neighbors"]] == ["smp"]
            assert [row.pop("via") for row in by_sa["neighbors"]] == ["sa"]
            [row.pop("via") for row in by_smp["neighbors"]]
            for key in ("labels", "neighbors", "missing_neighbors", "problems", "ports"):
                assert by_sa[key] == by_smp[key], key
            [row] = by_sa["neighbors"]
            facts = (row["node_guid"], row["node_description"], row["port_id"])
            assert by_saquery(fabric, hosts[0], tmp_path) == facts

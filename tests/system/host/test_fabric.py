"""`probe` over InfiniBand fabrics that ibsim simulates: neighbors by SMPs and, with opensm, by the
subnet administrator; and the error counters of both ends of a link, with `perfquery` beside them.
"""

from __future__ import annotations

import json
import re
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.fabric import MANAGERS, Fabric, missing
from tests.support.fabrics import (
    BACK_TO_BACK,
    LINKED,
    MANAGED,
    MANAGED_HOST,
    TWO_LEAVES,
    by_smpquery,
    pods,
)
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


P, IB = "backend.coreweave.cloud", "ib.coreweave.cloud"


@pytest.fixture(scope="module")
def two_leaves(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fabric]:
    """Simulate two leaves and two hosts cabled back to back; no subnet manager runs."""
    require(missing())
    with Fabric(TWO_LEAVES, tmp_path_factory.mktemp("two-leaves")) as fabric:
        yield fabric


@pytest.fixture(scope="module")
def managed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fabric]:
    """Rebuild one NDR switch with one host on its port 3 from a dump of ibnetdiscover."""
    require(missing())
    with Fabric(MANAGED, tmp_path_factory.mktemp("managed")) as fabric:
        yield fabric


def booted(fabric: Fabric, host: str, folder: Path) -> dict[str, Any]:
    """Return the report of `bwagent probe` on a host with its sysfs of now."""
    fabric.boot(host, folder / "sys")
    return fabric.probe(host, folder / "sys")


def trouble(report: dict[str, Any]) -> list[str]:
    """The subjects of the InfiniBand problems of a report."""
    return [
        problem["subject"] for problem in report["problems"] if problem["source"] in {"rdma", "ib"}
    ]


def told(row: dict[str, Any]) -> tuple[object, ...]:
    """The facts of a neighbor in a report that smpquery reads too."""
    return row["node_type"], row["node_guid"], row["port_id"], row["node_description"]


def test_a_managed_switch_becomes_labels(managed: Fabric, tmp_path: Path) -> None:
    """The labels have its name without the model and its port number under both prefixes; INIT adds
    no speed.
    """
    report = booted(managed, MANAGED_HOST, tmp_path)
    assert report["labels"] == {
        f"{P}/flavor": "infiniband",
        f"{P}/speed.current": "0G",
        f"{P}/neighbors.current.ibsim0.device": "L90.1.3",
        f"{P}/neighbors.current.ibsim0.port-id": "3",
        f"{P}/leaves.current": "L90.1.3",
        f"{P}/leafgroup.current": "L90.1.3",
        f"{IB}/speed.current": "0G",
        f"{IB}/neighbors.current.ibsim0.device": "L90.1.3",
        f"{IB}/neighbors.current.ibsim0.port-id": "3",
        f"{IB}/leaves.current": "L90.1.3",
        f"{IB}/ports.current": "3",
    }
    [row] = report["neighbors"]
    assert told(row) == by_smpquery(managed, MANAGED_HOST)
    assert row.items() >= {"via": "smp", "selected": True, "ambiguous": False}.items()
    assert row["age_s"] is None


@pytest.mark.parametrize(
    ("host", "name"), [("host2", "leaf1"), ("host3", "leaf2"), ("left", "right")]
)
def test_neighbours_need_no_subnet_manager(
    two_leaves: Fabric, tmp_path: Path, host: str, name: str
) -> None:
    """Ports in INIT know their switch, or the host at the other end of a back-to-back cable."""
    report = booted(two_leaves, host, tmp_path)
    [port], [row] = report["ports"], report["neighbors"]
    assert (port["state"], port["role"]) == ("INIT", "backend")
    assert report["missing_neighbors"] == trouble(report) == []
    assert told(row) == by_smpquery(two_leaves, host)
    assert row["device"] == name


NEAR, FAR = '"host1"[1]', '"leaf1"[1]'
NAMES = {  # of PerformanceSet and perfquery, by those of ours
    "symbol_error": "SymbolErrorCounter",
    "link_error_recovery": "LinkErrorRecoveryCounter",
    "link_downed": "LinkDownedCounter",
    "port_rcv_errors": "PortRcvErrors",
    "port_rcv_remote_physical_errors": "PortRcvRemotePhysicalErrors",
    "local_link_integrity_errors": "LocalLinkIntegrityErrors",
    "excessive_buffer_overrun_errors": "ExcessiveBufferOverrunErrors",
}
_FIELD = re.compile(r"^(\w+):\.*(\w+)$", re.MULTILINE)
PLANTED = {
    "near": ((NEAR,), "near"),
    "far": ((FAR,), "far"),
    "both": ((NEAR, FAR), "cable"),
    "nowhere": ((), "quiet"),
}


@pytest.fixture(scope="module")
def fabric(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fabric]:
    require(missing(*MANAGERS, "perfquery"))
    folder = tmp_path_factory.mktemp("counters")
    with Fabric(LINKED, folder) as fabric, fabric.manager("host3"):
        yield fabric


def plant(fabric: Fabric, port: str, **counters: int) -> None:
    for name, value in counters.items():
        fabric.console(f"PerformanceSet {port} PortCounters.{NAMES[name]}={value}")


def perfquery(fabric: Fabric, *where: str) -> dict[str, int]:
    """Return what perfquery reads, by our names: an oracle that shares no code."""
    said = dict(_FIELD.findall(fabric.run("host1", "perfquery", *where)))
    return {name: int(said[theirs]) for name, theirs in NAMES.items()}


def probe(fabric: Fabric, folder: Path, more: list[tuple[str, int]]) -> dict[str, Any]:
    """Return the report of a probe; between its readings the symbol errors of ports rise."""
    fabric.boot("host1", folder / "sys")
    captured = str(folder / "captured")
    words = "capture", captured, "--sysfs-root", str(folder / "sys")

    def rise() -> None:
        time.sleep(3.5)
        for port, value in more:
            plant(fabric, port, symbol_error=value)

    thread = threading.Thread(target=rise)
    thread.start()
    fabric.bwagent("host1", *words)
    thread.join()
    said = fabric.bwagent("host1", "probe", "--replay", captured, "-o", "json")
    return dict(json.loads(said))


@pytest.mark.parametrize("case", PLANTED)
def test_errors_planted(case: str, fabric: Fabric, tmp_path: Path) -> None:
    """A capture of the bad cable replays to the right end: in `probe` and in `verify`."""
    ports, verdict = PLANTED[case]
    for number, port in enumerate((NEAR, FAR)):  # totals of before, at both ends
        plant(fabric, port, **dict.fromkeys(NAMES, 11 + number))
    report = probe(fabric, tmp_path, [(port, 500) for port in ports])
    [row] = report["link_errors"]
    assert (row["verdict"], row["unstable"]) == (verdict, verdict != "quiet")
    near, far = (end["counters"] for end in row["ends"])
    lid = fabric.smpquery("host1", "portinfo", "0,1", "0")["Lid"]
    assert near == perfquery(fabric)
    assert far == perfquery(fabric, lid, "1")
    assert row["far"] == "leaf1 port 1"
    text = fabric.bwagent("host1", "probe", "--replay", str(tmp_path / "captured"))
    assert ("Links with errors" in text) == row["unstable"]
    plan = tmp_path / "plan.csv"
    plan.write_text("node,interface,device,port\nhost1,ibsim0,leaf1,1\n")
    flags = "--replay", str(tmp_path / "captured"), "--node-name", "host1", "-o", "json"
    findings = json.loads(fabric.bwagent("host1", "verify", "--plan", str(plan), *flags))[
        "findings"
    ]
    ends = [
        {fact["name"]: fact["value"] for fact in finding["facts"]}["bad-end"]
        for finding in findings
    ]
    assert ends == ([verdict] if ports else [])

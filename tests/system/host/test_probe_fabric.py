"""`probe`, `capture` and `verify` over a simulated InfiniBand fabric, from sysfs to labels."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.fabric import Fabric, missing
from tests.support.fabrics import MANAGED, MANAGED_HOST, TWO_LEAVES, by_smpquery
from tests.support.real_parts import require

LIMIT = 60.0  # seconds; an interpreter or two, and three tries
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


def test_a_pulled_cable_has_its_word(two_leaves: Fabric, tmp_path: Path) -> None:
    """While a cable is out the reason is first a missing answer, then the link that is down; then
    it is back.
    """
    two_leaves.boot("host1", tmp_path / "sys")
    two_leaves.console('Unlink "leaf1"[1]')
    unanswered = two_leaves.probe("host1", tmp_path / "sys")
    down = booted(two_leaves, "host1", tmp_path)
    two_leaves.console('Relink "leaf1"[1]')
    back = booted(two_leaves, "host1", tmp_path)
    missing_rows = [report["missing_neighbors"] for report in (unanswered, down, back)]
    assert missing_rows == [
        [{"interface": "ibsim0", "reason": "no-answer"}],
        [{"interface": "ibsim0", "reason": "link-down"}],
        [],
    ]
    assert (trouble(unanswered), trouble(down)) == (["ibsim0"], [])
    assert [row["node_description"] for row in back["neighbors"]] == ["leaf1"]


def test_a_switch_without_a_description_goes_by_its_guid(
    two_leaves: Fabric, tmp_path: Path
) -> None:
    """A description that is lost is requested again, and `probe` ends in time; it is no name of a
    replay either, and is one again after the loss.
    """
    two_leaves.boot("host2", sys_root := tmp_path / "sys")
    two_leaves.console('Error "leaf1"[2] 100 16')
    started = time.monotonic()
    report = two_leaves.probe("host2", sys_root)
    assert time.monotonic() - started < LIMIT
    [row] = report["neighbors"]
    oracle = two_leaves.smpquery("host2", "nodeinfo", "0,1")
    assert row["device"] == row["node_guid"] == oracle["Guid"].removeprefix("0x")
    assert (row["node_description"], trouble(report)) == (None, ["ibsim0"])
    captured = str(tmp_path / "captured")
    two_leaves.bwagent("host2", "capture", captured, "--sysfs-root", str(sys_root))
    replayed = two_leaves.bwagent("host2", "probe", "--replay", captured, "-o", "json")
    assert json.loads(replayed) == report
    two_leaves.console('Error "leaf1"[2] 0 16')
    named = two_leaves.probe("host2", sys_root)["neighbors"]
    assert [row["device"] for row in named] == ["leaf1"]


@pytest.mark.parametrize(
    ("row", "code", "text"),
    [
        ("MF0;L90.1.3:MQM9700/U1,sw2p1,", None, ""),
        (
            "L90.1.3,4,",
            "wrong-port",
            "from port 3 to L90.1.3 port 4; the plan gives port 3 to node006 mlx5_0.",
        ),
    ],
)
def test_verify(managed: Fabric, tmp_path: Path, row: str, code: str | None, text: str) -> None:
    """A cable as planned, by the notation of another site; one in the port of another node."""
    rows = ["node,interface,device,port-id,port-name", f"node005,ibsim0,{row}"]
    plan, sys_root = tmp_path / "plan.csv", tmp_path / "sys"
    plan.write_text("\n".join([*rows, *(["node006,mlx5_0,L90.1.3,3,"] if code else []), ""]))
    managed.boot(MANAGED_HOST, sys_root)
    words = ("--sysfs-root", str(sys_root), "--plan", str(plan), "--node-name", "node005")
    found = json.loads(managed.bwagent(MANAGED_HOST, "verify", "-o", "json", *words))
    if code is None:
        assert (found["as_planned"], found["findings"]) == (1, [])
        assert found["cables"][0]["matched_by"] == {"device": "description", "port": "twin-port"}
    else:
        assert found["findings"][0]["code"] == code
        assert found["findings"][0]["text"].endswith(text)

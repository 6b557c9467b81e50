"""`probe` and `capture` over a simulated InfiniBand fabric, from sysfs to labels."""

from __future__ import annotations

import json
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.support.fabric import Fabric, missing
from tests.support.fabrics import MANAGED, TWO_LEAVES, by_smpquery
from tests.support.real_parts import require

if TYPE_CHECKING:
    from collections.abc import Iterator

    from agent.model import IbNeighbor

REPO = Path(__file__).parents[3]
MANAGED_HOST = (
    "H-b83fd20300aabb00"  # its NodeDescription, "node005 mlx5_0", is no name that ibsim takes
)
MANAGED_SWITCH, FACTORY = "MF0;L90.1.3:MQM9700/U1", "Quantum Mellanox Technologies"
LIMIT = 60.0  # seconds; an interpreter or two, and three tries
P, IB = "backend.coreweave.cloud", "ib.coreweave.cloud"


@dataclass(frozen=True, slots=True)
class Node:
    """One host of a fabric, with the sysfs that its kernel would show."""

    fabric: Fabric
    host: str
    folder: Path

    def boot(self) -> None:
        """Copy the port's sysfs as it is now."""
        self.fabric.boot(self.host, self.folder / "sys")

    def bwagent(self, *words: str) -> str:
        """Return the output of bwagent on this host."""
        return self.fabric.run(
            self.host, "env", f"PYTHONPATH={REPO}", sys.executable, "-m", "agent.cli", *words
        )

    def probe(self) -> dict[str, Any]:
        """The report of `bwagent probe`."""
        return dict(json.loads(self.bwagent("probe", "--dry-run", "-o", "json", *self.sysfs())))

    def sysfs(self) -> tuple[str, str]:
        """Return the flag for this host's sysfs."""
        return "--sysfs-root", str(self.folder / "sys")


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


def booted(fabric: Fabric, host: str, folder: Path) -> Node:
    """Return a host of a fabric with its sysfs of now."""
    node = Node(fabric, host, folder)
    node.boot()
    return node


def trouble(report: dict[str, Any]) -> list[str]:
    """The subjects of the InfiniBand problems of a report."""
    return [
        problem["subject"] for problem in report["problems"] if problem["source"] in {"rdma", "ib"}
    ]


def told(row: dict[str, Any]) -> tuple[object, ...]:
    """The facts of a neighbor in a report that smpquery reads too."""
    return row["node_type"], row["node_guid"], row["node_description"], row["port_id"]


def queried(oracle: IbNeighbor) -> tuple[object, ...]:
    """Return the same facts, as smpquery reads them."""
    return oracle.node_type, oracle.node_guid, oracle.node_description, str(oracle.port)


def test_a_managed_switch_becomes_labels(managed: Fabric, tmp_path: Path) -> None:
    """The labels have its name without the model and its port number under both prefixes; INIT adds
    no speed.
    """
    report = booted(managed, MANAGED_HOST, tmp_path).probe()
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
    assert told(row) == queried(by_smpquery(managed, MANAGED_HOST))
    assert (row["via"], row["selected"], row["ambiguous"], row["age_s"]) == (
        "smp",
        True,
        False,
        None,
    )


def test_an_unmanaged_switch_goes_by_its_guid(tmp_path: Path) -> None:
    """Factory text is no name: all switches of the model have it."""
    require(missing())
    with Fabric(MANAGED.replace(MANAGED_SWITCH, FACTORY), tmp_path) as fabric:
        report = booted(fabric, MANAGED_HOST, tmp_path).probe()
        [row] = report["neighbors"]
        assert told(row) == queried(by_smpquery(fabric, MANAGED_HOST))
    assert row["node_description"] == FACTORY
    assert (
        report["labels"][f"{P}/neighbors.current.ibsim0.device"]
        == row["node_guid"]
        == "b0cf0e0300d66c80"
    )


@pytest.mark.parametrize(
    ("host", "name"), [("host2", "leaf1"), ("host3", "leaf2"), ("left", "right")]
)
def test_neighbours_need_no_subnet_manager(
    two_leaves: Fabric, tmp_path: Path, host: str, name: str
) -> None:
    """Ports in INIT know their switch, or the host at the other end of a back-to-back cable."""
    report = booted(two_leaves, host, tmp_path).probe()
    [port], [row] = report["ports"], report["neighbors"]
    assert (port["state"], port["role"], report["missing_neighbors"], trouble(report)) == (
        "INIT",
        "backend",
        [],
        [],
    )
    assert told(row) == queried(by_smpquery(two_leaves, host))
    assert row["device"] == name


def test_a_pulled_cable_has_its_word(two_leaves: Fabric, tmp_path: Path) -> None:
    """While a cable is out the reason is first a missing answer, then the link that is down; then
    it is back.
    """
    node = booted(two_leaves, "host1", tmp_path)
    two_leaves.console('Unlink "leaf1"[1]')
    unanswered = node.probe()
    node.boot()
    down = node.probe()
    two_leaves.console('Relink "leaf1"[1]')
    node.boot()
    back = node.probe()
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
    node = booted(two_leaves, "host2", tmp_path)
    two_leaves.console('Error "leaf1"[2] 100 16')
    started = time.monotonic()
    report = node.probe()
    assert time.monotonic() - started < LIMIT
    [row] = report["neighbors"]
    oracle = two_leaves.smpquery("host2", "nodeinfo", "0,1")
    assert row["device"] == row["node_guid"] == oracle["Guid"].removeprefix("0x")
    assert (row["node_description"], trouble(report)) == (None, ["ibsim0"])
    node.bwagent("capture", str(tmp_path / "captured"), *node.sysfs())
    replayed = node.bwagent("probe", "--replay", str(tmp_path / "captured"), "-o", "json")
    assert json.loads(replayed) == report
    two_leaves.console('Error "leaf1"[2] 0 16')
    assert [row["device"] for row in node.probe()["neighbors"]] == ["leaf1"]


def test_a_capture_replays_without_the_fabric(managed: Fabric, tmp_path: Path) -> None:
    """The whole report is the same without a far end that answers."""
    node = booted(managed, MANAGED_HOST, tmp_path)
    node.bwagent("capture", str(tmp_path / "captured"), *node.sysfs())
    live = node.probe()
    managed.console(f'Unlink "{MANAGED_HOST}"[1]')
    replayed = node.bwagent("probe", "--replay", str(tmp_path / "captured"), "-o", "json")
    managed.console(f'Relink "{MANAGED_HOST}"[1]')
    assert json.loads(replayed) == live

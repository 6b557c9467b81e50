"""`probe` over a simulated InfiniBand fabric, from sysfs to labels."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.fabric import Fabric, missing
from tests.support.fabrics import MANAGED, MANAGED_HOST, TWO_LEAVES, by_smpquery
from tests.support.real_parts import require

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

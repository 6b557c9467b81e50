"""NICs whose firmware is another than that of most NICs of their model."""

from __future__ import annotations

from dataclasses import replace

from agent.fleet.model import FleetNode, Nic
from tests.support.planned_fleets import codes, judge, only, plan_of
from tests.support.small_fleets import cabled, rack

USUAL, OLD = Nic("MT_0000000838", "28.39.1002"), Nic("MT_0000000838", "28.38.1900")


def flashed(nodes: list[FleetNode], nic: Nic, *names: str) -> list[FleetNode]:
    """These nodes, or all, with this NIC at each port."""
    return [
        replace(one, ports=tuple(two._replace(nic=nic) for two in one.ports))
        if not names or one.name in names
        else one
        for one in nodes
    ]


def test_a_version_is_one_finding() -> None:
    """Of whole nodes and of single ports, with a plan and without one."""
    nodes = flashed(flashed(rack(32), USUAL), OLD, "gpu-007")
    nodes = cabled(nodes, "gpu-009", "mlx5_2", nic=OLD)
    for plans in ([], [plan_of(rack(32))]):
        found = only(judge(nodes, *plans))
        assert (found.code, found.severity, len(found.ports)) == ("firmware", "info", 5)
        assert found.text == (
            "Firmware 28.38.1900 on 5 ports of 2 nodes (gpu-007, gpu-009): 123 of 128 ports of "
            "MT_0000000838 have 28.39.1002."
        )
    assert found.id == only(judge(cabled(nodes, "gpu-001", "mlx5_0", nic=OLD))).id


def test_another_model_has_firmware_of_its_own() -> None:
    nodes = flashed(flashed(rack(8), USUAL), Nic("MT_0000001070", "32.1"), "gpu-007")
    assert codes(judge(nodes)) == []


def test_without_a_clear_majority_there_is_none() -> None:
    half = [f"gpu-{number:03}" for number in range(1, 17)]
    assert codes(judge(flashed(flashed(rack(32), USUAL), OLD, *half))) == []
    assert codes(judge(flashed(rack(1, 3), USUAL)[:1])) == []
    few = cabled(flashed(rack(1, 3), USUAL), "gpu-001", "mlx5_0", nic=OLD)
    assert codes(judge(few)) == []

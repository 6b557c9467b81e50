"""`probe` on a real RDMA kernel: several changes of the node, a record after each (probed_node.py).

A record is the report of `probe` and, read at the same moment, the output of rdma, ip and
/sys/class/net, which share no code with the agent.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.support.qemu.shared import Shared

Counted = dict[str, float | None]
"""What each interface adds, in Gb/s; None: an ignored port."""
COUNTED: dict[str, Counted] = {
    "no-class": {},
    "up": {"rxe0": 10, "rxe1": 10, "rxe2": 2.5},
    "chosen": {"rxe0": None, "rxe1": 10},
    "down": {"rxe0": 0, "rxe1": 0, "rxe2": 2.5},
    "up-again": {"rxe0": None, "rxe1": 10, "rxe2": 2.5},
    "bond": {"rxe_bond0-eth3": 10, "rxe_bond0-eth4": 10},
    "leg-down-unmonitored": {"rxe_bond0-eth3": 0, "rxe_bond0-eth4": 10},
    "leg-down": {"rxe_bond0-eth3": 0, "rxe_bond0-eth4": 10},
    "empty-class": {},
    "reloaded": {"rxe1": 10},
    "legs-of-two-devices": {"rxe3": 10, "rxe4": 10},
    "failover": {"rxe_bond1-eth5": 0, "rxe_bond1-eth6": 10},
}
PROBLEMS = {
    "no-class": ["no RDMA device: /sys/class/infiniband is not there"],
    "empty-class": ["no RDMA device: /sys/class/infiniband is empty"],
    "chosen": ["names no RDMA device here"],  # --backend-device mlx5_0
}


@dataclass(frozen=True, slots=True)
class Look:
    """One step: the report, and the output of the other tools."""

    report: dict[str, Any]
    links: dict[str, dict[str, Any]]
    """rdma link, by device."""
    netdevs: dict[str, dict[str, Any]]
    """ip link, by netdev."""
    speeds: dict[str, int]
    """/sys/class/net/*/speed in Mb/s, those that can be read."""

    @property
    def counted(self) -> Counted:
        return {
            port["interface"]: port["counted_gbps"] if port["role"] == "backend" else None
            for port in self.report["ports"]
        }


@dataclass(frozen=True, slots=True)
class Tour:
    """The files of one boot."""

    folder: Path

    def look(self, step: str) -> Look:
        return Look(
            json.loads(self._read(f"{step}.probe")),
            {link["ifname"]: link for link in json.loads(self._read(f"{step}.rdma") or "[]")},
            {link["ifname"]: link for link in json.loads(self._read(f"{step}.ip"))},
            dict(self._speeds(step)),
        )

    def complaints(self, step: str) -> str:
        return self._read(f"{step}.complaints")

    def _speeds(self, step: str) -> Iterator[tuple[str, int]]:
        for line in self._read(f"{step}.speeds").splitlines():
            file, _, speed = line.partition(":")
            yield Path(file).parts[4], int(speed)

    def _read(self, name: str) -> str:
        return (self.folder / name).read_text()


@pytest.fixture(scope="module")
def tour(shared: Shared) -> Tour:
    folder = shared.results("test_probe")
    assert not (folder / "failed").exists(), (folder / "failed").read_text()
    return Tour(folder)


@pytest.mark.parametrize("step", COUNTED)
def test_what_counts(tour: Tour, step: str) -> None:
    """Each interface is there with its name, its role and the rate that it adds."""
    assert tour.look(step).counted == COUNTED[step]


@pytest.mark.parametrize("step", COUNTED)
def test_labels_are_the_sum(tour: Tour, step: str) -> None:
    """Speed is the sum of the ports that count, flavor is roce if there is a backend, and there are
    no other labels.
    """
    speed = sum(filter(None, COUNTED[step].values()))
    labels = {"backend.coreweave.cloud/speed.current": f"{speed:g}G"}
    flavor = {"backend.coreweave.cloud/flavor": "roce"} if COUNTED[step] else {}
    assert tour.look(step).report["labels"] == labels | flavor


@pytest.mark.parametrize("step", COUNTED)
def test_ports_are_what_rdma_says(tour: Tour, step: str) -> None:
    """State, physical state and netdev of every port are those of `rdma link`, a bond's leg for the
    bond.
    """
    look = tour.look(step)
    for port in look.report["ports"]:
        link = look.links[port["device"]]
        assert port["state"] == link["state"]
        assert port["phys_state"].upper() == link["physical_state"].replace("_", "")
        assert link["netdev"] in {port["netdev"], look.netdevs[port["netdev"]].get("master")}


@pytest.mark.parametrize("step", COUNTED)
def test_rates_are_what_the_netdev_says(tour: Tour, step: str) -> None:
    """A port that counts has a carrier, and adds the netdev's speed, or its own rate if the netdev
    has none.
    """
    look = tour.look(step)
    for port in look.report["ports"]:
        netdev = look.netdevs[port["netdev"]]
        speed = look.speeds.get(port["netdev"], 0)
        assert port["counted_gbps"] in {0, speed / 1000 or port["rate_gbps"]}
        assert "LOWER_UP" in netdev["flags"] or port["counted_gbps"] == 0


@pytest.mark.parametrize("step", COUNTED)
def test_nothing_else_is_said(tour: Tour, step: str) -> None:
    """A healthy kernel causes no problem in the report, and nothing on standard error."""
    problems = tour.look(step).report["problems"]
    assert [problem["text"] for problem in problems] == PROBLEMS.get(step, [])
    assert tour.complaints(step) == ""


def test_cable_out_is_told_from_switched_off(tour: Tour) -> None:
    """Both are DOWN; the physical state is Polling or Disabled."""
    ports = {port["interface"]: port["phys_state"] for port in tour.look("down").report["ports"]}
    assert ports == {"rxe0": "Polling", "rxe1": "Disabled", "rxe2": "LinkUp"}


def test_link_comes_back(tour: Tour) -> None:
    """Cable in, interface up: ACTIVE without a new device."""
    assert {port["state"] for port in tour.look("up-again").report["ports"]} == {"ACTIVE"}


def test_front_end_is_found_through_its_vlan(tour: Tour) -> None:
    """The reason names the default route."""
    reasons = {port["interface"]: port["reason"] for port in tour.look("up-again").report["ports"]}
    assert reasons["rxe0"] == "front end: carries the default route"

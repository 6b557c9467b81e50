"""`probe` and `capture` on a node with real RDMA devices and real switches: the steps of
cabled_node.py.

The expected values come from an lldpd on the node, which receives the same frames and shares no
code with the agent.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.support.qemu.shared import Shared

REPO = Path(__file__).parents[3]
LOOKS = ("cabled", "unheard", "powerless", "changes", "replaced")
CHASSIS_TYPES = {"mac": 4, "local": 7}
PORT_TYPES = {"mac": 3, "ifname": 5, "local": 7}
MAC = re.compile(r"([0-9a-f]{2}[:-]){5}[0-9a-f]{2}")
P = "backend.coreweave.cloud"


@pytest.fixture(scope="module")
def tour(shared: Shared) -> Path:
    return shared.results("test_neighbors")


def look(tour: Path, name: str) -> dict[str, Any]:
    """Return bwagent's report."""
    return dict(json.loads((tour / f"{name}.json").read_text()))


def reasons(report: dict[str, Any]) -> dict[str, str]:
    """The reasons of the ports without a neighbor."""
    return {row["interface"]: row["reason"] for row in report["missing_neighbors"]}


def texts(report: dict[str, Any]) -> list[str]:
    """The problems of the LLDP source, and the notes."""
    found = [one for one in report["problems"] if one["source"] in ("lldp", "note")]
    return [one["text"] for one in found]


def only(value: Any) -> Any:
    """The value of an lldpcli element that comes once."""
    return value[0]["value"] if value else None


def by_lldpd(item: dict[str, Any]) -> tuple[object, ...]:
    """A neighbor of `lldpcli -f json0`, in the order of `by_bwagent`."""
    chassis, port = item["chassis"][0], item["port"][0]
    identity = only(chassis["id"]), CHASSIS_TYPES[chassis["id"][0]["type"]], only(chassis["name"])
    place = only(port["id"]), PORT_TYPES[port["id"][0]["type"]], only(port.get("descr"))
    return item["name"], *identity, *place, int(only(port["ttl"]))


def by_bwagent(row: dict[str, Any]) -> tuple[object, ...]:
    """A neighbor of a report."""
    identity = row["chassis_id"], row["chassis_subtype"], row["system_name"]
    return (
        row["netdev"],
        *identity,
        row["port_id"],
        row["port_id_subtype"],
        row["port_description"],
        row["ttl"],
    )


# What lldpd may still remember: eth0's cable to leaf-1 (by then leaf-8), which went with the netdev
# that was deleted.
DELETED = ("eth0", "leaf-8", "swp1")  # netdev, system name, port description


def both(tour: Path, name: str) -> tuple[set[tuple[object, ...]], set[tuple[object, ...]]]:
    """The neighbors of bwagent's report, and those of lldpd."""
    said = {by_lldpd(item) for item in json.loads((tour / f"{name}.lldpd").read_text())}
    theirs = {row for row in said if (row[0], row[3], row[6]) != DELETED}
    return {by_bwagent(row) for row in look(tour, name)["neighbors"]}, theirs


@pytest.mark.parametrize(("name", "count"), [("cabled", 6), ("changes", 4)])
def test_both_decoders_agree(tour: Path, name: str, count: int) -> None:
    """The neighbor of each netdev is the same, field by field; none is missing, and none that has
    left is there.
    """
    ours, theirs = both(tour, name)
    assert ours == theirs
    assert len(theirs) == count


def test_an_early_end_of_the_wait_misses_second_neighbors_only(tour: Path) -> None:
    """Once every port has a neighbor, the second one of a port may be missing, nothing else."""
    ours, theirs = both(tour, "replaced")
    assert ours <= theirs
    assert {row[0] for row in ours} == {row[0] for row in theirs}
    assert len(theirs) == 6


def test_rates_and_states(tour: Path) -> None:
    """Each port counts its link's rate; a silent switch takes nothing away, a pulled cable does."""
    ports = {
        row["interface"]: (row["state"], row["counted_gbps"])
        for row in look(tour, "cabled")["ports"]
    }
    up = dict.fromkeys(
        ("rxe0", "rxe1", "rxe2", "rxe5", "rxe_bond0-eth3", "rxe_bond0-eth4"), ("ACTIVE", 10.0)
    )
    assert ports == up | {"rxe6": ("DOWN", 0.0)}


def test_labels_name_two_leaves(tour: Path) -> None:
    """Each port with a neighbor has device, port ID and port name; the legs of the bond have a
    switch each.
    """
    labels = {key: MAC.sub("MAC", value) for key, value in look(tour, "cabled")["labels"].items()}
    neighbors = {
        "rxe0": ("leaf-1", "swp1", "swp1"),
        "rxe1": ("leaf-2", "Ethernet1-1", "swp1"),
        "rxe2": ("leaf-2", "MAC", "swp2"),
        "rxe_bond0-eth3": ("leaf-1", "swp3", "swp3"),
        "rxe_bond0-eth4": ("leaf-2", "MAC", "swp3"),
    }
    fields = ("device", "port-id", "port-name")
    leaves = {f"{P}/{name}.current": "leaf-1_leaf-2" for name in ("leaves", "leafgroup")}
    assert labels == {f"{P}/flavor": "roce", f"{P}/speed.current": "60G"} | leaves | {
        f"{P}/neighbors.current.{interface}.{field}": value
        for interface, values in neighbors.items()
        for field, value in zip(fields, values, strict=True)
    }


def test_two_neighbors_are_never_one(tour: Path) -> None:
    """Behind a switch that forwards LLDP both leaves are kept and marked; one with the capability
    bridge or router is selected.
    """
    rows = [row for row in look(tour, "cabled")["neighbors"] if row["ambiguous"]]
    assert [(row["interface"], row["device"], row["selected"]) for row in rows] == [
        ("rxe2", "leaf-2", True),
        ("rxe2", "leaf-1", False),
    ]


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("cabled", {"rxe5": "silent"}),
        (
            "unheard",
            dict.fromkeys(
                ("rxe0", "rxe1", "rxe2", "rxe5", "rxe_bond0-eth3", "rxe_bond0-eth4"), "not-listened"
            ),
        ),
        (
            "powerless",
            dict.fromkeys(
                ("rxe0", "rxe1", "rxe2", "rxe5", "rxe_bond0-eth3", "rxe_bond0-eth4"),
                "not-permitted",
            ),
        ),
        ("changes", {"rxe0": "shutdown", "rxe_bond0-eth3": "shutdown"}),
        ("replaced", {}),
    ],
)
def test_every_blank_has_its_reason(tour: Path, name: str, expected: dict[str, str]) -> None:
    """The reasons differ: a silent far end, an unplugged cable, a switch that shut down, a missing
    capability.
    """
    assert reasons(look(tour, name)) == expected | {"rxe6": "link-down"}


def test_a_switch_that_restarts_counts_under_its_new_name(tour: Path) -> None:
    """The shutdown frame in between and the first name do not last, within one observation."""
    rows = look(tour, "changes")["neighbors"]
    assert {row["interface"]: row["device"] for row in rows} == {
        "rxe1": "leaf-9",
        "rxe2": "leaf-9",
        "rxe5": "leaf-3",
        "rxe_bond0-eth4": "leaf-9",
    }


def test_a_device_made_again_has_the_neighbor_of_its_new_cable(tour: Path) -> None:
    """Its netdev was deleted, made again under the same name, and plugged into another switch."""
    assert look(tour, "cabled")["labels"][f"{P}/neighbors.current.rxe0.device"] == "leaf-1"
    assert look(tour, "replaced")["labels"][f"{P}/neighbors.current.rxe0.device"] == "leaf-9"


def test_the_report_has_the_duration_of_the_wait(tour: Path) -> None:
    """It waits as long as --wait, at most until all ports have a neighbor, and not at all without
    reception.
    """
    hint = "a port's second neighbor may be missing (--wait 65)"
    assert texts(look(tour, "cabled")) == [f"waited 4 s for LLDP frames: {hint}"]
    assert texts(look(tour, "unheard")) == []
    assert texts(look(tour, "powerless")) == [
        "eth0: no packet socket for LLDP: CAP_NET_RAW is missing"
    ]
    [early] = texts(look(tour, "replaced"))
    until = ", until each port with a link had a neighbor"
    pattern = rf"waited (\d+) s for LLDP frames{until}: {re.escape(hint)}"
    assert int(re.fullmatch(pattern, early)[1]) < 65  # type: ignore[index]


def test_progress_is_for_terminals(tour: Path) -> None:
    """A terminal gets one line with the awaited ports and the time left, which is erased; other
    outputs get nothing.
    """
    said = {name: (tour / f"{name}.terminal").read_bytes().decode() for name in LOOKS}
    words = said.pop("changes").split("\r")
    assert re.fullmatch(r"LLDP: neighbors on 5 of 6 ports, \d+ s left; awaited: eth5 *", words[-3])
    assert [word.strip() for word in words[-2:]] == ["", ""]
    assert {len(word) for word in words[1:-1]} == {79}
    assert set(said.values()) == {""}


def test_a_capture_replays_as_the_node_was(tour: Path) -> None:
    """The whole report is the same on a host without the devices; only the age of the frames and
    the hint about them differ.
    """
    command = [
        sys.executable,
        "-m",
        "agent.cli",
        "probe",
        "--replay",
        str(tour / "captured"),
        "-o",
        "json",
        *("--backend-device", "rxe*"),  # as in each look
    ]
    done = subprocess.run(command, cwd=REPO, check=True, capture_output=True)
    assert not done.stderr
    replayed, live = json.loads(done.stdout), look(tour, "cabled")
    for row in (*replayed["neighbors"], *live["neighbors"]):
        assert 0 <= row.pop("age_s") < 300
    live["problems"] = [one for one in live["problems"] if one["source"] not in ("lldp", "note")]
    assert replayed == live

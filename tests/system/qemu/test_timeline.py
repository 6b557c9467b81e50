"""The checks of a Node's timeline that tests/system/qemu/test_run.py uses."""

from __future__ import annotations

import time

import pytest

from tests.support.kube.cluster import Cluster
from tests.support.qemu.timeline import P, Timeline, facts_of, faults

NODE = "versions"
UP = {"speed": "30G", "rxe0": "leaf-1 swp1 swp1"}
DOWN = UP | {"speed": "20G"}
GONE = {"speed": "20G"}


def test_a_neighbour_is_one_fact() -> None:
    """Its three labels change together; a missing one shows, and other labels are facts of
    their own.
    """
    labels = {
        f"{P}/neighbors.current.rxe0.port-id": "swp1",
        f"{P}/neighbors.current.rxe0.device": "leaf-1",
        f"{P}/neighbors.current.rxe1-eth2.port-name": "swp3",
        f"{P}/speed.current": "30G",
        "site.example/rack": "7",
    }
    assert facts_of(labels) == {
        "rxe0": "leaf-1 swp1 -",
        "rxe1-eth2": "- - swp3",
        "speed.current": "30G",
        "site.example/rack": "7",
    }


@pytest.mark.parametrize(
    ("versions", "after"),
    [
        ([UP], UP),
        ([UP, UP], UP),
        ([UP, DOWN], DOWN),
        ([UP, DOWN, GONE], GONE),
        ([{}, DOWN, DOWN], DOWN),
    ],
    ids=[
        *("nothing happens", "it is written again", "one fact", "two, one after the other"),
        "from nothing",
    ],
)
def test_the_straight_way_is_right(versions: list[dict[str, str]], after: dict[str, str]) -> None:
    """Each fact may go from its old value directly to the expected one."""
    assert faults(versions, after) == []


@pytest.mark.parametrize(
    ("versions", "after", "named"),
    [
        ([UP], DOWN, ["speed"]),
        ([UP, DOWN], UP, ["speed"]),
        ([UP, DOWN, UP], UP, ["speed"]),
        ([UP, GONE, DOWN], DOWN, ["rxe0"]),
        ([UP, DOWN, UP, DOWN], DOWN, ["speed"]),
        ([UP, UP | {"rxe0": "leaf-2 swp1 swp1"}, UP | {"rxe0": "leaf-2 swp9 swp9"}], UP, ["rxe0"]),
        ([UP, UP | {"new": "1"}, UP], UP, ["new"]),
        ([UP, {}], UP, ["rxe0", "speed"]),
    ],
    ids=[
        *("never", "too much", "for a moment", "gone for a moment", "to and fro", "half a cable"),
        *("not there", "all gone"),
    ],
)
def test_any_other_way_is_wrong(
    versions: list[dict[str, str]], after: dict[str, str], named: list[str]
) -> None:
    """The facts with another value on the way are named, and no other ones."""
    assert [fault.partition(":")[0] for fault in faults(versions, after)] == named


def test_a_detour_is_allowed_once_and_in_its_order() -> None:
    """It may be left out, too."""
    via = {"speed": ("20G", "10G")}
    ten = UP | {"speed": "10G"}
    assert faults([UP, DOWN, ten, UP], UP, via) == []
    assert faults([UP, ten, UP], UP, via) == []
    assert faults([UP], UP, via) == []
    assert faults([UP, ten, DOWN, UP], UP, via) == [
        "speed: 30G -> 10G -> 20G -> 30G, and should be 30G -> 20G -> 10G -> 30G"
    ]
    assert faults([UP, DOWN, UP, DOWN, UP], UP, via) != []


def test_what_is_set_aside_is_judged_elsewhere() -> None:
    """And the other facts are checked all the same."""
    assert faults([UP, GONE], DOWN, aside=["rxe0"]) == []
    assert faults([UP, GONE], UP, aside=["rxe0"]) == ["speed: 30G -> 20G, and should be 30G -> 30G"]


def test_no_version_is_missed(cluster: Cluster) -> None:
    """A version is recorded however short it lasted, even between two watches."""
    cluster.node(NODE, labels={f"{P}/speed": "0G"})
    with Timeline(cluster, NODE, watch=1) as timeline:
        for number in range(1, 30):
            cluster.merge(NODE, {"labels": {f"{P}/speed": f"{number}G"}})
            time.sleep(0.1)
        assert timeline.until(lambda version: version.facts["speed"] == "29G", 90)
        assert [version.facts["speed"] for version in timeline.versions] == [
            f"{number}G" for number in range(30)
        ]
        assert "speed: 28G -> 29G" in str(timeline)

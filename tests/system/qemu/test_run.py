"""`bwagent run` on a node with a real RDMA kernel and real switches, labeling a Node of a real API
server.

The node is the emulated machine, and its agent has the service-account token that a Pod there would
have; the API server is outside. STEPS are the changes of the node and the labels expected after
each, written out by hand; a failure shows the timeline of all changes of the Node.

Soft-RoCE devices have no PCI function: one that is removed is gone for good, and its labels with
it. A driver that reloads differs from that by a function of class InfiniBand on the bus, which QEMU
makes out of a disk.

`nox -s sweep` reboots the node, and kills the agent thirty times more, each in the middle of a
change; BWAGENT_SEED is the seed of all random times.
"""

from __future__ import annotations

import os
import random
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from tests.support import switch
from tests.support.kube.cluster import Cluster
from tests.support.qemu.machine import missing
from tests.support.qemu.scenario import Order, Rest, Scenario, Step, without
from tests.support.qemu.timeline import P, Timeline, faults
from tests.support.real_parts import require

NODE = "emulated"
GRACE = 30.0  # seconds that a neighbor outlives its link
KILLS, SEED = 30, os.environ.get("BWAGENT_SEED", "1")

SITE = {"site.example/rack": "7", "speed.expected": "30G"}
CABLED = SITE | {
    "flavor": "roce",
    "speed.current": "30G",
    "rxe0": "leaf-1 swp1 swp1",
    "rxe1": "leaf-2 swp1 swp1",
    "rxe2": "leaf-1 swp2 swp2",
}
DARK = CABLED | {"speed.current": "20G"}
RENAMED = DARK | {"rxe0": "leaf-8 swp1 swp1", "rxe2": "leaf-8 swp2 swp2"}
MOVED = RENAMED | {"rxe2": "leaf-2 swp9 swp9"}
ANEW = MOVED | {"rxe0": "leaf-2 swp8 swp8"}
LIGHT = ANEW | {"speed.current": "30G"}
ONE = without(LIGHT, "rxe0", "rxe1") | {"speed.current": "10G"}


FLAGS = ("--min-interval", "1s", "--hold", "5m")
BEGIN = (("start", *FLAGS), ("ready",))
KILL_AMID: tuple[Order, ...] = (Rest(0, 5), ("end", "SIGKILL"), *BEGIN)


STEPS = (
    Step("the agent starts", BEGIN, CABLED),
    Step("a cable goes dark", [("pull", "leaf-2", "swp1")], DARK),
    Step("a switch gets another name", [("rename", "leaf-1", "leaf-8")], RENAMED, aside=["rxe1"]),
    Step(
        "a cable moves to another leaf",
        [("move", "leaf-1", "swp2", "leaf-2", "swp9", "p2")],
        MOVED,
        via={"speed.current": ("10G",)},
        aside=["rxe1"],
    ),
    Step(
        "an interface is deleted",
        [("run", "ip", "link", "delete", "p0")],
        without(MOVED, "rxe0") | {"speed.current": "10G"},
        aside=["rxe1"],
    ),
    Step(
        "it is made anew, on another leaf",
        [("plug", ("leaf-2", "swp8", "p0", "rxe0"))],
        ANEW,
        aside=["rxe1"],
    ),
    Step("the cable has been dark for long", [], without(ANEW, "rxe1")),
    Step("light again", [("push", "leaf-2", "swp1", "p1")], LIGHT),
    Step(
        "RDMA links are deleted",
        [("run", "rdma", "link", "del", "rxe0"), ("run", "rdma", "link", "del", "rxe1")],
        ONE,
        via={"speed.current": ("20G",)},
    ),
    Step(
        "the driver is removed, and a kill",
        [("run", "modprobe", "-r", "rdma_rxe"), *KILL_AMID, Rest(1, 2)],
        ONE,
    ),
    Step(
        "the driver is loaded",
        [("run", "modprobe", "rdma_rxe"), ("add", "rxe2", "p2"), Rest(1, 2)],
        ONE,
    ),
    Step(
        "RDMA links are added",
        [("add", "rxe0", "p0"), ("add", "rxe1", "p1")],
        LIGHT,
        via={"speed.current": ("20G",)},
    ),
    Step("the agent is told to stop", [("end", "SIGTERM")], LIGHT),
)
CABLES = (
    ("leaf-1", "swp1", "p0", "rxe0"),
    ("leaf-2", "swp1", "p1", "rxe1"),
    ("leaf-1", "swp2", "p2", "rxe2"),
)
CABLES_THEN = (
    ("leaf-2", "swp8", "p0", "rxe0"),
    ("leaf-2", "swp1", "p1", "rxe1"),
    ("leaf-2", "swp9", "p2", "rxe2"),
)


def amid(count: int) -> Iterator[Step]:
    """Return more kills: during a cable's loss of carrier and its return, and during a
    switch's rename.
    """
    before = LIGHT
    for number in range(count):
        if number % 3 == 0:
            dark = before | {"speed.current": "20G"}
            yield Step(
                f"kill {number}, dark",
                [("pull", "leaf-2", "swp8"), *KILL_AMID],
                dark,
                aside=["rxe0"],
            )
        elif number % 3 == 1:
            light = ("push", "leaf-2", "swp8", "p0")
            yield Step(f"kill {number}, light", [light, *KILL_AMID], before, via={"rxe0": (None,)})
        else:
            name = f"leaf-{10 + number}"
            before = {
                fact: value.replace(before["rxe1"].split()[0], name)
                for fact, value in before.items()
            }
            yield Step(
                f"kill {number}, another name", [("rename", "leaf-2", name), *KILL_AMID], before
            )


ONCE = (Step("the agent starts once", BEGIN, LIGHT),)
THEN = (Step("the node reboots", [*BEGIN, Rest(4, 5)], LIGHT), *amid(KILLS))


@contextmanager
def begun(request: pytest.FixtureRequest, folder: Path) -> Iterator[Scenario]:
    """Give a scenario without a step, on the API server of the worker."""
    require(missing() or switch.missing())
    cluster: Cluster = request.getfixturevalue("installed")
    site = {key if "/" in key else f"{P}/{key}": value for key, value in SITE.items()}
    cluster.node(NODE, labels=site)
    account = folder / "account"
    account.mkdir()
    (account / "token").write_text(cluster.token_for_pod_on(NODE, "bwagent", "bwagent"))
    shutil.copy(cluster.ca, account / "ca.crt")
    port = urlsplit(cluster.url).port
    with Timeline(cluster, NODE) as timeline:
        chance = random.Random(SEED)  # noqa: S311 - so that a moment comes again
        yield Scenario(timeline, folder, chance, NODE, account, port)


@pytest.fixture(scope="module")
def scenario(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Scenario]:
    """Run all steps in one boot."""
    with begun(request, tmp_path_factory.mktemp("scenario")) as scenario:
        scenario.boot("the boot", CABLES, STEPS)
        yield scenario


@pytest.fixture(scope="module")
def killed(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Scenario]:
    """Reboot the node, and kill the agent again and again: two boots of the same hardware."""
    with begun(request, tmp_path_factory.mktemp("killed")) as scenario:
        scenario.boot("the first boot", CABLES_THEN, ONCE)
        scenario.boot("the second boot", CABLES_THEN, THEN)
        yield scenario


@pytest.mark.parametrize("step", STEPS, ids=[step.name for step in STEPS])
def test_the_node_says_what_it_should(scenario: Scenario, step: Step) -> None:
    """The labels are as expected in the end of each step, with no other value on the way."""
    versions = [version.facts for version in scenario.versions[step.name]]
    assert faults(versions, step.after, step.via, step.aside) == [], str(scenario)


@pytest.mark.sweep
@pytest.mark.parametrize("step", [*ONCE, *THEN], ids=[step.name for step in (*ONCE, *THEN)])
def test_the_node_says_what_it_should_after_kills(killed: Scenario, step: Step) -> None:
    """The same after a reboot, and when the agent is killed amid each step; none of them logs a
    traceback.
    """
    versions = [version.facts for version in killed.versions[step.name]]
    assert faults(versions, step.after, step.via, step.aside) == [], str(killed)
    assert not any("Traceback" in log for log in killed.logs().values()), str(killed)


def test_a_neighbour_outlives_its_link(scenario: Scenario) -> None:
    """It stays for 30 seconds, and is then removed."""
    dark = scenario.began["a cable goes dark"]
    later = [version for version in scenario.timeline.versions if version.at > dark]
    gone = next((version.at for version in later if "rxe1" not in version.facts), None)
    assert gone, str(scenario)
    assert gone - dark >= GRACE, str(scenario)
    assert {version.facts["rxe1"] for version in later if version.at < gone} == {CABLED["rxe1"]}, (
        str(scenario)
    )


def test_a_kill_alone_writes_nothing(scenario: Scenario) -> None:
    """No label changes, nor does one while a driver is unloaded; since when ports are unread is
    written once by the new agent, which the killed one was too young to do.
    """
    told = scenario.versions["the driver is removed, and a kill"]
    assert len(told) <= 2, str(scenario)
    assert len({str(version.facts) for version in told}) == 1, str(scenario)


def test_it_stops_at_once(scenario: Scenario) -> None:
    """It ends at SIGTERM without an error."""
    status, took = scenario.results["the agent is told to stop"]
    assert status == 0, str(scenario)
    assert took < 60, str(scenario)


@pytest.mark.sweep
def test_a_reboot_is_told_by_the_annotation(killed: Scenario) -> None:
    """The labels are those of before the reboot, and the annotation has this boot's ID."""
    told = killed.versions["the node reboots"]
    assert told[0].boot_id, str(killed)
    assert told[-1].boot_id not in {None, told[0].boot_id}, str(killed)


def test_no_agent_stumbled(scenario: Scenario) -> None:
    """No agent logs a traceback, after any kill and in any state."""
    logs = scenario.logs()
    assert len(logs) == sum(("ready",) in step.orders for step in STEPS)
    assert not any("Traceback" in log for log in logs.values()), str(scenario)
